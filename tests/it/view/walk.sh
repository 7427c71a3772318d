#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real tree, compared path by path with what the view shows of it, with and
# without the kernel features that are optional; idle memory.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/view.sh"

mkdir "$W/l"
cp -a /usr/include /usr/share/doc/bash "$W/l"
ln -s include/stdio.h "$W/l/abs"
ln "$W/l/include/stdio.h" "$W/l/hard"
mknod "$W/l/zero" c 1 5

# all but inode numbers, link counts and sizes of directories
listing() {
	(cd "$1" && find . -type d -printf '%p %y %m %U %G %T@\n' -o -printf '%p %y %m %U %G %T@ %n %s %l\n' | sort)
}

listing "$W/l" >"$W/want"
for without in 0 15; do
	serve -w $without -- 3="$W/l"
	listing "$M/3" >"$W/got"
	cmp "$W/want" "$W/got" || fail "listings differ: $(diff "$W/want" "$W/got" | head -5)"
	diff -r --no-dereference "$W/l/include" "$M/3/include" || fail 'contents differ'
	[ "$(ls -di "$M/3/hard" | cut -d' ' -f1)" = "$(ls -di "$M/3/include/stdio.h" | cut -d' ' -f1)" ] ||
		fail 'hard links have two inodes'
	[ "$(find "$M/3" -printf '%i\n' | sort -n | tail -n 1)" -lt 4294967296 ] || fail 'inode numbers above 2^32'
	# what is cached needs no request
	before=$(stat_of requests)
	find "$M/3" -printf '%s\n' >"$W/sizes"
	after=$(stat_of requests)
	[ $((after - before)) -lt 20 ] || fail "a second walk sends $((after - before)) requests"
	[ "$(stat_of open)" = 0 ] || fail 'files stay open'
	close_view
	! grep -q verity-layers /proc/self/mountinfo || fail 'the mount is still there'
done

serve -- 3="$W/l"
find "$M/3" -ls >/dev/null
rss=$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$VIEW_PID/status")
echo "RssAnon after a walk: $rss KiB, locked $(stat_of locked) bytes"
case $B in *-address-*) ;; *) [ "$rss" -lt 12288 ] || fail 'too much memory' ;; esac
close_view
