#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What eStargz or tar cannot carry, and what we do about it; README.md has the
# list, "What eStargz cannot carry".
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"

start_registry
start_daemon
start_containerd 1

# Names and targets that are not UTF-8: the table of contents has U+FFFD in
# their place. Such a layer is unpacked instead, and says why.
ref=$REG/damaged:esgz
since=$(date +%s)
pull_both "$ref" fallback
[ "$(status | jq '[.layers[] | select(.state == "lazy" or .state == "complete")] | length')" = 1 ] ||
	fail "lazy layers: $(status | jq -c ".layers[] | {state, reason}")"
status | jq -r '.layers[].reason' | found 'U+FFFD' || fail "the reason is not told: $(status)"
mount_both "$ref"
[ -e "$W/lazy/b/"$'latin1-\xe9' ] && [ -e "$W/lazy/b/"$'latin1-\xe8' ] || fail 'a name is not as in the tar'
[ "$(readlink "$W/lazy/target")" = $'latin1-\xe9' ] || fail 'a target is not as in the tar'
compare_trees damaged --since "$since" --unpacked || fail "$(head -n 20 "$W/differences")"
umount_both "$ref"

# Times: whole seconds, the nearest.
ref=$REG/attrs:esgz
pull_both "$ref"
mount_both "$ref"
t() { stat -c %.9Y "$W/$1/time-$2"; }
[[ $(t plain nanosecond) = 1700000000.123456* ]] || fail "unpack: $(t plain nanosecond)"
[ "$(t lazy nanosecond) $(t lazy below) $(t lazy above)" = '1700000000.000000000 1700000000.000000000 1700000001.000000000' ] ||
	fail "times: $(t lazy nanosecond) $(t lazy below) $(t lazy above)"

# Attributes that speak to overlayfs do not come from an image.
getfattr --absolute-names -h --only-values -n user.overlay.mine "$W/plain/x-overlay" | found -x o || fail 'the image has no such attribute'
! getfattr --absolute-names -h -n user.overlay.mine "$W/lazy/x-overlay" 2>/dev/null || fail 'user.overlay.* got through'

# Sockets: tar has no type for them.
mkdir "$W/with-socket"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$W/with-socket/s"
tar -C "$W/with-socket" -cf "$W/socket.tar" . 2>"$W/said"
grep -q 'socket ignored' "$W/said" || fail "tar: $(cat "$W/said")"
[ "$(tar -tf "$W/socket.tar")" = ./ ] || fail 'a socket in a tar'
umount_both "$ref"

# A link that a container makes is one file, though the kernel may show two
# inode numbers for a while: overlayfs finds no way from it to a file on FUSE.
ref=$REG/tools:esgz
pull_both "$ref"
mount_both "$ref"
cd "$W/lazy/src" || exit
ln f00 here
ln cap there
echo more >>there
[ "$(stat -c %h cap)" = 2 ] && [ "$(cat cap)" = 'cmore' ] || fail "a link made here: $(stat -c %h cap), '$(cat cap)'"
chmod 600 cap
[ "$(stat -c %a there)" = 600 ] || fail "the mode of a link made here: $(stat -c %a there)"
# What the image has as a link stays one.
[ "$(stat -c %h:%i f00)" = "$(stat -c %h:%i here)" ] || fail "a link to a link: $(stat -c %h:%i f00 here)"
cd "$W" || exit
umount_both "$ref"
