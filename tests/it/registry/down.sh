#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A registry that is silent, or gone for a while: who waits can be killed, other
# registries are served, and who waited gets his bytes when it is back.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001

many_files() { # NAME SEED
	python3 - "$2" <<-'P' | make_image "$1"
		import json, sys
		seed = int(sys.argv[1])
		print(json.dumps({"layers": [{"entries": [{"path": f"f{i}", "content": {"random": 100000, "seed": seed + i}}
		                                          for i in range(40)]}]}))
	P
}
many_files one 1000
many_files two 2000
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 10 'the other registry' curl -sf "http://$OTHER/_admin/stats"
config 'read_timeout = 15' 'prepare_budget = 3' 'background_fill = false'
start_daemon
start_containerd 1
pull one
ctr-remote images rpull --snapshotter verity --plain-http "$OTHER/two:latest" >/dev/null
one=$(layer_path "$(layer_info one 0)")
two=$(layer_path "$(layer_info two 0)")

# --- silent: forty readers wait, the other registry's do not notice
fault "{\"match\": \"blobs/\", \"fault\": \"silent\"}"
pids=()
for i in $(seq 0 39); do
	cat "$one/f$i" >"$W/out.$i" 2>"$W/err.$i" &
	pids+=($!)
done
waiting() { layer_status "$(layer_info one 0)" .waiting; }
wait_for 5 'readers to be parked' eval '[ "$(waiting)" = 40 ]'
began=$(date +%s%N)
for i in $(seq 0 9); do
	cat "$two/f$i" >/dev/null || fail "reader of the other registry"
done
took=$((($(date +%s%N) - began) / 1000000))
[ "$took" -lt 10000 ] || fail "readers of the other registry took $took ms"

# --- SIGKILL ends a waiting reader at once
began=$(date +%s%N)
for i in $(seq 0 9); do kill -9 "${pids[$i]}"; done
for i in $(seq 0 9); do
	s=0
	wait "${pids[$i]}" || s=$?
	[ "$s" = 137 ] || fail "killed reader ended with $s"
done
took=$((($(date +%s%N) - began) / 1000000))
[ "$took" -lt 10000 ] || fail "killed readers took $took ms"
# (The kernel's readahead goes on without them, so status still counts these.)

# --- down, and back: the others get what they wait for, without an error
stop registry KILL
sleep 2
[ "$(waiting)" -ge 30 ] || fail "of 30 readers $(waiting) still wait while the registry is down"
start_scripted
for i in $(seq 10 39); do
	wait "${pids[$i]}" || fail "f$i: $(cat "$W/err.$i")"
	cmp "$W/out.$i" <(python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': 100000, 'seed': 1000 + $i}).bytes())") || fail "f$i differs"
done
wait_for 5 'the last to be answered' eval '[ "$(waiting)" = 0 ]'
