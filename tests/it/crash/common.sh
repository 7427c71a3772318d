# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For the crash tests: an image for each fault point, a workload that dies with
# the daemon, and what must be true when the same workload has run again.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

# One large file and some small ones, in chunks of 64 KiB that do not compress;
# plain: nothing tells that it is eStargz.
crash_image() { # NAME SEED [plain]
	python3 - "$2" "${3:-}" <<-'P' | make_image "$1"
		import json, sys
		seed = int(sys.argv[1]) * 100
		files = [{"path": f"f{i}", "content": {"random": 40000 + i, "seed": seed + i}} for i in range(8)]
		big = {"path": "big", "content": {"random": 900000, "seed": seed + 50}}
		sh = {"path": "sh", "mode": "0755", "content": {"file": "/bin/busybox"}}
		print(json.dumps({"layers": [{"chunk_size": 65536, "annotated": not sys.argv[2], "entries": files[:4] + [big, sh] + files[4:]}]}))
	P
	python3 - "$2" "$TOP/tests/lib" <<-'P' >"$W/$1.sums"
		import hashlib, sys
		sys.path.insert(0, sys.argv[2])
		from mkestargz import Content
		seed = int(sys.argv[1]) * 100
		for name, size, s in [("big", 900000, 50)] + [(f"f{i}", 40000 + i, i) for i in range(8)]:
		    data = Content({"random": size, "seed": seed + s}).bytes()
		    print(hashlib.sha256(data).hexdigest(), "", name)
	P
}

read_all() { # NAME
	local p
	p=$(layer_path "$(layer_info "$1" 0)") && [ -n "$p" ] && (cd "$p" && sha256sum --quiet -c "$W/$1.sums")
}

workload_pull() {
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/$1:latest"
}

workload_run() {
	ctr run --rm --snapshotter verity "$REG/$1:latest" "$1-$RANDOM" /sh -c 'exit 0'
}

# The daemon with a fault; it may die while it starts.
start_to_die() { # FAULT
	VS_FAULT=$1 start daemon "$DAEMON" --root "$ROOT" --run "$RUN" --config "$W/daemon.toml" --log-level debug
	wait_for 20 'the daemon to answer or die' eval 'daemon_answers || ! kill -0 $daemon_pid'
}

died() {
	! kill -0 "$daemon_pid" 2>/dev/null
}

assert_killed_at() { # POINT
	local s=0
	wait_for 5 "the daemon to die at $1" died
	wait "$daemon_pid" || s=$?
	[ "$s" = 137 ] || fail "at $1 the daemon ended with $s"
	grep -q "fault point reached, dying: name=$1" "$W/daemon.log" || fail "$1 was not reached"
}

mounts_at_l() {
	grep -c " $ROOT/l " /proc/self/mountinfo || true
}

# containerd asks a daemon that was away only after a pause of seconds; a new
# containerd asks at once.
fresh_containerd() {
	stop containerd KILL
	start containerd /usr/bin/containerd -c "$W/containerd.toml"
	wait_for 20 'containerd' ctr version
}

# Nothing half-made, nothing without an owner, one living mount.
assert_tidy() {
	local seqs
	[ "$(mounts_at_l)" = 1 ] || fail "$(mounts_at_l) mounts at l"
	ls "$ROOT/l" >/dev/null || fail 'the view is dead'
	wait_for 5 'the trash to be emptied' eval '[ -z "$(ls "$ROOT/trash")" ]'
	seqs=$(status | jq -r '.layers[] | select(.seq != null) | .seq' | sort)
	[ "$(ls "$ROOT/layer" | sort)" = "$seqs" ] || fail "folders $(echo "$ROOT"/layer/*), layers $(xargs <<<"$seqs")"
	[ -z "$(find "$ROOT/layer" "$ROOT/body" -name '*.tmp*' -o -name '*.new' 2>/dev/null)" ] || fail 'half-written files are left'
}
