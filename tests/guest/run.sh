#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SCRIPT: run it as root in the guest; its output, its exit status.
#
# A test calls this by sourcing guest.sh. The guest is a User-mode Linux kernel
# (build.sh) on this machine's file tree, read-only. $W/disk.img, made here with
# ext4 and fs-verity, is /dev/ubda there; $W/guest is the same folder in both.
# A guest that asks for it (cut_power) is started again on the same disk.
# 124: no end within GUEST_LIMIT seconds; 125: the kernel died.
#
# GUEST_KERNEL build.sh's   GUEST_MEM 1G   GUEST_DISK 2G   GUEST_LIMIT 240
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${TOP:?run tests through tests/run.sh}" "${W:?}" "${GUEST_KERNEL:?}"
script=$(readlink -f "$1")
x=$W/guest
[ "$GUEST_KERNEL" != none ] || { echo 'SKIP: no linux-source package for the kernel of the guest'; exit 77; }

# verity needs blocks of 4096 bytes, which small disks do not get by themselves.
mkdir -p "$x" "$W/mem"
truncate -s "${GUEST_DISK:-2G}" "$W/disk.img"
mkfs.ext4 -q -F -O verity -b 4096 -E nodiscard "$W/disk.img"

# Its memory is a file: not in /dev/shm, which containers keep small.
mount -t tmpfs -o size="${GUEST_MEM:-1G}" none "$W/mem"

{
	for name in PATH TOP B DAEMON CTL CLIENTS IMAGES ASAN_OPTIONS UBSAN_OPTIONS ${GUEST_ENV:-}; do
		[ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
	done
	echo 'export GUEST_X'
} >"$x/env"
printf 'exec %q\n' "$script" >"$x/job"

# All of it on one processor, where its processes hand over to each other: two
# to three times as fast as on all of them.
one_cpu() {
	local cpus
	mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
		awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
	echo "${cpus[RANDOM % ${#cpus[@]}]}"
}

boot() { # SECONDS
	rm -f "$x/status" "$x/again"
	TMPDIR=$W/mem timeout -k 5 "$1" taskset -c "$(one_cpu)" "$GUEST_KERNEL" mem="${GUEST_MEM:-1G}" seccomp=auto \
		root=/dev/root rootfstype=hostfs rootflags=/ ro ubda="$W/disk.img" con=null con0=fd:0,fd:1 \
		panic=-1 noreboot quiet loglevel=0 init="$here/init.sh" GUEST_X="$x" </dev/null
}

end=$((SECONDS + ${GUEST_LIMIT:-240}))
while :; do
	rc=0
	boot $((end > SECONDS ? end - SECONDS : 1)) || rc=$?
	[ -e "$x/again" ] || break
	cat "$x/again" >>"$x/env"
done
grep -E 'BUG:|WARNING:|Oops|blocked for more' "$x/dmesg" 2>/dev/null | sed 's/^/guest kernel: /' || true
[ ! -s "$x/status" ] || exit "$(cat "$x/status")"
case $rc in
124 | 137) echo "the guest did not end within ${GUEST_LIMIT:-240} s" >&2; exit 124 ;;
*) echo "the guest ended with $rc and without a status" >&2; exit 125 ;;
esac
