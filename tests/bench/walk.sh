#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P10: `find -ls` over 50,000 files, the second time: a container's overlay of
# lazy layers against one of layers that overlayfs unpacked.
# images: many
. "$(dirname "$0")/lib.sh"
config 'background_fill = false'

walk() {
	local t
	t=$(clock)
	[ "$(find "$1/many" -ls | wc -l)" -gt 50000 ] || fail "files are missing in $1"
	seconds "$t"
	echo
}

start_registry
fresh_node
pull verity "$REG/many:esgz"
pull overlayfs "$REG/many:gzip"
mount_image verity "$REG/many:esgz" "$W/lazy"
mount_image overlayfs "$REG/many:gzip" "$W/full"
first=$(walk "$W/lazy")
walk "$W/full" >/dev/null
n=$((RUNS * 3))
for _ in $(seq $n); do
	walk "$W/lazy" >>"$W/ours"
	walk "$W/full" >>"$W/theirs"
done
compare P10 'find -ls over 50,000 files, second time, s' '<=1.2' "$(column 1 "$W/ours")" "$(column 1 "$W/theirs")" "$n"
note 'find -ls over 50,000 files, first time, s' "$first"
unmount_image verity "$W/lazy"
unmount_image overlayfs "$W/full"
stop_node
