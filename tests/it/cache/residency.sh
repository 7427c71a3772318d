#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Image bytes leave no trace in the page cache: what is resident of our own
# files, and of somebody else's, after a pull, after reads, after background
# fill and a proof; with RWF_DONTCACHE and as on a kernel without it, on the
# disk's file system and on tmpfs (whose files are the page cache). Without any
# hints all of it stays: so these are the hints, and not the kernel.
. "$(dirname "$0")/../../lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

own_page_cache
MIB=$((1 << 20))
head -c $((40 * MIB)) /dev/urandom >"$W/huge"
head -c $((5 * MIB)) /dev/urandom >"$W/large"
make_image app <<-J
	{"layers": [{"entries": [{"path": "huge", "content": {"file": "$W/huge"}},
	                         {"path": "large", "content": {"file": "$W/large"}},
	                         {"path": "many/", "type": "dir"},
	                         $(printf '{"path": "many/%s", "content": {"random": 9000, "seed": %s}},' {1..200}{,})
	                         {"path": "last", "content": "x"}]}]}
J
head -c $((16 * MIB)) /dev/urandom >"$W/hot"
cat "$W/hot" "$W/hot" >/dev/null

# Bytes in the page cache
resident() { # FILE...
	# files of a proof come and go
	{ fincore -b -n -o RES "$@" 2>/dev/null || true; } | awk '{ s += $1 } END { print s + 0 }'
}
# Of contents and metadata: state files are small, and read at random.
ours() {
	local files
	mapfile -t files < <(find "$ROOT/layer" "$ROOT/body" -type f ! -name '*.state')
	resident "${files[@]}"
}
all_ours() {
	find "$ROOT/layer" "$ROOT/body" -type f ! -name '*.state' -printf '%s\n' | awk '{ s += $1 } END { print s }'
}

way() {
	status | jq -r --arg d "$(stat -c '%Hd:%Ld' "$ROOT")" '.page_cache[] | select(.device == $d).way'
}

# check WHEN [MIB]: how little there is. What small reads leave is 4 MiB a file,
# what is being written two windows of 8 MiB.
check() {
	local own hot max=$((${2:-10} * MIB))
	own=$(ours) hot=$(resident "$W/hot")
	echo "$way on $fs, $1: $own of $(all_ours) bytes of ours, $hot of $((16 * MIB)) of theirs"
	[ "$hot" -ge $((16 * MIB * 99 / 100)) ] || fail "$way, $1: their file is gone"
	[ "$fs" = tmpfs ] || [ "$limit" = none ] || [ "$own" -le $max ] || fail "$way, $1: $own bytes of ours"
}

proven() {
	[ "$(layer_status "$(layer_info app 0)" .proof)" = proven ]
}
filled() {
	[ "$(layer_status "$(layer_info app 0)" '.bytes_local == .bytes_total')" = true ]
}
read_all() {
	local path
	path=$(layer_path "$(layer_info app 0)")
	cmp "$W/huge" "$path/huge"
	cmp "$W/large" "$path/large"
	cat "$path"/many/* >/dev/null
}

# round FS WAY WITHOUT...
round() {
	fs=$1 way=$2 limit=$3
	config 'background_fill = false'
	[ "$fs" = disk ] || { mkdir -p "$ROOT" && mount -t tmpfs -o mode=700 none "$ROOT"; }
	start_daemon "${@:4}"
	start_containerd 1 >/dev/null
	[ "$(way)" = "$way" ] || fail "the way is '$(way)', not '$way'"
	grep -q "page cache: device=.* way=$way" "$W/daemon.log" || fail 'the way is not in the log'
	"$CTL" --run "$RUN" status | found "cache .*$way on device" || fail 'the way is not in status'
	pull app
	check 'after the pull'
	cmp -n $((24 * MIB)) "$W/huge" "$(layer_path "$(layer_info app 0)")/huge"
	check 'after reading a part' 20
	read_all
	check 'after reading all'
	read_all
	check 'after reading all again'
	stop containerd
	stop daemon
	# What another daemon finds, and proves from the disk.
	config
	start_daemon "${@:4}"
	wait_for 30 'the proof' proven
	check 'after the proof'
	if [ "$limit" = none ]; then
		[ "$(ours)" -ge "$(stat -c %s "$W/huge")" ] || fail 'without hints it does not stay either'
	fi
	stop daemon
	empty_node
	# Everything by background fill.
	start_daemon "${@:4}"
	start_containerd 1 >/dev/null
	pull app
	wait_for 60 'background fill' filled
	wait_for 30 'the proof' proven
	check 'after background fill and proof'
	stop containerd
	stop daemon
	empty_node
	[ "$fs" = disk ] || umount "$ROOT"
}
empty_node() {
	rm -rf --one-file-system "$W/ctd" "$RUN"
	find "$ROOT" -mindepth 1 -xdev -delete
}

start_scripted
touch "$W/probe"
round disk "$("$B/tests/lib/cachetool" ways "$W/probe")" hints
round disk fadvise hints --without dontcache
round disk plain none --without page-cache-hints
round tmpfs fadvise hints
