#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An overlay above, and what passthrough = false is for: an overlay above that.
. "$(dirname "$0")/../../lib/lib.sh"
. "$TOP/tests/it/view/view.sh"

mkdir -p "$W/l/d" "$W/up" "$W/work" "$W/o"
head -c 3000000 /dev/urandom >"$W/l/d/large"
cp "$(realpath /bin/busybox)" "$W/l/busybox"

over() {
	mount -t overlay overlay -o "lowerdir=$M/3,upperdir=$W/up,workdir=$W/work" "$W/o"
}
inner() {
	mkdir -p "$W/o/inner" "$W/o/low2"
	mount -t overlay inner -o "lowerdir=$W/o/d:$W/o/low2" "$W/o/inner" 2>/dev/null
}

serve -- 3="$W/l"
server=$VIEW_PID # bash forgets it when it ends
ask pass >/dev/null
[ $((0x$(stat_of flags) >> 37 & 1)) = 1 ] || skip 'the kernel has no FUSE passthrough'
over
exec 7<"$W/o/d/large"
[ "$(stat_of passthrough)" = 1 ] || fail 'not passed through below an overlay'
cmp - "$W/l/d/large" <&7
[ "$(stat_of reads)" = 0 ] || fail 'the server was asked for bytes'
[ "$("$W/o/busybox" echo ran)" = ran ] || fail 'a program through the overlay'
# copy-up reads through the kernel, too; what is open keeps the old file
echo more >>"$W/o/d/large"
[ "$(stat -c %s "$W/o/d/large")" = 3000005 ] || fail 'copy-up'
[ "$(stat_of reads)" = 0 ] || fail 'copy-up asked the server for bytes'
rm "$W/o/d/large"
! inner || fail 'an overlay on an overlay, which the kernel should refuse: is the switch still needed?'
exec 7<&-
umount "$W/o"
close_view
wait "$server" 2>/dev/null || true

rm -rf "$W/up" "$W/work"
mkdir "$W/up" "$W/work"
serve -w 4 -- 3="$W/l"
ask pass >/dev/null
over
inner || fail 'no overlay above an overlay'
exec 7<"$W/o/inner/large"
[ "$(stat_of passthrough)" = 0 ] || fail 'passed through although switched off'
cmp - "$W/l/d/large" <&7
exec 7<&-
umount "$W/o/inner"
umount "$W/o"
