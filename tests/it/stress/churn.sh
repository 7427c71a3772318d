#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several namespaces pull, run and remove images side by side, while others read
# the layers view, ask for the status, and the daemon ends and starts anew. At
# the end no layer is left, nothing has grown, and nothing was complained of.
# VS_CHURN_S=n: seconds of it in each of the two halves.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

half_s=${VS_CHURN_S:-8}

no_errors() {
	! grep -h ' error ' "$W"/daemon*.log || fail 'errors in the log'
}

# one NAMESPACE IMAGE: a life of an image; a failure is only one when the
# daemon was there all the time
one() {
	local ns=$1 ref=$REG/$2 out status=0
	out=$(ctr-remote -n "$ns" images rpull --snapshotter verity --plain-http "$ref" 2>&1) ||
		{ echo "$ns $2: pull: $out"; return 1; }
	# By its exit status: ctr 1.6 may lose a line of a container that ends at once.
	out=$(ctr -n "$ns" run --rm --snapshotter verity "$ref" "c$RANDOM" /bin/sh -c '
		cat /bin/busybox | sha256sum >/tmp/sum && ls -lR /etc /data /odd >/dev/null 2>&1
		[ -s /tmp/sum ] && exit 7' 2>&1) || status=$?
	[ "$status" = 7 ] || { echo "$ns $2: run: status $status: $out"; return 1; }
	out=$(ctr -n "$ns" images rm --sync "$ref" 2>&1) || { echo "$ns $2: rm: $out"; return 1; }
}

client() { # NAMESPACE IMAGE...
	local ns=$1 image n=0
	shift
	while [ -e "$W/go" ]; do
		for image; do
			if one "$ns" "$image" >>"$W/clients.log"; then
				n=$((n + 1))
			else
				echo "$ns $image" >>"$W/failed"
			fi
		done
	done
	echo "$n" >>"$W/rounds"
}

# Layers come and go below a reader: any error is fine, a hang or a wrong byte
# is not (the daemon would say so).
reader() {
	local seq
	while [ -e "$W/go" ]; do
		for seq in $(status 2>/dev/null | jq -r '.layers[].seq // empty' 2>/dev/null); do
			timeout 20 find "$ROOT/l/$seq" -xdev -type f -size -4M -exec cat {} + >/dev/null 2>&1 || true
		done
		sleep 0.01
	done
}

watcher() {
	while [ -e "$W/go" ]; do
		status >/dev/null 2>&1 || true
		sleep 0.05
	done
}

# churn SECONDS
churn() {
	local pids=() p
	: >"$W/go"
	client one hello:esgz odd:esgz & pids+=($!)
	client two odd:esgz hello:esgz & pids+=($!)
	client three hello:esgz hello:gzip & pids+=($!)
	reader & pids+=($!)
	reader & pids+=($!)
	watcher & pids+=($!)
	sleep "$1"
	[ "${2:-}" = '' ] || "$2"
	rm "$W/go"
	for p in "${pids[@]}"; do wait "$p"; done
}

# Whatever a client that met no daemon has left.
sweep() {
	local ns x
	for ns in one two three; do
		for x in $(ctr -n "$ns" tasks ls -q); do ctr -n "$ns" tasks rm -f "$x" >/dev/null 2>&1 || true; done
		for x in $(ctr -n "$ns" containers ls -q); do ctr -n "$ns" containers rm "$x" >/dev/null 2>&1 || true; done
		for x in $(ctr -n "$ns" images ls -q); do ctr -n "$ns" images rm --sync "$x" >/dev/null 2>&1 || true; done
		for x in $(ctr -n "$ns" leases ls -q); do ctr -n "$ns" leases rm --sync "$x" >/dev/null 2>&1 || true; done
		# What a failed pull left is in nobody's way but counts here.
		for _ in 1 2 3 4 5 6 7 8; do
			for x in $(ctr -n "$ns" snapshots --snapshotter verity ls | awk 'NR > 1 { print $1 }' | tac); do
				ctr -n "$ns" snapshots --snapshotter verity rm "$x" >/dev/null 2>&1 || true
			done
		done
	done
}

no_layers() {
	[ "$(status | jq '[.layers[] | select(.state != "fallback")] | length')" = 0 ]
}

figures() {
	local p=/proc/${daemon_pid:?}
	# shellcheck disable=SC2012
	echo "$(ls "$p/fd" | wc -l) $(awk '/^RssAnon/ { print $2 }' "$p/status") $(awk '/^Threads/ { print $2 }' "$p/status")"
}

stop_well() {
	local status=0 start=$SECONDS
	kill -TERM "$daemon_pid"
	wait "$daemon_pid" || status=$?
	[ "$status" = 0 ] || fail "exit status $status: $(tail -n 5 "$W/daemon.log")"
	[ $((SECONDS - start)) -le 20 ] || fail "took $((SECONDS - start)) s to stop"
	cat "$W/daemon.log" >>"$W/daemon-before.log"
}

again() {
	for _ in 1 2; do
		stop_well
		sleep 0.5
		start_daemon
		sleep 2
	done
}

start_registry
# Half of the readers wait for the network.
config 'background_fill = false'
start_daemon
start_containerd 1
one one hello:esgz || fail 'nothing works'
wait_for 10 'the layers to go' no_layers
: >"$W/failed"
churn "$half_s"
[ ! -s "$W/failed" ] || fail "$(cat "$W/clients.log")"
wait_for 20 'the layers to go' no_layers
sleep 2
read -r fds rss threads <<<"$(figures)"
churn "$half_s"
[ ! -s "$W/failed" ] || fail "$(cat "$W/clients.log")"
wait_for 20 'the layers to go' no_layers
sleep 11 # idle threads end after 10 s
read -r fds2 rss2 threads2 <<<"$(figures)"
no_errors
[ "$fds2" -le $((fds + 4)) ] || fail "file descriptors grew from $fds to $fds2"
# One of each that ARCHITECTURE.md lists; a listener for each helper, and
# sanitizers have a thread by the program's name.
names=$(cat "/proc/$daemon_pid/task/"*/comm | sort)
[ -z "$(grep -vE '^(vs-helper|verity-snapshot)' <<<"$names" | uniq -d)" ] || fail "threads at rest: $names"
case $DAEMON in
*-address-* | *-thread*) ;;
*) [ "$rss2" -le $((rss + 1024)) ] || fail "anonymous memory grew from $rss to $rss2 KiB" ;;
esac

# The same while the daemon comes and goes, and fills.
config
churn 1 again
sweep
wait_for 20 'the layers to go' no_layers
stop_well
no_errors
echo "client: $(ctr-remote --version)"
echo "rounds: $(paste -sd+ "$W/rounds" | bc), fds $fds -> $fds2, RssAnon $rss -> $rss2 KiB, threads $threads -> $threads2"
