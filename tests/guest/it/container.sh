#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A whole life with containerd and runc: an image is pulled lazily and its
# container reads everything; once all is here the node is switched off without
# a warning. It comes up without a registry, and the same container reads the same.
. "$(dirname "$0")/../guest.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'
ref=$REG/tools:esgz

# All that the container can read of its files, in the paths' order; what
# nerdctl puts into /etc is made anew for each.
read_all() {
	nd run --rm --net=none --entrypoint /bin/sh "$ref" -c \
		'/opt/find / -xdev -type f ! -path "/etc/*" -exec /opt/sha256sum {} + | /opt/sort -k 2'
}

all_proven() {
	status | jq -e '.layers | length == 3 and all((.state | IN("complete", "sealed")) and .proven)'
}

case ${STEP:-online} in
online)
	start_registry
	start_daemon
	start_containerd 2
	nd pull -q "$ref"
	assert_lazy "$ref"
	read_all >"$W/online"
	[ "$(wc -l <"$W/online")" -gt 100 ] || fail "only read: $(cat "$W/online")"
	grep -q "^$(python3 -c 'import hashlib, random; print(hashlib.sha256(random.Random(3).randbytes(3 << 20)).hexdigest())')  /t/large$" \
		"$W/online" || fail 'contents of /t/large'
	wait_for 60 'the proof of each layer' all_proven
	# What containerd and nerdctl wrote is not ours to judge.
	stop containerd
	sync -f "$W/online"
	cut_power STEP=offline
	;;
offline)
	start_daemon
	start_containerd 2
	read_all >"$W/offline"
	diff "$W/online" "$W/offline" || fail 'not the same as before'
	wait_for 60 'the proof of each layer' all_proven
	[ "$(status | jq '.registry.requests')" = 0 ] || fail "asked a registry: $(status)"
	;;
esac
