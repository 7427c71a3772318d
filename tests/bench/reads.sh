#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P9: a file of 128 MiB whose body is complete is read through a container's
# overlay by the kernel, without the daemon, against the same file in a snapshot
# that overlayfs unpacked, and a plain copy. Once with the pages of the file
# underneath in the page cache, once with nothing there.
# images: big
. "$(dirname "$0")/lib.sh"
config 'background_fill = false' 'verity = "off"' 'unsealed_reads = "passthrough"'

start_registry
fresh_node
pull verity "$REG/big:esgz"
pull overlayfs "$REG/big:esgz"
mount_image verity "$REG/big:esgz" "$W/lazy"
mount_image overlayfs "$REG/big:esgz" "$W/full"
cp "$W/lazy/mid.bin" "$W/plain"
cmp "$W/plain" "$W/full/mid.bin" || fail 'two images'
passed() {
	exec 7<"$W/lazy/mid.bin"
	[ "$(status | jq .view.opens.passthrough)" = 1 ] || { exec 7<&-; false; }
}
wait_for 30 'the file to be passed through' passed
sync

n=$((2 * RUNS + 1))
for cache in warm cold; do
	for how in seq mmap random; do
		for file in lazy/mid.bin full/mid.bin plain; do
			cat "$W/$file" >/dev/null
		done
		for _ in $(seq $n); do
			for file in lazy/mid.bin full/mid.bin plain; do
				[ $cache = warm ] || echo 1 >/proc/sys/vm/drop_caches
				"$B/tests/bench/readbench" $how "$W/$file" "${daemon_pid:?}" >>"$W/$cache.$how.${file%%/*}"
			done
		done
		f=$W/$cache.$how
		compare P9 "$how reads, $cache, MB/s" '>=0.95' "$(column 1 "$f.lazy")" "$(column 1 "$f.full")" $n
		compare P9 "$how reads, $cache: CPU ms per GB" '<=1.5' "$(column 2 "$f.lazy")" "$(column 2 "$f.full")" $n
		note "$how reads, $cache: plain ext4, MB/s" "$(column 1 "$f.plain")" $n
		note "$how reads, $cache: plain ext4, CPU ms per GB" "$(column 2 "$f.plain")" $n
	done
done
[ "$(status | jq .view.opens.passthrough)" = 1 ] || fail 'not passed through any more'
exec 7<&-
unmount_image verity "$W/lazy"
unmount_image overlayfs "$W/full"
stop_node
