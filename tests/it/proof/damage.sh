#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is no lie: damage on the disk, answers cut short, a registry that gives
# other bytes for a while. The honest layer is proven in the end, by what the
# blob says; nothing of it is ever quarantined.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME
	count=$((count + 1))
	make_image "$1" <<-J
		{"layers": [{"chunk_size": 20000, "entries": [
		  {"path": "d/", "type": "dir"},
		  {"path": "d/a", "content": {"text": 50000, "seed": $count}},
		  {"path": "d/b", "content": {"random": 200000, "seed": $count}},
		  {"path": "d/c", "content": {"text": 700, "seed": $count}},
		  {"path": "name", "content": "$1"}]}]}
	J
	d=$(layer_info "$1" 0)
}
count=0

is_proven() {
	[ "$(layer_status "$d" .proven)" = true ]
}

folder() {
	echo "$ROOT/layer/$(layer_status "$d" .seq)"
}

is_complete() {
	[ "$(layer_status "$d" .state)" = complete ]
}

read_all() {
	cat "$(layer_path "$d")"/d/* "$(layer_path "$d")/name" >/dev/null
}

# Changes the middle byte of a file
damage() {
	python3 - "$1" <<-'P'
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR)
		at = os.fstat(fd).st_size // 2
		byte = os.pread(fd, 1, at)
		os.pwrite(fd, bytes([byte[0] ^ 1]), at)
	P
}

start_scripted
# Nothing is fetched unless somebody reads; so the disk can be damaged between.
config 'background_fill = false' 'read_timeout = 20'
start_daemon
start_containerd 1

# Without background fill the proof waits: the bytes before the first file were
# never needed.
image waits
pull waits
read_all
wait_for 10 'all of it' is_complete
sleep 1
! is_proven || fail 'proven without all bytes'
[ -n "$(layer_status "$d" .proof)" ] || fail 'status'
# A restart with background fill: what is missing is fetched, no more.
echo 'read_timeout = 20' >"$W/daemon.toml"
stop daemon
start_daemon
wait_for 30 'the proof' is_proven
[ "$(layer_status "$d" .bytes_refetched)" = 0 ] || fail "refetched: $(layer_status "$d" .bytes_refetched)"

# A damaged residue: in the middle of the file, in the kept table.
for what in middle gone; do
	config 'background_fill = false' 'read_timeout = 20'
	stop daemon
	start_daemon
	image "residue-$what"
	wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/residue-$what:latest"
	read_all
	wait_for 10 'all of it' is_complete
	f=$(folder)/residue
	echo 'read_timeout = 20' >"$W/daemon.toml"
	stop daemon
	case $what in
	middle) damage "$f" ;;
	gone) rm "$f" ;;
	esac
	start_daemon
	wait_for 30 "the proof of residue-$what" is_proven
	echo "residue-$what: refetched $(layer_status "$d" .bytes_refetched)"
	[ "$(layer_status "$d" .bytes_refetched)" -gt 0 ] || fail 'the refetched bytes are not shown'
done

# A damaged body: its extent is fetched again on the way.
config 'background_fill = false' 'read_timeout = 20'
stop daemon
start_daemon
image body
wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/body:latest"
read_all
wait_for 10 'all of it' is_complete
echo 'read_timeout = 20' >"$W/daemon.toml"
f=$(folder)/pack
stop daemon
damage "$f"
start_daemon
wait_for 30 'the proof of body' is_proven

# Other bytes, and answers that end early, while the proof fetches.
for fault in tamper:30000 short:100 status:503 reset; do
	config 'background_fill = false' 'read_timeout = 20'
	stop daemon
	start_daemon
	image "fault-${fault%:*}"
	wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/fault-${fault%:*}:latest"
	read_all
	wait_for 10 'all of it' is_complete
	f=$(folder)/residue
	echo 'read_timeout = 20' >"$W/daemon.toml"
	stop daemon
	rm "$f"
	fault "{\"match\": \"$d\", \"fault\": \"$fault\"}"
	start_daemon
		wait_for 40 'the first failure' grep -q "proof put off: layer=$d" "$W/daemon.log"
	[ "$(layer_status "$d" .state)" = complete ] || fail "$fault: state $(layer_status "$d" .state)"
	read_all || fail "$fault: unreadable"
	grep "proof put off: layer=$d" "$W/daemon.log" | tail -n 1
	all_good
	wait_for 60 "the proof after $fault" is_proven
done
! grep -q 'quarantine\|lies in its table' "$W/daemon.log" || fail 'something was quarantined'
