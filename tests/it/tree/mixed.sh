#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Lazy layers above ordinary ones: directories that a lazy layer implies look as
# they do in the ordinary layers below, and what cannot be lazy is unpacked.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"

# The registry's new tag is for this test alone.
mkdir "$W/up" "$W/work" "$W/storage"
mount -t overlay overlay -o "lowerdir=$IMAGES/registry,upperdir=$W/up,workdir=$W/work" "$W/storage"
start_registry "$W/storage"
start_daemon
start_containerd 1

# merged: four layers without an index, then one that implies directories
python3 "$TOP/tests/it/tree/mix.py" "$REG" merged 0 4
since=$(date +%s)
ref=$REG/merged:mixed
pull_both "$ref" fallback
[ "$(status | jq '[.layers[] | select(.state != "fallback")] | length')" = 2 ] ||
	fail "the two upper layers are not lazy: $(status)"
mount_both "$ref"
compare_trees 'merged over ordinary layers' --since "$since" || fail "$(head -n 40 "$W/differences")"
umount_both "$ref"

# one ordinary layer in the middle
python3 "$TOP/tests/it/tree/mix.py" "$REG" merged 2 3
pull_both "$ref" fallback
mount_both "$ref"
compare_trees 'merged around an ordinary layer' --since "$since" || fail "$(head -n 40 "$W/differences")"
umount_both "$ref"
total
