#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A proven layer whose index is damaged on the disk is no lie, after a restart
# neither: what can still be read of it is served, and who pulls the image gets
# a new layer, proven by itself.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

make_image img <<-J
	{"layers": [{"entries": [
	  {"path": "a", "content": {"text": 9000, "seed": 1}},
	  {"path": "bin/", "type": "dir"},
	  {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
	  {"path": "z/", "type": "dir"},
	  $(printf '{"path": "z/%s", "content": ""},' {1..2000})
	  {"path": "name", "content": "img"}]}]}
J
d=$(layer_info img 0)
start_scripted
start_daemon
start_containerd 1
pull img
seq=$(layer_status "$d" .seq)
proven() { # SEQ
	[ "$(layer_status "$d" "select(.seq == $1) | .proven")" = true ]
}
wait_for 60 'the proof' proven "$seq"
a=$(sha "$ROOT/l/$seq/a")
stop daemon

# The last block holds names of z/.
f=$ROOT/layer/$seq/index
printf XXXXXXXX | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") - 4000)) conv=notrunc status=none
start_daemon
[ "$(sha "$ROOT/l/$seq/a")" = "$a" ] || fail 'the rest of the layer is unreadable'
! ls "$ROOT/l/$seq/z" >/dev/null 2>&1 || fail 'damaged names are shown'
wait_for 30 'containerd to come back' ctr snapshots --snapshotter verity usage
in_other() {
	CONTAINERD_NAMESPACE=other "$@"
}
in_other pull img
new=$(layer_status "$d" "select(.seq != $seq) | .seq")
[ -n "$new" ] || fail 'no new layer'
wait_for 60 'the second proof' proven "$new"

stop daemon
start_daemon
wait_for 30 'containerd to come back' ctr snapshots --snapshotter verity usage
why=$(layer_status "$d" "select(.seq == $seq) | .state + \": \" + .reason")
echo "$why"
[[ $why == 'bad: index or map are damaged'* ]] || fail "the old one is '$why'"
[ "$(sha "$ROOT/l/$seq/a")" = "$a" ] || fail "after a restart: $(read_errno "$ROOT/l/$seq/a")"
[ "$(in_other ctr run --rm --snapshotter verity "$REG/img:latest" r /bin/sh -c 'read l </name; echo "$l"')" = img ] ||
	fail 'the new one does not run'
! ctr run --rm --snapshotter verity "$REG/img:latest" old /bin/sh -c : 2>/dev/null || fail 'the old one is used anew'
