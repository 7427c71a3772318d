#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The layer index before its judges: fsck.erofs, the kernel that mounts it, and
# our own reader all see exactly the tree that went into the builder.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

command -v fsck.erofs >/dev/null || fail 'fsck.erofs (erofs-utils) is missing'
grep -qw erofs /proc/filesystems || modprobe erofs || fail 'the kernel has no erofs'

# fsck.erofs recurses, with large frames, as deep as the tree goes.
ulimit -s unlimited
PYTHONDONTWRITEBYTECODE=1 python3 "$TOP/tests/it/index/judge.py" "$B/tests/lib/indextool" "$W" \
	empty edge bigroot nearroot:2350 nearroot:2400 nearroot:2430 nearroot:2440 nearroot:2444 nearroot:2448 nearroot:2460 \
	random:1 random:2 random:3 random:4 real:/etc many:20000:100000
