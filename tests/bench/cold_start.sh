#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P5: from an empty node to a finished Python program at 100 Mbit/s and 10 ms,
# lazily and by overlayfs (the faster of both encodings of the same image).
# P14: what was fetched for it, against the files that it opened.
# images: py
. "$(dirname "$0")/lib.sh"
program='import json, decimal, ssl, sqlite3, asyncio, http.client, yaml, numpy; print(numpy.arange(10).sum())'
layers=2

# cold SNAPSHOTTER TAG: pulled after, done after, requests, MB
cold() {
	local ref=$SLOW/py:$2 t pulled_after done_after
	fresh_node
	link_reset
	t=$(clock)
	pull "$1" "$ref"
	pulled_after=$(clock)
	[ "$(run "$1" "$ref" /usr/bin/python3 -c "$program")" = 45 ] || fail 'the program'
	done_after=$(clock)
	echo "$(seconds "$t" "$pulled_after") $(seconds "$t" "$done_after") $(link_stat requests) $(calc "$(link_stat down) / 1e6")"
}

start_link 100 10
warm_blobs "$REG/py:gzip"
warm_blobs "$REG/py:esgz"
for _ in $(seq "$RUNS"); do
	cold verity esgz >>"$W/lazy"
	cold overlayfs gzip >>"$W/gzip"
	cold overlayfs esgz >>"$W/esgz"
done
peer=$(printf '%s\n' "$(column 2 "$W/gzip")" "$(column 2 "$W/esgz")" | sort -g | head -n 1)
compare P5 'cold start at 100 Mbit/s 10 ms, s' '<=0.45' "$(column 2 "$W/lazy")" "$peer" "$RUNS"
note 'cold start by overlayfs, gzip, s' "$(column 2 "$W/gzip")" "$RUNS"
note 'cold start by overlayfs, eStargz, s' "$(column 2 "$W/esgz")" "$RUNS"
note 'cold start: pulled after, s' "$(column 1 "$W/lazy")" "$RUNS"
note 'cold start: prepare of a layer, s' "$(calc "$(column 1 "$W/lazy") / $layers")" "$RUNS"
note 'cold start: requests' "$(column 3 "$W/lazy")" "$RUNS"
note 'cold start: MB over the link' "$(column 4 "$W/lazy")" "$RUNS"

config 'background_fill = false'
for _ in $(seq "$RUNS"); do
	cold verity esgz >>"$W/quiet"
done
note 'cold start without background fill, s' "$(column 2 "$W/quiet")" "$RUNS"
fetched=$(status | jq .registry.bytes)
mount_image verity "$SLOW/py:esgz" "$W/m"
touched=$("$B/tests/bench/opened" "$W/m" chroot "$W/m" /usr/bin/python3 -c "$program" | tail -n 1)
row '#' 'P14 bytes fetched : bytes of the files opened' "$fetched" "$touched" "$(calc "$fetched / $touched")" - "$RUNS"
unmount_image verity "$W/m"
stop_node
