#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verity = "require" where nothing can be sealed: a new lazy image is refused and
# the message says what to do; an ordinary one is not, and what is here stays.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

for name in before after; do
	make_image $name <<-J
		{"layers": [{"entries": [{"path": "f", "content": {"text": 300000, "seed": "$name"}}]}]}
	J
done
before=$(layer_info before 0) after=$(layer_info after 0)

start_scripted
start_daemon --without verity
start_containerd 1
pull before
want=$(sha "$(layer_path "$before")/f")
stop daemon

config 'verity = "require"'
start_daemon --without verity
# Read again through the new daemon, and known to it: no pull is needed.
wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/before:latest"
[ "$(sha "$(layer_path "$before")/f")" = "$want" ] || fail 'what was here is not served'
assert_state "$before" lazy complete

# The client is told, and told what to do.
! ctr-remote images rpull --snapshotter verity --plain-http "$REG/after:latest" >"$W/refused.log" 2>&1 ||
	fail 'a new lazy image was taken'
for text in 'verity is "require"' 'masked by --without verity' 'file system of its own' 'failed precondition'; do
	tr -d '\\' <"$W/refused.log" | found "$text" || fail "the client is not told '$text': $(cat "$W/refused.log")"
done
[ -z "$(layer_path "$after")" ] || fail 'the refused layer is shown'
[ "$(status | jq -r .sealing.state)" = off ] || fail 'sealing'

# What nobody expects to be lazy is unpacked as ever: no eStargz labels.
ctr images pull --snapshotter verity --plain-http "$REG/after:latest" >/dev/null || fail 'an ordinary pull failed'

# Off is not a requirement: lazy, and nothing is sealed.
stop daemon
config 'verity = "off"'
make_image off <<-J
	{"layers": [{"entries": [{"path": "f", "content": {"text": 300000, "seed": "off"}}]}]}
J
start_daemon
[ "$(status | jq -r .sealing.reason)" = 'verity is "off" in the configuration' ] || fail "$(status | jq .sealing)"
wait_for 20 'containerd to come back' ctr-remote images rpull --snapshotter verity --plain-http "$REG/off:latest"
read_errno "$(layer_path "$(layer_info off 0)")/f" | found '^ok'
