#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The CRI plugin of Debian's containerd 1.6, with our two keys in its own table,
# as the snippet for 1.x says: lazy pull, run, removal.
. "$TOP/tests/it/cri/common.sh"

CONTAINERD=1
containerd_config() {
	cat <<-C
		version = 2
		root = "$W/ctd/root"
		state = "$W/ctd/state"
		imports = ["$W/verity.toml"]
		[grpc]
		  address = "$CONTAINERD_ADDRESS"
		[plugins."io.containerd.internal.v1.opt"]
		  path = "$W/ctd/opt"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "$REG/pause:latest"
		  restrict_oom_score_adj = true
		[plugins."io.containerd.grpc.v1.cri".registry]
		  config_path = "$W/certs.d"
	C
	sed -n '/^# Kubernetes:/,$s/^#\(\[\|  \)/\1/p' "$TOP/deploy/containerd/verity-1.x.toml"
}

config 'background_fill = false'
start_cri
ref=$REG/app:latest
crictl pull "$ref" >/dev/null
assert_cri_lazy app
pod=$(crictl runp "$(pod_config one)")
assert_cri_lazy pause
c=$(start_container main "$pod" "$W/one.pod.json" "$ref" '["/bin/cat", "/data/name"]')
[ "$(finished "$c")" = app ] || fail "lazily: $(finished "$c")"
remove_pods "$pod"
crictl rmi "$ref" >/dev/null
wait_for 60 'the layers to go' is_gone "$(layer_info app 1)"
