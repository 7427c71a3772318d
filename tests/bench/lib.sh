# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the figures share; a figure sources it first. It runs like an integration
# test (tests/lib/lib.sh), and besides:
#
#   TSV   gets the rows       RUNS  how often each thing is measured (3)
#   SLOW  the registry through the slow link, once start_link was called
#
# The clients are nerdctl and containerd 2.3 where Go can build them, else
# Debian's containerd 1.6 with ctr-remote.
# shellcheck source=tests/lib/lib.sh
. "${TOP:?run figures through tests/bench/run.sh}/tests/lib/lib.sh"
RUNS=${RUNS:-3}
SLOW=127.0.0.1:5001
: "${TSV:?}" "${B:?}" "${daemon_pid?}"
if "$TOP/tests/clients/have-go.sh"; then
	CONTAINERD=2
else
	CONTAINERD=1
fi

clock() {
	date +%s%N
}

# seconds FROM [TO]: between two readings of the clock
seconds() {
	awk -v a="$1" -v b="${2:-$(clock)}" 'BEGIN { printf "%.3f", (b - a) / 1e9 }'
}

# calc EXPRESSION: three decimals are enough for all of this
calc() {
	awk "BEGIN { printf \"%.3f\", $1 }"
}

# median VALUE...
median() {
	printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 }
		END { printf "%.3f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# column N FILE: the median of a column
column() {
	local v
	mapfile -t v < <(awk -v n="$1" '{ print $n }' "$2")
	median "${v[@]}"
}

# best N FILE: the least of a column, where a busy machine says more of itself
# than of what is measured
best() {
	awk -v n="$1" '{ print $n }' "$2" | sort -g | head -n 1
}

# percentile P METHOD FILE...: of the lines "METHOD VALUE"
percentile() {
	local p=$1 m=$2
	shift 2
	cat "$@" | awk -v m="$m" '$1 == m { print $2 }' | sort -g |
		awk -v p="$p" '{ v[NR] = $1 } END { n = int(NR * p / 100 + 0.999999); printf "%.3f", v[n < 1 ? 1 : n] }'
}

# row ID NAME OURS PEER RATIO GOAL RUNS: into the file, and for people
row() {
	local IFS=$'\t'
	printf '%s\n' "$*" >>"$TSV"
	printf '%-4s %-52s %10s %10s %8s  %s\n' "$1" "$2" "$3" "$4" "$5" "$6"
}

# compare ID NAME GOAL OURS PEER RUNS: a row whose figure is ours : peer
compare() {
	row "$1" "$2" "$4" "$5" "$(calc "$4 / $5")" "$3" "$6"
}

# absolute ID NAME GOAL VALUE RUNS: a row whose figure is the value itself
absolute() {
	row "$1" "$2" "$4" - "$4" "$3" "$5"
}

# note NAME VALUE [RUNS]: only reported
note() {
	row '#' "$1" "$2" - "$2" - "${3:-1}"
}

# start_link MBIT RTT_MS: a registry, and its slow side at $SLOW
start_link() {
	start_registry
	start proxy "$B/tests/lib/slowproxy" --listen "$SLOW" --to "$REG" \
		--mbit "$1" --rtt "$2" --stats "$W/link.json"
	sleep 0.2
}

link_reset() {
	kill -USR2 "${proxy_pid:?}"
	sleep 0.05
}

# link_stat KEY: requests, down (bytes), ... since link_reset
link_stat() {
	kill -USR1 "${proxy_pid:?}"
	sleep 0.05
	jq ".$1" "$W/link.json"
}

# An empty node: daemon and containerd that have never seen an image.
fresh_node() {
	stop_node
	rm -rf --one-file-system "$ROOT" "$RUN" "$W/ctd" "$W/nd"
	start_daemon --log-level info
	start_containerd $CONTAINERD >/dev/null
}

stop_node() {
	[ -z "$containerd_pid" ] || stop containerd
	[ -z "$daemon_pid" ] || stop daemon
}

# pull SNAPSHOTTER REF
pull() {
	if [ $CONTAINERD = 2 ]; then
		SNAPSHOTTER=$1 nd pull -q "$2" >/dev/null
	elif [ "$1" = verity ]; then
		ctr-remote images rpull --snapshotter verity --plain-http "$2" >/dev/null
	else
		ctr images pull --plain-http --snapshotter "$1" "$2" >/dev/null
	fi
}

# pull_bare REF [NAMESPACE]: with the plainest client there is
pull_bare() {
	if [ $CONTAINERD = 2 ]; then
		ctr -n "${2:-default}" images pull --plain-http --snapshotter verity "$1" >/dev/null
	else
		ctr-remote -n "${2:-default}" images rpull --snapshotter verity --plain-http "$1" >/dev/null
	fi
}

# run SNAPSHOTTER REF PROGRAM ARGS...
run() {
	local sn=$1 ref=$2
	shift 2
	if [ $CONTAINERD = 2 ]; then
		SNAPSHOTTER=$sn nd run --rm --net=none --entrypoint "$1" "$ref" "${@:2}"
	else
		ctr run --rm --snapshotter "$sn" "$ref" "bench-$RANDOM" "$@"
	fi
}

remove() {
	if [ $CONTAINERD = 2 ]; then
		nd rmi -f "$1" >/dev/null
	else
		ctr images rm --sync "$1" >/dev/null
	fi
}

# chain_id REF: of the topmost layer
chain_id() {
	local d chain=''
	for d in $(skopeo inspect --config --tls-verify=false "docker://${1/$SLOW/$REG}" | jq -r '.rootfs.diff_ids[]'); do
		[ -z "$chain" ] || d=sha256:$(printf '%s %s' "$chain" "$d" | sha256sum | cut -d' ' -f1)
		chain=$d
	done
	echo "$chain"
}

# A view that containerd's garbage collection, due after a pull, leaves alone;
# it may come before the label.
hold_view() { # SNAPSHOTTER REF KEY
	ctr snapshots --snapshotter "$1" view "$3" "$(chain_id "$2")" &&
		ctr snapshots --snapshotter "$1" label "$3" containerd.io/gc.root=bench
}

# mount_image SNAPSHOTTER REF DIR: as a container has it, but read-only
mount_image() {
	local key
	key=view-$(basename "$3")
	mkdir -p "$3"
	wait_for 10 "a view of $2" hold_view "$1" "$2" "$key"
	ctr snapshots --snapshotter "$1" mounts "$3" "$key" | sh
}

unmount_image() {
	umount "$2"
	ctr snapshots --snapshotter "$1" rm "view-$(basename "$2")"
}

# layer_digest REF N: of the N-th layer from the bottom
layer_digest() {
	skopeo inspect --raw --tls-verify=false "docker://${1/$SLOW/$REG}" | jq -r ".layers[$2].digest"
}

# warm_blobs REF: the registry's disk is not what is measured
warm_blobs() {
	local d
	for d in $(skopeo inspect --raw --tls-verify=false "docker://$1" | jq -r '.layers[].digest'); do
		curl -sf -o /dev/null "http://$REG/v2/${1#"$REG"/}/blobs/$d" 2>/dev/null ||
			curl -sf -o /dev/null "http://$REG/v2/$(basename "${1%:*}")/blobs/$d"
	done
}

# daemon_cpu: seconds that the daemon has used
daemon_cpu() {
	awk -v hz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.2f", ($12 + $13) / hz }' "/proc/$daemon_pid/stat"
}

# daemon_memory FIELD: of /proc/PID/status, in MB of 10^6 bytes
daemon_memory() {
	awk -v f="$1:" '$1 == f { printf "%.2f", $2 * 1024 / 1e6 }' "/proc/$daemon_pid/status"
}
