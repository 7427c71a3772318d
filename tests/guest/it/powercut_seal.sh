#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plug is pulled while bodies are sealed, and while one that was damaged is
# replaced: the file is the old one or the new one, every byte of it is right,
# and in the end all is sealed.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/powercut.sh
. "$TOP/tests/guest/powercut.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"
# Reads of damage must reach the daemon: the kernel's log is not told of each.
config 'background_fill = false' 'read_timeout = 20' 'passthrough = false'

reached() { # POINT
	grep -q "fault point reached, dying: name=$1" "$W/daemon.log"
}

# What read_all() reads: the image has a file more, of which reading ahead may
# have brought a part.
read_is_sealed() {
	sealed_as_ours "$ROOT"/layer/*/{index,map,pack} "$(body_of 900000)"
}

die() {
	forget_bytes
	case $1 in
	body_copied | body_replaced)
		start_daemon
		read_all i
		wait_for 60 'all to be sealed' read_is_sealed
		stop daemon
		flip_block "$(body_of 900000)" 17
		;;
	esac
	start_to_die "$(fault_of "$1")"
	read_all i >"$W/step.log" 2>&1 || true
	wait_for 60 "$1" reached "${1%@*}"
	# Only the helper has died there.
	[ "$1" != verity_enabled ] || kill -KILL "$daemon_pid"
}

check() {
	start_daemon
	read_all i || fail "$*: contents"
	wait_for 60 "all to be sealed after $*" read_is_sealed
	assert_tidy
	stop daemon
}

powercuts record_layer die check 'verity_enabled nothing' 'verity_enabled data' 'verity_enabled states' \
	'body_marked_sealed nothing' 'body_marked_sealed@2 data' 'body_sealed nothing' 'body_sealed states' \
	'body_copied states' 'body_copied data' 'body_replaced nothing' 'body_replaced states' 'body_replaced data'
