#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A hundred pulls wait for a registry that asks for patience. They hold up no other
# call: not an ordinary snapshot's life, on the same connection and on another,
# and not a lazy pull from another registry.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
OTHER=127.0.0.1:5001

make_image one <<<'{"layers": [{"entries": [{"path": "name", "content": "one"}]}]}'
start_scripted
start other python3 "$TOP/tests/lib/registry.py" --port "${OTHER##*:}" --root "$OCI"
wait_for 30 'the other registry' curl -sf "http://$OTHER/_admin/stats"
# (Two times 40 s are the longest that fit into a job's two minutes.)
fault '{"match": "", "fault": "status:503:40"}'
config 'prepare_budget = 3600' 'background_fill = false'
start_daemon

layer=$(layer_info one 0)
labels=$(jq -n --arg image "$OTHER/one:latest" --arg layer "$layer" --arg toc "$(layer_info one 0 toc_digest)" \
	--arg diff "$(layer_info one 0 diff_id)" '{
	"containerd.io/snapshot.ref": $diff,
	"containerd.io/snapshot/cri.image-ref": $image,
	"containerd.io/snapshot/cri.layer-digest": $layer,
	"containerd.io/snapshot/cri.image-layers": $layer,
	"containerd.io/snapshot/stargz/toc.digest": $toc}')
timeout 200 /usr/bin/python3 -B "$TOP/tests/it/neighbours/calls.py" pulls "$SOCK" 100 "$REG/slow:latest" "$labels" ||
	fail "$(tail -n 3 "$W/daemon.log")"
[ "$(cat "$(layer_path "$layer")/name")" = one ] || fail 'contents of the other registry'
# (They did ask; else nothing was shown.)
[ "$(reg_stats .requests)" -gt 0 ] || fail 'the slow registry was not asked'
stop daemon
! grep ' error ' "$W/daemon.log" || fail 'errors in the log'
