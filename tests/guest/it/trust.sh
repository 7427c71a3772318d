#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trust at rest, with the kernel's own verification: blocks are flipped on the
# raw device below sealed files. A scrub finds them; the kernel's log, when
# somebody else has read them; what is lost is fetched, and all is sealed again.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/guest/sealed.sh
. "$TOP/tests/guest/sealed.sh"
# shellcheck source=tests/it/trust/common.sh
. "$TOP/tests/it/trust/common.sh"

seal_image one 1
start_scripted
config 'verity = "require"' 'scrub_rate = 0'
start_daemon
pull_sealed one
[ "$(scrubbed no_kernel_log)" = '' ] || fail "the kernel's log: $(scrubbed no_kernel_log)"
large=$(body_of $((3 << 20))) medium=$(body_of $(((1 << 20) + 12345)))
d=$(layer_info one 1)
layer=$ROOT/layer/$(seq_of)
scrub_finds_nothing
all_right() {
	wait_until_whole one
	scrub_finds_nothing
}

# --- another block, read by somebody else than the daemon: the kernel tells
bad=$(scrubbed bad) old=$(stat -c %i "$medium")
flip_block "$medium" 33
! cat "$medium" >/dev/null 2>&1 || fail 'a flipped block was read'
more_bad() {
	[ "$(scrubbed bad)" -gt "$bad" ]
}
wait_for 60 "the kernel's log to be heard" more_bad
[ "$(scrubbed alarms)" -ge 1 ] || fail 'alarms'
all_right
[ "$(stat -c %i "$medium")" != "$old" ] || fail 'repaired in place'
daemon_answers >/dev/null || fail 'the daemon is gone'

# What else its log has caused is over before the next block is flipped.
quiet() {
	[ "$(status | jq -r '.scrub | "\(.queued) \(.state)"')" = '0 idle' ]
}
wait_for 30 'the alarms to be over' quiet

# --- flipped, and nobody reads it but the scrub: which says so to the kernel's
# log, too, and that is no reason for more
flip_block "$large" 700
flip_block "$layer/pack" 100
scrub_finds '.bad == 2 and .fetching == 2'
all_right
[ "$(scrubbed unreadable_blocks)" -ge 2 ] || fail "blocks: $(scrubbed unreadable_blocks)"
