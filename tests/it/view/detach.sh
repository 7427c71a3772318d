#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a killed server left is found in mountinfo and detached, under a busy
# overlay, too; a new view on the same place serves again.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/view.sh"

mkdir "$W/l" "$W/o" "$W/up" "$W/work"
echo one >"$W/l/f"
serve -- 1="$W/l"
mount -t overlay overlay -o "lowerdir=$M/1,upperdir=$W/up,workdir=$W/work" "$W/o"
cat "$W/o/f" >/dev/null
kill -KILL "$VIEW_PID"
wait "$VIEW_PID" 2>/dev/null || true
! timeout 10 ls "$M/2" 2>/dev/null || fail 'the dead view answers'
# the mount on $W/m is dead; a live view elsewhere does the work
dead=$M
M=$W/other
mkdir "$M"
serve -- 1="$W/l"
[ "$(ask detach "$dead")" = 1 ] || fail 'one dead mount was expected'
[ "$(ask detach "$dead")" = 0 ] || fail 'it is still there'
! grep -q " $dead " /proc/self/mountinfo || fail 'it is still in mountinfo'
[ "$(cat "$M/1/f")" = one ] || fail 'the live view is gone'
close_view
M=$dead
serve -- 1="$W/l"
[ "$(cat "$M/1/f")" = one ] || fail 'the new view does not serve'
close_view

# killed, or refused, between mount and INIT
VS_FAULT=view_mounted:kill "$B/tests/lib/viewserve" "$M" 1="$W/l" </dev/null >/dev/null 2>&1 && fail 'not killed'
grep -q " $M " /proc/self/mountinfo || fail 'the mount should have been left'
! timeout 10 ls "$M" 2>/dev/null || fail 'a view without INIT answers'
M=$W/other
serve -- 1="$W/l"
[ "$(ask detach "$dead")" = 1 ] || fail 'a mount without INIT stays'
close_view
VS_FAULT=view_mounted:fail=5 "$B/tests/lib/viewserve" "$dead" 1="$W/l" </dev/null 2>"$W/err" && fail 'should fail'
grep -q 'view_open: Input/output error' "$W/err" || fail "message: $(cat "$W/err")"
! grep -q "verity-layers" /proc/self/mountinfo || fail 'a failed start leaves its mount'
