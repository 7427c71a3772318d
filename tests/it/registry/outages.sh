#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Registries that are slow, break off, answer other ranges, or are away for ten
# times the deadline and at the daemon's start. Each read ends in time, the next
# one asks again, and nothing that came is fetched a second time.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
TIMEOUT=1

# One file that makes up the layer, in one unit.
for i in 1 2 3 4 5 6; do
	len=400000
	[ $i != 2 ] || len=60000
	make_image i$i <<-J
		{"layers": [{"entries": [{"path": "tiny", "content": "tiny $i"}, {"path": "f", "content": {"random": $len, "seed": $i}}]}]}
	J
	python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib')
import hashlib, mkestargz
print('ok', hashlib.sha256(mkestargz.Content({'random': $len, 'seed': $i}).bytes()).hexdigest())" >"$W/want.$i"
done
file() { echo "$(layer_path "$(layer_info "i$1" 0)")/f"; }
reads() { # N WHAT
	local got
	got=$(read_errno "$(file "$1")")
	[[ $got == "$2"* ]] || fail "i$1: '$got', not $2"
}
# A busy machine may need more than the deadline for a good answer, too.
is_read() { [ "$(read_errno "$(file "$1")")" = "$(cat "$W/want.$1")" ]; }
heals() { wait_for 60 "i$1 to be read" is_read "$1"; }
fetched() { reg_stats ".by_digest[\"$(layer_info "i$1" 0)\"].bytes // 0"; }
assert_fetched_once() { # N SLACK
	local n max
	n=$(fetched "$1") max=$(($(layer_info "i$1" 0 size) + $2))
	echo "i$1: $n bytes fetched, at most $max expected"
	[ "$n" -le $max ] || fail "i$1: $n bytes were fetched, the layer has $(layer_info "i$1" 0 size)"
}

start_scripted
config "read_timeout = $TIMEOUT" 'background_fill = false'
start_daemon
start_containerd 1
for i in 1 2 3 4 5 6; do
	pull i$i
	[ -n "$(layer_path "$(layer_info i$i 0)")" ] || fail "i$i is not lazy"
done
fault '{"reset": true}'

# --- half answers: a unit of 400 KB by 50 KB each
fault "{\"match\": \"$(layer_info i1 0)\", \"fault\": \"short:50000\"}"
heals 1
assert_fetched_once 1 0

# --- 10 KB/s: six times the deadline, and all the same it comes
fault "{\"match\": \"$(layer_info i2 0)\", \"fault\": \"slow:10240\"}"
reads 2 ETIMEDOUT
heals 2
assert_fetched_once 2 20000

# --- the wrong range: no byte of it is taken, and nobody waits for a better one
all_good
fault "{\"match\": \"$(layer_info i3 0)\", \"fault\": \"wrong-content-range\"}"
reads 3 EIO
[ "$(layer_status "$(layer_info i3 0)" .bytes_local)" = 0 ] || fail 'bytes of another range were kept'
all_good
heals 3

# --- away for ten times the deadline: each read waits anew, none is lost. (At
# once after a timeout it is taken for the kernel's own repetition.)
began=$(date +%s%N)
stop registry KILL
for _ in $(seq 10); do
	reads 4 ETIMEDOUT
	sleep 0.3
done
took=$((($(date +%s%N) - began) / 1000000))
[ $took -ge $((9 * TIMEOUT * 1000)) ] || fail "ten reads waited $took ms together"
start_scripted
heals 4

# --- away when the daemon starts: what is here is here, the rest heals
stop registry KILL
stop daemon
start_daemon
is_read 4 || fail 'what is complete needs a registry'
reads 5 ETIMEDOUT
[ "$(find "$(dirname "$(file 5)")" -ls | wc -l)" = 3 ] || fail 'metadata needs a registry'
start_scripted
heals 5

# --- a reader that is stopped while it waits (so does a freezer): it loses
# nothing but time
fault "{\"match\": \"$(layer_info i6 0)\", \"fault\": \"silent\"}"
read_errno "$(file 6)" >"$W/stopped.out" &
reader=$!
wait_for 30 'the reader to wait' eval '[ "$(layer_status "$(layer_info i6 0)" .waiting)" -gt 0 ]'
status | jq -e '.limits | .connections > 0 and .connections <= .connections_max and .readers_of_a_registry > 0 and .readers_refused == 0' >/dev/null ||
	fail "limits in status: $(status | jq -c .limits)"
python=$(pgrep -P $reader python3 || echo $reader)
kill -STOP "$python"
is_stopped() { grep -q '^State:.*T' "/proc/$python/status"; }
wait_for 30 'the reader to be stopped' is_stopped
all_good
heals 6
kill -CONT "$python"
wait $reader || true
[[ $(cat "$W/stopped.out") == ETIMEDOUT || $(cat "$W/stopped.out") == "$(cat "$W/want.6")" ]] ||
	fail "the stopped reader got $(cat "$W/stopped.out")"
[ "$(status | jq '[.layers[].waiting] | add')" = 0 ] || fail 'somebody still waits'
