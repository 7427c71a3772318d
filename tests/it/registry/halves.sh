#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Something on the way answers no range above some size, and says nothing: the
# range is halved until it is answered, within a unit and within the deadline.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
LIMIT=1000000

make_image big <<-'J'
	{"layers": [{"chunk_size": 4194304, "entries": [{"path": "f", "content": {"random": 3000000, "seed": 1}},
	  {"path": "g", "content": {"random": 3000000, "seed": 2}}]}]}
J
want() { # SEED
	python3 - "$1" <<-P
		import sys; sys.path.insert(0, "$TOP/tests/lib")
		import hashlib, mkestargz
		print("ok", hashlib.sha256(mkestargz.Content({"random": 3000000, "seed": $1}).bytes()).hexdigest())
	P
}
start_scripted
config 'read_timeout = 40' 'background_fill = false'
start_daemon
start_containerd 1
pull big
d=$(layer_info big 0)
dir=$(layer_path "$d")
fault '{"reset": true}'
fault "{\"match\": \"$d\", \"fault\": \"silent-above:$LIMIT\"}"
[ "$(read_errno "$dir/f")" = "$(want 1)" ] || fail 'the file was not read'

lengths() { reg_stats '.log[].range | select(.)' | sed 's/bytes=//' | awk -F- '{ print $2 - $1 + 1 }'; }
lengths
[ "$(lengths | awk -v l=$LIMIT '$1 > l' | wc -l)" -le 3 ] || fail 'it asked for too much again and again'
[ "$(lengths | awk '$1 < 262144' | wc -l)" -le 1 ] || fail 'ranges became smaller than 256 KiB'

# What was learned holds for the registry's other units.
n=$(lengths | wc -l)
[ "$(read_errno "$dir/g")" = "$(want 2)" ] || fail 'the second file was not read'
[ "$(lengths | tail -n +$((n + 1)) | awk -v l=$LIMIT '$1 > l' | wc -l)" = 0 ] || fail 'the second unit was asked for whole'
[ "$(reg_stats .bytes)" -le "$(layer_info big 0 size)" ] || fail "$(reg_stats .bytes) bytes were fetched"
