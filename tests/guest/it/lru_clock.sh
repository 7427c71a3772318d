#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Filling and sealing under the classic LRU and under MGLRU, and while the clock
# jumps a year ahead and two back: all is here, right and sealed each time.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"
config 'read_timeout = 60'
start_scripted

life() { # IMAGE SEED [COMMAND...]
	seal_image "$1" "$2"
	start_daemon
	pull_sealed "$1" "${@:3}"
	stop daemon
	rm -rf "$ROOT"
	echo "$1: sealed"
}

jumps() {
	date -s '+1 year' >/dev/null
	wait_for 60 'a status after the jump' daemon_answers
	date -s '-2 years' >/dev/null
}

echo n >/sys/kernel/mm/lru_gen/enabled
[ "$(cat /sys/kernel/mm/lru_gen/enabled)" = 0x0000 ] || fail 'MGLRU is still on'
life classic 1
echo y >/sys/kernel/mm/lru_gen/enabled
life mglru 2
life clock 3 jumps
