#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An image whose config claims another's diff_ids over content of its own.
# Whoever is pulled first, in whichever namespace: the victim runs with its own
# bytes, and the claim ends in quarantine.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME SEED [CONFIG]
	local config=${3:+", \"config\": $3"}
	make_image "$1" <<-J
		{"layers": [
		  {"entries": [
		    {"path": "bin/", "type": "dir"},
		    {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
		    {"path": "base", "content": {"text": 9000, "seed": $2}}]},
		  {"entries": [
		    {"path": "name", "content": "$1"},
		    {"path": "top", "content": {"text": 9000, "seed": $2}}]}]$config}
	J
}

# The same layers' diff ids as those of another image
claiming() { # VICTIM
	echo "{\"rootfs\": {\"type\": \"layers\", \"diff_ids\": [\"$(layer_info "$1" 0 diff_id)\", \"$(layer_info "$1" 1 diff_id)\"]}}"
}

# same_blobs NAME NEW VICTIM: NEW has NAME's own blobs and VICTIM's diff ids
same_blobs() {
	cp -r "$OCI/$1" "$OCI/$2"
	python3 - "$OCI/$2" "$(layer_info "$3" 0 diff_id)" "$(layer_info "$3" 1 diff_id)" <<-'P'
		import hashlib, json, os, sys
		out, ids = sys.argv[1], sys.argv[2:]
		def load(d):
		    return json.load(open(os.path.join(out, "blobs/sha256", d[7:])))
		def store(o):
		    data = json.dumps(o).encode()
		    d = hashlib.sha256(data).hexdigest()
		    open(os.path.join(out, "blobs/sha256", d), "wb").write(data)
		    return {"digest": "sha256:" + d, "size": len(data)}
		index = json.load(open(os.path.join(out, "index.json")))
		manifest = load(index["manifests"][0]["digest"])
		config = load(manifest["config"]["digest"])
		config["rootfs"]["diff_ids"] = ids
		manifest["config"].update(store(config))
		index["manifests"][0].update(store(manifest))
		json.dump(index, open(os.path.join(out, "index.json"), "w"))
	P
}

restart_with() { # LINE OF THE CONFIGURATION
	config "$1"
	stop daemon
	start_daemon
	wait_for 30 'containerd to come back' ctr snapshots --snapshotter verity usage
}

in_ns() { # NAMESPACE COMMAND...
	CONTAINERD_NAMESPACE=$1 "${@:2}"
}

runs_as() { # NAMESPACE IMAGE
	in_ns "$1" ctr run --rm --snapshotter verity "$REG/$2:latest" "run$((++n))" /bin/sh -c 'read l </name; echo "$l"' 2>"$W/err"
}

is_state() { # DIGEST STATE
	[ "$(layer_status "$1" .state)" = "$2" ]
}

is_proven() {
	[ "$(layer_status "$1" .proven)" = true ]
}

n=0
start_scripted
start_daemon
start_containerd 1

# The claim comes first; the victim in another namespace.
image v1 1
image e1 101 "$(claiming v1)"
pull e1
in_ns other pull v1
[ "$(runs_as other v1)" = v1 ] || fail "v1 in its own namespace: $(cat "$W/err")"
for i in 0 1; do
	wait_for 30 "the quarantine of e1" is_state "$(layer_info e1 $i)" bad
done
d=$(layer_info e1 0)
grep -q "error image claims what its layer is not: image='$REG/e1:latest' layer=$d diff_id=$(layer_info e1 0 diff_id) claimed=$(layer_info v1 0 diff_id) found=$(layer_info e1 0 diff_id)" "$W/daemon.log" ||
	fail 'no event with both digests'
echo "e1: $(layer_status "$d" .reason)"
[ "$(read_errno "$(layer_path "$d")/base")" = EIO ] || fail 'the claim can be read'
[ "$(runs_as other v1)" = v1 ] || fail "v1 after the verdict: $(cat "$W/err")"

# In the namespace of the claim containerd itself takes one for the other, as
# it knows chain ids only: no container starts until the claim is removed.
pull v1
! out=$(runs_as default v1) || fail "v1 ran as '$out'"
grep -q 'not what the image claims' "$W/err" || fail "message: $(cat "$W/err")"
remove e1
remove v1
wait_for 20 'the sweep of e1' is_gone "$d"
pull v1
[ "$(runs_as default v1)" = v1 ] || fail "v1 after e1 is gone: $(cat "$W/err")"

# The claim comes second.
image v2 2
image e2 102 "$(claiming v2)"
pull v2
wait_for 30 'the proof of v2' is_proven "$(layer_info v2 1)"
in_ns other pull e2
[ "$(runs_as default v2)" = v2 ] || fail "v2: $(cat "$W/err")"
# In its own namespace it found the victim's snapshot: harmless.
out=$(runs_as other e2) || true
[ "$out" = v2 ] || [ -z "$out" ] || fail "e2 runs as '$out'"
[ "$(runs_as default v2)" = v2 ] || fail "v2 after e2"

# The claim comes second, before the first is proven: it gets nothing lazily.
restart_with 'background_fill = false'
image v3 3
image e3 103 "$(claiming v3)"
pull v3
# containerd unpacks it, and finds that the diff id is wrong.
! (in_ns other pull e3) >"$W/e3.log" 2>&1 || fail 'e3 was pulled'
grep -q 'wrong diff id' "$W/e3.log" || fail "pull of e3: $(cat "$W/e3.log")"

# One layer under a true and a false claim, in one namespace. It stays in use
# for who told the truth; the claim is not run, and its victim not taken for it.
image a6 6
image v7 7
same_blobs a6 e6 v7
in_ns sixth pull a6
in_ns sixth pull e6
d=$(layer_info a6 1)
assert_state "$d" lazy complete
[ "$(layer_status "$d" .proven)" = false ] || fail 'a6 is proven already'
restart_with 'background_fill = true'
wait_for 60 'the proof of a6' is_proven "$d"
assert_state "$d" complete
grep -q "error image claims what its layer is not: .* layer=$d .* claimed=" "$W/daemon.log" || fail 'no event for e6'
[ "$(runs_as sixth a6)" = a6 ] || fail "a6: $(cat "$W/err")"
in_ns sixth pull v7
! out=$(runs_as sixth v7) || fail "v7 ran as '$out'"
grep -q 'not what the image claims' "$W/err" || fail "message: $(cat "$W/err")"
[ "$(in_ns seventh pull v7; runs_as seventh v7)" = v7 ] || fail "v7 elsewhere: $(cat "$W/err")"
in_ns sixth ctr images rm --sync "$REG/e6:latest" "$REG/v7:latest" >/dev/null
in_ns sixth pull v7
[ "$(runs_as sixth v7)" = v7 ] || fail "v7 after e6 is gone: $(cat "$W/err")"
wait_for 60 'the proof of v3' is_proven "$(layer_info v3 1)"
[ "$(runs_as default v3)" = v3 ] || fail "v3: $(cat "$W/err")"

# An honest layer under a false claim does not suffer from it: e4 has v4's own
# blobs and claims the ids of v5, which nobody has.
image v4 4
image v5 5
same_blobs v4 e4 v5
in_ns third pull e4
wait_for 30 'the quarantine of e4' is_state "$(layer_info v4 1)" bad
in_ns fourth pull v4
[ "$(runs_as fourth v4)" = v4 ] || fail "v4: $(cat "$W/err")"
proven_one() {
	status | jq -e --arg d "$(layer_info v4 0)" '[.layers[] | select(.digest == $d and .proven and .state == "complete")] | length > 0'
}
wait_for 30 'the proof of v4' proven_one
# The claim again, now that the blob's diff id is known: not even at first.
in_ns third ctr images rm --sync "$REG/e4:latest" >/dev/null
! (in_ns fifth pull e4) >"$W/e4.log" 2>&1 || fail 'e4 was pulled again'
grep -q 'wrong diff id' "$W/e4.log" || fail "pull of e4: $(cat "$W/e4.log")"
