#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The disk is full: readers get their bytes all the same, without caching, and
# once there is room again what they read is kept.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

make_image big <<-'J'
	{"layers": [{"entries": [
	  {"path": "small", "content": {"random": 3000, "seed": 1}},
	  {"path": "one", "content": {"random": 300000, "seed": 2}},
	  {"path": "large", "content": {"random": 9000000, "seed": 3}},
	  {"path": "later", "content": {"random": 8000000, "seed": 4}}]}]}
J
want() { # BYTES SEED
	python3 - "$@" <<-P
		import sys; sys.path.insert(0, "$TOP/tests/lib")
		import hashlib, mkestargz
		c = mkestargz.Content({"random": int(sys.argv[1]), "seed": int(sys.argv[2])})
		print("ok", hashlib.sha256(c.bytes()).hexdigest())
	P
}
mkdir -p "$ROOT"
mount -t tmpfs -o size=48m,mode=0700 full "$ROOT"
start_scripted
config 'read_timeout = 10' 'background_fill = false'
start_daemon
start_containerd 1
pull big
d=$(layer_info big 0)
dir=$(layer_path "$d")
[ -n "$dir" ] || fail "big is not lazy: $(layer_status "$d" .reason)"

dd if=/dev/zero of="$ROOT/filler" bs=64k 2>/dev/null && fail 'the disk is not full'
dd if=/dev/zero of="$ROOT/filler" bs=4k oflag=append conv=notrunc 2>/dev/null || true
for f in 'small 3000 1' 'one 300000 2' 'large 9000000 3'; do
	read -r name len seed <<<"$f"
	got=$(read_errno "$dir/$name")
	[ "$got" = "$(want "$len" "$seed")" ] || fail "$name on a full disk: $got"
done
grep -q 'served without caching' "$W/daemon.log" || fail 'the log does not say so'
[[ $(layer_status "$d" .reason) == *'disk is full or read-only'* ]] || fail "status: $(layer_status "$d" .reason)"
local_bytes() { layer_status "$d" .bytes_local; }
[ "$(local_bytes)" -lt 100000 ] || fail "$(local_bytes) bytes have found room"

rm "$ROOT/filler"
got=$(read_errno "$dir/later")
[ "$got" = "$(want 8000000 4)" ] || fail "later, with room again: $got"
[ "$(local_bytes)" -ge 8000000 ] || fail "$(local_bytes) bytes are kept"
