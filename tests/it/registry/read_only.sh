#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A state directory that takes nothing: the daemon refuses to start on it and
# says why; one whose file system becomes read-only under a running daemon (ext4
# does that to itself after an error) serves on: what is here from the disk, the
# rest without caching. After the file system has been mounted anew, and the
# daemon started, all is as before.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

make_image big <<-'J'
	{"layers": [{"entries": [
	  {"path": "here", "content": {"random": 400000, "seed": 1}},
	  {"path": "new", "content": {"random": 400000, "seed": 2}},
	  {"path": "small", "content": {"random": 3000, "seed": 3}}]}]}
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
reads() { # NAME BYTES SEED WHEN
	local got
	got=$(read_errno "$dir/$1")
	[ "$got" = "$(want "$2" "$3")" ] || fail "$1 $4: $got: $(grep 'read fails' "$W/daemon.log" | tail -n 2)"
}
config 'read_timeout = 20' 'background_fill = false'

# --- at start
mkdir -p "$ROOT"
mount -t tmpfs -o size=48m,mode=0700 none "$ROOT"
mount -o remount,ro "$ROOT"
s=0
"$DAEMON" --root "$ROOT" --run "$RUN" --config "$W/daemon.toml" >"$W/refused.log" 2>&1 || s=$?
[ $s -gt 0 ] && [ $s -lt 128 ] || fail "on a read-only directory the daemon ends with $s"
grep -q "$ROOT" "$W/refused.log" || fail "it does not name the directory: $(cat "$W/refused.log")"
grep -qi 'read-only' "$W/refused.log" || fail "it does not say why: $(cat "$W/refused.log")"
umount "$ROOT"

# --- meanwhile
truncate -s 64M "$W/disk"
mkfs.ext4 -q "$W/disk" 2>/dev/null || skip 'needs mkfs.ext4'
mount_disk() { mount -o loop,errors=remount-ro "$W/disk" "$ROOT" 2>/dev/null; }
mount_disk || skip 'needs a loop device'
chmod 0700 "$ROOT"
trigger=/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$ROOT")")/trigger_fs_error
[ -w "$trigger" ] || skip 'needs an ext4 that can be made to fail'
start_scripted
start_daemon
start_containerd 1
pull big
d=$(layer_info big 0)
dir=$(layer_path "$d")
reads here 400000 1 'before'
# Once more from the start, so that nothing of it is open yet.
stop daemon
start_daemon
dir=$(layer_path "$d")
! mount -o remount,ro "$ROOT" 2>/dev/null || fail 'the kernel lets the state directory become read-only under open files'
echo test >"$trigger"
! touch "$ROOT/x" 2>/dev/null || fail 'the file system is still writable'
fetched() { reg_stats ".by_digest[\"$d\"].bytes // 0"; }
fault '{"reset": true}'
reads here 400000 1 'on a read-only disk, for the first time'
[ "$(fetched)" = 0 ] || fail "what is on the disk was fetched again: $(fetched) bytes"
for _ in 1 2; do
	reads here 400000 1 'on a read-only disk'
	reads new 400000 2 'on a read-only disk'
	reads small 3000 3 'on a read-only disk'
	drop_caches
done
if ctr-remote images rpull --snapshotter verity --plain-http "$REG/late:latest" >"$W/pull.log" 2>&1; then
	fail 'a pull succeeds on a read-only disk'
fi
daemon_answers || fail 'the daemon does not answer any more'

# --- after: the administrator checks and mounts it, and starts the daemon
stop daemon
umount "$ROOT" || fail 'the daemon left something open'
e2fsck -fy "$W/disk" >/dev/null 2>&1 || [ $? -lt 4 ] || fail 'the file system is damaged'
mount_disk || fail 'it cannot be mounted again'
start_daemon
dir=$(layer_path "$d")
reads here 400000 1 'after'
reads new 400000 2 'after'
[ "$(layer_status "$d" .bytes_local)" -ge 800000 ] || fail 'what is read is not kept'
