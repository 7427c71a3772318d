# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of what goes wrong: images of one's own making at a registry whose
# failures are scripted (registry.py), pulled with Debian's client, and read as
# root through the layers view. Source it behind lib.sh.
OCI=$W/oci
mkdir -p "$OCI"

# make_image NAME: the spec (mkestargz.py) comes on stdin
make_image() {
	python3 "$TOP/tests/lib/mkestargz.py" --out "$OCI/$1" --name "$REG/$1:latest" - >"$W/$1.info"
}

# The digest of layer N (from 0) of an image made here, or another member
layer_info() { # NAME N [MEMBER]
	sed -n "$(($2 + 1))p" "$W/$1.info" | jq -r ".${3:-digest}"
}

start_scripted() {
	start registry python3 "$TOP/tests/lib/registry.py" --port "${REG##*:}" --root "$OCI" "$@"
	wait_for 20 'the registry' curl -sf "http://$REG/_admin/stats"
}

# fault 'JSON': see the head of registry.py
fault() {
	curl -sf -X POST -d "$1" "http://$REG/_admin" >/dev/null || fail "order not understood: $1"
}

all_good() {
	fault '{"clear": true}'
}

# reg_stats [JQ-FILTER]
reg_stats() {
	curl -sf "http://$REG/_admin/stats" | jq -r "${1:-.}"
}

pull() { # NAME
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/$1:latest" >"$W/pull.log" 2>&1 ||
		fail "pull of $1: $(tail -n 3 "$W/pull.log")"
}

# A pull that must not wait for lazy layers longer than the budget allows.
pull_within() { # SECONDS NAME
	local began=$SECONDS
	pull "$2"
	[ $((SECONDS - began)) -le "$1" ] || fail "pull of $2 took $((SECONDS - began)) s"
}

remove() { # NAME
	ctr images rm --sync "$REG/$1:latest" >/dev/null
}

# layer_status DIGEST JQ-FILTER: of the entry in status
layer_status() {
	status | jq -r --arg d "$1" ".layers[] | select(.digest == \$d) | $2"
}

is_gone() { # DIGEST
	[ -z "$(layer_status "$1" 'select(.state != "fallback") | .digest')" ]
}

# Where the view shows the layer; empty when it is not lazy.
layer_path() { # DIGEST
	local seq
	seq=$(layer_status "$1" 'select(.seq != null) | .seq')
	[ -z "$seq" ] || echo "$ROOT/l/$seq"
}

assert_state() { # DIGEST STATE...
	local state s d=$1
	state=$(layer_status "$d" .state)
	shift
	for s; do [ "$state" != "$s" ] || return 0; done
	fail "layer $d is '$state' ($(layer_status "$d" .reason)), not $*"
}

assert_fallback() { # DIGEST PART-OF-THE-REASON
	local reason
	assert_state "$1" fallback
	reason=$(layer_status "$1" .reason)
	[[ $reason == *"$2"* ]] || fail "reason of $1 is '$reason', not '$2'"
}

sha() { sha256sum <"$1" | cut -d' ' -f1; }

# read_errno FILE [OFFSET [LENGTH]]: "ok SHA256", or the name of the errno
read_errno() {
	python3 - "$@" <<-'P'
		import errno, hashlib, os, sys
		off = int(sys.argv[2]) if len(sys.argv) > 2 else 0
		n = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 30
		try:
		    fd = os.open(sys.argv[1], os.O_RDONLY)
		    h = hashlib.sha256()
		    while n and (data := os.pread(fd, min(n, 1 << 20), off)):
		        h.update(data)
		        off += len(data)
		        n -= len(data)
		    print("ok", h.hexdigest())
		except OSError as e:
		    print(errno.errorcode[e.errno])
	P
}
