#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl scrub on a kernel without fs-verity: what is flipped, cut, exchanged
# or gone below a complete layer is found and healed by fetching what is lost;
# never in place; and a reader never sees a wrong byte.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/trust/common.sh
. "$TOP/tests/it/trust/common.sh"

trust_image one 1
start_scripted
config 'scrub_rate = 0'
start_daemon --without verity
start_containerd 1
trust_pull one
layer=$ROOT/layer/$(seq_of)
large=$(body_file 2097152) medium=$(body_file 300001)

# Index, map, pack and two bodies; the base has the first three.
scrub_finds_nothing
[ "$(jq .files "$W/scrub.json")" = 8 ] || fail "$(cat "$W/scrub.json")"
"$CTL" --run "$RUN" scrub "$REG/one:latest" | found '^8 files .* read: nothing bad$' || fail 'the text'
! "$CTL" --run "$RUN" scrub example.com/none:1 2>"$W/err" || fail 'an image that is not here'
grep -q "no layer of 'example.com/none:1'" "$W/err" || fail "$(cat "$W/err")"

healed() { # FILE
	wait_for 30 'what is missing' is_complete
	right one || fail "contents after $1"
	scrub_finds_nothing
}

# --- flipped: the other blocks are kept, and who has the old file keeps that
for file in "$large" "$medium" "$layer/pack"; do
	damage "$file"
	exec 9<"$file"
	old=$(sha256sum <"$file")
	began=$(reg_stats '.bytes // 0')
	scrub_finds '.bad == 1 and .fetching == 1'
	healed "$file"
	[ "$(sha256sum <&9)" = "$old" ] || fail "$file was repaired in place"
	exec 9<&-
	[ "$(sha256sum <"$file")" != "$old" ] || fail "$file is as it was"
	echo "$(basename "$file"): $(($(reg_stats '.bytes // 0') - began)) bytes fetched again"
done
grep -q "file is damaged on disk, healing it" "$W/daemon.log" || fail 'the log'

# --- leaf logs: the data is good, and vouches for itself by the map
damage "$large.state" $((4096 + 512 + 32 * 7))
scrub_finds '.bad == 1 and .healed == 1'
healed leaves
for file in index map; do
	rm "$layer/$file.state"
	scrub_finds '.bad == 1 and .leaf_logs == 1'
	[ -s "$layer/$file.state" ] || fail "$file.state"
	scrub_finds_nothing
done

# --- another file under the name: shorter, longer, foreign, none; by image
truncate -s 1000 "$large"
scrub_finds '.bad == 1 and .fetching == 1' "$REG/one:latest"
healed shorter
echo more >>"$medium"
scrub_finds '.bad == 1 and .healed + .fetching == 1'
healed longer
head -c 300001 /dev/urandom >"$medium.new"
mv "$medium.new" "$medium"
scrub_finds '.bad == 1 and .fetching == 1'
healed foreign
cp "$large" "$W/copy"
mv "$W/copy" "$large"
scrub_finds_nothing # the same bytes
rm "$layer/pack"
scrub_finds '.bad == 1 and .fetching == 1'
healed none

# --- index and map: a foreign file under the name is exchanged for a copy of
# the one that is open; a damaged one makes room for another layer
for file in index map; do
	want=$(sha256sum <"$layer/$file")
	head -c "$(stat -c %s "$layer/$file")" /dev/urandom >"$layer/$file.new"
	mv "$layer/$file.new" "$layer/$file"
	scrub_finds '.bad == 1 and .healed == 1'
	[ "$(sha256sum <"$layer/$file")" = "$want" ] || fail "$file"
	scrub_finds_nothing
done
stop daemon
start_daemon --without verity
right one || fail 'contents after a restart'
old=$(seq_of)
damage "$layer/index" 100
scrub_finds '.bad == 1 and .new_layers == 1'
[ "$(status | jq -r ".layers[] | select(.seq == $old) | .state")" = bad ] || fail 'a damaged index'
scrub_finds_nothing # it is known
trust_image two 1
trust_pull two
[ "$(seq_of)" != "$old" ] || fail 'no new layer'
right two || fail 'contents of the new layer'
