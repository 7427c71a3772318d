#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Containers that outlive the daemon: status and log name them after a kill -9
# and after a stop, until they are gone; new ones and restarted ones run.
. "$(dirname "$0")/common.sh"

start_registry
start_daemon
start_containerd 1
ref=$REG/hello:esgz
ctr-remote images rpull --snapshotter verity --plain-http "$ref" >/dev/null
ctr image pull --plain-http --snapshotter verity "$REG/hello:gzip" >/dev/null
lazy_run() { # ID
	ctr run -d --snapshotter verity "$ref" "$1" /bin/sleep 1000
}
end() { # ID
	ctr task kill -s KILL "$1" 2>/dev/null || true
	wait_for 10 "the end of $1" eval "ctr task ls | grep -E '^$1 .*STOPPED' || ! ctr task ls | found '^$1 '"
	ctr task rm "$1" >/dev/null 2>&1 || true
	ctr container rm "$1"
}
broken() { status | jq -r '[.broken[].container] | sort | join(" ")'; }
expect_broken() {
	[ "$(broken)" = "$1" ] || fail "broken: '$(broken)', not '$1'"
}

lazy_run one
lazy_run two
ctr run -d --snapshotter verity "$REG/hello:gzip" plain /bin/sleep 1000
# a View of one layer is a bind mount
mkdir "$W/view"
mount --bind "$ROOT/l/$(status | jq '[.layers[].seq | numbers][0]')" "$W/view"
expect_broken ''

stop daemon KILL
start_daemon
fresh_containerd
expect_broken ' default/one default/two'
status | jq -e --arg m "$W/ctd/state/io.containerd.runtime.v2.task/default/one/rootfs" --arg v "$W/view" '
	[.broken[].mount] | contains([$m]) and contains([$v])' >/dev/null || fail "$(status | jq .broken)"
grep -q "warn.* containers stand on layers of an earlier daemon.*: count=3 first=" "$W/daemon.log" || fail 'no warning'
"$CTL" --run "$RUN" status | found '^broken   default/one: on layers of an earlier daemon, restart it (' || fail "$("$CTL" --run "$RUN" status)"
[ "$(ctr task exec --exec-id e plain /bin/cat /data/one)" = one ] || fail 'an ordinary container is broken, too'

# --- the same id at the same place, mended: not named any more
end one
expect_broken ' default/two'
lazy_run one
[ "$(ctr task exec --exec-id e one /bin/cat /data/two)" = two ] || fail 'a container started anew is broken'
expect_broken ' default/two'
end two
umount -l "$W/view"
expect_broken ''

# --- a clean stop leaves them as broken; this containerd finds the new daemon
stop daemon
start_daemon
wait_for 5 'containerd to connect again' ctr snapshots --snapshotter verity ls
expect_broken 'default/one'
end one
lazy_run one
lazy_run three
expect_broken ''
[ "$(ctr task exec --exec-id e one /bin/cat /data/two)" = two ] || fail 'a container started anew is broken'
for c in one three plain; do end $c; done

# --- so many layers that containerd shortens their list to "120:119:..."
python3 - <<-'P' | make_image many
	import json
	layers = [{"entries": [{"path": "sh", "mode": "0755", "content": {"file": "/bin/busybox"}}]}]
	layers += [{"entries": [{"path": f"f{i}", "content": {"random": 10, "seed": i}}]} for i in range(119)]
	print(json.dumps({"layers": layers}))
P
stop daemon
stop registry
ROOT=$W/$(printf 'a-long-name-%.0s' {1..8})
start_scripted
start_daemon
fresh_containerd
pull many
ctr run -d --snapshotter verity "$REG/many:latest" many /sh -c 'while :; do :; done' || fail 'run of many layers'
grep -q 'many/rootfs .*lowerdir=[0-9]*:[0-9]*:' /proc/self/mountinfo || fail 'the list of layers is not relative'
stop daemon KILL
start_daemon
expect_broken default/many
end many
expect_broken ''
echo 'broken containers are named, as long as they are there'
