#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The part of hotset.sh that runs in the guest.
. "$(dirname "$0")/../guest/guest.sh"
export TSV=$GUEST_X/bench.tsv WAYS=$GUEST_X/ways.tsv RUNS=1 SEALS=true
. "$TOP/tests/bench/lib.sh"
# shellcheck source=tests/bench/hotset_lib.sh
. "$TOP/tests/bench/hotset_lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OCI=$GUEST_X/oci

root=/sys/fs/cgroup
echo +memory >$root/cgroup.subtree_control
group() {
	mkdir -p "$root/$1"
	echo "$2" >"$root/$1/memory.max"
	# The application's own is not to be divided: the sealer stays in it, too.
	[ "$1" != vs ] || setfattr -n user.delegate -v 1 "$root/$1"
}
join() {
	echo $BASHPID >"$root/$1/cgroup.procs"
}
leave() {
	local g
	for g in app vs; do
		[ ! -d $root/$g ] || wait_for 10 'the helpers to end' find $root/$g -depth -type d -exec rmdir {} +
	done
}

head -c $HOT /dev/urandom >"$W/hot"
head -c $((512 * MIB)) /dev/urandom >"$W/stream"
start_scripted
for lru in y n; do
	echo $lru >/sys/kernel/mm/lru_gen/enabled
	[ $lru = y ] && name=MGLRU || name='classic LRU'
	measure_ways "guest, $name" "$W/stream"
	measure_pull "guest, $name" '768 MiB pulled, sealed and scrubbed'
done
