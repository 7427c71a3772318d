#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who waits for absent bytes can be killed, is not disturbed by other signals,
# and is let go at the deadline and when the daemon stops.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/view.sh"

mkdir "$W/l"
for n in $(seq 12); do seq 20000 >"$W/l/slow$n"; done
serve -T 1 -- 1="$W/l"

# parks_more_than N: further reads have been parked since
parks_more_than() {
	local end=$((SECONDS + 60))
	until [ "$(stat_of parked_total)" -gt "$1" ]; do
		[ $SECONDS -lt $end ] || fail 'the read is not parked'
		sleep 0.02
	done
}

# timed COMMAND...: sets took to the milliseconds it needs
timed() {
	local start
	start=$(date +%s%N)
	"$@" || true
	took=$((($(date +%s%N) - start) / 1000000))
}

cat >"$W/reader.py" <<'P'
import mmap, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored below a shell
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "direct" else 0))
if how == "readahead":
    os.read(fd, 10)
elif how == "direct":
    os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
else:  # a page fault without readahead
    m = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    m.madvise(mmap.MADV_RANDOM)
    m[4096]
P

n=0
for signal in KILL INT TERM; do
	for how in readahead direct fault; do
		n=$((n + 1))
		before=$(stat_of parked_total)
		python3 "$W/reader.py" $how "$M/1/slow$n" &
		pid=$!
		parks_more_than "$before"
		sleep 0.1
		kill -$signal $pid
		timed wait "$pid" 2>/dev/null
		[ "$took" -lt 4500 ] || fail "SIG$signal on $how: took $took ms"
	done
done
ask arrive >/dev/null
for n in $(seq 9); do cmp "$W/l/slow$n" "$M/1/slow$n"; done
ask withhold >/dev/null

# dd prints its counts on SIGUSR1 and goes on
before=$(stat_of parked_total)
dd if="$M/1/slow10" of="$W/out" bs=64K count=1 iflag=direct 2>"$W/dd" &
pid=$!
parks_more_than "$before"
for _ in 1 2 3; do
	kill -USR1 $pid
	sleep 0.1
done
kill -0 $pid || fail 'a handled signal ended the read'
ask arrive >/dev/null
wait $pid || fail "dd: $(cat "$W/dd")"
cmp -n 65536 "$W/l/slow10" "$W/out"
ask withhold >/dev/null

# the view's own deadline: five seconds after the source's
timed dd if="$M/1/slow11" of=/dev/null bs=4096 count=1 iflag=direct 2>"$W/dd"
grep -q 'timed out' "$W/dd" || fail "deadline: $(cat "$W/dd")"
[ "$took" -ge 5000 ] && [ "$took" -lt 30000 ] || fail "deadline after $took ms"

# the end
before=$(stat_of parked_total)
dd if="$M/1/slow12" of=/dev/null bs=4096 count=1 iflag=direct 2>"$W/dd" &
pid=$!
parks_more_than "$before"
timed close_view
[ "$took" -lt 20000 ] || fail "closing took $took ms"
timed wait $pid
[ "$took" -lt 20000 ] || fail 'the reader is not let go'
grep -q 'Input/output error' "$W/dd" || fail "reader at the end: $(cat "$W/dd")"
