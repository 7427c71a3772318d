#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# F1: how fast an image that is here is walked and read while 500 readers wait
# for a silent registry, against alone. F3: the calls of other images meanwhile.
. "$(dirname "$0")/../lib/scripted.sh"
. "$(dirname "$0")/lib.sh"
OTHER=127.0.0.1:5001 READERS=500 FILES=3000

image() { # NAME FILES BYTES
	python3 - "$2" "$3" <<-'P' | make_image "$1"
		import json, sys
		n, size = int(sys.argv[1]), int(sys.argv[2])
		print(json.dumps({"level": 1, "layers": [{"entries": [
		    {"path": f"d{i % 50}/f{i}", "content": {"random": size, "seed": i + 1}} for i in range(n)]}]}))
	P
}

# walk: files a second, with nothing of the image in the kernel's caches
walk() {
	local t
	echo 2 >/proc/sys/vm/drop_caches
	t=$(clock)
	find "$cached" -type f -print0 | xargs -0 cat >/dev/null
	calc "$FILES / $(seconds "$t")"
	echo
}

park() { # FROM: readers of READERS files from there on
	fault '{"match": "blobs/", "fault": "silent"}'
	start readers python3 "$W/readers.py" "$waited" "$1" $READERS
	wait_for 60 'the readers to be parked' eval "[ \"\$(status | jq .view.parked)\" -ge $READERS ]"
}

release() {
	all_good
	wait "${readers_pid:?}" || fail "the readers: $(cat "$W/readers.log")"
}

cat >"$W/readers.py" <<'P'
import sys, threading
def read(i):
    with open(f"{sys.argv[1]}/d{i % 50}/f{i}", "rb") as f:
        f.read()
first = int(sys.argv[2])
threads = [threading.Thread(target=read, args=(i,)) for i in range(first, first + int(sys.argv[3]))]
for t in threads: t.start()
for t in threads: t.join()
P
config 'read_timeout = 3600' 'background_fill = false'
image waited $((READERS * RUNS)) 5000
image cached $FILES 20000
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 30 'the other registry' curl -sf "http://$OTHER/_admin/stats"
fresh_node
pull_bare "$REG/waited:latest"
pull_bare "$OTHER/cached:latest"
waited=$(layer_path "$(layer_info waited 0)") cached=$(layer_path "$(layer_info cached 0)")
walk >/dev/null
for i in $(seq 0 $((RUNS - 1))); do
	walk >>"$W/alone"
	park $((i * READERS))
	walk >>"$W/beside"
	/usr/bin/python3 -B "$TOP/tests/it/neighbours/calls.py" rounds "$SOCK" 100 "$W/times.$i"
	[ "$(status | jq .view.parked)" -ge $READERS ] || fail 'the readers do not wait any more'
	release
	/usr/bin/python3 -B "$TOP/tests/it/neighbours/calls.py" rounds "$SOCK" 100 "$W/quiet.$i"
done
compare F1 'walk + read beside 500 parked readers, files/s' '>=0.85' "$(column 1 "$W/beside")" "$(column 1 "$W/alone")" "$RUNS"
for m in Prepare Stat Commit; do
	absolute F3 "p99 of $m beside 500 parked readers, ms" '<=50' "$(percentile 99 "$m" "$W"/times.*)" $((RUNS * 100))
	note "p99 of $m alone, ms" "$(percentile 99 "$m" "$W"/quiet.*)" $((RUNS * 100))
done
for m in Mounts List View Usage Remove Cleanup; do
	note "p99 of $m beside 500 parked readers, ms" "$(percentile 99 "$m" "$W"/times.*)" $((RUNS * 100))
done
stop_node
