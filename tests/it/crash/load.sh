#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 while a hundred reads run; then a clean stop and a start without any
# registry: what was complete is read, and nothing of it waited for the network.
. "$(dirname "$0")/common.sh"

start_scripted
config 'read_timeout = 5' 'background_fill = false'
start_daemon
start_containerd 1
for i in 1 2 3; do
	crash_image i$i $i
	workload_pull i$i >/dev/null || fail "pull of i$i"
done
fault '{"match": "blobs/", "fault": "slow:400000"}'

# --- a hundred readers, killed in the middle of it
pids=()
for i in $(seq 100); do
	(cd "$(layer_path "$(layer_info i$((i % 3 + 1)) 0)")" && cat big f* >/dev/null 2>&1) &
	pids+=($!)
done
local_bytes() { status | jq '[.layers[].bytes_local] | add'; }
wait_for 10 'some bytes to land' eval '[ "$(local_bytes)" -gt 500000 ]'
kill -9 "${daemon_pid:?}"
wait "$daemon_pid" 2>/dev/null || true
for p in "${pids[@]}"; do wait "$p" && fail 'a reader of a dead daemon saw no error'; done
all_good
fault '{"reset": true}'
start_daemon
before=$(local_bytes)
[ "$before" -ge 500000 ] || fail "only $before bytes are left of what had landed"
missing=$(status | jq '[.layers[] | .bytes_total - .bytes_local] | add')
for i in 1 2 3; do
	read_all i$i || fail "contents of i$i"
	(cd "$(layer_path "$(layer_info i$i 0)")" && cat sh >/dev/null)
done
fetched=$(reg_stats '[.by_digest[].bytes] | add')
[ "$fetched" -le $((missing + 9 * 70000)) ] || fail "$fetched bytes fetched, $missing were missing"
echo "$before bytes survived, $missing were missing, $fetched fetched"
assert_tidy
for i in 1 2 3; do assert_state "$(layer_info i$i 0)" complete; done

# --- a clean stop loses nothing; a start needs no registry
stop daemon
stop registry KILL
[ "$(mounts_at_l)" = 0 ] || fail 'a mount is left'
began=$(date +%s%N)
start_daemon
took=$((($(date +%s%N) - began) / 1000000))
echo "ready after $took ms"
for i in 1 2 3; do
	assert_state "$(layer_info i$i 0)" complete
	read_all i$i || fail "contents of i$i without a registry"
done
fresh_containerd
workload_run i2 || fail 'run without a registry'
assert_tidy
