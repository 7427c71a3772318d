#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A lost or emptied state.db is no first start: the daemon refuses, says what to
# do, and touches nothing; with the database back it goes on.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

tree() { (cd "$ROOT" && find . ! -path './l/*' -printf '%p %m %s %T@\n' | grep -v -e '^\./lock' -e '^\. ' | sort); }

refused() {
	local status=0
	tree >"$W/before"
	timeout 20 "$DAEMON" --root "$ROOT" --run "$RUN" >"$W/refused.log" 2>&1 || status=$?
	[ "$status" = 1 ] || fail "status $status, not 1: $(cat "$W/refused.log")"
	tail -n 1 "$W/refused.log" | found -F "'$ROOT/state.db' is missing or empty, but what it described is here ('s/" ||
		fail "message: $(tail -n 1 "$W/refused.log")"
	grep -q 'put back a copy; to start empty, move the whole directory away' "$W/refused.log" || fail 'no advice'
	tree >"$W/after"
	diff "$W/before" "$W/after" || fail 'a refused start changed something'
}

start_registry
start_daemon
start_containerd 1
[ "$(stat -c %a "$ROOT/state.db" "$ROOT/state.db-wal" | sort -u)" = 600 ] || fail "modes: $(stat -c '%a %n' "$ROOT"/state.db*)"
ctr image pull --plain-http --snapshotter verity "$REG/hello:gzip" >/dev/null
ctr run -d --snapshotter verity "$REG/hello:gzip" kept /bin/sh -c 'echo precious >/mine; sleep 1000'
wait_for 10 'the container to write' eval 'grep -qsx precious "$ROOT"/s/*/fs/mine'
stop daemon
cp "$ROOT/state.db" "$W/copy.db"

: >"$ROOT/state.db"
refused
refused # not only the first time
echo rows >"$ROOT/state.db-wal"
refused
rm -f "$ROOT/state.db"
refused
[ ! -e "$ROOT/state.db" ] || fail 'a refused start made a database'
rm -f "$ROOT/state.db-wal"
refused

cp "$W/copy.db" "$ROOT/state.db"
chmod 644 "$ROOT/state.db"
start_daemon
grep -qx precious "$ROOT"/s/*/fs/mine || fail 'the writable layer is gone'
[ "$(stat -c %a "$ROOT/state.db")" = 600 ] || fail 'the mode of an old database stays'
[ "$(ctr task exec --exec-id e kept /bin/cat /mine)" = precious ] || fail 'the container does not see its file'
ctr task kill -s KILL kept
echo 'lost, emptied, put back'
