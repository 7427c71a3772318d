#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One snapshotter for a runtime handler, another for all others: pods of the
# class "lazy" are on us, the rest stays on overlayfs, also with the same image.
. "$TOP/tests/it/cri/common.sh"

# The drop-in of the page.
MORE=$(sed -n '/^version = 3$/,/^```/p' "$TOP/deploy/kubernetes.md" | sed '/^```/d')
config 'background_fill = false'
KUBERNETES=no start_cri
ref=$REG/app:latest
name='["/bin/cat", "/data/name"]'
# How a kubelet names the handler in a pull that does not send the field.
handler='"annotations": {"io.containerd.cri.runtime-handler": "lazy"}'

# The sandbox image is everyone's: one that the class pulled lazily first would
# be of no use to the others.
crictl pull "$REG/pause:latest" >/dev/null

# Pulled for the class: lazily.
pod=$(crictl runp --runtime lazy "$(pod_config one 2 "$handler")")
crictl pull --pod-config "$W/one.pod.json" "$ref" >/dev/null
assert_cri_lazy app
c=$(start_container first "$pod" "$W/one.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "lazily: $(finished "$c")"
[ "$(ctr containers info "$c" 2>/dev/null | jq -r .Snapshotter)" = verity ] || fail 'not on verity'

# The others cannot use what containerd has no layers of, until it is pulled for
# them, too, which a pod with imagePullPolicy "Always" does.
pod2=$(crictl runp "$(pod_config other)")
! start_container other "$pod2" "$W/other.pod.json" "$ref" "$name" >"$W/out" 2>&1 || fail 'ran without its layers'
grep -q 'not found' "$W/out" || fail "message: $(cat "$W/out")"
crictl pull "$ref" >/dev/null
c=$(start_container other "$pod2" "$W/other.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "pulled for both: $(finished "$c")"
remove_pods "$pod" "$pod2"
crictl rmi "$ref" >/dev/null
wait_for 60 'the layers to go' is_gone "$(layer_info app 1)"

# Pulled for the others: containerd holds all of it, and a pod of the class gets
# lazy snapshots of it all the same.
crictl pull "$ref" >/dev/null
is_gone "$(layer_info app 1)" || fail "an ordinary pull came to us: $(status)"
pod=$(crictl runp "$(pod_config two)")
c=$(start_container second "$pod" "$W/two.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "by overlayfs: $(finished "$c")"
[ "$(ctr containers info "$c" 2>/dev/null | jq -r .Snapshotter)" = overlayfs ] || fail 'not on overlayfs'
is_gone "$(layer_info app 1)" || fail "an ordinary pod came to us: $(status)"
pod2=$(crictl runp --runtime lazy "$(pod_config three)")
c=$(start_container third "$pod2" "$W/three.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "of the class: $(finished "$c")"
assert_state "$(layer_info app 0)" lazy complete
assert_state "$(layer_info app 1)" lazy complete
remove_pods "$pod" "$pod2"
crictl rmi "$ref" >/dev/null
wait_for 60 'the layers to go' is_gone "$(layer_info app 1)"
