#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# F6: a node with 1,000 lazy snapshots of 200 layers: from the start to READY,
# and its memory at rest.
# images: hello
. "$(dirname "$0")/../lib/clones.sh"
. "$(dirname "$0")/lib.sh"

proven() {
	[ "$(status | jq '[.layers[] | select(.proven | not)] | length')" = 0 ]
}
start_registry
fresh_node
pull verity "$REG/hello:esgz"
wait_for 60 'the layers to be proven' proven
stop_node
clone_layers 200 1000
for _ in $(seq "$RUNS"); do
	t=$(clock)
	start daemon "$DAEMON" --root "$ROOT" --run "$RUN"
	until grep -q ' ready: ' "$W/daemon.log"; do
		kill -0 "${daemon_pid:?}" || fail "$(cat "$W/daemon.log")"
		sleep 0.005
	done
	seconds "$t" >>"$W/ready"
	echo >>"$W/ready"
	sleep 15
	daemon_memory RssAnon >>"$W/idle"
	echo >>"$W/idle"
	daemon_cpu >>"$W/cpu"
	echo >>"$W/cpu"
	[ "$(status | jq .snapshots)" -ge 1000 ] || fail 'snapshots'
	stop daemon
done
absolute F6 '1,000 lazy snapshots of 200 layers: READY after, s' '<=1' "$(column 1 "$W/ready")" "$RUNS"
absolute F6 '1,000 lazy snapshots of 200 layers: RssAnon idle, MB' '<=16' "$(column 1 "$W/idle")" "$RUNS"
note '1,000 lazy snapshots: CPU s of the start' "$(column 1 "$W/cpu")" "$RUNS"
