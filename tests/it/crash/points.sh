#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Killed at every fault point on the way of a pull, a read and a removal; then
# the same again. The bytes are right, nothing that was verified is fetched a
# second time, nothing is left over and no mount is dead.
. "$(dirname "$0")/common.sh"

# In the order in which a workload meets them. "@N": not the first passage.
prepare_points='view_mounted store_before_commit store_before_commit@2 seq_taken layer_folder_made index_written map_written
	layer_files_written vfile_leaves_written vfile_state_published vfile_leaves_written@2 layer_files_durable
	layer_recorded lazy_recorded lazy_row_committed snapshot_folder_made snapshot_folder_renamed
	snapshot_recorded'
# An image that is not eStargz: containerd unpacks it.
ordinary_points='snapshot_recorded snapshot_committed'
read_points='read_parked body_data_created body_state_written body_created extent_verified body_data_written
	body_leaves_written body_bit_written extent_landed extent_landed@9 residue_written residue_written@6
	body_synced body_marked_complete body_marked_complete@2'
remove_points='snapshot_removed layer_row_dropped body_state_unlinked trash_renamed trash_entry_removed'
# Met only after damage at rest or a power cut (test_body_crash), where none of
# these clients does it (test_snapshotter_crash), and behind a proof.
elsewhere='body_boot_adopted body_demoted body_leaves_renewed body_bits_cleared snapshot_updated schema_written
	layer_condemned proof_recorded layer_proven residue_dropped'
# In or around helper processes, whose death the daemon outlives (test_sealer).
elsewhere+=' helper_spawn sealer_asked scrub_asked scrub_piece verity_enabled'
# Only with fs-verity, or after damage (test_body_crash).
elsewhere+=' body_copied body_replaced body_marked_sealed body_sealed'

# All that the sources name, also what a transaction passes to tx_end().
points() {
	grep -rhoE 'fault_point\("[a-z_]+"' "$TOP"/{plugin,snapshotter,fuse,verity} --include='*.c' | cut -d'"' -f2
	cat "$TOP"/snapshotter/store*.c | tr '\n\t' '  ' | grep -oE '"[a-z_]+", *e\)' | cut -d'"' -f2
}
for p in $(points | sort -u); do
	grep -qw "$p" <<<"$prepare_points $ordinary_points $read_points $remove_points $elsewhere" ||
		fail "fault point $p is in no list of this test"
done

start_scripted
config 'read_timeout = 5' 'background_fill = false'
start_daemon
start_containerd 1
stop daemon
n=0

# One round: an image of its own, a daemon that dies, one that lives.
round() { # POINT WORKLOAD...
	local point=$1 d local_before missing fetched
	shift
	n=$((n + 1))
	img=i$n
	crash_image $img $n ${keys:-}
	d=$(layer_info $img 0)
	start_to_die "${point%@*}:kill$(sed -n 's/.*\(@.*\)/\1/p' <<<"$point")"
	fresh_containerd
	for step; do
		died && break
		$step $img >"$W/step.log" 2>&1 || true
	done
	assert_killed_at "${point%@*}"
	fault '{"reset": true}'
	start_daemon
	fresh_containerd
	local_before=$(layer_status "$d" .bytes_local)
	missing=$(layer_status "$d" '.bytes_total - .bytes_local')
	workload_pull $img >"$W/step.log" 2>&1 || fail "after $point: pull: $(cat "$W/step.log")"
	[ -n "${keys:-}" ] || read_all $img || fail "after $point: contents"
	workload_run $img || fail "after $point: run"
	fetched=$(reg_stats ".by_digest[\"$d\"].bytes // 0")
	# Units come whole: the one in flight comes again, and so does the tail of
	# the blob (64 KiB) where the layer was not ready.
	[ -n "${keys:-}" ] || [ "$fetched" -le $((${missing:-$(layer_info $img 0 size)} + 65536 + 70000)) ] ||
		fail "after $point: $fetched bytes fetched, of ${missing:-all} that were missing"
	echo "$point: ${local_before:-0} bytes local, ${missing:-all} missing; then $fetched fetched"
	assert_tidy
	stop daemon
	[ "$(mounts_at_l)" = 0 ] || fail "after $point: mounts are left by a clean stop"
}
for p in $prepare_points; do round $p workload_pull read_all workload_run; done
for p in $ordinary_points; do keys=plain round $p workload_pull workload_run; done
for p in $read_points; do round $p workload_pull read_all; done

# --- removal: what is removed is gone in the end, and no other image suffers
for p in $remove_points; do
	n=$((n + 1))
	img=i$n
	crash_image $img $n
	d=$(layer_info $img 0)
	start_daemon
	fresh_containerd
	workload_pull $img >"$W/step.log" 2>&1 || fail "pull: $(cat "$W/step.log")"
	read_all $img || fail "contents of $img"
	stop daemon
	start_to_die "${p%@*}:kill$(sed -n 's/.*\(@.*\)/\1/p' <<<"$p")"
	fresh_containerd
	ctr images rm --sync "$REG/$img:latest" >/dev/null 2>&1 || true
	assert_killed_at "${p%@*}"
	start_daemon
	fresh_containerd
	# Whatever the collector had done by then, it comes once more. It asks a
	# snapshotter only after something of it was removed; a new containerd
	# has forgotten that this was so.
	ctr images rm --sync "$REG/$img:latest" >/dev/null 2>&1 || true
	ctr snapshots --snapshotter verity prepare none >/dev/null
	ctr snapshots --snapshotter verity rm none
	ctr images tag "$REG/i1:latest" "$REG/none:latest" >/dev/null
	ctr images rm --sync "$REG/none:latest" >/dev/null
	wait_for 20 "layer of $img to go ($p)" is_gone "$d"
	sleep 0.5
	assert_tidy
	read_all i1 || fail "after $p another image suffers"
	echo "$p: gone"
	stop daemon
done
