#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the proof of an image costs beside fetching it in the background: CPU
# time of the thread that proves, against that of all others; and bytes that
# were fetched again for it.
# images: big many
. "$(dirname "$0")/lib.sh"
config ''

# CPU seconds of the daemon's thread NAME
thread_cpu() {
	awk -v name="($1)" -v hz="$(getconf CLK_TCK)" '$2 == name { s += $14 + $15 } END { printf "%.3f", s / hz }' \
		/proc/"${daemon_pid:?}"/task/*/stat
}

unproven() {
	status | jq '[.layers[] | select(.proven | not)] | length'
}

all_proven() {
	[ "$(unproven)" = 0 ]
}

start_registry
for name in big many; do
	[ -e "$IMAGES/.$name" ] || continue
	warm_blobs "$REG/$name:esgz"
	for _ in $(seq "$RUNS"); do
		fresh_node
		pull verity "$REG/$name:esgz"
		wait_for 300 "the proof of $name" all_proven
		proof=$(thread_cpu vs-proof)
		echo "$proof $(calc "$(daemon_cpu) - $proof") $(status | jq '[.layers[].bytes_refetched] | add')" >>"$W/$name"
	done
	compare R4 "CPU of proving $name, s, against fetching it" '<=1.2' \
		"$(column 1 "$W/$name")" "$(column 2 "$W/$name")" "$RUNS"
	absolute R4 "bytes of $name refetched for its proof" '<=0' "$(column 3 "$W/$name")" "$RUNS"
done
stop_node
