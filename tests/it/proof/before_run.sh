#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# proof = "before-run": nothing is served before it is proven. A pull that is
# too early fails with the progress while the work goes on; the next one finds
# it done. A lie is never served lazily, not for a moment.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME [KEYS-OF-THE-LAYER]
	count=$((count + 1))
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "bin/", "type": "dir"},
		  {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
		  {"path": "base", "content": {"random": 3000000, "seed": $count}}]},
		 {"entries": [
		  {"path": "name", "content": "$1\n"},
		  {"path": "top", "content": {"text": 9000, "seed": $count}}]${2:+, $2}}]}
	J
}
count=0
# Its exit status says so: ctr may lose the output of a program that ends before
# ctr has opened the pipe.
runs() { # NAME
	ctr run --rm --snapshotter verity "$REG/$1:latest" "$1" /bin/sh -c 'read l </name && [ "$l" = "$0" ]' "$1" \
		>"$W/run.log" 2>&1 || fail "$1 does not run, or other bytes: $(tail -n 3 "$W/run.log")"
}

config 'proof = "before-run"' 'prepare_budget = 3' 'background_fill = false'
start_scripted
start_daemon
start_containerd 1

image quick
pull quick
for i in 0 1; do
	d=$(layer_info quick $i)
	[ "$(layer_status "$d" .proven)" = true ] || fail "quick was served unproven: $(layer_status "$d" .proof)"
done
runs quick

# Slower than the budget: Unavailable and the progress; the job goes on.
image slow
d=$(layer_info slow 0)
fault '{"match": "blobs", "fault": "slow:600000"}'
! (pull slow) >"$W/slow.log" 2>&1 || fail 'slow was pulled before its proof'
grep -q 'not proven yet (.* bytes are here)' "$W/slow.log" || fail "message: $(cat "$W/slow.log")"
grep -o 'layer sha256:.*' "$W/slow.log" | tail -n 1
all_good
proven_slow() {
	[ "$(layer_status "$d" .proven)" = true ]
}
wait_for 60 'the proof of slow' proven_slow
pull slow
[ "$(layer_status "$(layer_info slow 1)" .proven)" = true ] || fail 'the second layer is not proven'
runs slow

# Lies: containerd unpacks what the tar says.
image liar '"patch": [{"name": "name", "set": {"mode": 2541}}]'
pull liar
d=$(layer_info liar 1)
[[ "$(layer_status "$d" 'select(.state == "fallback") | .reason')" == *quarantine* ]] || fail "liar: $(layer_status "$d" .reason)"
runs liar
image hidden '"fextra": {"name": "evil\n"}'
pull hidden
runs hidden
