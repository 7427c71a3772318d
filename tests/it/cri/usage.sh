#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage is final from the start: the uncompressed size of a layer, while next to
# nothing of it is here; the same when all of it is; and what an unpack on
# overlayfs takes. containerd's CRI plugin reads it once for a committed
# snapshot, so a number that grew later would never be seen.
. "$TOP/tests/it/cri/common.sh"

config 'background_fill = false'
start_cri
ref=$REG/app:latest
crictl pull "$ref" >/dev/null
assert_cri_lazy app
large=$(layer_info app 1)

usages() { # SNAPSHOTTER: chain id, size and inodes of each snapshot
	ctr snapshots --snapshotter "$1" usage -b | awk 'NR > 1 { print $1, $2, $3 }' | sort
}
before=$(usages verity)
echo "$before"
[ "$(wc -l <<<"$before")" = 2 ] || fail "snapshots: $before"
[ "$(layer_status "$large" '.bytes_local < .bytes_total / 2')" = true ] || fail "status: $(status)"

# What overlayfs counts for the same image, but for two files of a block each
# that belong to the format and are not shown: table of contents and landmark.
ctr image pull --plain-http --snapshotter overlayfs "$ref" >/dev/null
ordinary=$(usages overlayfs | awk '{ print $1, $2 - 8192, $3 - 2 }')
case $(stat -f -c %T "$W") in
ext2/ext3) slack=0 ;;
*) slack=4096 ;; # for each inode: other file systems keep small things elsewhere
esac
paste <(echo "$before") <(echo "$ordinary") | awk -v slack=$slack '{
	d = $2 < $5 ? $5 - $2 : $2 - $5
	if ($1 != $4 || $3 != $6 || d > slack * $3)
		exit 1
}' || fail "lazily: $before; by overlayfs: $ordinary"

# The kubelet's view: the sum over all snapshots, on the file system of ours.
of_verity() {
	crictl imagefsinfo -o json | jq --arg root "$ROOT" \
		'[.status.imageFilesystems[] | select(.fsId.mountpoint == $root)][0]'
}
sum=$(awk '{ s += $2 } END { print s }' <<<"$before")
inodes=$(awk '{ s += $3 } END { print s }' <<<"$before")
collected() {
	[ "$(of_verity | jq -r '.usedBytes.value, .inodesUsed.value' | paste -sd' ')" = "$sum $inodes" ]
}
wait_for 60 "an image file system of $sum bytes and $inodes inodes" collected
# It is the default's: the kubelet looks at the first one only.
[ "$(crictl imagefsinfo -o json | jq -r '.status.imageFilesystems[0].fsId.mountpoint')" = "$ROOT" ] ||
	fail "first: $(crictl imagefsinfo -o json)"
# The file system that the kubelet asks for its capacity is one.
[ "$(stat -f -c %b "$ROOT")" -gt 0 ] || fail 'capacity 0'

# All of it read: nothing changes.
pod=$(crictl runp "$(pod_config one)")
c=$(start_container main "$pod" "$W/one.pod.json" "$ref" '["/bin/sleep", "100000"]')
crictl exec "$c" /bin/sh -c 'cat /data/* >/dev/null'
[ "$(layer_status "$large" '.bytes_local >= 3000000')" = true ] || fail "status: $(layer_status "$large" .)"
[ -z "$(comm -23 <(echo "$before") <(usages verity))" ] || fail "then: $(usages verity); before: $before"

# What a container writes is counted as it grows.
crictl exec "$c" /bin/busybox dd if=/dev/zero of=/tmp/written bs=65536 count=16 2>/dev/null
written=$(ctr snapshots --snapshotter verity usage -b "$c" | awk 'NR > 1 { print $2 }')
[ "$written" -ge 1048576 ] || fail "usage of the container's own layer: $written"
in_stats() {
	[ "$(crictl stats -a -o json | jq --arg c "$c" \
		'[.stats[] | select(.attributes.id == $c)][0].writableLayer.usedBytes.value | tonumber >= 1048576')" = true ]
}
wait_for 60 'the stats of the container' in_stats
