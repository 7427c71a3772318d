# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests in the guest share; a test sources it first, with the words
# that run.sh takes (GUEST_DISK=8G) before it. Run by tests/run.sh like any
# integration test, it goes on in the guest from here: there W is an empty
# folder on a file system with fs-verity, /dev/ubda.
if [ -z "${GUEST_X:-}" ]; then
	: "${TOP:?run tests through tests/run.sh}"
	exec "$TOP/tests/guest/run.sh" "$0"
fi
W=/mnt/w
mount -o noatime /dev/ubda /mnt
mkdir -p $W
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

# cut_power NAME=VALUE: the plug is pulled. What the kernel has not written to
# the disk by itself is gone; the test starts again with this variable.
cut_power() {
	printf 'export %q\n' "$1" >"$GUEST_X/again"
	sync "$GUEST_X/again"
	busybox poweroff -n -f
	sleep infinity
}

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# flip_block FILE N: one bit in its block N, on the raw device. Twice: as it was.
flip_block() {
	local block
	sync
	block=$(filefrag -e -b4096 "$1" | awk -v n="$2" '$1 ~ /^[0-9]+:$/ {
		gsub(/[.:]+/, " "); if ($2 <= n && n <= $3) print $4 + n - $2 }')
	[ -n "$block" ] || fail "block $2 of $1 is not on the disk"
	python3 - "$block" <<-'P'
		import os, sys
		fd = os.open("/dev/ubda", os.O_RDWR)
		off = int(sys.argv[1]) * 4096 + 1234
		byte = os.pread(fd, 1, off)[0]
		os.pwrite(fd, bytes([byte ^ 4]), off)
		os.fsync(fd)
	P
	echo 3 >/proc/sys/vm/drop_caches
}

# containerd's own files are not what is tested: they last for one life.
containerd_in_memory() {
	mkdir -p "$W/ctd"
	mount -t tmpfs none "$W/ctd"
	start_containerd 1 >/dev/null
}
