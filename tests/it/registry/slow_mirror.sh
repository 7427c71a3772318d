#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A mirror that answers, but at 10 KB/s: it gets half of the reader's time, the
# registry goes on where it was, and later ranges begin there.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
MIRROR=127.0.0.1:5001

start_at registry $REG
start_at mirror $MIRROR
random_image app 100
hosts r.test <<-T
	server = "http://$REG"
	[host."http://$MIRROR"]
T
config "hosts_dir = \"$CERTS\"" 'background_fill = false' 'read_timeout = 16'
start_daemon
start_containerd 1
pull_by_hosts r.test/app:latest
d=$(layer_info app 0)
[ "$(asked $REG)" = 0 ] || fail 'the registry was asked beside its mirror'

order $MIRROR "{\"reset\": true, \"match\": \"blobs/$d\", \"fault\": \"slow:10240\"}"
assert_file "$(layer_path "$d")/f1" 101
[ "$(host_state r.test $MIRROR state)" = bad ] || fail 'a slow mirror is not bad'
[[ $(host_state r.test $MIRROR reason) == *'not done in'* ]] || fail "reason: $(host_state r.test $MIRROR reason)"
# What the mirror brought is not asked for again.
first() {
	curl -sf "http://$1/_admin/stats" | jq -r "[.log[] | select(.path | contains(\"$d\")) | .range][0]" |
		sed 's/bytes=\([0-9]*\)-.*/\1/'
}
[ "$(first $REG)" -gt "$(first $MIRROR)" ] || fail "the registry began at $(first $REG), the mirror at $(first $MIRROR)"
slow=$(asked $MIRROR)
assert_file "$(layer_path "$d")/f5" 105
[ "$(asked $MIRROR)" -le $((slow + 1)) ] || fail 'each range is asked of the slow mirror'
