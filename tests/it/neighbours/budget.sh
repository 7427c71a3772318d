#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A table of contents that takes longer than prepare_budget: Prepare answers
# with ordinary mounts when that is over, the job goes on, and the next pull is
# lazy without a byte of the layers fetched by containerd.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

make_image slow <<-'J'
	{"layers": [{"entries": [{"path": "base", "content": {"random": 200000}}]},
	            {"entries": [{"path": "name", "content": "slow\n"}]}]}
J
base=$(layer_info slow 0) top=$(layer_info slow 1)
start_scripted
config 'prepare_budget = 2' 'background_fill = false'
start_daemon
start_containerd 1

# The registry holds back all of the layers, from containerd too.
fault "{\"match\": \"blobs/$base\", \"fault\": \"hold\"}"
fault "{\"match\": \"blobs/$top\", \"fault\": \"hold\"}"
ctr-remote images rpull --snapshotter verity --plain-http "$REG/slow:latest" >"$W/pull.log" 2>&1 &
pull=$!
fallen_back() { [ "$(layer_status "$base" .state)" = fallback ]; }
wait_for 60 'ordinary mounts' fallen_back
assert_fallback "$base" 'not ready within the budget'
kill -0 $pull || fail "the pull has ended without a layer: $(cat "$W/pull.log")"
# The documented deadline is 2 s; the rest is the machine's.
us=$(grep -o 'method=Prepare code=[A-Z_]* us=[0-9]*' "$W/daemon.log" | head -n 1 | grep -o '[0-9]*$')
[ "$us" -ge 2000000 ] || fail "Prepare gave up after $us us"
[ "$us" -lt 30000000 ] || fail "Prepare took $us us with a budget of 2 s"

# It comes, to both: the pull ends, and so does the job that nobody waited for.
all_good
wait $pull || fail "pull: $(tail -n 3 "$W/pull.log")"
made() { grep -q "layer ready: layer=$base" "$W/daemon.log"; }
wait_for 60 'the job to go on to its end' made
remove slow
fault '{"reset": true}'
pull slow
for d in $base $top; do assert_state "$d" lazy; done
[ "$(cat "$(layer_path "$top")/name")" = slow ] || fail 'contents'
! reg_stats '.log[] | select(.path | contains("blobs/")) | select(.agent | startswith("containerd")) | .path' | grep -e "$base" -e "$top" ||
	fail 'containerd fetched a layer of the second pull'
