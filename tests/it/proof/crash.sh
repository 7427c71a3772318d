#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Killed at the steps of a verdict: the next start finds it, or makes it again.
# Nothing is fetched for that, and nothing is left over.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME SEED [KEYS-OF-THE-LAYER]
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "d/", "type": "dir"},
		  {"path": "d/a", "content": {"text": 50000, "seed": $2}},
		  {"path": "d/b", "content": {"random": 200000, "seed": $2}}]${3:+, $3}}]}
	J
	d=$(layer_info "$1" 0)
}

has_died() {
	! kill -0 "${daemon_pid:?}"
}

is_judged() {
	[ "$(layer_status "$d" .proof)" = "$1" ]
}

start_scripted
n=0
for point in layer_proven residue_dropped proof_recorded; do
	n=$((n + 1))
	case $point in
	proof_recorded) verdict=failed; image i$n $n '"patch": [{"name": "d/a", "set": {"mode": 511}}]' ;;
	*) verdict=proven; image i$n $n ;;
	esac
	VS_FAULT="$point:kill" start_daemon
	[ -n "$containerd_pid" ] || start_containerd 1
	wait_for 20 'the pull' ctr-remote images rpull --snapshotter verity --plain-http "$REG/i$n:latest"
	wait_for 30 "the death at $point" has_died
	stop daemon
	fault '{"reset": true}'
	start_daemon
	wait_for 20 "the verdict after $point" is_judged "$verdict"
	[ "$(reg_stats '.requests')" = 0 ] || [ $verdict = failed ] || fail "after $point: something was fetched"
	sleep 0.2
	[ -z "$(find "$ROOT/layer" -name residue -o -name proof)" ] || fail "left after $point: $(find "$ROOT/layer" -name residue -o -name proof)"
	echo "$point: $verdict"
	stop daemon
done
