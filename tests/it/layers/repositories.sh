#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A layer that images of several repositories share is read from whichever has
# it still: the first one refuses, is gone, or forgot the blob, and the image it
# belonged to is removed. Also after a restart, and for a second namespace.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001

# All share the upper layer, above a base of their own.
image() { # NAME
	python3 - "$1" <<-'P' | make_image "$1"
		import json, sys
		print(json.dumps({"layers": [
		    {"entries": [{"path": "base", "content": f"base of {sys.argv[1]}"}]},
		    {"entries": [{"path": f"f{i}", "content": {"random": 300000, "seed": i}} for i in range(10)]}]}))
	P
}
pull_from() { # REGISTRY NAME [NAMESPACE]
	ctr-remote -n "${3:-default}" images rpull --snapshotter verity --plain-http "$1/$2:latest" >"$W/pull.log" 2>&1 ||
		fail "pull of $1/$2: $(tail -n 3 "$W/pull.log")"
}
restart() {
	stop daemon
	start_daemon
	wait_for 20 'containerd to reconnect' ctr snapshots --snapshotter verity ls
}
readable() { # N WHEN: bytes that nobody has read before
	local want
	want=$(python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': 300000, 'seed': $1}).bytes())" | sha256sum | cut -d' ' -f1)
	[ "$(read_errno "$(layer_path "$shared")/f$1")" = "ok $want" ] || fail "$2: f$1 cannot be read"
}

image first
image second
image third
shared=$(layer_info first 1)
[ "$(layer_info third 1)" = "$shared" ] || fail 'the layer is not shared'
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 10 'the other registry' curl -sf "http://$OTHER/_admin/stats"
config 'read_timeout = 5' 'prepare_budget = 5' 'background_fill = false'
start_daemon
start_containerd 1

# --- a repository of the same registry
pull_from $REG first
fault '{"match": "/first/blobs/", "fault": "status:404"}'
[[ $(read_errno "$(layer_path "$shared")/f0") != "ok"* ]] || fail 'read although the only repository has it not'
sleep 0.5 # a repetition within 0.2 s is refused at once, see fuse/repeat.h
pull_from $REG second
readable 0 'the first repository has it not'
remove first
readable 1 'the first image is removed'
all_good
fault '{"match": "/first/blobs/", "fault": "status:401"}'
readable 2 'the first repository refuses'
restart
readable 3 'after a restart'

# --- another registry, when the first is gone; the same image, so the snapshot
# is there already when the second namespace asks
pull_from $OTHER second second
stop registry KILL
readable 4 'the first registry is gone'
restart
readable 5 'after a restart without the first registry'
[ "$(layer_status "$shared" .repositories)" = 3 ] || fail "status shows $(layer_status "$shared" .repositories) repositories, not 3"
[ "$(status | jq .limits.repositories_of_a_layer_max)" -ge 3 ] || fail "limits in status: $(status | jq -c .limits)"
[ "$(layer_status "$shared" .seq | wc -l)" = 1 ] || fail 'the layer is there twice'

# --- the other one goes, a third image tells where it is now
stop other KILL
start_scripted
pull third
fault '{"match": "/first/", "fault": "status:404"}'
fault '{"match": "/second/", "fault": "status:404"}'
readable 6 'only the third repository has it'
