#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plug is pulled at every step of filling and completing bodies, with two
# extents in one block among them: what is read afterwards is right to the last
# byte, whether the data of a body, its bits and leaves or neither had reached
# the disk.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/powercut.sh
. "$TOP/tests/guest/powercut.sh"
config 'background_fill = false' 'read_timeout = 20'

die() {
	forget_bytes
	start_to_die "$(fault_of "$1")"
	read_all i >"$W/step.log" 2>&1 || true
}

check() {
	start_daemon
	read_all i || fail "$*: contents"
	# The second of two bodies is complete: that was durable when it was said.
	[ "$1" != body_marked_complete@2 ] || [ "$(reg_stats .requests)" = 0 ] ||
		fail "$*: something was fetched again: $(reg_stats)"
	assert_tidy
	stop daemon
}

plan=('body_data_created nothing' 'body_created states' 'residue_written nothing' 'body_bit_written@9 nothing')
for point in body_data_written body_leaves_written body_bit_written@3 body_bit_written@9 body_synced \
	body_marked_complete body_marked_complete@2; do
	plan+=("$point states" "$point data")
done
powercuts record_layer die check "${plan[@]}"
