#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node with pods on overlayfs is given to us, and taken back. Running pods do
# not notice either way. Images from before become lazy when the next container
# is created; images that were pulled lazily must be pulled again on the way
# back, since containerd has never had their layers.
. "$TOP/tests/it/cri/common.sh"

config 'background_fill = false'
cri_image late '["/bin/sleep", "100000"]'
KUBERNETES=no start_cri
ref=$REG/app:latest late=$REG/late:latest
name='["/bin/cat", "/data/name"]'

crictl pull "$ref" >/dev/null
pod=$(crictl runp "$(pod_config one)")
before=$(start_container before "$pod" "$W/one.pod.json" "$ref" '["/bin/sleep", "100000"]')
[ "$(status | jq '.layers | length')" = 0 ] || fail "not asked yet: $(status)"

# Over to us.
stop containerd
start_kubernetes
is_state "$before" CONTAINER_RUNNING || fail 'a pod from before has ended'
crictl exec "$before" /bin/cat /data/name | found -x app || fail 'a pod from before does not read'
c=$(start_container second "$pod" "$W/one.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "an image from before: $(finished "$c")"
assert_state "$(layer_info app 0)" lazy complete
assert_state "$(layer_info app 1)" lazy complete
crictl pull "$late" >/dev/null
assert_cri_lazy late
# Snapshots that somebody took away come back, although no layer is here.
base=$(layer_info late 0 diff_id)
top=sha256:$(printf '%s %s' "$base" "$(layer_info late 1 diff_id)" | sha256sum | cut -d' ' -f1)
ctr snapshots --snapshotter verity rm "$top" "$base"
pod2=$(crictl runp "$(pod_config two)")
after=$(start_container after "$pod2" "$W/two.pod.json" "$late" '["/bin/sleep", "100000"]')

assert_cri_lazy late

# And back.
stop containerd
start_kubernetes no
is_state "$before" CONTAINER_RUNNING || fail 'a pod from the beginning has ended'
is_state "$after" CONTAINER_RUNNING || fail 'a lazy pod has ended'
crictl exec "$after" /bin/cat /data/name | found -x late || fail 'a lazy pod does not read'
pod3=$(crictl runp "$(pod_config three)")
c=$(start_container third "$pod3" "$W/three.pod.json" "$ref" "$name")
[ "$(finished "$c")" = app ] || fail "an image from before, back: $(finished "$c")"
! start_container fourth "$pod3" "$W/three.pod.json" "$late" "$name" >"$W/out" 2>&1 || fail 'ran without its layers'
grep -q 'not found' "$W/out" || fail "message: $(cat "$W/out")"
remove_pods "$pod2" "$pod3"
crictl rmi "$late" >/dev/null
crictl pull "$late" >/dev/null
pod4=$(crictl runp "$(pod_config four)")
c=$(start_container fifth "$pod4" "$W/four.pod.json" "$late" "$name")
[ "$(finished "$c")" = late ] || fail "pulled again: $(finished "$c")"
wait_for 60 'our layers of it to go' is_gone "$(layer_info late 1)"
