#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Honest images with everything that a layer can hold are proven, none is taken
# for a lie: what the converter leaves in the table of contents and what the tar
# says give the same tree.
. "$(dirname "$0")/../../lib/lib.sh"

start_registry
start_daemon
start_containerd 1
for i in hello odd attrs names links merged twice wide deep tools damaged; do
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/$i:esgz" >/dev/null
done
lazy() {
	status | jq -r '.layers[] | select(.state != "fallback") | .proof'
}
all_proven() {
	! lazy | found -vx proven
}
n=$(lazy | wc -l)
[ "$n" -gt 140 ] || fail "$n lazy layers"
wait_for 60 'the proofs' all_proven
[ "$(status | jq '[.layers[] | select(.state == "bad")] | length')" = 0 ] || fail "$(status | jq -c '.layers[] | select(.state == "bad")')"
echo "$n layers proven"
