#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl status, for people and as JSON, with and without a daemon.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

start_daemon --without fuse,big-reads
status >"$W/status.json"
jq -e --arg root "$ROOT" --arg run "$RUN" --argjson pid "$daemon_pid" '
	.root == $root and .run == $run and .pid == $pid and
	.address == $run + "/snapshotter.sock" and .policy == "prefer-lazy" and
	.uptime_s >= 0 and (.layers | type == "array") and
	(.socket_activated | not) and
	([.features[].name] | sort == ["big-reads", "dontcache", "fuse", "page-cache-hints", "passthrough", "readdirplus", "resend", "verity"]) and
	all(.features[]; .state | IN("on", "off", "absent", "auto")) and
	([.features[] | select(.state == "off").name] == ["fuse", "big-reads"])
' "$W/status.json" >/dev/null || fail "document: $(cat "$W/status.json")"
[ "$(wc -l <"$W/status.json")" = 1 ] || fail "not one line"

"$CTL" status --run="$RUN" >"$W/status.txt"
grep -q "^verity-snapshotter .*, pid $daemon_pid, up " "$W/status.txt" || fail "$(cat "$W/status.txt")"
grep -q '^without  fuse (off): masked by --without: no image is mounted lazily' "$W/status.txt" || fail "$(cat "$W/status.txt")"
grep -q '^no layers$' "$W/status.txt" || fail "$(cat "$W/status.txt")"

# Many at once, among them some that hang up or say nothing.
pids=()
for i in {1..40}; do
	case $((i % 4)) in
	0) socat -u OPEN:/dev/null "UNIX-CONNECT:$RUN/control.sock" & ;;
	1) (echo nonsense | socat - "UNIX-CONNECT:$RUN/control.sock" | found 'unknown request') & ;;
	*) ("$CTL" --run "$RUN" status --json | jq -e .layers >/dev/null) & ;;
	esac
	pids+=($!)
done
for p in "${pids[@]}"; do wait "$p" || fail "one of many clients failed"; done

expect() { # STATUS TEXT ARGS...
	local want=$1 text=$2 status=0
	shift 2
	"$CTL" "$@" >"$W/out" 2>&1 || status=$?
	[ "$status" = "$want" ] || fail "status $status, not $want: $* ($(cat "$W/out"))"
	grep -qF -- "$text" "$W/out" || fail "no '$text' in: $(cat "$W/out")"
}
expect 1 "no daemon listens on '$W/nowhere/control.sock'" --run "$W/nowhere" status
expect 2 'a command is missing' --run "$RUN"
expect 2 'unknown command: stats' --run "$RUN" stats
expect 2 'too many arguments: now' --run "$RUN" status now
expect 2 "unrecognized option '--jsn'" --run "$RUN" status --jsn
expect 0 'verityctl ' --version
expect 0 'usage: verityctl' --help
"$CTL" --run "$RUN" status >/dev/full 2>"$W/out" && fail "a full disk is not noticed"
kill -9 "$daemon_pid"
wait "$daemon_pid" 2>/dev/null || true
expect 1 'no daemon listens on' --run "$RUN" status
echo 'status'
