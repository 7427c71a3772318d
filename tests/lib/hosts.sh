# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of hosts.toml: the folder that the daemon and the client both read,
# further scripted registries, and what the daemon asked of whom. Source it
# behind scripted.sh.
CERTS=$W/certs.d

# hosts NAME: its hosts.toml comes on stdin
hosts() {
	mkdir -p "$CERTS/$1"
	cat >"$CERTS/$1/hosts.toml"
}

# near REGISTRY URL: a folder for the client alone, with a server that works
near() {
	mkdir -p "$W/near/$1"
	printf 'server = "%s"\n[host."%s"]\n  override_path = true\n' "$2" "$2" >"$W/near/$1/hosts.toml"
}

# start_at NAME HOST:PORT [ARGS...]: one more scripted registry over $OCI
start_at() {
	local name=$1 at=$2
	shift 2
	start "$name" python3 "$TOP/tests/lib/registry.py" --port "${at##*:}" --root "$OCI" "$@"
	wait_for 30 "the registry $name" curl -sfg "http://$at/_admin/stats"
}

# order HOST:PORT 'JSON': see the head of registry.py
order() {
	curl -sfg -X POST -d "$2" "http://$1/_admin" >/dev/null || fail "order not understood: $2"
}

# asked HOST:PORT [JQ-CONDITION]: how many requests of the daemon there were
asked() {
	curl -sfg "http://$1/_admin/stats" |
		jq "[.log[] | select((.agent // \"\") | startswith(\"verity-snapshotter/\")) | select(${2:-true})] | length"
}

# pull_by_hosts REF [ARGS...]: the client reads the same folder, or --hosts-dir
pull_by_hosts() {
	local ref=$1
	shift
	ctr-remote images rpull --hosts-dir "$CERTS" --snapshotter verity "$@" "$ref" >"$W/pull.log" 2>&1 ||
		fail "pull of $ref: $(tail -n 3 "$W/pull.log")"
}

# random_image NAME SEED: ten files f0 to f9 of 300000 bytes
random_image() {
	python3 - "$2" <<-'P' | make_image "$1"
		import json, sys
		seed = int(sys.argv[1])
		print(json.dumps({"layers": [
		    {"entries": [{"path": f"f{i}", "content": {"random": 300000, "seed": seed + i}} for i in range(10)]}]}))
	P
}

# assert_file PATH SEED: what random_image put there
assert_file() {
	local want
	want=$(python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': 300000, 'seed': $2}).bytes())" | sha256sum | cut -d' ' -f1)
	[ "$(read_errno "$1")" = "ok $want" ] || fail "$1 is not what it should be: $(read_errno "$1")"
}

# host_state REGISTRY URL-PART MEMBER: of status
host_state() {
	status | jq -r --arg r "$1" --arg u "$2" \
		".registries[] | select(.registry == \$r) | .hosts[] | select(.url | contains(\$u)) | .$3"
}
