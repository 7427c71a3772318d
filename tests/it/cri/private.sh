#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Private images with a pull secret: the kubelet sends it with the pull, and
# containerd hands it to no snapshotter. Where the daemon has no credentials of
# its own the image runs by ordinary mounts, and status says why; where it has,
# lazily. Its credentials give no image to those who have none. By both ways in
# which the CRI plugin pulls: containerd's transfer service, and its own client.
. "$TOP/tests/it/cri/common.sh"

secret=pull-secret-$RANDOM$RANDOM
export DOCKER_CONFIG=$W/docker
config 'background_fill = false'
MORE='
version = 3
[plugins."io.containerd.cri.v1.images"]
  disable_snapshot_annotations = true
'
start_cri --auth "bearer:robot:$secret"
ref=$REG/app:latest
top=$(layer_info app 1)

run_pod() { # NAME: what its container prints
	local pod c
	pod=$(crictl runp "$(pod_config "$1")")
	c=$(start_container main "$pod" "$W/$1.pod.json" "$ref" '["/bin/cat", "/data/name"]')
	finished "$c"
	remove_pods "$pod"
}

# As the kubelet collects an image.
collect() {
	crictl rmi "$ref" >/dev/null
	wait_for 60 'the layers to go' is_gone "$top"
}

# Nobody has credentials: no image.
! crictl pull "$ref" >"$W/out" 2>&1 || fail 'pulled without a secret'
grep -qi 'authoriz\|authentication' "$W/out" || fail "message: $(cat "$W/out")"

# The pull secret alone.
crictl pull --creds "robot:$secret" "$REG/pause:latest" >/dev/null
crictl pull --creds "robot:$secret" "$ref" >/dev/null
assert_fallback "$top" 401
reason=$(layer_status "$top" .reason)
echo "without credentials: $reason"
"$CTL" --run "$RUN" status | found -F "$reason" || fail "status does not show the reason: $("$CTL" --run "$RUN" status)"
[ "$(run_pod ordinary)" = app ] || fail 'a private image by ordinary mounts'
collect

# Wrong credentials of the daemon's own are no better and no worse.
mkdir "$DOCKER_CONFIG"
docker_login() { # USER:PASSWORD
	printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$REG" "$(printf %s "$1" | base64 -w0)" \
		>"$DOCKER_CONFIG/config.json"
}
docker_login robot:wrong
crictl pull --creds "robot:$secret" "$ref" >/dev/null
assert_fallback "$top" 401
[ "$(run_pod wrong)" = app ] || fail 'with wrong credentials of the daemon'
collect

# The daemon has the same ones: lazily, without a restart.
docker_login "robot:$secret"
crictl pull --creds "robot:$secret" "$ref" >/dev/null
assert_cri_lazy app
[ "$(run_pod lazy)" = app ] || fail 'lazily, Bearer'
# What the daemon may read is for those only who may, too: containerd asks the
# registry for the manifest first.
! crictl pull "$ref" >"$W/out" 2>&1 || fail 'pulled without a secret what the daemon holds'
collect

# The CRI plugin's own client, and the other way of asking for a password.
stop containerd
MORE=''
start_kubernetes
fault "{\"auth\": \"basic:robot:$secret\"}"
crictl pull --creds "robot:$secret" "$ref" >/dev/null
assert_cri_lazy app
[ "$(run_pod basic)" = app ] || fail 'lazily, Basic'
collect

stop daemon
! grep -qF -e "$secret" -e "$(printf 'robot:%s' "$secret" | base64 -w0)" "$W/daemon.log" ||
	fail 'the secret is in the log'
