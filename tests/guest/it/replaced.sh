#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Files put in the place of sealed ones while the daemon is away: a shorter one,
# an unsealed copy, another sealed file, none. What is wrong is never served,
# and all of it is right and sealed again in the end.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"
config 'read_timeout = 60'

seal_image one 1
start_scripted
start_daemon
pull_sealed one
pack=$ROOT/layer/$(layer_status "$(layer_info one 1)" .seq)/pack
large=$(body_of $((3 << 20)))

# A file of another, with the digest of another.
stranger() { # SIZE FILE
	head -c "$1" /dev/urandom >"$2"
	sync "$2"
	"$B/tests/lib/sealtool" seal "$2" >/dev/null
}

replace() { # HOW FILE
	case $1 in
	shorter) head -c 100000 "$2" >"$W/new" ;;
	copy) cp "$2" "$W/new" ;;
	flipped-copy)
		cp "$2" "$W/new"
		printf x | dd of="$W/new" bs=1 seek=50000 conv=notrunc status=none
		;;
	sealed) stranger "$(stat -c %s "$2")" "$W/new" ;;
	none)
		rm "$2"
		return
		;;
	esac
	mv "$W/new" "$2"
}

for file in "$large" "$pack"; do
	for how in shorter copy flipped-copy sealed none; do
		stop daemon
		replace $how "$file"
		drop_caches
		start_daemon
		for name in large small0 small7 small11; do
			got=$(read_whole one $name)
			[[ $got =~ ^(ok|EIO)$ ]] || fail "$how $(basename "$file"): $name: $got"
		done
		wait_until_whole one
		echo "$(basename "$file"): $how: whole again"
	done
done
