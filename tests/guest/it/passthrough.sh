#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sealed files are read by the kernel without the daemon, below an overlay, with
# one copy in the page cache; a block that is flipped below one of them is an
# error, and never a wrong byte.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"

seal_image one 1
start_scripted
start_daemon
pull_sealed one
dir=$(shown one)
opens() { status | jq ".view.opens.$1"; }
is() { [ "$(opens "$1")" = "$2" ]; }

wait_for 30 'all files to be closed' is cached 0
echo 3 >/proc/sys/vm/drop_caches
mkdir "$W/up" "$W/work" "$W/o"
mount -t overlay overlay -o "lowerdir=$dir,upperdir=$W/up,workdir=$W/work" "$W/o"
before=$(status | jq .view.reads)
exec 7<"$W/o/large" 8<"$W/o/medium" 9<"$W/o/above"
[ "$(opens passthrough)" = 3 ] || fail "opens: $(status | jq -c .view.opens)"
(cd "$W/o" && grep -v small "$W/one.sums" | sha256sum --quiet -c) || fail 'other bytes'
[ "$(status | jq .view.reads)" = "$before" ] || fail 'the daemon was asked for bytes'
[ "$("$TOP/tests/lib/cachestat.py" "$dir/large")" = 0 ] || fail 'a second copy in the page cache'
# behind its 768 pages are those of the hash tree
[ "$("$TOP/tests/lib/cachestat.py" "$(body_of $((3 << 20)))")" -ge 768 ] || fail 'the body is not what is cached'
exec 7<&- 8<&- 9<&-
umount "$W/o"

# With the daemon gone for good the kernel goes on reading.
exec 7<"$dir/medium"
is passthrough 1 || fail 'medium is not passed through'
stop daemon KILL
sha256sum <&7 | cut -d' ' -f1 | found -x "$(awk '$2 == "medium" { print $1 }' "$W/one.sums")" || fail 'read without a daemon'
exec 7<&-
start_daemon
dir=$(shown one)

flip_block "$(body_of $((3 << 20)))" 700
for _ in 1 2; do
	got=$(read_whole one large)
	echo "a flipped block: $got"
	[[ $got =~ ^(ok|EIO)$ ]] || fail "large: $got"
done
[ "$(read_whole one medium)" = ok ] || fail 'what is not damaged'
daemon_answers >/dev/null || fail 'the daemon is gone'
