#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The socket file: a stale one is replaced, a live one and what is no socket
# are refused and left alone; a socket that is passed in is used.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

refused() { # TEXT ARGS...
	local want=$1 status=0
	shift
	timeout 20 "$DAEMON" --root "$W/root2" "$@" >"$W/log" 2>&1 || status=$?
	[ "$status" = 1 ] || fail "status $status, not 1: $(cat "$W/log")"
	tail -n 1 "$W/log" | found -F -- "$want" || fail "no '$want' in: $(cat "$W/log")"
}
accepts() { socat -u /dev/null "UNIX-CONNECT:$1"; }

start_daemon
inode=$(stat -c %i "$SOCK")
refused "another process listens on '$SOCK'" --run "$RUN"
refused "another process listens on '$RUN/control.sock'" --run "$RUN" --address "$W/other.sock"
[ ! -e "$W/other.sock" ] || fail "a daemon that did not start leaves its socket"
[ "$(stat -c %i "$SOCK")" = "$inode" ] || fail "the socket of a live daemon was touched"
accepts "$SOCK" || fail "the live daemon was harmed"

kill -9 "$daemon_pid"
wait "$daemon_pid" 2>/dev/null || true
[ -S "$SOCK" ] || fail "no stale socket to test with"
start_daemon
accepts "$SOCK" || fail "a stale socket was not replaced"
stop daemon

echo precious >"$W/file"
refused "'$W/file' is in the way and is not a socket" --run "$W/run3" --address "$W/file"
[ "$(cat "$W/file")" = precious ] || fail "a file was replaced by a socket"
ln -s "$W/nowhere" "$W/dangling"
refused "'$W/dangling' is in the way and is not a socket" --run "$W/run3" --address "$W/dangling"

long=$W/$(printf 'x%.0s' {1..120})
refused 'is longer than 107 bytes' --run "$W/run3" --address "$long"

# --address elsewhere, its folder made on the way
start_daemon --address "$W/deep/er/s.sock"
accepts "$W/deep/er/s.sock" || fail "--address is not served"
[ ! -e "$SOCK" ] || fail "the default socket is there, too"
stop daemon
[ ! -e "$W/deep/er/s.sock" ] || fail "the socket file outlives the daemon"

# Passed in: --address is not made, and the file is not ours to remove.
if command -v systemd-socket-activate >/dev/null; then
	start activator systemd-socket-activate -l "$W/passed.sock" "$DAEMON" --root "$ROOT" --run "$RUN"
	wait_for 5 'the passed socket' test -S "$W/passed.sock"
	accepts "$W/passed.sock" || fail "the passed socket is not served"
	wait_for 20 'the activated daemon' daemon_answers
	status | jq -e --arg a "$W/passed.sock" '.socket_activated and .address == $a' >/dev/null || fail "$(status)"
	[ ! -e "$SOCK" ] || fail "a second socket was made"
	stop activator
	[ -S "$W/passed.sock" ] || fail "a socket that was passed in was removed"
fi
echo 'stale, live, foreign, long and passed sockets'
