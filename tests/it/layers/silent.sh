#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A registry that says nothing about the many layers of an image holds up
# nobody's layers but its own: an image of another registry is lazy at once.
. "$TOP/tests/lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001
LAYERS=140 # more than there are threads

# The manifest has a clear way; the layers' blobs meet silence.
python3 - $LAYERS <<-'P' | make_image many
	import json, sys
	print(json.dumps({"layers": [{"entries": [{"path": f"f{i}", "content": f"layer {i}"}]}
	                             for i in range(int(sys.argv[1]))]}))
P
make_image one <<<'{"layers": [{"entries": [{"path": "name", "content": "one"}]}]}'
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 10 'the other registry' curl -sf "http://$OTHER/_admin/stats"
config 'read_timeout = 5' 'prepare_budget = 10' 'background_fill = false'
start_daemon
start_containerd 2

for i in $(seq 0 $((LAYERS - 1))); do
	fault "{\"match\": \"blobs/$(layer_info many "$i")\", \"fault\": \"silent\"}"
done
# (this client names the manifest, so all of its layers are begun)
ctr image pull --plain-http --snapshotter verity "$REG/many:latest" >"$W/many.log" 2>&1 &
jobs_of() { ps -L -o comm= -p "$daemon_pid" | grep -c '^vs-layer'; }
wait_for 5 'the jobs of the silent registry' eval '[ "$(jobs_of)" -ge 16 ]'

began=$(date +%s%N)
timeout 20 ctr image pull --plain-http --snapshotter verity "$OTHER/one:latest" >"$W/one.log" 2>&1 ||
	fail "pull of the other image: $(tail -n 3 "$W/one.log")"
took=$((($(date +%s%N) - began) / 1000000))
assert_state "$(layer_info one 0)" lazy complete
[ "$(cat "$(layer_path "$(layer_info one 0)")/name")" = one ] || fail 'contents'
# (on its own: well below the budget after which it would not be lazy)
[ "$took" -lt 9000 ] || fail "the pull from the other registry took $took ms"
[ "$(jobs_of)" -le 24 ] || fail "$(jobs_of) threads wait for one registry"
echo "took $took ms beside $(jobs_of) threads"
