#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Pull, run, rmi, thirty times: layers, bodies and disk use go back to where
# they were, and so do the daemon's file descriptors.
. "$(dirname "$0")/../../lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_registry
start_daemon
start_containerd 2
ref=$REG/hello:esgz

round() {
	nd pull -q "$ref" >/dev/null
	[ "$(nd run --rm --net=none --entrypoint /bin/cat "$ref" /data/one)" = one ] || fail 'contents'
	nd rmi -f "$ref" >/dev/null
}
gone() {
	[ "$(status | jq '[.layers[] | select(.state != "fallback")] | length')" = 0 ]
}
fds() {
	# shellcheck disable=SC2012
	ls "/proc/${daemon_pid:?}/fd" | wc -l
}
round
wait_for 10 'the layers to go' gone
sleep 1
bytes=$(state_bytes) n=$(fds)
[ "$bytes" -lt 409600 ] || fail "$bytes bytes are left below the root after the last rmi"
for _ in $(seq 29); do round; done
wait_for 10 'the layers to go' gone
sleep 1
[ "$(state_bytes)" -le $((bytes + 65536)) ] || fail "disk use grew from $bytes to $(state_bytes)"
[ "$(fds)" -le $((n + 4)) ] || fail "file descriptors grew from $n to $(fds)"
