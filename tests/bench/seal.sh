#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P1: what sealing costs (in the guest: this kernel may have no fs-verity), and
# what hashing twice and checking at each read cost (here: the guest's kernel and
# programs do not have the processor's SHA instructions). P15: disk for bytes.
# images: py many
. "$(dirname "$0")/lib.sh"

# both COMMAND...: its two figures, medians of RUNS
both() {
	local i
	rm -f "$W/both"
	for i in $(seq "$RUNS"); do
		mkdir "$W/both.$i"
		"$B/tests/bench/sealbench" "${@//DIR/$W/both.$i}" >>"$W/both"
		rm -rf "$W/both.$i"
	done
	one=$(column 1 "$W/both") other=$(column 2 "$W/both")
}
both hashes
hash_s=$other
compare P1 'CPU of chunk and leaf hashes, of chunk hashes, s' '<=2.15' "$other" "$one" "$RUNS"
both checked DIR
compare P1 'speed of checked reads of cached blocks, of SHA-256' '>=0.85' \
	"$(calc "67.109 / $other")" "$(calc "67.109 / $one")" "$RUNS"

# ---- P1: reading and hashing 250 MB in the way of FS_IOC_ENABLE_VERITY, on this disk
head -c 250000000 /dev/urandom >"$W/raw"
sync "$W/raw"
uncached() {
	dd of="$W/raw" oflag=nocache conv=notrunc,fdatasync count=0 status=none
	[ "$(fincore -b -n -o RES "$W/raw" | tr -d ' ')" = 0 ] || fail 'the file stays in memory'
}
as_kernel() { # WAY
	SEALBENCH_AS_KERNEL=1 "$B/tests/bench/sealbench" "$1" "$W/raw" >>"$W/t.$1"
}
for _ in $(seq "$RUNS"); do
	uncached
	t=$(clock)
	dd if="$W/raw" of=/dev/null bs=1M status=none
	echo "$(seconds "$t")" >>"$W/t.read"
	uncached
	as_kernel seal
	uncached
	as_kernel bare
	uncached
	as_kernel random
	cat "$W/raw" >/dev/null
	as_kernel cached
done
on='as the kernel seals 250 MB, here'
compare P1 "$on: uncached less cached, reading it, s" '<=1.1' \
	"$(calc "$(best 1 "$W/t.seal") - $(best 1 "$W/t.cached")")" "$(best 1 "$W/t.read")" "$RUNS"
note "$on: uncached, s" "$(best 1 "$W/t.seal")" "$RUNS"
note "$on: cached, s" "$(best 1 "$W/t.cached")" "$RUNS"
note "$on: uncached, the kernel's own readahead, s" "$(best 1 "$W/t.bare")" "$RUNS"
note "$on: uncached, no readahead, s" "$(best 1 "$W/t.random")" "$RUNS"
rm "$W/raw"

# ---- P15
# filled: everything here, and nothing more to come
filled() {
	status | jq -e '.layers | length > 0 and all(.bytes_local == .bytes_total and .proof == "proven")' >/dev/null
}
# bytes_of FOLDER...: of its files, each inode once
bytes_of() {
	find "$@" -xdev -type f -printf '%i %s\n' | sort -u | awk '{ s += $2 } END { printf "%d", s }'
}
blocks_of() {
	find "$@" -xdev -printf '%i %b\n' | sort -u | awk '{ s += $2 } END { printf "%d", s * 512 }'
}
start_registry
for i in 'py 1.05' 'many 1.2'; do
	read -r image goal <<<"$i"
	config
	fresh_node
	pull overlayfs "$REG/$image:esgz"
	theirs=$(blocks_of "$W"/ctd/root/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs)
	raw_theirs=$(bytes_of "$W"/ctd/root/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs)
	cpu=$(daemon_cpu)
	pull verity "$REG/$image:esgz"
	wait_for 120 "$image to be here" filled
	cpu=$(calc "$(daemon_cpu) - $cpu")
	raw=0
	for seq in $(status | jq '.layers[].seq'); do raw=$((raw + $(bytes_of "$ROOT/l/$seq"))); done
	compare P15 "disk used by $image, bytes of its files" "<=$goal" "$(state_bytes)" "$raw" 1
	note "the same by overlayfs" "$(calc "$theirs / $raw_theirs")"
	[ $image != py ] || note "hashing in CPU s of a whole pull of $cpu: chunks and leaves" \
		"$(calc "$raw * $hash_s / 67108864")"
done
stop_node
stop registry

GUEST_KERNEL=${GUEST_KERNEL:-$("$TOP/tests/guest/build.sh")} || GUEST_KERNEL=none
[ "$GUEST_KERNEL" != none ] || fail 'there is no guest, so nothing was measured that needs fs-verity'
export GUEST_KERNEL RUNS
GUEST_DISK=4G GUEST_LIMIT=600 GUEST_ENV=RUNS "$TOP/tests/guest/run.sh" "$TOP/tests/bench/seal_guest.sh"
cat "$W/guest/bench.tsv" >>"$TSV"
