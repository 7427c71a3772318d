#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The comparison of trees finds what it says it compares: one change at a time.
. "$(dirname "$0")/../../lib/lib.sh"

plant() { # a tree in $1
	mkdir -p "$1/d" "$1/e"
	echo one >"$1/d/f"
	echo two >"$1/d/g"
	ln "$1/d/f" "$1/d/h"
	ln -s target "$1/s"
	mknod "$1/n" c 1 3
	mkfifo "$1/p"
	setfattr -n user.x -v 1 "$1/d/f"
	setfacl -m u:5:r "$1/d/g"
	find "$1" -exec touch -h -d @1700000000 {} +
}
compare() {
	python3 "$TOP/tests/it/tree/compare.py" "$W/a" "$W/b"
}
# finds TEXT COMMAND...: the command, in a fresh $W/b, is a difference of that name
finds() {
	local text=$1
	shift
	rm -rf "$W/b"
	plant "$W/b"
	(cd "$W/b" && "$@" && find . -exec touch -h -d @1700000000 {} +)
	! compare >"$W/out" || fail "$*: not found"
	grep -qF -- "$text" "$W/out" || fail "$*: $(cat "$W/out")"
}

plant "$W/a"
plant "$W/b"
compare >"$W/out" || fail "the same tree differs: $(cat "$W/out")"
grep -q '^9 paths, 12 bytes compared, 0 .* 0 differences' "$W/out" || fail "$(cat "$W/out")"
finds '/e: type' bash -c 'rmdir e && touch e'
finds '/d/g: mode' chmod 611 d/g
finds '/s: uid' chown -h 1 s
finds '/p: gid' chgrp 1 p
finds '/d: nlink' mkdir d/new
finds '/n: rdev' bash -c 'rm n && mknod n c 1 5'
finds '/d/g: size' bash -c 'echo longer >d/g'
finds '/d/g: contents' bash -c 'echo owt >d/g'
finds '/s: target' ln -sfn tegrat s
finds '/d/f: xattr user.x' setfattr -n user.x -v 2 d/f
finds '/d/g: xattr system.posix_acl_access' setfacl -m u:6:r d/g
finds '/d/h: links' bash -c 'rm d/h && cp -a d/f d/h'
finds '/new: only in the view' touch new
finds '/s: only in the unpack' rm s
finds '/d/g: blocks' bash -c 'fallocate -n -l 1M d/g'
rm -rf "$W/b"
plant "$W/b"
touch -d @1700000001 "$W/b/d/g"
! compare >"$W/out" || fail 'a time is not found'
grep -qF '/d/g: mtime' "$W/out" || fail "$(cat "$W/out")"
