#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Images made by the reference converter are proven, each layer from what is on
# the disk already; a proof that a restart interrupts is made after it.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

not_proven() {
	status | jq -r '.layers[] | select(.proven | not) | "\(.image) \(.digest) \(.state) \(.proof) \(.reason)"'
}

all_proven() {
	[ -z "$(not_proven)" ]
}

wait_proven() { # SECONDS
	local end=$((SECONDS + $1))
	until all_proven; do
		[ $SECONDS -lt $end ] || fail "not proven: $(not_proven)"
		sleep 0.2
	done
}

start_registry
start_daemon
start_containerd 1
n=0
for i in ${NAMES:-hello odd many py}; do
	[ -e "$IMAGES/.$i" ] || continue
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/$i:esgz" >"$W/pull.log" 2>&1 ||
		fail "pull of $i: $(tail -n 3 "$W/pull.log")"
	n=$((n + 1))
done
[ $n -ge 2 ] || fail 'no images'
wait_proven 120
status | jq -c '.layers[] | {image, state, proven, bytes_refetched}'
# "py" holds large files twice: the second one's member was never needed before.
[ "$(status | jq '[.layers[] | select(.image | test("/py:") | not) | .bytes_refetched] | add')" = 0 ] ||
	fail 'something was fetched again that was here already'
[ -z "$(find "$ROOT/layer" -name residue -o -name proof)" ] || fail "left: $(find "$ROOT/layer" -name residue -o -name proof)"
# The diff ids are those of the image's config.
for i in ${NAMES:-hello odd}; do
	skopeo inspect --config --tls-verify=false "docker://$REG/$i:esgz" | jq -r '.rootfs.diff_ids[]' >"$W/want"
	while read -r d; do
		grep -q "layer proven: .*diff_id=$d" "$W/daemon.log" || fail "diff id $d of $i was not found"
	done <"$W/want"
done
stop daemon
start_daemon
all_proven || fail "forgotten: $(not_proven)"
