#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Damage while the daemon is down: of bodies, the pack, their states and leaf
# logs; shorter, foreign and lost files. The next daemon shows the right bytes
# only, whatever it has to fetch for that. And a scrub is as slow as it is told.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/trust/common.sh
. "$TOP/tests/it/trust/common.sh"

trust_image one 1
start_scripted
config 'scrub_rate = 1'
start_daemon --without verity
start_containerd 1
trust_pull one
layer=$ROOT/layer/$(seq_of)
large=$(body_file 2097152) medium=$(body_file 300001)

# 2.4 MB at 1 MiB a second.
began=$(date +%s%N)
scrub_finds_nothing
took=$((($(date +%s%N) - began) / 1000000))
echo "scrubbed in $took ms"
[ $took -ge 1900 ] || fail "too fast: $took ms"

# What is done to the files, one after the other.
header=0 bits=4096 leaves=$((4096 + 512))
cases=(
	"damage '$large'"
	"damage '$medium' 300000"
	"damage '$layer/pack' 50"
	"damage '$large.state' $header"
	"damage '$layer/pack.state' $bits"
	"damage '$medium.state' $((leaves + 33))"
	"truncate -s 4097 '$large'"
	"truncate -s +1 '$layer/pack'"
	"truncate -s 4100 '$large.state'"
	"head -c 300001 /dev/zero >'$W/f' && mv '$W/f' '$medium'"
	"rm '$large'"
	"rm '$medium.state'"
)
for c in "${cases[@]}"; do
	stop daemon
	eval "$c"
	start_daemon --without verity
	right one || fail "contents after: $c"
done
wait_for 30 'all that was lost' is_complete
right one
