#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Images of two registries have a layer in common. One of the registries becomes
# silent while many readers wait for what only it has: whoever reads the
# shared layer gets it from the other one, and does not wait in their queue.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001 READERS=120 FILES=20

image() { # NAME SEED FILES BYTES [BASE]: above a base of its own, where one is named
	python3 - "$2" "$3" "$4" ${5+"$5"} <<-'P' | make_image "$1"
		import json, sys
		layers = [{"entries": [{"path": name, "content": name}]} for name in sys.argv[4:]]
		layers.append({"entries": [{"path": f"f{i}", "content": {"random": int(sys.argv[3]), "seed": f"{sys.argv[1]} {i}"}}
		                           for i in range(int(sys.argv[2]))]})
		print(json.dumps({"layers": layers}))
	P
}

image first shared $FILES 5000 one
image second shared $FILES 5000 two
# (Each second file is read: no two of them travel in one range.)
image waited waited $((READERS * 2)) 100000
shared=$(layer_info first 1)
[ "$(layer_info second 1)" = "$shared" ] || fail 'the layer is not shared'
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 30 'the other registry' curl -sf "http://$OTHER/_admin/stats"
# Longer than the test: nobody gets an errno instead of his bytes.
config 'read_timeout = 3600' 'background_fill = false'
start_daemon
start_containerd 1
# The one to be silent is the layer's first source.
pull first
pull waited
ctr-remote images rpull --snapshotter verity --plain-http "$OTHER/second:latest" >"$W/pull.log" 2>&1 ||
	fail "pull: $(tail -n 3 "$W/pull.log")"
path=$(layer_path "$shared") waited=$(layer_path "$(layer_info waited 0)")

# --- many readers, and nothing comes
fault '{"match": "blobs/", "fault": "silent"}'
python3 - "$waited" $READERS <<-'P' &
	import sys, threading
	def read(i):
	    with open(f"{sys.argv[1]}/f{i}", "rb") as f:
	        f.read()
	threads = [threading.Thread(target=read, args=(2 * i,)) for i in range(int(sys.argv[2]))]
	for t in threads: t.start()
	for t in threads: t.join()
P
readers=$!
parked() { status | jq .view.parked; }
wait_for 60 'the readers to be parked' eval "[ \"\$(parked)\" -ge $READERS ]"

# --- a reader of the shared layer, behind all of them. Their queue has ten
# --- seconds for each few of it; he needs the first failure only, which tells.
python3 - "$path" $FILES >"$W/read" <<-'P' &
	import hashlib, sys
	h = hashlib.sha256()
	for i in range(int(sys.argv[2])):
	    with open(f"{sys.argv[1]}/f{i}", "rb") as f:
	        h.update(f.read())
	print(h.hexdigest())
P
reader=$!
has_read() { [ -s "$W/read" ]; }
wait_for 100 'the layer to be read from the good registry' has_read
wait $reader
want=$(python3 -c "
import hashlib, sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
h = hashlib.sha256()
for i in range($FILES): h.update(mkestargz.Content({'random': 5000, 'seed': f'shared {i}'}).bytes())
print(h.hexdigest())")
[ "$(cat "$W/read")" = "$want" ] || fail 'the layer has other bytes'

# --- and that was beside all of them, from the other registry
[ "$(parked)" -ge $READERS ] || fail "of $READERS readers $(parked) wait at the end"
n=$(curl -sf "http://$OTHER/_admin/stats" | jq --arg d "$shared" '[.log[] | select(.path | contains($d))] | length')
[ "$n" -gt 0 ] || fail 'the good registry was not asked for it'
kill -9 $readers
wait $readers 2>/dev/null || true
stop daemon
! grep ' error ' "$W/daemon.log" || fail 'errors in the log'
