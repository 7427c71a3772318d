#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A registry with a mirror: the mirror is asked first for everything, and left
# for the registry when it lacks a blob, lies, falls silent or goes away. Never
# a wrong byte, and a failure is paid for once and not by each range.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/hosts.sh
. "$TOP/tests/lib/hosts.sh"
MIRROR=127.0.0.1:5001

blobs='(.path | contains("/blobs/"))'
mirrored() { # REGISTRY
	hosts "$1" <<-T
		server = "http://$REG"

		[host."http://$MIRROR"]
		  capabilities = ["pull", "resolve"]
	T
}
reset() {
	order $MIRROR '{"clear": true, "reset": true}'
	order $REG '{"clear": true, "reset": true}'
}

start_at registry $REG
start_at mirror $MIRROR
for i in 1 2 3 4 5; do
	random_image "app$i" "${i}00"
	mirrored "r$i.test"
done
config "hosts_dir = \"$CERTS\"" 'background_fill = false'
start_daemon
start_containerd 1

# --- all is well: the registry hears nothing of it
pull_by_hosts r1.test/app1:latest
d=$(layer_info app1 0)
assert_state "$d" lazy
assert_file "$(layer_path "$d")/f0" 100
[ "$(asked $MIRROR "$blobs and .query == \"ns=r1.test\"")" -ge 2 ] || fail 'the mirror was not asked, or not told for whom'
[ "$(asked $REG)" = 0 ] || fail 'the registry was asked beside its mirror'

# --- it lies in the middle of a read: the registry says what is right, and the
# mirror is not asked again for this blob
order $MIRROR "{\"match\": \"blobs/$d\", \"fault\": \"tamper:1500000\"}"
for i in 1 2 3 4 5 6 7 8 9; do assert_file "$(layer_path "$d")/f$i" $((100 + i)); done
[ "$(asked $REG "$blobs")" -ge 1 ] || fail 'the lie was not seen'
"$CTL" --run "$RUN" status >"$W/status.txt"
grep -q "^registry r1.test: http://$MIRROR/v2 sent wrong bytes" "$W/status.txt" || fail "status: $(cat "$W/status.txt")"
grep -q 'host sent wrong bytes: .*host=127.0.0.1:5001' "$W/daemon.log" || fail 'nobody was named as the liar'

# --- it lies at Prepare, in the table of contents
reset
d=$(layer_info app2 0)
order $MIRROR "{\"match\": \"blobs/$d\", \"fault\": \"tamper:$(($(layer_info app2 0 toc_offset) + 200))\"}"
pull_by_hosts r2.test/app2:latest
assert_state "$d" lazy
assert_file "$(layer_path "$d")/f3" 203

# --- it has the manifest but not the blob
reset
d=$(layer_info app3 0)
order $MIRROR "{\"match\": \"blobs/$d\", \"fault\": \"status:404\"}"
pull_by_hosts r3.test/app3:latest
assert_state "$d" lazy
for i in 0 4 8; do assert_file "$(layer_path "$d")/f$i" $((300 + i)); done
# once by the job, once by the layer that it made
[ "$(asked $MIRROR "$blobs")" -le 2 ] || fail 'each range asks the mirror that lacks the blob'
[ "$(host_state r3.test $MIRROR state)" = ok ] || fail 'a host that lacks a blob counts as bad'

# --- it is silent: left for all blobs, and status says why
reset
d=$(layer_info app4 0)
order $MIRROR "{\"match\": \"blobs/$d\", \"fault\": \"silent\"}"
pull_by_hosts r4.test/app4:latest
assert_state "$d" lazy
silent=$(asked $MIRROR "$blobs")
[ "$(host_state r4.test $MIRROR state)" = bad ] || fail 'a silent mirror is not bad'
[[ $(host_state r4.test $MIRROR reason) == *silent* ]] || fail "reason: $(host_state r4.test $MIRROR reason)"
"$CTL" --run "$RUN" status >"$W/status.txt"
grep -q "^registry r4.test: http://$MIRROR/v2 fails: .*silent.* (others first for" "$W/status.txt" || fail "status: $(cat "$W/status.txt")"
[ "$(host_state r4.test $REG state)" = ok ] || fail 'the registry itself is bad'
for i in 0 2 4 5 7 9; do assert_file "$(layer_path "$d")/f$i" $((400 + i)); done
# One finds out when its time is over (after 10 s, then 20), and not all six.
[ "$(asked $MIRROR "$blobs")" -le $((silent + 2)) ] || fail 'each range waits for the silent mirror'

# --- it is gone
stop mirror KILL
pull_by_hosts r5.test/app5:latest
d=$(layer_info app5 0)
assert_state "$d" lazy
for i in 0 7; do assert_file "$(layer_path "$d")/f$i" $((500 + i)); done
[[ $(host_state r5.test $MIRROR reason) == *onnect* ]] || fail "reason: $(host_state r5.test $MIRROR reason)"

# --- both are gone: an error in time, and all is well when they are back
config "hosts_dir = \"$CERTS\"" 'background_fill = false' 'read_timeout = 3'
stop daemon
start_daemon
stop registry KILL
[ "$(read_errno "$(layer_path "$d")/f1")" = ETIMEDOUT ] || fail 'no registry, and no ETIMEDOUT'
start_at registry $REG
reads_again() { (assert_file "$(layer_path "$d")/f1" 501); }
wait_for 60 'reads to go on' reads_again
