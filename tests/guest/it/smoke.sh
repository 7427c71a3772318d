#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The guest is what the other tests take it for: fs-verity that measures what
# our leaves say, EIO for a block that was changed below it, power cuts, MGLRU,
# and a daemon that knows all that.
. "$(dirname "$0")/../guest.sh"

case ${STEP:-files} in
files)
	# Every border of blocks and of the tree's levels (128 digests a block), and
	# sizes that nobody thought of.
	for n in 1 4095 4096 4097 524288 524289 $((RANDOM + 1)) $((RANDOM * 64 + 1)) $((RANDOM * 512 + 1)); do
		head -c $n /dev/urandom >"$W/f$n"
	done
	sync
	"$B/tests/lib/sealtool" digest "$W"/f* >"$W/ours"
	set -- "$W"/f*
	fsverity enable "$1"
	shift
	"$B/tests/lib/sealtool" seal "$@" >"$W/enabled"
	fsverity measure "$W"/f* >"$W/measured"
	diff "$W/ours" "$W/measured" || fail 'the kernel measures something else'
	tail -n +2 "$W/measured" | diff "$W/enabled" - || fail 'we read another measurement'
	! echo x 2>/dev/null >>"$1" || fail 'a verity file was written to'
	# Being a verity file is durable only after this, like anything else.
	sync
	# Written, and never asked to reach the disk.
	echo lost >"$W/unsynced"
	cut_power STEP=flip
	;;
flip)
	[ ! -s "$W/unsynced" ] || fail 'the power cut lost nothing'
	sha256sum "$W"/f* >"$W/before"
	fsverity measure $W/f*; filefrag -e -b4096 $W/f524289; 	flip_block "$W/f524289" 3
	! cat "$W/f524289" >/dev/null 2>"$W/error" || fail 'a flipped block was read'
	grep -q 'Input/output error' "$W/error" || fail "a flipped block: $(cat "$W/error")"
	head -c 12288 "$W/f524289" >/dev/null || fail 'the blocks before it'
	fsverity measure $W/f*; filefrag -e -b4096 $W/f524289; 	flip_block "$W/f524289" 3
	sha256sum --quiet -c "$W/before" || fail 'flipped back'

	[ "$(cat /sys/kernel/mm/lru_gen/enabled)" != 0x0000 ] || fail 'no MGLRU'
	start_daemon
	grep -q " $ROOT/l .* fuse" /proc/self/mountinfo || fail 'no view'
	stop daemon
	! grep -q " $ROOT/l " /proc/self/mountinfo || fail 'the view stayed'
	;;
esac
