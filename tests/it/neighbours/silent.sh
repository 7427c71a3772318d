#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A registry that has become silent while 500 readers wait for it: a container
# on another image walks and reads all of it, other images are pulled and
# removed, every call is answered; and the readers wait all the time.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001 READERS=500

image() { # NAME FILES: one layer, no byte of it shared but busybox, so that it runs
	python3 - "$1" "$2" <<-'P' | make_image "$1"
		import json, sys
		files = [{"path": f"d{i % 20}/f{i}", "content": {"random": 5000, "seed": f"{sys.argv[1]} {i}"}} for i in range(int(sys.argv[2]))]
		files.append({"path": "bin/busybox", "mode": "0755", "content": {"file": "/bin/busybox"}})
		print(json.dumps({"layers": [{"entries": files}]}))
	P
}
pull_other() { # NAME
	timeout 100 ctr-remote images rpull --snapshotter verity --plain-http "$OTHER/$1:latest" >"$W/pull.log" 2>&1 ||
		fail "pull of $1: $(tail -n 3 "$W/pull.log")"
}
complete() { # NAME
	[ "$(layer_status "$(layer_info "$1" 0)" .state)" = complete ]
}

image waited $READERS
image cached 200
image passing 20
image later 20
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 30 'the other registry' curl -sf "http://$OTHER/_admin/stats"
config 'read_timeout = 3600' 'background_fill = false'
start_daemon
start_containerd 1
pull waited
pull_other cached
pull_other passing
waited=$(layer_path "$(layer_info waited 0)") cached=$(layer_path "$(layer_info cached 0)")
find "$cached" -type f -exec cat {} + >/dev/null
wait_for 60 'the cached image to be here' complete cached

# --- 500 readers of as many files, and nothing comes
fault '{"match": "blobs/", "fault": "silent"}'
python3 - "$waited" $READERS >"$W/readers.log" 2>&1 <<-'P' &
	import os, sys, threading
	def read(i):
	    with open(f"{sys.argv[1]}/d{i % 20}/f{i}", "rb") as f:
	        f.read()
	    os.write(1, b"answered\n")
	threads = [threading.Thread(target=read, args=(i,)) for i in range(int(sys.argv[2]))]
	for t in threads: t.start()
	for t in threads: t.join()
P
readers=$!
parked() { status | jq .view.parked; }
wait_for 60 'the readers to be parked' eval "[ \"\$(parked)\" -ge $READERS ]"

# --- a container beside them
timeout 100 ctr run --rm --snapshotter verity "$OTHER/cached:latest" beside /bin/busybox sh -c '
	/bin/busybox find / -xdev -type f | /bin/busybox xargs /bin/busybox cat | /bin/busybox wc -c >/size
	/bin/busybox cat /size' >"$W/size" || fail 'the container beside the readers'
want=$((200 * 5000 + $(stat -c %s /bin/busybox)))
[ "$(cat "$W/size")" -ge "$want" ] || fail "the container read $(cat "$W/size") of $want bytes"

# --- other images come and go
timeout 100 ctr images rm --sync "$OTHER/passing:latest" >/dev/null || fail 'removal of another image'
wait_for 60 'the removed layer to go' is_gone "$(layer_info passing 0)"
pull_other later
assert_state "$(layer_info later 0)" lazy complete
timeout 100 ctr run --rm --snapshotter verity "$OTHER/later:latest" later /bin/busybox cat /d1/f1 | cmp - <(python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': 5000, 'seed': 'later 1'}).bytes())") || fail 'the new image has other bytes'

# --- every call, without containerd between
/usr/bin/python3 -B "$TOP/tests/it/neighbours/calls.py" rounds "$SOCK" 10 || fail 'calls of other images'

# --- and all of that was beside 500 readers
[ "$(parked)" -ge $READERS ] || fail "of $READERS readers $(parked) wait at the end"
[ ! -s "$W/readers.log" ] || fail "readers of the silent registry: $(sort "$W/readers.log" | uniq -c)"
kill -9 $readers
wait $readers 2>/dev/null || true
stop daemon
! grep ' error ' "$W/daemon.log" || fail 'errors in the log'
