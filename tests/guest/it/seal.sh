#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is complete is sealed: index, map, pack and every large file are verity
# files with the digest that follows from our leaves. A block that is flipped
# below one of them is never read as if nothing had happened: the reader gets an
# error or, fetched again, the right bytes; the daemon stays, and all is sealed
# again.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"

# Reads pass through the daemon here: it repairs while the reader waits. What the
# kernel reads without it is in passthrough.sh.
seal_image one 1
start_scripted
config 'passthrough = false'
start_daemon
pull_sealed one
[ "$(layer_files | wc -l)" = 9 ] || fail "files: $(layer_files)"
[ "$(status | jq '.sealing.files')" = 9 ] || fail "sealed twice: $(status | jq -c .sealing)"
seq=$(layer_status "$(layer_info one 1)" .seq)

flip() { # FILE BLOCK
	flip_block "$1" "$2"
	! cat "$1" >/dev/null 2>&1 || fail "block $2 of $1 was flipped for nothing"
}

restart_with() { # CONFIG...
	stop daemon
	config "$@"
	start_daemon
}

# A body: its readers wait for the repair, or are told.
flipped() { # FILE BLOCK NAME...: members that may lie in it
	local file=$1 n=$2 name got
	shift 2
	flip "$file" "$n"
	for name; do
		got=$(read_whole one "$name")
		echo "block $n of $(basename "$file"): $name: $got"
		[[ $got =~ ^(ok|EIO)$ ]] || fail "$name: $got"
	done
	daemon_answers >/dev/null || fail 'the daemon is gone'
	wait_until_whole one
}
flipped "$(body_of $((3 << 20)))" 700 large
flipped "$(body_of $(((1 << 20) + 12345)))" 256 medium
flipped "$ROOT/layer/$seq/pack" 100 small0 small1 small2 small3 small4

# Without a registry: an error, and never a byte of it.
large=$(body_of $((3 << 20)))
restart_with 'passthrough = false' 'read_timeout = 3'
fault '{"match": "blobs/", "fault": "status:404"}'
flip "$large" 0
got=$(read_whole one large)
echo "without a registry: $got"
[[ $got =~ ^(EIO|ETIMEDOUT)$ ]] || fail "large: $got"
[ "$(read_whole one medium)" = ok ] || fail 'what is not damaged'
all_good
restart_with 'passthrough = false' 'read_timeout = 60'
wait_until_whole one

# Index and map are of the layer that they describe: another is made.
for file in index map; do
	old=$(layer_status "$(layer_info one 1)" 'select(.state != "bad") | .seq')
	stop daemon
	flip "$ROOT/layer/$old/$file" 0
	start_daemon
	got=$(read_errno "$ROOT/l/$old/above")
	echo "$file: $got"
	[ "$got" = EIO ] || fail "read with a damaged $file: $got"
	daemon_answers >/dev/null || fail 'the daemon is gone'
	seal_image "after-$file" 1
	containerd_in_memory
	pull "after-$file"
	stop containerd
	umount -l "$W/ctd"
	new=$(layer_status "$(layer_info one 1)" 'select(.state != "bad") | .seq')
	[ -n "$new" ] && [ "$new" != "$old" ] || fail "$file: layer $old, then ${new:-none}"
	(cd "$ROOT/l/$new" && sha256sum --quiet -c "$W/one.sums") || fail "$file: contents of the new layer"
done
