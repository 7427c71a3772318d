#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node with a thousand lazy layers: ready within a second, all of them in the
# status within three, within the usual limit of descriptors, and at rest when
# there is nothing to do. VS_LAYERS=n: so many.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

n=${VS_LAYERS:-1000}
start_registry
start_daemon
start_containerd 1
ctr-remote images rpull --snapshotter verity --plain-http "$REG/hello:esgz" >/dev/null
complete() { [ "$(status | jq -r '[.layers[].state] | unique | join(" ")')" = complete ]; }
wait_for 20 'the layers to be complete' complete
stop containerd
stop daemon

# One of them many times over: other digests, the same files, a row above it.
seq=$(sqlite3 "$ROOT/state.db" 'SELECT seq FROM layer ORDER BY payload DESC LIMIT 1')
sqlite3 "$ROOT/state.db" <<-Q
	CREATE TEMP TABLE t AS WITH RECURSIVE i(x) AS (SELECT 1000 UNION ALL SELECT x + 1 FROM i WHERE x < 1000 + $n - 1) SELECT x FROM i;
	INSERT INTO layer SELECT x, randomblob(32), toc, format, writer, parent_chain, size, index_digest, map_digest, diff_id, chain_id, image, payload, usage, n_inodes, ino_base, proof, bad, created FROM layer, t WHERE seq = $seq;
	INSERT INTO body_ref SELECT ckey, x FROM body_ref, t WHERE seq = $seq;
	INSERT INTO snapshot (sn, name, kind, created, updated, size, inodes, seq) SELECT 'verity', 'many-' || x, 3, 1, 1, 1, 1, x FROM t;
	UPDATE meta SET next_seq = 1000 + $n;
Q
for ((i = 1000; i < 1000 + n; i++)); do cp -al "$ROOT/layer/$seq" "$ROOT/layer/$i"; done

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
