#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P4: what is left of an application's hot files beside a layer of four times its
# memory; and what each way to stream a file leaves. Here with cgroup v1 and the
# classic LRU, the daemon checking what it reads; in the guest with cgroup v2,
# MGLRU on and off, and the sealer.
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/bench/hotset_lib.sh
. "$TOP/tests/bench/hotset_lib.sh"
export WAYS=$W/ways.tsv

mem=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
# A pid is not unique: this is a namespace.
vs=$mem/$(basename "$W")
group() {
	mkdir -p "$vs/$1"
	echo "$2" >"$vs/$1/memory.limit_in_bytes"
}
join() {
	echo $BASHPID >"$vs/$1/cgroup.procs"
}
leave() {
	[ ! -d "$vs" ] || wait_for 10 'the helpers to end' find "$vs" -depth -type d -exec rmdir {} +
}

make_big "$W/guest/oci"
if mkdir "$vs" 2>/dev/null && echo 1 >"$vs/memory.use_hierarchy" 2>/dev/null; then
	trap 'leave; at_exit' EXIT
	head -c $HOT /dev/urandom >"$W/hot"
	head -c $((512 * MIB)) /dev/urandom >"$W/stream"
	measure_ways 'here, classic LRU' "$W/stream"
	rm "$W/stream"
	# shellcheck source=tests/lib/scripted.sh
	. "$TOP/tests/lib/scripted.sh"
	OCI=$W/guest/oci
	start_scripted
	measure_pull 'here' '768 MiB pulled and scrubbed'
	stop registry
	rm -rf "$ROOT" "$W/hot"
else
	echo 'no memory cgroup of version 1 here: only the guest is measured' >&2
fi

GUEST_KERNEL=${GUEST_KERNEL:-$("$TOP/tests/guest/build.sh")} || GUEST_KERNEL=none
[ "$GUEST_KERNEL" != none ] || fail 'there is no guest, so nothing was measured there'
export GUEST_KERNEL RUNS
GUEST_MEM=3G GUEST_DISK=6G GUEST_LIMIT=1000 GUEST_ENV=RUNS "$TOP/tests/guest/run.sh" "$TOP/tests/bench/hotset_guest.sh"
cat "$W/guest/bench.tsv" >>"$TSV"
cat "$W/guest/ways.tsv" >>"$WAYS"
cp "$WAYS" "${TSV%.tsv}-ways.tsv"
