#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starting and stopping: folders and their modes, readiness, one daemon for a
# root, the last line of the log, the exit status, and nothing left behind.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

mounts_below() { grep -c " $1/" /proc/self/mountinfo || true; }

# ended STATUS TEXT: wait for the daemon, judge its status and last line
ended() {
	local status=0
	wait "$daemon_pid" || status=$?
	[ "$status" = "$1" ] || fail "exit status $status, not $1: $(tail -n 3 "$W/daemon.log")"
	tail -n 1 "$W/daemon.log" | found -F -- "$2" || fail "last line: $(tail -n 1 "$W/daemon.log")"
}

# --- created folders, SIGTERM
start_daemon
[ "$(stat -c %a "$ROOT")" = 700 ] || fail "root may be entered by others"
for s in snapshotter.sock control.sock; do
	[ "$(stat -c '%a %F' "$RUN/$s")" = '600 socket' ] || fail "$s: $(stat -c '%a %F' "$RUN/$s")"
done
[ -s "$ROOT/state.db" ] || fail "no database"
grep -q ' ready: version=' "$W/daemon.log" || fail "not announced"

# --- a second daemon for the same root names the first, and harms nothing
if "$DAEMON" --root "$ROOT" --run "$W/run2" >"$W/second.log" 2>&1; then
	fail "two daemons on one root"
fi
tail -n 1 "$W/second.log" | found "is in use by another daemon (pid $daemon_pid)" || fail "$(cat "$W/second.log")"
[ ! -e "$W/run2" ] || fail "the refused daemon made its folders"
status >/dev/null || fail "the first daemon suffers"
kill -TERM "$daemon_pid"
ended 0 "stopped: reason='signal SIGTERM'"
[ -z "$(ls -A "$RUN")" ] || fail "left in run: $(ls "$RUN")"
[ "$(mounts_below "$W")" = 0 ] || fail "mounts are left"

# --- again on the same state, SIGINT; SIGHUP does nothing
start_daemon
kill -HUP "$daemon_pid"
status >/dev/null || fail "SIGHUP ended it"
kill -INT "$daemon_pid"
ended 0 "stopped: reason='signal SIGINT'"

# --- kill -9: the next start finds the mount by name and replaces it
start_daemon
before=$(mounts_below "$W")
kill -9 "$daemon_pid"
wait "$daemon_pid" 2>/dev/null || true
start_daemon
[ "$(mounts_below "$W")" = "$before" ] || fail "dead mounts pile up: $(mounts_below "$W"), not $before"
stop daemon
[ "$(mounts_below "$W")" = 0 ] || fail "mounts are left after kill -9 and stop"

# --- run below root, relative paths, a symbolic link on the way
mkdir "$W/real"
ln -s real "$W/link"
cd "$W/link"
ROOT=state RUN=state/run start_daemon
"$CTL" --run state/run status --json | jq -e --arg r "$W/real/state" '.root == $r and .run == $r + "/run"' >/dev/null ||
	fail "root is not canonical"
stop daemon
ROOT=state RUN=state/run start_daemon
stop daemon
cd "$W"

# --- what is not ours to close
mkdir -m 1777 "$W/open"
if "$DAEMON" --root "$W/open" --run "$RUN" >"$W/open.log" 2>&1; then
	fail "a root that everybody can write to is used"
fi
grep -q "root '$W/open' is writable by everybody" "$W/open.log" || fail "$(cat "$W/open.log")"

# --- READY=1 comes once it can be asked; STOPPING=1 before the end
socat -u "UNIX-RECV:$W/notify" "OPEN:$W/notified,creat,append" &
wait_for 5 'the notify socket' test -S "$W/notify"
NOTIFY_SOCKET=$W/notify start_daemon
wait_for 5 'READY=1' grep -qa 'READY=1' "$W/notified"
grep -qa "STATUS=listening on $SOCK" "$W/notified" || fail "no status line"
kill -TERM "$daemon_pid"
ended 0 SIGTERM
wait_for 5 'STOPPING=1' grep -qa 'STOPPING=1' "$W/notified"
echo 'start, lock, signals, kill -9, paths, readiness'
