#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real container on a lazy image and one on overlayfs: programs that change
# the root file system see the same, and leave the same tree (inside.sh).
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"

start_registry
start_daemon
start_containerd 1
ref=$REG/tools:esgz
pull_both "$ref"
since=$(date +%s)
for k in plain:overlayfs lazy:verity; do
	ctr run --snapshotter "${k#*:}" --mount "type=bind,src=$TOP/tests/it/tree,dst=/opt/tree,options=rbind:ro" \
		"$ref" "inside-${k%:*}" /opt/bash /opt/tree/inside.sh >"$W/${k%:*}.said" 2>&1 || fail "$(tail -n 20 "$W/${k%:*}.said")"
done
diff -u "$W/plain.said" "$W/lazy.said" >"$W/differences" || fail "programs see different things:
$(head -n 40 "$W/differences")"
for how in cp tar rsync; do
	grep -qx "$how: the same tree" "$W/lazy.said" || fail "$how: $(grep "^$how" "$W/lazy.said")"
done
[ "$(grep -c ' = 0$' "$W/lazy.said")" -gt 40 ] || fail "few commands worked: $(cat "$W/lazy.said")"
echo "$(wc -l <"$W/lazy.said") lines of output are the same"

# What is left of both.
for k in plain:overlayfs lazy:verity; do
	mkdir -p "$W/${k%:*}"
	eval "$(ctr snapshots --snapshotter "${k#*:}" mounts "$W/${k%:*}" "inside-${k%:*}")"
done
compare_trees 'after the programs' --since "$since" || fail "$(head -n 40 "$W/differences")"
