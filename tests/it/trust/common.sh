# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of damage at rest: an image with each kind of file, complete on the
# disk; ways to damage what lies there. Source it behind scripted.sh.

# trust_image NAME SEED: above a base of its own a layer, the same for each NAME
# with this SEED: two files with bodies of their own, a pack
trust_image() {
	python3 - "$TOP/tests/lib" "$1" "$2" "$W/$1.sums" <<-'P' | make_image "$1"
		import hashlib, json, sys
		sys.path.insert(0, sys.argv[1])
		from mkestargz import Content
		sizes = {"large": 2 << 20, "medium": 300001, "small0": 50000, "small1": 40000, "small2": 7}
		entries, sums = [], open(sys.argv[4], "w")
		for i, (name, size) in enumerate(sizes.items()):
		    spec = {"random": size, "seed": int(sys.argv[3]) * 100 + i}
		    entries.append({"path": name, "content": spec})
		    print(hashlib.sha256(Content(spec).bytes()).hexdigest(), "", name, file=sums)
		base = {"entries": [{"path": "base", "content": "base of " + sys.argv[2]}]}
		print(json.dumps({"layers": [base, {"chunk_size": 262144, "entries": entries}]}))
	P
	d=$(layer_info "$1" 1)
}

trust_pull() { # NAME
	wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/$1:latest"
	wait_for 30 "all of $1" is_complete
}

# Of the layer, the base, and all others that are not bad.
is_complete() {
	status | jq -e --arg d "$d" 'any(.layers[]; .digest == $d and .state != "bad") and
		all(.layers[] | select(.state != "bad"); .state == "complete" or .state == "sealed")'
}

seq_of() {
	layer_status "$d" 'select(.state != "bad") | .seq'
}

# right NAME: every byte of the layer, through the view
right() {
	(cd "$ROOT/l/$(seq_of)" && sha256sum --quiet -c "$W/$1.sums")
}

body_file() { # SIZE
	find "$ROOT/body" -type f -size "$1c" ! -name '*.state'
}

# Changes a byte of a file, in place: in the middle, or at an offset
damage() { # FILE [OFFSET]
	python3 - "$@" <<-'P'
		import os, sys
		fd = os.open(sys.argv[1], os.O_RDWR)
		at = int(sys.argv[2]) if len(sys.argv) > 2 else os.fstat(fd).st_size // 2
		byte = os.pread(fd, 1, at)
		os.pwrite(fd, bytes([byte[0] ^ 1]), at)
	P
}

# A member of what the scrubber has counted
scrubbed() { # MEMBER
	status | jq -r ".scrub.$1"
}

# scrub_finds 'JQ-FILTER' [IMAGE]: a run finds something bad, and just that
scrub_finds() {
	local filter=$1 status=0
	shift
	"$CTL" --run "$RUN" scrub --json "$@" >"$W/scrub.json" || status=$?
	[ $status = 1 ] || fail "exit status $status: $(cat "$W/scrub.json")"
	jq -e "$filter" "$W/scrub.json" >/dev/null || fail "not '$filter': $(cat "$W/scrub.json")"
	echo "found: $(jq -c 'del(.bytes, .files) | with_entries(select(.value > 0))' "$W/scrub.json")"
}

scrub_finds_nothing() { # [IMAGE]
	"$CTL" --run "$RUN" scrub --json "$@" >"$W/scrub.json" ||
		fail "something is bad: $(cat "$W/scrub.json") $(status | jq -c .scrub)"
	jq -e '.bad == 0 and .files > 0 and .skipped == 0' "$W/scrub.json" >/dev/null || fail "$(cat "$W/scrub.json")"
}
