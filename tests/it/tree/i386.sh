#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An old i386 program, with 32 bits for an inode number, walks a lazy image.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"
gcc -m32 -Os -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -o "$W/walk32" "$TOP/tests/it/tree/walk32.c" &&
	"$W/walk32" / >/dev/null || skip 'this machine runs no i386 programs'

start_registry
start_daemon
start_containerd 1
ref=$REG/tools:esgz
pull_both "$ref"
walk() {
	ctr run --rm --snapshotter "$1" "$ref" "walk-$1" /opt/walk32 "$2"
}
for d in /t /opt /usr/lib /src; do
	[ "$(walk verity $d)" = "$(walk overlayfs $d)" ] || fail "$d: $(walk verity $d), not $(walk overlayfs $d)"
	[[ $(walk verity $d) = *' 0 errors' ]] || fail "$d: $(walk verity $d)"
done
