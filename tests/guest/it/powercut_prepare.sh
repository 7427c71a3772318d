#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plug is pulled while a layer is prepared: it is there afterwards, or it
# is not and leaves nothing; the same pull then makes it, lazily.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/powercut.sh
. "$TOP/tests/guest/powercut.sh"
config 'background_fill = false'

before() {
	crash_image i 1
}

die() {
	rm -rf "$ROOT"
	start_to_die "$(fault_of "$1")"
	containerd_in_memory
	workload_pull i >"$W/step.log" 2>&1 || true
}

check() {
	start_daemon
	assert_tidy
	containerd_in_memory
	workload_pull i >"$W/step.log" 2>&1 || fail "$*: pull: $(cat "$W/step.log")"
	assert_lazy "$REG/i:latest"
	read_all i || fail "$*: contents"
	assert_tidy
	stop daemon
	stop containerd
	umount -l "$W/ctd"
}

powercuts before die check 'layer_folder_made nothing' 'map_written data' 'vfile_state_published states' \
	'layer_files_durable nothing' 'layer_recorded nothing' 'lazy_row_committed nothing'
