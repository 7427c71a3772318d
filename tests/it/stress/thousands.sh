#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node with a thousand lazy layers: ready within a second, all of them in the
# status within three, within the usual limit of descriptors, and at rest when
# there is nothing to do. VS_LAYERS=n: so many.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/clones.sh
. "$TOP/tests/lib/clones.sh"

n=${VS_LAYERS:-1000}
start_registry
start_daemon
start_containerd 1
ctr-remote images rpull --snapshotter verity --plain-http "$REG/hello:esgz" >/dev/null
# What is proven has nothing left to do.
proven() { [ "$(status | jq -r '[.layers[].proven] | unique | join(" ")')" = true ]; }
wait_for 60 'the layers to be proven' proven
stop containerd
stop daemon

clone_layers "$n" "$n"
ulimit -n 20000
begin=$(date +%s%N)
start daemon "$DAEMON" --root "$ROOT" --run "$RUN"
until grep -q ' ready: ' "$W/daemon.log"; do
	kill -0 "${daemon_pid:?}" || fail "$(cat "$W/daemon.log")"
	sleep 0.01
done
ready=$((($(date +%s%N) - begin) / 1000000))
begin=$(date +%s%N)
[ "$(status | jq '[.layers[] | select(.state == "complete")] | length')" -ge "$n" ] || fail "status: $(status | head -c 2000)"
answer=$((($(date +%s%N) - begin) / 1000000))
! grep -E ' (error|warn) ' "$W/daemon.log" || fail 'complaints'

# Whatever else there was to do at a start is done after a while.
sleep "${VS_SETTLE_S:-5}"
# shellcheck disable=SC2012
fds=$(ls "/proc/$daemon_pid/fd" | wc -l)
rss=$(awk '/^RssAnon/ { print $2 }' "/proc/$daemon_pid/status")
# Of the threads that are there now; one that ends was woken once more.
switches() {
	local t
	for t in "${tasks[@]}"; do
		awk '/ctxt_switches/ { s += $2 } END { print s }' "$t/status" 2>/dev/null || echo 0
	done
}
# How long the start goes on depends on the machine; that it ends does not.
for _ in $(seq 8); do
	tasks=("/proc/$daemon_pid/task/"*)
	mapfile -t before < <(switches)
	sleep 5
	mapfile -t after < <(switches)
	woken=0
	for i in "${!tasks[@]}"; do
		[ "${after[i]}" = 0 ] || woken=$((woken + after[i] - before[i]))
	done
	[ "$woken" -gt 10 ] || break
done
case $DAEMON in *-thread*) woken=0 ;; esac # it has a thread of its own
[ "$woken" -le 10 ] || fail "woken $woken times in 5 s with nothing to do"
[ "$fds" -lt 200 ] || fail "$fds descriptors for layers that nobody uses"
cat "$ROOT/l/1000/data/one" >/dev/null || cat "$ROOT/l/1000/bin/busybox" >/dev/null || fail 'cannot be read'
stop daemon
echo "$n layers: ready in $ready ms, status in $answer ms, $fds descriptors, RssAnon $rss KiB, woken $woken times in 5 s"
