#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A resolver that never answers: who reads from the registry whose name it does
# not resolve waits for his deadline; another registry's readers do not notice,
# and the daemon ends without it.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
NAME=unresolved.test

for i in 1 2; do
	make_image i$i <<-J
		{"layers": [{"entries": [{"path": "a", "content": {"random": 200000, "seed": ${i}1}},
		  {"path": "b", "content": {"random": 200000, "seed": ${i}2}}]}]}
	J
done
want() { # SEED
	python3 - "$1" <<-P
		import sys; sys.path.insert(0, "$TOP/tests/lib")
		import hashlib, mkestargz
		print("ok", hashlib.sha256(mkestargz.Content({"random": 200000, "seed": $1}).bytes()).hexdigest())
	P
}
is_read() { [ "$(read_errno "$1")" = "$(want "$2")" ]; }

# Names from a file of ours, then from a socket that nobody reads.
printf '127.0.0.1 localhost %s\n' $NAME >"$W/hosts"
printf 'nameserver 127.0.0.1\noptions timeout:30 attempts:5\n' >"$W/resolv.conf"
echo 'hosts: files dns' >"$W/nsswitch.conf"
for f in hosts resolv.conf nsswitch.conf; do
	[ -e /etc/$f ] || skip "there is no /etc/$f to put another in front of"
	mount --bind "$W/$f" "$(readlink -f /etc/$f)"
done
start resolver python3 -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
print("bound", flush=True)
time.sleep(1000)'
wait_for 30 'the silent resolver' grep -q bound "$W/resolver.log"
mkdir -p "$W/certs/$NAME:5000"
printf 'server = "http://%s:5000"\n' $NAME >"$W/certs/$NAME:5000/hosts.toml"

start_scripted
config 'read_timeout = 3' 'background_fill = false' "hosts_dir = \"$W/certs\""
start_daemon
start_containerd 1
pull i1
ctr-remote images rpull --snapshotter verity --plain-http "$NAME:5000/i2:latest" >"$W/pull.log" 2>&1 ||
	fail "pull by name: $(tail -n 3 "$W/pull.log")"
one=$(layer_path "$(layer_info i1 0)") two=$(layer_path "$(layer_info i2 0)")
{ [ -n "$one" ] && [ -n "$two" ]; } || fail "not lazy: $(layer_status "$(layer_info i2 0)" .reason)"

# A daemon that has resolved nothing yet, and cannot.
stop daemon
printf '127.0.0.1 localhost\n' >"$W/hosts"
start_daemon
one=$(layer_path "$(layer_info i1 0)") two=$(layer_path "$(layer_info i2 0)")
got=$(read_errno "$two/a")
[ "$got" = ETIMEDOUT ] || fail "without a resolver a read ends with $got"
# Its request has been dropped by now, its question to the resolver has not: the
# network thread must not have waited for that.
wait_for 60 'a reader of another registry' is_read "$one/a" 11
read_errno "$two/b" >"$W/two.out" &
wait_for 30 'a reader to wait' eval '[ "$(layer_status "$(layer_info i2 0)" .waiting)" -gt 0 ]'
wait_for 60 'another reader of another registry' is_read "$one/b" 12
grep -qi 'resolv' <<<"$(layer_status "$(layer_info i2 0)" .reason) $(grep 'read fails' "$W/daemon.log")" ||
	echo "reason: $(layer_status "$(layer_info i2 0)" .reason)"

# The name is known again: so is the way.
printf '127.0.0.1 localhost %s\n' $NAME >"$W/hosts"
wait_for 60 'the first registry to be read again' is_read "$two/a" 21
stop daemon
