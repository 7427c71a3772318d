# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the integration tests share; a test sources it first. The runner
# (tests/run.sh) has put the test into mount, network and pid namespaces of its
# own: whatever is started or mounted here ends with the test, also on failure.
#
#   TOP    the checkout              W      an empty folder on a real disk
#   DAEMON the daemon under test     CTL    verityctl of the same build
set -eu -o pipefail
: "${TOP:?run tests through tests/run.sh}" "${W:?}" "${DAEMON:?}" "${CTL:?}"
CLIENTS=${CLIENTS:-$TOP/build/clients}
IMAGES=${IMAGES:-$TOP/build/images}
ROOT=$W/root RUN=$W/run SOCK=$W/run/snapshotter.sock
REG=127.0.0.1:5000
export TOP W CONTAINERD_ADDRESS=$W/c.sock CONTAINERD_NAMESPACE=default
umask 022

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

skip() {
	echo "SKIP: $*"
	exit 77
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds. SECONDS is how
# long that takes on a machine with nothing else to do; a busy one may need a
# minute more, and is no fault. Only a state that never comes is one.
wait_for() {
	local end=$((SECONDS + 60 + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "waited in vain for $what"
		sleep 0.05
	done
}

# found ARGS...: grep -q that reads to the end. One that stops at its first hit
# may kill the writer by SIGPIPE, and pipefail takes that for "not found".
found() {
	grep "$@" >/dev/null
}

daemon_pid='' registry_pid='' containerd_pid=''
export daemon_pid registry_pid containerd_pid

# The daemon gets the chance to end by itself: leaks are found at its exit.
at_exit() {
	local status=$?
	if [ -n "$daemon_pid" ] && kill -TERM "$daemon_pid" 2>/dev/null; then
		for _ in $(seq 100); do
			kill -0 "$daemon_pid" 2>/dev/null || break
			sleep 0.1
		done
	fi
	exit $status
}
trap at_exit EXIT

# start NAME COMMAND...: in the background; its pid in the variable NAME_pid
start() {
	local name=$1
	shift
	"$@" >"$W/$name.log" 2>&1 </dev/null &
	printf -v "${name}_pid" '%s' $!
}

# stop NAME [SIGNAL]: end what start began, and wait for it
stop() {
	local var=${1}_pid
	kill "-${2:-TERM}" "${!var}" 2>/dev/null || return 0
	wait "${!var}" 2>/dev/null || true
}

# start_daemon [ARGS...]: the daemon on $ROOT and $RUN, ready when it returns
start_daemon() {
	start daemon "$DAEMON" --root "$ROOT" --run "$RUN" --config "$W/daemon.toml" --log-level debug "$@"
	wait_for 20 'the daemon' daemon_answers
}

# A stale socket file answers nobody.
daemon_answers() {
	"$CTL" --run "$RUN" status --json
}

# config LINE...: the daemon's configuration file
config() {
	printf '%s\n' "$@" >"$W/daemon.toml"
}
: >"$W/daemon.toml"

status() {
	"$CTL" --run "$RUN" status --json
}

# docker-registry over the prepared images (or another storage folder)
start_registry() {
	local storage=${1:-$IMAGES/registry}
	cat >"$W/registry.yml" <<-Y
		version: 0.1
		log: {level: warn}
		storage: {filesystem: {rootdirectory: $storage}, delete: {enabled: true}}
		http: {addr: $REG}
	Y
	start registry docker-registry serve "$W/registry.yml"
	wait_for 20 'the registry' curl -sf "http://$REG/v2/"
}

# The sentence that our own snippet in deploy/ is what runs here.
containerd_config() {
	local version=$1
	cat <<-C
		version = 2
		root = "$W/ctd/root"
		state = "$W/ctd/state"
		imports = ["$W/verity.toml"]
		disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"]
		[grpc]
		  address = "$CONTAINERD_ADDRESS"
		[ttrpc]
		  address = "$CONTAINERD_ADDRESS.ttrpc"
		[plugins."io.containerd.internal.v1.opt"]
		  path = "$W/ctd/opt"
	C
	[ "$version" = 2 ] || return 0
}

# start_containerd 2|1: the newest one that the tests build, or Debian's 1.6
start_containerd() {
	local snippet bin
	if [ "$1" = 2 ]; then
		snippet=$TOP/deploy/containerd/verity.toml bin=$CLIENTS
	else
		snippet=$TOP/deploy/containerd/verity-1.x.toml bin=/usr/bin
	fi
	sed -e "s#/run/verity-snapshotter/snapshotter.sock#$SOCK#" \
		-e "s#/var/lib/verity-snapshotter#$ROOT#" "$snippet" >"$W/verity.toml"
	grep -q "$SOCK" "$W/verity.toml" || fail "$snippet does not name the default socket"
	containerd_config "$1" >"$W/containerd.toml"
	export PATH=$bin:$PATH
	start containerd "$bin/containerd" -c "$W/containerd.toml"
	wait_for 20 'containerd' ctr version
	echo "client: $("$bin/containerd" --version)"
}

# nerdctl with its state in $W
nd() {
	nerdctl --data-root "$W/nd" --cni-netconfpath "$W/cni" --snapshotter="${SNAPSHOTTER:-verity}" \
		--insecure-registry "$@"
}

# assert_lazy REF: none of its layers is in containerd's content store
assert_lazy() {
	local l held
	held=$(ctr content ls -q 2>/dev/null)
	for l in $(skopeo inspect --raw --tls-verify=false "docker://$1" | jq -r '.layers[].digest'); do
		! grep -q "$l" <<<"$held" || fail "layer $l of $1 was downloaded by containerd: not lazy"
	done
}

# bytes below the state directory, without the database
state_bytes() {
	find "$ROOT" -xdev -mindepth 1 ! -name 'state.db*' -printf '%b\n' | awk '{ s += $1 } END { print s * 512 }'
}

# The page cache is the machine's, not a namespace's: who drops it and who looks
# at what stays in it must not meet. Until the end of the test.
own_page_cache() {
	exec 8>>/tmp/vs-it-page-cache.lock
	flock 8
}
drop_caches() {
	own_page_cache
	echo 3 >/proc/sys/vm/drop_caches
}

# The runner has unshared; names and a loopback are still to be made.
ip link set lo up 2>/dev/null || true
