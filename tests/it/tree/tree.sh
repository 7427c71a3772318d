# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Both trees of an image, and their comparison; sourced behind lib.sh.
: "${TOP:?}" "${W:?}" "${REG:?}"
n_images=0 n_paths=0 n_bytes=0

# pull_both REF: lazily through us, and unpacked by overlayfs
pull_both() {
	case ${CONTAINERD:-1} in
	1) ctr-remote images rpull --snapshotter verity --plain-http "$1" >/dev/null ;;
	*) ctr image pull --plain-http --snapshotter verity "$1" >/dev/null ;;
	esac
	[ "${2:-}" = fallback ] || assert_lazy "$1"
	ctr image pull --plain-http --snapshotter overlayfs "$1" >/dev/null
}

# chain_id REF: the name of its topmost snapshot
chain_id() {
	local id='' d
	for d in $(skopeo inspect --config --raw --tls-verify=false "docker://$1" | jq -r '.rootfs.diff_ids[]'); do
		[ -z "$id" ] || d=sha256:$(printf '%s %s' "$id" "$d" | sha256sum | cut -d' ' -f1)
		id=$d
	done
	echo "$id"
}

# mount_both REF: the roots that a container gets, at $W/plain and $W/lazy
mount_both() {
	local k top folder
	top=$(chain_id "$1")
	for k in plain:overlayfs lazy:verity; do
		mkdir -p "$W/${k%:*}"
		ctr snapshots --snapshotter "${k#*:}" prepare "tree-${k%:*}" "$top"
		# Paths from there, as containerd does: a page holds all options.
		folder=$ROOT
		[ $k = lazy:verity ] || folder=$W/ctd/root/io.containerd.snapshotter.v1.overlayfs/snapshots
		ctr snapshots --snapshotter "${k#*:}" mounts "$W/${k%:*}" "tree-${k%:*}" >"$W/mount"
		(cd "$folder" && sed "s#\([=:]\)$folder/#\1#g" "$W/mount" | bash -e)
	done
}

umount_both() {
	local k
	umount "$W/plain" "$W/lazy"
	for k in plain:overlayfs lazy:verity; do
		ctr snapshots --snapshotter "${k#*:}" rm "tree-${k%:*}"
	done
	ctr image rm --sync "$1" >/dev/null
}

# compare_trees NAME [ARGS...]: what differs between $W/plain and $W/lazy, in
# $W/differences; adds to the counts
compare_trees() {
	local name=$1 status=0
	shift
	python3 "$TOP/tests/it/tree/compare.py" "$@" "$W/plain" "$W/lazy" >"$W/differences" || status=$?
	echo "$name: $(tail -n 1 "$W/differences")"
	[[ $(tail -n 1 "$W/differences") =~ ^([0-9]+)\ paths,\ ([0-9]+)\ bytes ]] || fail "$(cat "$W/differences")"
	n_images=$((n_images + 1))
	n_paths=$((n_paths + BASH_REMATCH[1]))
	n_bytes=$((n_bytes + BASH_REMATCH[2]))
	[ $status = 0 ]
}

# same NAME [ARGS...]: the image has the same tree both ways
same() {
	local name=$1 ref=$REG/$1:esgz since
	shift
	since=$(date +%s)
	pull_both "$ref"
	mount_both "$ref"
	compare_trees "$name" --since "$since" "$@" || fail "$name: $(head -n 40 "$W/differences")"
	umount_both "$ref"
}

total() {
	echo "$n_images images, $n_paths paths, $n_bytes bytes compared: no difference"
}
