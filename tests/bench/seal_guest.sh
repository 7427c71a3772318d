#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The part of seal.sh that needs fs-verity; runs in the guest.
. "$(dirname "$0")/../guest/guest.sh"
export TSV=$GUEST_X/bench.tsv
. "$TOP/tests/bench/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
MIB=$((1 << 20))

# ---- P1: a file of 250 MB
head -c 250000000 /dev/urandom >"$W/raw"

# fresh: another file with these bytes, on the disk and not in memory
fresh() {
	rm -f "$W/file"
	cp "$W/raw" "$W/file"
	drop_caches
}
for _ in $(seq "$RUNS"); do
	drop_caches
	t=$(clock)
	dd if="$W/raw" of=/dev/null bs=1M status=none
	echo "$(seconds "$t")" >>"$W/t.read"
	fresh
	"$B/tests/bench/sealbench" seal "$W/file" >>"$W/t.uncached"
	fresh
	cat "$W/file" >/dev/null
	"$B/tests/bench/sealbench" cached "$W/file" >>"$W/t.cached"
	fresh
	"$B/tests/bench/sealbench" bare "$W/file" >>"$W/t.bare"
	fresh
	"$B/tests/bench/sealbench" random "$W/file" >>"$W/t.random"
done
uncached=$(best 1 "$W/t.uncached") cached=$(best 1 "$W/t.cached")
compare P1 'in the guest, sealing 250 MB: uncached less cached, reading it, s' '<=1.1' \
	"$(calc "$uncached - $cached")" "$(best 1 "$W/t.read")" "$RUNS"
note 'in the guest, sealing 250 MB, uncached, s' "$uncached" "$RUNS"
note 'in the guest, sealing 250 MB, cached, s' "$cached" "$RUNS"
note 'in the guest, sealing 250 MB, uncached, the ioctl alone, s' "$(best 1 "$W/t.bare")" "$RUNS"
note 'in the guest, sealing 250 MB, uncached, without readahead, s' "$(best 1 "$W/t.random")" "$RUNS"
rm "$W/raw" "$W/file"

# ---- bodies that are sealed from the page cache
sectors_read() {
	awk '{ print $3 }' /sys/block/ubda/stat
}
sealed() {
	[ "$(layer_status "$(layer_info app 0)" .state)" = sealed ]
}
for i in 1 2 3 4; do head -c $((8 * MIB)) /dev/urandom >"$W/f$i"; done
make_image app <<-J
	{"layers": [{"level": 1, "entries": [$(printf '{"path": "f%s", "content": {"file": "'"$W"'/f%s"}},' 1 1 2 2 3 3 4 4)
	                                     {"path": "last", "content": "x"}]}]}
J
start_scripted
start_daemon
start_containerd 1 >/dev/null
before=$(sectors_read)
pull app
wait_for 120 'the seal' sealed
after=$(sectors_read)
n=$(sed -n "s/.*sealed: .* file='body.* bytes_read=//p" "$W/daemon.log" | awk '{ s += $1; n++ } END { print (n > 4) ? s + 0 : "few" }')
absolute P1 'bytes the sealer read of bodies up to 64 MiB' '<=0' "$n" 1
note 'bytes that the disk read from pull to seal' "$(((after - before) * 512))"
stop containerd
stop daemon
