#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An overlay over two layers, as a container has it: whiteouts, opaque
# directories, copy-up, programs, another overlay inside.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/view.sh"

low=$W/low high=$W/high
mkdir -p "$low"/{kept,hidden,mixed,bin} "$high"/{hidden,mixed}
echo low >"$low/kept/f"
echo low >"$low/removed"
echo low >"$low/hidden/old"
echo low >"$low/mixed/both"
echo low >"$low/mixed/low"
seq 100000 >"$low/mixed/large"
cp /bin/busybox "$low/bin/"
mknod "$high/removed" c 0 0
setfattr -n trusted.overlay.opaque -v y "$high/hidden"
echo high >"$high/hidden/new"
echo high >"$high/mixed/both"
echo late >"$low/slow"
# VIEW_WITHOUT_PASSTHROUGH, for the overlay inside
serve -w 4 -- 10="$low" 11="$high"

mkdir "$W"/{up,work,o}
mount -t overlay overlay -o "lowerdir=$M/11:$M/10,upperdir=$W/up,workdir=$W/work" "$W/o"
[ "$(cat "$W/o/kept/f")" = low ] || fail 'lower file'
[ ! -e "$W/o/removed" ] || fail 'whiteout'
[ "$(ls "$W/o/hidden")" = new ] || fail "opaque: $(ls "$W/o/hidden")"
[ "$(ls "$W/o/mixed" | paste -sd' ')" = 'both large low' ] || fail 'merged'
[ "$(cat "$W/o/mixed/both")" = high ] || fail 'upper layer wins'
[ "$(find "$W/o" -maxdepth 1 -name removed)" = '' ] || fail 'the whiteout is listed'

# copy-up of data and of attributes only; the layers stay as they are
ino=$(stat -c %i "$W/o/mixed/large")
echo more >>"$W/o/mixed/large"
[ "$(tail -n 1 "$W/o/mixed/large")" = more ] && [ "$(head -n 1 "$W/o/mixed/large")" = 1 ] || fail 'copy-up'
[ "$(stat -c %i "$W/o/mixed/large")" = "$ino" ] || fail 'copy-up changes the inode number'
chmod 600 "$W/o/kept/f"
rm "$W/o/mixed/low"
[ "$(stat -c %a "$W/o/kept/f")" = 600 ] || fail 'chmod'
[ ! -e "$W/o/mixed/low" ] && [ -e "$M/10/mixed/low" ] || fail 'remove'
[ "$(stat -c %a "$M/10/kept/f")" = 644 ] || fail 'the layer has changed'

# programs, also through a mapping
[ "$("$W/o/bin/busybox" echo ran)" = ran ] || fail 'exec'

# an overlay inside the container
mkdir "$W/o"/{u2,w2,l2,o2}
echo inner >"$W/o/l2/f"
mount -t overlay inner -o "lowerdir=$W/o/mixed:$W/o/l2" "$W/o/o2" || fail 'overlay on overlay'
[ "$(cat "$W/o/o2/f" "$W/o/o2/both")" = "inner
high" ] || fail 'inner overlay'

# absent bytes through the overlay
cat "$W/o/slow" >"$W/out" &
reader=$!
until [ "$(ask waits)" -gt 0 ]; do sleep 0.05; done
[ "$(cat "$W/o/hidden/new")" = high ] || fail 'another file waits, too'
ask arrive >/dev/null
wait $reader
[ "$(cat "$W/out")" = late ] || fail 'absent bytes'

# the daemon goes: what is cached lives, the rest fails at once, nothing hangs
umount "$W/o/o2"
close_view
! timeout 10 ls "$W/o/bin/never-seen" 2>/dev/null || fail 'a dead layer answers'
