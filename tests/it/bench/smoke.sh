#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The machinery of `make bench` on a small image: the slow link counts, the peer
# and the helpers work, rows appear and have the promised form. No time is
# judged here.
export TSV=$W/bench.tsv RUNS=1
. "$(dirname "$0")/../../bench/lib.sh"

config 'background_fill = false'
start_link 1000 1
warm_blobs "$REG/hello:esgz"
fresh_node
link_reset
pull verity "$SLOW/hello:esgz"
[ "$(link_stat requests)" -gt 3 ] || fail 'the link counts no requests'
[ "$(link_stat down)" -gt 1000 ] || fail 'the link counts no bytes'
mount_image verity "$SLOW/hello:esgz" "$W/m"
[ "$(cat "$W/m/data/one")" = one ] || fail 'a view of the image'

mapfile -t opened < <("$B/tests/bench/opened" "$W/m" cat "$W/m/data/blob" "$W/m/data/two" "$W/m/data/two" 2>/dev/null)
[ "${opened[*]}" = '2 3145732' ] || fail "opened: ${opened[*]}"
rate=$("$B/tests/bench/onethread" "http://$REG/v2/hello/blobs/$(layer_digest "$REG/hello:esgz" 1)")
[ "$(calc "($rate > 0)")" = 1.000 ] || fail "rate: $rate"
for i in hashes 'checked DIR'; do
	mkdir "$W/sealbench"
	# shellcheck disable=SC2086 # words
	read -r one other < <("$B/tests/bench/sealbench" ${i/DIR/$W/sealbench})
	[ "$(calc "($one > 0 && $other > 0)")" = 1.000 ] || fail "sealbench $i: $one $other"
	rm -r "$W/sealbench"
done
for i in seal bare random cached; do
	read -r one other < <(SEALBENCH_AS_KERNEL=1 "$B/tests/bench/sealbench" $i "$DAEMON")
	[ "$(calc "($one > 0)")" = 1.000 ] || fail "sealbench $i: $one"
done
for i in seq mmap random; do
	read -r one other < <("$B/tests/bench/readbench" $i "$W/m/data/blob" "${daemon_pid:?}")
	[ "$(calc "($one > 0 && $other >= 0)")" = 1.000 ] || fail "readbench $i: $one $other"
done
! "$B/tests/bench/sealbench" seal "$W" 2>/dev/null || fail 'a folder is sealed'
! "$B/tests/bench/onethread" "http://$REG/v2/hello/blobs/none" 2>/dev/null || fail 'a blob that is not there'
unmount_image verity "$W/m"
remove "$SLOW/hello:esgz"

printf '2 x\n9 x\n4 x\n' >"$W/column"
[ "$(column 1 "$W/column")" = 4.000 ] || fail 'the median of three'
[ "$(median 1 2)" = 1.500 ] || fail 'the median of two'
seq 200 | awk '{ print "Stat", $1; print "List", 1000 }' >"$W/times"
[ "$(percentile 99 Stat "$W/times")" = 198.000 ] || fail "the 99th of a hundred, twice: $(percentile 99 Stat "$W/times")"
[ "$(percentile 99 List "$W/times")" = 1000.000 ] || fail 'the other method'
compare P0 'a ratio' '<=1.5' 3 2 1
absolute P0 'a value' '<=12' "$(daemon_memory RssAnon)" 1
note 'cpu' "$(daemon_cpu)"
[ "$(wc -l <"$TSV")" = 3 ] || fail 'three rows'
[ "$(head -n 1 "$TSV")" = $'P0\ta ratio\t3\t2\t1.500\t<=1.5\t1' ] || fail "a row: $(head -n 1 "$TSV")"
form='^[^\t]+\t[^\t]+\t[^\t]+\t[^\t]+\t[0-9]+(\.[0-9]+)?\t([<>]=[0-9.]+|-)\t[0-9]+$'
! grep -vP "$form" "$TSV" || fail 'a row of another form'
