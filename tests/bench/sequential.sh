#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P6: a file of 1 GiB read in order for the first time, against one thread that
# fetches, inflates and hashes the same blob. P7: 128 MiB over a long fat link,
# against curl.
# images: big
. "$(dirname "$0")/lib.sh"
config 'background_fill = false'

# lazily REF FILE: seconds, the daemon's CPU seconds, requests and highest RSS of
# a cold read. The node is fresh, so nothing of the image is in the page cache.
lazily() {
	local t cpu used
	fresh_node
	pull verity "$1"
	mount_image verity "$1" "$W/m"
	link_reset
	cpu=$(daemon_cpu)
	t=$(clock)
	dd if="$W/m/$2" of=/dev/null bs=1M status=none
	t=$(seconds "$t")
	used=$(daemon_cpu)
	echo "$t $(calc "$used - $cpu") $(link_stat requests) $(daemon_memory VmHWM)"
	unmount_image verity "$W/m"
}

start_link 0 0
warm_blobs "$REG/big:esgz"
url=http://$REG/v2/big/blobs/$(layer_digest "$REG/big:esgz" 1)
for _ in $(seq "$RUNS"); do
	lazily "$REG/big:esgz" big.bin >>"$W/big"
	"$B/tests/bench/onethread" "$url" >>"$W/peer"
done
compare P6 'cold sequential read of 1 GiB, MB/s' '>=0.5' \
	"$(calc "1073.742 / $(column 1 "$W/big")")" "$(column 1 "$W/peer")" "$RUNS"
note 'cold sequential read: CPU s of the daemon per GiB' "$(column 2 "$W/big")" "$RUNS"
note 'cold sequential read: VmHWM, MB' "$(column 4 "$W/big")" "$RUNS"
sleep 3
note 'cold sequential read: RssAnon 3 s later, MB' "$(daemon_memory RssAnon)"
stop proxy
stop registry

start_link 1000 50
url=http://$SLOW/v2/big/blobs/$(layer_digest "$REG/big:esgz" 2)
n=$((RUNS + 2))
for _ in $(seq $n); do
	lazily "$SLOW/big:esgz" mid.bin >>"$W/mid"
	t=$(clock)
	curl -sf -o /dev/null "$url"
	seconds "$t" >>"$W/curl"
	echo >>"$W/curl"
done
compare P7 'cold 128 MiB at 1 Gbit/s 50 ms, s' '<=1.5' "$(column 1 "$W/mid")" "$(column 1 "$W/curl")" "$n"
note 'cold 128 MiB at 1 Gbit/s 50 ms: requests' "$(column 3 "$W/mid")" "$n"
stop_node
