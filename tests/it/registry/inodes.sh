#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The state directory's file system is out of inodes: readers get their bytes
# without caching, a pull says why it cannot be, and all is kept again once there
# are some.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

make_image big <<-'J'
	{"layers": [{"entries": [
	  {"path": "small", "content": {"random": 3000, "seed": 1}},
	  {"path": "large", "content": {"random": 400000, "seed": 2}},
	  {"path": "other", "content": {"random": 400000, "seed": 3}}]}]}
J
make_image late <<-'J'
	{"layers": [{"entries": [{"path": "f", "content": {"random": 3000, "seed": 9}}]}]}
J
want() { # BYTES SEED
	python3 - "$@" <<-P
		import sys; sys.path.insert(0, "$TOP/tests/lib")
		import hashlib, mkestargz
		c = mkestargz.Content({"random": int(sys.argv[1]), "seed": int(sys.argv[2])})
		print("ok", hashlib.sha256(c.bytes()).hexdigest())
	P
}
is_read() { [ "$(read_errno "$1")" = "$(want "$2" "$3")" ]; }
mkdir -p "$ROOT"
mount -t tmpfs -o size=48m,nr_inodes=200,mode=0700 few "$ROOT"
start_scripted
config 'read_timeout = 20' 'background_fill = false'
start_daemon
start_containerd 1
pull big
d=$(layer_info big 0)
dir=$(layer_path "$d")
[ -n "$dir" ] || fail "big is not lazy: $(layer_status "$d" .reason)"

n=0
while touch "$ROOT/filler.$n" 2>/dev/null; do n=$((n + 1)); done
[ $n -gt 0 ] && ! touch "$ROOT/filler.more" 2>/dev/null || fail 'there are inodes left'
for f in 'small 3000 1' 'large 400000 2'; do
	read -r name len seed <<<"$f"
	got=$(read_errno "$dir/$name")
	[ "$got" = "$(want "$len" "$seed")" ] || fail "$name without inodes: $got"
done
grep -q 'served without caching' "$W/daemon.log" || fail 'the log does not say so'
[[ $(layer_status "$d" .reason) == *'without caching'* ]] || fail "status: $(layer_status "$d" .reason)"
if ctr-remote images rpull --snapshotter verity --plain-http "$REG/late:latest" >"$W/pull.log" 2>&1; then
	fail 'a pull succeeds without inodes'
fi
grep -qi 'no space left' "$W/pull.log" || fail "the pull does not say why: $(tail -n 2 "$W/pull.log")"

rm "$ROOT"/filler.*
wait_for 60 'a file to be read' is_read "$dir/other" 400000 3
[ "$(layer_status "$d" .bytes_local)" -ge 400000 ] || fail "$(layer_status "$d" .bytes_local) bytes are kept"
pull late
assert_state "$(layer_info late 0)" lazy complete
wait_for 60 'the late image to be read' is_read "$(layer_path "$(layer_info late 0)")/f" 3000 9
