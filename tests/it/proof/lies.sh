#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Images whose table of contents tells another tree than their tar: lazy at
# first, in quarantine once all of their bytes are here. An error in the log
# names image, layer and digests; status keeps the reason; readers get EIO.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

count=0 reader_pid=''
layer() { # NAME KEYS-OF-THE-LAYER
	count=$((count + 1))
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "bin/", "type": "dir"},
		  {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
		  {"path": "d/", "type": "dir"},
		  {"path": "d/f", "xattrs": {"user.b": "1", "user.a": "2"}, "content": {"random": 5000, "seed": $count}},
		  {"path": "l", "type": "symlink", "link": "bin"},
		  {"path": "h", "type": "hardlink", "link": "d/f"},
		  {"path": "c", "type": "char", "major": 1, "minor": 3},
		  {"path": "e", "content": ""},
		  {"path": "suid", "content": {"text": 300, "seed": $count}},
		  {"path": "name", "content": "$1"}]${2:+, $2}}]}
	J
}

# name | keys | what the reason must say
cases=(
	'fextra|"fextra": {"name": "evil\n"}|at offset'
	'fextra-toc|"fextra_toc": [{"name": "name", "set": {"mode": 511}}]|at offset'
	'renamed|"patch": [{"name": "name", "set": {"name": "eman"}}]|does not tell'
	'fewer|"patch": [{"name": "e", "drop": true}]|does not tell'
	'more|"patch": [{"append": {"name": "extra", "type": "dir", "mode": 493}}]|does not tell'
	'mode|"patch": [{"name": "suid", "set": {"mode": 2541}}]|does not tell'
	'dirmode|"patch": [{"name": "d/", "set": {"mode": 511}}]|does not tell'
	'owner|"patch": [{"name": "suid", "set": {"uid": 1000}}]|does not tell'
	'time|"patch": [{"name": "suid", "set": {"modtime": "2001-01-01T00:00:00Z"}}]|does not tell'
	'link|"patch": [{"name": "l", "set": {"linkName": "d"}}]|does not tell'
	'hardlink|"patch": [{"name": "h", "set": {"linkName": "name"}}]|does not tell'
	'device|"patch": [{"name": "c", "set": {"devMinor": 8}}]|does not tell'
	'xattr|"patch": [{"name": "d/f", "set": {"xattrs": {"user.a": "Mg=="}}}]|does not tell'
	'whiteout|"patch": [{"append": {"name": ".wh.gone", "type": "reg"}}]|does not tell'
	'opaque|"patch": [{"append": {"name": "d/.wh..wh..opq", "type": "reg"}}]|does not tell'
)

judged() {
	[ "$(layer_status "$1" .proven)" = true ] || [ "$(layer_status "$1" .state)" = bad ]
}

check_lie() { # NAME REASON
	local d path
	d=$(layer_info "$1" 0)
	wait_for 30 "the verdict on $1" judged "$d"
	[ "$(layer_status "$d" .state)" = bad ] || { echo "PROVEN: $1"; bad=1; return; }
	echo "$1: $(layer_status "$d" .reason)"
	[[ $(layer_status "$d" .reason) == *"$2"* ]] || fail "reason of $1"
	[ "$(layer_status "$d" .proof)" = failed ] || fail "proof of $1"
	grep -q "error layer lies in its table of contents: image='$REG/$1:latest' layer=$d toc=$(layer_info "$1" 0 toc_digest) diff_id=sha256:" "$W/daemon.log" ||
		fail "no event for $1"
	path=$(layer_path "$d")
	[ "$(read_errno "$path/d/f")" = EIO ] || fail "$1 can still be read: $(read_errno "$path/d/f")"
	# No new use: neither a container nor a pull.
	! ctr run --rm --snapshotter verity "$REG/$1:latest" "$1" /bin/sh -c : 2>"$W/err" || fail "$1 still runs"
	grep -q 'not what the image claims' "$W/err" || fail "message of $1: $(cat "$W/err")"
}

# start_reader FOLDER: has d/f open, and reads it when $W/verdict is there
start_reader() {
	mkfifo "$W/verdict"
	start reader python3 -c '
import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
open(sys.argv[2]).read()
try:
    print("ok", len(os.pread(fd, 5000, 0)))
except OSError as e:
    print(errno.errorcode[e.errno])
' "$1/d/f" "$W/verdict"
	wait_for 30 'the reader' eval 'ls -l /proc/$reader_pid/fd | found "d/f"'
}

start_scripted
start_daemon
start_containerd 1
layer honest
pull honest
for c in "${cases[@]}"; do
	IFS='|' read -r name keys why <<<"$c"
	layer "$name" "$keys"
	pull "$name"
	assert_state "$(layer_info "$name" 0)" lazy complete bad
	# A reader that is there before the verdict
	[ "$name" != mode ] || start_reader "$(layer_path "$(layer_info mode 0)")"
done
for c in "${cases[@]}"; do
	IFS='|' read -r name keys why <<<"$c"
	check_lie "$name" "$why"
done
[ -z "${bad:-}" ] || fail 'some lies were proven'
: >"$W/verdict"
wait "$reader_pid" || true
[ "$(cat "$W/reader.log")" = EIO ] || fail "a reader from before the verdict: $(cat "$W/reader.log")"
d=$(layer_info honest 0)
wait_for 30 'the proof of the honest image' eval '[ "$(layer_status "$d" .proven)" = true ]'
[ "$(ctr run --rm --snapshotter verity "$REG/honest:latest" good /bin/sh -c 'read l </name; echo "$l"')" = honest ] ||
	fail 'the honest image does not run'

# The verdict survives a restart; the image goes as any other, and with it all
# that is left of it.
stop daemon
start_daemon
d=$(layer_info mode 0)
[ "$(layer_status "$d" .state)" = bad ] || fail 'forgotten'
[[ $(layer_status "$d" .reason) == *quarantined* ]] || fail "reason: $(layer_status "$d" .reason)"
[ "$(read_errno "$(layer_path "$d")/d/f")" = EIO ] || fail 'readable after a restart'
containerd_is_back() {
	ctr snapshots --snapshotter verity usage >/dev/null
}
wait_for 30 'containerd to come back' containerd_is_back
remove mode
wait_for 20 'the sweep' is_gone "$d"
# Pulled again it lies again.
pull mode
wait_for 30 'the second verdict' eval '[ "$(layer_status "$d" .state)" = bad ]'
