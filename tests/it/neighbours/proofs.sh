#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Proofs run one at a time. Many that cannot go on, because their registry does
# not give what they lack, hold up nobody else's: a layer of another registry
# is proven next.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/lib/clones.sh
. "$TOP/tests/lib/clones.sh"
OTHER=127.0.0.1:5001 LAYERS=40

make_image stuck <<<'{"layers": [{"entries": [{"path": "name", "content": "stuck"}]}]}'
make_image free <<<'{"layers": [{"entries": [{"path": "name", "content": "free"}]}]}'
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 30 'the other registry' curl -sf "http://$OTHER/_admin/stats"
start_daemon
start_containerd 1
pull stuck
proven() { [ "$(layer_status "$(layer_info "$1" 0)" .proven)" = true ]; }
wait_for 60 'the first proof' proven stuck

# Many like it, which have lost what a proof reads.
stop daemon
clone_layers $LAYERS $LAYERS
sqlite3 "$ROOT/state.db" 'UPDATE layer SET proof = 0 WHERE seq >= 1000'
rm -f "$ROOT"/layer/*/residue
fault '{"match": "blobs/", "fault": "status:503"}'
start_daemon
wait_for 60 'containerd to reconnect' ctr snapshots --snapshotter verity ls
put_off() { grep -c 'proof put off' "$W/daemon.log" || true; }
wait_for 60 'the first failure' eval '[ "$(put_off)" -gt 0 ]'

ctr-remote images rpull --snapshotter verity --plain-http "$OTHER/free:latest" >"$W/pull.log" 2>&1 ||
	fail "pull: $(tail -n 3 "$W/pull.log")"
complete() { [ "$(layer_status "$(layer_info free 0)" .state)" = complete ]; }
wait_for 60 'the other layer to be complete' complete
before=$(put_off)
wait_for 120 'the proof of the other layer' proven free
after=$(put_off)
# One was running, and a few more may have begun before the layer was queued.
[ $((after - before)) -le 10 ] || fail "$((after - before)) proofs of a registry that refuses came before it"
[ "$(status | jq '[.layers[] | select(.seq >= 1000 and .seq < 1000 + '$LAYERS' and .proven)] | length')" = 0 ] || fail 'proven without a registry'
