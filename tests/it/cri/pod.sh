#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A pod as the kubelet starts it, through containerd's CRI plugin: lazy pull,
# run, logs, exec, stop, removal; then the image is collected, and nothing of it
# is left. One pod on the host's network, one with an address from CNI.
. "$TOP/tests/it/cri/common.sh"
# shellcheck source=tests/it/operator/common.sh
. "$TOP/tests/it/operator/common.sh"

config 'background_fill = false'
start_cri
doctor
finding containerd.cri ok 'Kubernetes uses "verity"'
ref=$REG/app:latest
crictl pull "$ref" >/dev/null
assert_cri_lazy app
large=$(layer_info app 1)
name=$(layer_status "$large" .image)
[ "$name" = "$ref" ] || fail "the layer belongs to '$name', not '$ref'"

pod=$(crictl runp "$(pod_config one)")
# The sandbox image came through us, too.
assert_cri_lazy pause
main=$(start_container main "$pod" "$W/one.pod.json" "$ref" \
	'["/bin/sh", "-c", "cat /data/name; echo; echo problem >&2; exec sleep 100000"]')
wait_for 60 'the container' is_state "$main" CONTAINER_RUNNING
wait_for 60 'its log' grep -q problem "$W/logs/one/main.log"
[ "$(crictl logs "$main" 2>/dev/null)" = app ] || fail "logs: $(crictl logs "$main")"
[ "$(crictl logs "$main" 2>&1 >/dev/null)" = problem ] || fail "logs: $(crictl logs "$main")"
out=$(crictl exec "$main" /bin/busybox sha256sum /data/large)
[ "${out%% *}" = "$(sha "$W/app.large")" ] || fail "contents of /data/large: $out"
crictl exec "$main" /bin/sh -c 'echo x >>/data/name && cat /data/name' | found -x 'appx' || fail 'copy-up'
[ "$(crictl exec -s "$main" /bin/cat /data/name)" = appx ] || fail 'exec in the foreground'

# A pod of its own network: the address is that of its CNI.
mkdir -p "$W/cni"
cat >"$W/cni/10-pods.conflist" <<-J
	{"cniVersion": "1.0.0", "name": "pods", "plugins": [
	  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
	   "ipam": {"type": "host-local", "dataDir": "$W/ipam", "ranges": [[{"subnet": "10.88.0.0/24"}]]}},
	  {"type": "loopback"}]}
J
network_ready() {
	[ "$(crictl info | jq '[.status.conditions[] | select(.type == "NetworkReady" and .status)] | length')" = 1 ]
}
wait_for 60 'the network' network_ready
pod2=$(crictl runp "$(pod_config two 0)")
ip=$(crictl inspectp "$pod2" | jq -r .status.network.ip)
[[ $ip == 10.88.0.* ]] || fail "address of the pod: $ip"
second=$(start_container second "$pod2" "$W/two.pod.json" "$ref" \
	'["/bin/busybox", "ip", "-4", "-o", "addr", "show", "dev", "eth0"]')
finished "$second" | found -F " $ip/" || fail "address inside: $(finished "$second")"
[ "$(crictl inspect "$second" | jq .status.exitCode)" = 0 ] || fail "second: $(finished "$second")"
# What the first container wrote is its own.
third=$(start_container third "$pod2" "$W/two.pod.json" "$ref" '["/bin/cat", "/data/name"]')
[ "$(finished "$third")" = app ] || fail "third: $(finished "$third")"

# An image as a volume: the second container reads the first one's image.
sed 's#"linux": {}#"mounts": [{"container_path": "/volume", "readonly": true, "image": {"image": "'"$REG"'/pause:latest"}}], &#' \
	"$(container_config fourth "$ref" '["/bin/sh", "-c", "cat /volume/data/name; echo x >/volume/data/name"]')" >"$W/volume.json"
fourth=$(crictl create "$pod2" "$W/volume.json" "$W/two.pod.json")
crictl start "$fourth" >/dev/null
finished "$fourth" >"$W/out"
grep -qx 'pause.*' "$W/out" || fail "volume: $(cat "$W/out")"
grep -q 'Read-only file system' "$W/out" || fail "volume: $(cat "$W/out")"

# Somebody removes the image below a running container. It goes on, also with
# what nobody has read before.
cri_image other '["/bin/sleep", "100000"]'
crictl pull "$REG/other:latest" >/dev/null
other=$(start_container other "$pod2" "$W/two.pod.json" "$REG/other:latest" '["/bin/sleep", "100000"]')
crictl rmi "$REG/other:latest" >/dev/null
[ "$(layer_status "$(layer_info other 1)" '.bytes_local < .bytes_total / 2')" = true ] ||
	fail "nothing is left to read: $(status)"
out=$(crictl exec "$other" /bin/busybox sha256sum /data/large)
[ "${out%% *}" = "$(sha "$W/other.large")" ] || fail "read behind rmi: $out"

# The kubelet's ways to end it.
crictl stop -t 0 "$main" >/dev/null
wait_for 60 'the end of the container' is_state "$main" CONTAINER_EXITED
crictl rm "$main" "$second" "$third" "$fourth" >/dev/null
crictl stopp "$pod" "$pod2" >/dev/null
crictl rmp "$pod" "$pod2" >/dev/null
[ -z "$(crictl ps -aq)$(crictl pods -q)" ] || fail "left: $(crictl ps -a) $(crictl pods)"

# Image collection: the images that no container uses.
crictl rmi --prune >/dev/null
wait_for 60 'the layers to go' is_gone "$large"
[ "$(crictl images -o json | jq -r '[.images[].repoTags[]] | join(" ")')" = "$REG/pause:latest" ] ||
	fail "images: $(crictl images)"
no_rows_but_pause() {
	[ "$(ctr snapshots --snapshotter verity ls | tail -n +2 | wc -l)" = 2 ]
}
wait_for 60 'the snapshots to go' no_rows_but_pause
