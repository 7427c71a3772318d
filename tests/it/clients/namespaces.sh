#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A second namespace uses the same layers without the network; a second plugin
# name on the same socket keeps its own rows: its GC takes nothing of the first.
. "$(dirname "$0")/../../lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_registry
start_daemon
start_containerd_with_alias() {
	start_containerd 2
	stop containerd
	cat >>"$W/verity.toml" <<-C
		[proxy_plugins.stargz]
		  type = "snapshot"
		  address = "$SOCK"
		  [proxy_plugins.stargz.exports]
		    root = "$ROOT"
		    enable_remote_snapshot_annotations = "true"
		[[plugins."io.containerd.transfer.v1.local".unpack_config]]
		  platform = "linux"
		  snapshotter = "stargz"
	C
	start containerd "$CLIENTS/containerd" -c "$W/containerd.toml"
	wait_for 20 'containerd' ctr version
}
start_containerd_with_alias
ref=$REG/hello:esgz

nd pull -q "$ref"
nd --namespace second pull -q "$ref"
[ "$(nd --namespace second run --rm --net=none --entrypoint /bin/cat "$ref" /data/one)" = one ] || fail 'second namespace'
[ "$(status | jq '.layers | length')" = 3 ] || fail 'layers are kept once for both namespaces'

SNAPSHOTTER=stargz nd pull -q "$ref"
[ "$(SNAPSHOTTER=stargz nd run --rm --net=none --entrypoint /bin/cat "$ref" /data/two)" = two ] || fail 'second plugin name'
[ "$(status | jq '.layers | length')" = 3 ] || fail 'layers are kept once for both plugin names'
# Removing everything of one name leaves the other alone.
ctr snapshots --snapshotter stargz ls | awk 'NR > 1 { print $1 }' | tac | while read -r k; do
	ctr snapshots --snapshotter stargz rm "$k" 2>/dev/null || true
done
nd --namespace second rmi -f "$ref" >/dev/null
[ "$(nd run --rm --net=none --entrypoint /bin/cat "$ref" /data/two)" = two ] || fail 'the first name lost its snapshots'
