#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# F4: what is left of 200 rounds of pull, run and remove, four at a time.
# ROUNDS=n: so many.
. "$(dirname "$0")/../lib/scripted.sh"
. "$(dirname "$0")/lib.sh"
LANES=4 ROUNDS=${ROUNDS:-200}

round() { # LANE
	local ref=$REG/lane$1:latest
	pull_bare "$ref"
	[ "$(ctr run --rm --snapshotter verity "$ref" "lane$1" /bin/busybox cat /name)" = "lane$1" ] || fail "contents of lane $1"
	ctr images rm --sync "$ref" >/dev/null
}

rounds() { # N, in all
	local lane pids=() p
	for lane in $(seq $LANES); do
		(for _ in $(seq $(($1 / LANES))); do round "$lane"; done) &
		pids+=($!)
	done
	for p in "${pids[@]}"; do wait "$p" || fail 'a lane'; done
}

at_rest() {
	[ "$(status | jq '[.layers[] | select(.state != "fallback")] | length')" = 0 ] &&
		[ -z "$(find "$ROOT/trash" -mindepth 1 -print -quit)" ]
}

# bytes inodes fds threads RssAnon; idle threads end after ten seconds, idle
# connections after sixty
figures() {
	wait_for 60 'the layers to go' at_rest
	sleep 65
	# shellcheck disable=SC2012
	echo "$(state_bytes) $(find "$ROOT" "$RUN" -xdev | wc -l) $(ls "/proc/${daemon_pid:?}/fd" | wc -l)" \
		"$(ls "/proc/$daemon_pid/task" | wc -l) $(daemon_memory RssAnon)"
}

for lane in $(seq $LANES); do
	make_image "lane$lane" <<-J
		{"layers": [{"entries": [{"path": "bin/busybox", "mode": "0755", "content": {"file": "/bin/busybox"}}]},
		            {"entries": [{"path": "name", "content": "lane$lane"}, {"path": "data", "content": {"random": 2000000, "seed": $lane}}]}]}
	J
done
start_scripted
fresh_node
rounds $((5 * LANES))
read -r -a before <<<"$(figures)"
t=$(clock)
rounds "$ROUNDS"
t=$(seconds "$t")
read -r -a after <<<"$(figures)"
names=('bytes below the root' inodes descriptors threads 'RssAnon, MB') goals=(0 0 0 0 2)
for i in "${!names[@]}"; do
	absolute F4 "growth in $ROUNDS rounds: ${names[i]}" "<=${goals[i]}" "$(calc "${after[i]} - ${before[i]}")" 1
	note "before them: ${names[i]}" "${before[i]}"
done
note 'a round, four at a time, s' "$(calc "$t / $ROUNDS")" "$ROUNDS"
stop_node
