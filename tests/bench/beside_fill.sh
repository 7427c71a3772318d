#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# F2: how long the first read of a file takes over a slow link while background
# fill uses it, against a link that nobody uses. F3: Commit while a fill writes
# as fast as it can.
# images: big
. "$(dirname "$0")/../lib/scripted.sh"
. "$(dirname "$0")/lib.sh"
SMALL=100000 PAIRS=100 READS=15

python3 - $PAIRS $SMALL <<-'P' | make_image pairs
	import json, sys
	entries = []
	for i in range(int(sys.argv[1])):
	    entries += [{"path": f"big{i:03}", "content": {"random": 1 << 20, "seed": 1000 + i}},
	                {"path": f"small{i:03}", "content": {"random": int(sys.argv[2]), "seed": i + 1}}]
	print(json.dumps({"level": 1, "entries": entries}))
P

# cold_reads FILE [moving]: milliseconds of each, every 1.5 s, from the end of
# the layer, where the background does not come to; it is at work at each.
cold_reads() {
	local i t dir before
	dir=$(layer_path "$(layer_info pairs 0)")
	for i in $(seq $((PAIRS - 1)) -1 $((PAIRS - READS))); do
		before=$(link_stat down)
		sleep 1.5
		[ -z "${2:-}" ] || [ "$(link_stat down)" -gt $((before + 100000)) ] || fail 'the background does not run'
		t=$(clock)
		cat "$dir/small$(printf '%03d' "$i")" >/dev/null
		calc "$(seconds "$t") * 1000" >>"$1"
		echo >>"$1"
	done
}

start_scripted
start proxy "$B/tests/lib/slowproxy" --listen "$SLOW" --to "$REG" --mbit 20 --rtt 20 --stats "$W/link.json"
for _ in $(seq "$RUNS"); do
	config 'background_fill = false'
	fresh_node
	pull_bare "$SLOW/pairs:latest"
	cold_reads "$W/alone"
	config
	fresh_node
	pull_bare "$SLOW/pairs:latest"
	sleep 2
	cold_reads "$W/beside" moving
done
compare F2 'cold read of 100 kB beside background fill, ms' '<=1.2' \
	"$(column 1 "$W/beside")" "$(column 1 "$W/alone")" $((RUNS * READS))
note 'the same, p90, ms' "$(sort -g "$W/beside" | awk '{ v[NR] = $1 } END { print v[int(NR * 0.9)] }')" $((RUNS * READS))
note 'alone, p90, ms' "$(sort -g "$W/alone" | awk '{ v[NR] = $1 } END { print v[int(NR * 0.9)] }')" $((RUNS * READS))
stop proxy
stop registry

# Rounds as long as the fill lasts.
start_registry
warm_blobs "$REG/big:esgz"
n=0
config
for i in $(seq "$RUNS"); do
	fresh_node
	pull verity "$REG/big:esgz"
	while [ "$(status | jq '[.layers[] | select(.state == "lazy")] | length')" -gt 0 ]; do
		n=$((n + 1))
		/usr/bin/python3 -B "$TOP/tests/it/neighbours/calls.py" rounds "$SOCK" 20 "$W/times.$i.$n"
	done
done
for m in Commit Prepare Stat; do
	absolute F3 "p99 of $m while fill writes, ms" "<=$([ $m = Commit ] && echo 20 || echo 50)" \
		"$(percentile 99 "$m" "$W"/times.*)" "$(cat "$W"/times.* | grep -c "^$m ")"
done
stop_node
