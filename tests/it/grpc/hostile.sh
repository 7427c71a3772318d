#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random bytes, half frames, floods and clients that vanish, on the daemon's
# socket, while a good client works; then the daemon is as it was.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

fds() { find "/proc/$daemon_pid/fd" -mindepth 1 | wc -l; }
quiet() { [ "$(fds)" -le "$before" ]; }
rss_kb() { sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon_pid/status"; }

start_daemon --log-level warn
before=$(fds)
timeout 200 /usr/bin/python3 -B "$TOP/tests/it/grpc/hostile.py" "$SOCK" || {
	tail -n 40 "$W/daemon.log"
	fail "hostile.py"
}
wait_for 10 'connections to end' quiet
case $B in
*-address-*) ;; # its memory is not the daemon's
*) [ "$(rss_kb)" -lt 65536 ] || fail "the daemon has grown to $(rss_kb) kB" ;;
esac
# a client that vanishes in the middle of a call, often
for i in 1 2 3 4 5; do
	timeout -s KILL 0.$i /usr/bin/python3 -B "$TOP/tests/it/grpc/hostile.py" "$SOCK" >/dev/null 2>&1 || true
done
wait_for 10 'connections to end' quiet
status >/dev/null || fail "the daemon does not answer"
stop daemon
! grep -i 'sanitizer\|runtime error' "$W/daemon.log" || fail "a sanitizer complains"
echo "RssAnon was fine, descriptors $before"
