#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGTERM while reads are parked and Prepares wait for a silent registry: the
# daemon ends within seconds, tells everybody, leaves no mount, and what it had
# is there at the next start. Under ASan it must not leak either.
. "$(dirname "$0")/common.sh"

start_scripted
config 'read_timeout = 60' 'prepare_budget = 20' 'background_fill = true'
start_daemon
start_containerd 1
for i in 1 2 3 4 5 6; do crash_image i$i $i; done
workload_pull i1 >/dev/null || fail 'pull'
workload_pull i2 >/dev/null || fail 'pull'
(cd "$(layer_path "$(layer_info i1 0)")" && cat f0 >/dev/null)
for i in 1 2 3 4 5 6; do
	fault "{\"match\": \"$(layer_info i$i 0)\", \"fault\": \"silent\"}"
done
fault '{"reset": true}'

for round in 1 2 3; do
	readers=() pulls=()
	for i in $(seq 20); do
		cat "$(layer_path "$(layer_info i$((i % 2 + 1)) 0)")/f$((i % 6 + 1))" >/dev/null 2>"$W/reader.$i" &
		readers+=($!)
	done
	for i in 3 4 5 6; do
		ctr-remote images rpull --snapshotter verity --plain-http "$REG/i$i:latest" >"$W/pull.$i" 2>&1 &
		pulls+=($!)
	done
	wait_for 10 'readers to be parked' eval '[ "$(status | jq "[.layers[].waiting] | add")" -ge 4 ]'
	wait_for 10 'Prepares to wait' eval '[ "$(reg_stats "[.log[] | select(.range == \"bytes=-65536\")] | length")" -ge 4 ]'
	began=$(date +%s%N)
	kill -TERM "${daemon_pid:?}"
	s=0
	wait "$daemon_pid" || s=$?
	took=$((($(date +%s%N) - began) / 1000000))
	[ "$s" = 0 ] || fail "status $s: $(tail -n 20 "$W/daemon.log")"
	[ "$took" -lt 20000 ] || fail "the end took $took ms"
	tail -n 1 "$W/daemon.log" | found "stopped: reason='signal SIGTERM'" || fail "last line: $(tail -n 1 "$W/daemon.log")"
	for p in "${readers[@]}"; do wait "$p" && fail 'a parked read ended well'; done
	# They got ordinary mounts and now ask the silent registry themselves.
	kill -9 "${pulls[@]}" 2>/dev/null || true
	for p in "${pulls[@]}"; do wait "$p" && fail 'a waiting pull ended well'; done
	[ "$(mounts_at_l)" = 0 ] || fail 'a mount is left'
	echo "round $round: ended after $took ms"
	fault '{"reset": true}'
	start_daemon
	fresh_containerd
done
all_good
for i in 1 2; do read_all i$i || fail "contents of i$i"; done
for i in 3 4 5 6; do
	workload_pull i$i >/dev/null || fail "pull of i$i"
	read_all i$i || fail "contents of i$i"
done
assert_tidy
stop daemon
