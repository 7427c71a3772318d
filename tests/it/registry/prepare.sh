#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a registry can do to a Prepare. Within the budget containerd gets
# ordinary mounts, status says why, and the image runs all the same, since the
# registry serves what containerd then asks for.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

one_layer() { # NAME SEED [KEYS]
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "bin/", "type": "dir"},
		  {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
		  {"path": "seed", "content": "seed $2"}]${3:+, $3}}]}
	J
}

# Each: the fault, how many requests it hits (all that the daemon makes for this
# Prepare; what follows is containerd's), and what the reason must say.
cases=(
	'status:401|1|401'
	'status:403|1|403'
	'status:404|1|404'
	'status:500|3|500'
	'200|2|range'
	'short:10|3|ended after 30 of'
	'reset|3|reset'
	'silent|1|not ready within the budget'
	'stall:100|1|not ready within the budget'
	'wrong-content-range|1|Content-Range'
	'wrong-total|1|'
	'tamper:OFF|1|'
)

start_scripted
config 'read_timeout = 5' 'prepare_budget = 3' 'background_fill = false'
start_daemon
start_containerd 1
n=0
for c in "${cases[@]}"; do
	IFS='|' read -r kind count why <<<"$c"
	n=$((n + 1))
	one_layer "p$n" $n
	d=$(layer_info "p$n" 0)
	kind=${kind/OFF/$(($(layer_info "p$n" 0 toc_offset) + 200))}
	fault "{\"match\": \"blobs/$d\", \"fault\": \"$kind\", \"count\": $count}"
	pull_within 6 "p$n"
	all_good
	assert_fallback "$d" "$why"
	echo "$kind: $(layer_status "$d" .reason)"
	[ "$(ctr run --rm --snapshotter verity "$REG/p$n:latest" "c$n" /bin/sh -c 'read l </seed; echo "$l"')" = "seed $n" ] ||
		fail "after $kind the image does not run"
done

# A table that ends early, and one that is not what the manifest promises: the
# layer's own bytes are as its digest says.
one_layer truncated 101 '"toc_raw": "{\"version\": 1, \"entries\": [{\"name\": \"seed\", "'
one_layer promised 102 "\"toc_text_digest\": \"sha256:$(printf 'a%.0s' {1..64})\""
for name in truncated promised; do
	d=$(layer_info $name 0)
	pull_within 6 $name
	assert_state "$d" fallback
	echo "$name: $(layer_status "$d" .reason)"
	ctr run --rm --snapshotter verity "$REG/$name:latest" $name /bin/sh -c 'read l </seed; echo "$l"' | found 'seed 10' ||
		fail "$name does not run"
done
assert_fallback "$(layer_info promised 0)" digest

# The registry recovers: what failed is lazy at the next pull.
remove p4
wait_for 5 'the snapshot to go' is_gone "$(layer_info p4 0)"
pull p4
assert_state "$(layer_info p4 0)" lazy
[ "$(cat "$(layer_path "$(layer_info p4 0)")/seed")" = 'seed 4' ] || fail 'contents'
[ "$(layer_status "$(layer_info p4 0)" .digest | wc -l)" = 1 ] || fail 'status still shows the former reason'
