#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Background fill never delays a reader, as the registry sees it: while the
# background's ranges are still unanswered, a reader's request goes out beside
# them, and no further one of theirs before he has his bytes. Then it goes on.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
FILES=40 # of 1 MiB: twice what is in flight at once

python3 - $FILES <<-'P' | make_image big
	import json, sys
	print(json.dumps({"layers": [{"entries": [{"path": f"f{i:02}", "content": {"random": 1 << 20, "seed": i}}
	                                          for i in range(int(sys.argv[1]))]}]}))
P
layer=$(layer_info big 0)
start_scripted
config 'background_fill = false'
start_daemon
start_containerd 1
pull big

# From here on the background wants all of it, and gets one answer: until it
# knows where the registry sends it, it asks for one range only.
stop daemon
config 'read_timeout = 600'
fault '{"reset": true}'
fault '{"match": "blobs/", "fault": "hold", "skip": 1}'
start_daemon
asked() { reg_stats '[.log[] | select(.range != null)] | length'; }
# The scheduler leaves room for readers: the number comes to rest below its limit.
at_rest() {
	local n
	n=$(asked)
	[ "$n" -gt 2 ] || return 1
	sleep 1
	[ "$n" = "$(asked)" ]
}
wait_for 60 'background ranges' at_rest

# --- a reader of the last file, where the background will not be for long
offsets() { reg_stats '[.log[] | select(.range != null) | .range | capture("bytes=(?<a>[0-9]+)-").a | tonumber] | .[]'; }
far=$(($(layer_info big 0 size) / 10 * 9))
last=$(layer_path "$layer")/f$((FILES - 1))
for off in $(offsets); do
	[ "$off" -lt $far ] || fail "the background is at $off already"
done
read_errno "$last" >"$W/read" &
reader=$!
came() { offsets | awk -v far=$far '$1 >= far { found = 1 } END { exit !found }'; }
wait_for 60 "the reader's request, beside those of the background" came
sleep 2 # longer than the background's own patience
offsets | awk -v far=$far '$1 >= far { his = $1 } his && $1 < far { print $1; exit }' >"$W/late"
[ ! -s "$W/late" ] || fail "the background asked for $(cat "$W/late") while a reader waited for what lies behind $far"
[ "$(layer_status "$layer" .waiting)" -gt 0 ] || fail 'the reader does not wait any more'

# --- he gets his bytes, and the background the rest
all_good
wait $reader
want=$(python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib'); import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': 1 << 20, 'seed': $((FILES - 1))}).bytes())" | sha256sum | cut -d' ' -f1)
[ "$(cat "$W/read")" = "ok $want" ] || fail "reader: $(cat "$W/read")"
complete() { [ "$(layer_status "$layer" .state)" = complete ]; }
wait_for 120 'the background to finish' complete
