#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How sealing goes: files that layers share are sealed once, what was just written
# without reading the disk; a start finds it all done; a helper that dies, a
# writer and a full disk delay it.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

head -c 150000 /dev/urandom >"$W/small"
head -c 5000003 /dev/urandom >"$W/large"
head -c 7000003 /dev/urandom >"$W/huge" # not through the page cache
image() { # NAME
	make_image "$1" <<-J
		{"layers": [{"entries": [{"path": "name", "content": "$1"},
		                         {"path": "many/", "type": "dir"},
		                         $(printf '{"path": "many/%s", "content": "x"},' {1..500})
		                         {"path": "small", "content": {"file": "$W/small"}},
		                         {"path": "large", "content": {"file": "$W/large"}}]},
		            {"entries": [{"path": "huge", "content": {"file": "$W/huge"}},
		                         {"path": "again", "content": {"file": "$W/small"}}]}]}
	J
}

# What must be sealed: every file of contents or metadata.
files() {
	find "$ROOT/layer" "$ROOT/body" -type f ! -name '*.state' ! -name residue ! -path '*/proof/*' | sort
}
all_sealed() {
	status | jq -e '(.layers | length > 0 and all(.state == "sealed")) and .sealing.queued == 0' >/dev/null
}
wait_sealed() {
	wait_for 60 'the seals' all_sealed
}
sealing() { # JQ-FILTER
	status | jq -r ".sealing | $1"
}
# The body of a file, by what it holds.
body_of() { # FILE
	local want
	want=$(fsverity digest --compact "$1")
	files | while read -r f; do
		[ "$(fsverity measure "$f" 2>/dev/null | cut -d' ' -f1)" != "sha256:$want" ] || echo "$f"
	done
}
assert_all_verity() {
	local f
	for f in $(files); do
		fsverity measure "$f" >/dev/null || fail "$f is not sealed"
	done
}
same() { # NAME OF-LAYER
	cmp "$W/$1" "$(layer_path "$(layer_info one "$2")")/$1"
}

start_scripted
config 'read_timeout = 5' 'seal_from_cache = 6'
image one
image two
start_daemon
[ "$(sealing .state)" = on ] || fail "sealing is off: $(sealing .reason)"
start_containerd 1
pull one
pull two
wait_sealed
assert_all_verity
[ "$(sealing .files)" = "$(files | wc -l)" ] || fail "$(sealing .files) seals of $(files | wc -l) files"
for f in small large huge; do
	[ "$(body_of "$W/$f" | wc -l)" = 1 ] || fail "body of $f: $(body_of "$W/$f")"
done
# What had just been written was sealed from the page cache, but for one.
unread=$(grep 'sealed: .*bytes=5000003 ' "$W/daemon.log")
[[ $unread == *' bytes_read=0'* ]] || fail "sealing has read the disk: $unread"
same small 0
same large 0
same huge 1

# --- the helper's page cache is its own: here, in the root cgroup
group=$(sealing .helper.cgroup)
grep -qx "$(sealing .helper.pid)" "$group/cgroup.procs" || fail "the helper is not in '$group'"
[ "$(cat "$group/memory.high")" = $((48 << 20)) ] || fail "its limit: $(cat "$group/memory.high")"
! grep -qx "$(status | jq .pid)" "$group/cgroup.procs" ||
	fail 'the daemon is in the cgroup of its helper'

# --- nothing of it is done twice, and a start without registry finds it all
stop daemon
[ ! -e "$group" ] || fail "$group is left"
stop registry
# As systemd delegates a group; one that it does not is left alone.
mkdir /sys/fs/cgroup/unit
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
in_unit() {
	echo $BASHPID >/sys/fs/cgroup/unit/cgroup.procs
	exec "$DAEMON" "$@"
}
start daemon in_unit --root "$ROOT" --run "$RUN" --config "$W/daemon.toml"
wait_for 30 'the daemon' daemon_answers
# The daemon does not wait for its helper to say where it is.
wait_for 10 'a word on the cgroup' eval '[ -n "$(sealing ".helper.cgroup + .helper.no_cgroup")" ]'
[[ $(sealing .helper.no_cgroup) == *'not delegated'* ]] || fail "$(status | jq -c .sealing)"
stop daemon
python3 -c 'import os; os.setxattr("/sys/fs/cgroup/unit", "trusted.delegate", b"1")'
start daemon in_unit --root "$ROOT" --run "$RUN" --config "$W/daemon.toml"
wait_for 30 'the daemon' daemon_answers
wait_for 10 'a word on the cgroup' eval '[ -n "$(sealing ".helper.cgroup + .helper.no_cgroup")" ]'
grep -qx "$(sealing .helper.pid)" /sys/fs/cgroup/unit/verity-sealer/cgroup.procs || fail "$(status | jq -c .sealing)"
grep -qx "$(status | jq .pid)" /sys/fs/cgroup/unit/daemon/cgroup.procs || fail "$(status | jq -c .sealing)"
wait_sealed
[ "$(sealing .files)" = 0 ] || fail "$(sealing .files) files were sealed again"
same huge 1
stop daemon

# --- a helper that dies, and a disk that is full for a while
rm -rf "$ROOT" "$W/ctd"
stop containerd
start_scripted
VS_FAULT=sealer_asked:fail=26@1,sealer_asked:fail=28@3,verity_enabled:kill@2 start_daemon
start_containerd 1
pull one
wait_sealed
assert_all_verity
[ "$(sealing .helper.starts)" -gt 1 ] || fail 'the helper has not died'
