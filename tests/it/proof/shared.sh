#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A large file that two layers have: who reads it through the one completes the
# other, too, and its proof follows. What only the other's blob holds is fetched
# for that, counted, and shown.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "big", "content": {"random": 400000, "seed": 1}},
		  {"path": "name", "content": "$1"}]}]}
	J
}

start_scripted
# Nothing arrives but what is read.
config 'background_fill = false'
start_daemon
start_containerd 1
image one
image two
pull one
pull two
one=$(layer_path "$(layer_info one 0)") d=$(layer_info two 0)
two=$(layer_path "$d")
[ "$(cat "$two/name")" = two ] || fail 'two/name'
assert_state "$d" lazy
fetched=$(layer_status "$d" .bytes_fetched)

# status would look by itself: the log tells.
cat "$one/big" >"$W/big"
is_complete() {
	grep -q "info layer complete: layer=$d" "$W/daemon.log"
}
wait_for 60 'the other layer to be complete' is_complete
wait_for 60 'the proof to begin' grep -q "proof put off: layer=$d .*waits for bytes" "$W/daemon.log"
assert_state "$d" complete
[ "$(layer_status "$d" .bytes_fetched)" = "$fetched" ] || fail 'two has fetched the file itself'

config 'background_fill = true'
stop daemon
start_daemon
proven() {
	[ "$(layer_status "$d" .proven)" = true ]
}
wait_for 60 'the proof' proven
[ "$(layer_status "$d" .bytes_refetched)" -gt 400000 ] || fail "refetched: $(layer_status "$d" .bytes_refetched)"
echo "refetched $(layer_status "$d" .bytes_refetched) bytes"
