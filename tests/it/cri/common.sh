# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of Kubernetes' way in share: containerd with its CRI plugin
# (2.3, or what start_containerd makes of CONTAINERD), crictl as the kubelet, images of our own making at the scripted
# registry. Source it first.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'
export CONTAINERD_NAMESPACE=k8s.io

# Control groups are the machine's, also in namespaces of one's own: the pods
# have a parent that is ours alone, and it goes with them.
CGROUP_PARENT=/${W##*/}
end_pods() {
	local status=$?
	set +e
	crictl rmp -f -a >/dev/null 2>&1
	find /sys/fs/cgroup -depth -type d -path "*$CGROUP_PARENT*" -exec rmdir {} + 2>/dev/null
	(exit $status)
	at_exit
}
trap end_pods EXIT

# busybox and some bytes in two layers; no two images share one, nor the large
# file.
cri_image() { # NAME COMMAND-AS-JSON
	head -c 3000000 /dev/urandom >"$W/$1.large"
	make_image "$1" <<-J
		{"config": {"config": {"Cmd": $2, "Env": ["PATH=/bin"]}}, "layers": [
		  {"entries": [
		    {"path": "bin/", "type": "dir", "mode": "0755"},
		    {"path": "bin/busybox", "mode": "0755", "content": {"file": "/bin/busybox"}},
		    {"path": "bin/sh", "type": "symlink", "link": "busybox"},
		    {"path": "bin/cat", "type": "hardlink", "mode": "0755", "link": "bin/busybox"},
		    {"path": "bin/sleep", "type": "hardlink", "mode": "0755", "link": "bin/busybox"},
		    {"path": "etc/", "type": "dir", "mode": "0755"},
		    {"path": "etc/image", "content": "$1"},
		    {"path": "proc/", "type": "dir", "mode": "0755"},
		    {"path": "tmp/", "type": "dir", "mode": "1777"}]},
		  {"entries": [
		    {"path": "data/", "type": "dir", "mode": "0755"},
		    {"path": "data/name", "content": "$1"},
		    {"path": "data/large", "content": {"file": "$W/$1.large"}},
		    {"path": "data/small", "content": {"text": 5000, "seed": 8}}]}]}
	J
}

# In place of lib.sh's: the CRI plugin is on, with what `containerd config
# default` writes down about images; our two drop-ins are imported, the second
# one unless KUBERNETES is "no". MORE is a third one.
containerd_config() {
	rm -f "$W/verity-kubernetes.toml"
	[ "${KUBERNETES:-yes}" = no ] || cp "$TOP/deploy/containerd/verity-kubernetes.toml" "$W"
	printf '%s\n' "${MORE:-version = 3}" >"$W/verity-more.toml"
	cat <<-C
		version = 3
		root = "$W/ctd/root"
		state = "$W/ctd/state"
		imports = ["$W/verity*.toml"]
		[grpc]
		  address = "$CONTAINERD_ADDRESS"
		[ttrpc]
		  address = "$CONTAINERD_ADDRESS.ttrpc"
		[plugins."io.containerd.internal.v1.opt"]
		  path = "$W/ctd/opt"
		[plugins."io.containerd.nri.v1.nri"]
		  disable = true
		[plugins."io.containerd.cri.v1.images"]
		  snapshotter = "overlayfs"
		  disable_snapshot_annotations = true
		  use_local_image_pull = false
		  stats_collect_period = 1
		[plugins."io.containerd.cri.v1.images".registry]
		  config_path = "$W/certs.d"
		[plugins."io.containerd.cri.v1.images".pinned_images]
		  sandbox = "$REG/pause:latest"
		[plugins."io.containerd.cri.v1.runtime"]
		  # runc may not lower it without CAP_SYS_RESOURCE.
		  restrict_oom_score_adj = true
		[plugins."io.containerd.cri.v1.runtime".cni]
		  bin_dirs = ["/usr/lib/cni"]
		  conf_dir = "$W/cni"
	C
}

# start_cri: registry, daemon and containerd; pause and app at the registry
start_cri() { # [ARGS OF THE REGISTRY...]
	cri_image pause '["/bin/sleep", "100000"]'
	cri_image app '["/bin/sleep", "100000"]'
	start_scripted "$@"
	printf '%s: unix://%s\n' runtime-endpoint "$CONTAINERD_ADDRESS" \
		image-endpoint "$CONTAINERD_ADDRESS" >"$W/crictl.yaml"
	echo 'timeout: 100' >>"$W/crictl.yaml"
	mkdir -p "$W/certs.d/$REG"
	echo "server = \"http://$REG\"" >"$W/certs.d/$REG/hosts.toml"
	start_daemon
	start_kubernetes "${KUBERNETES:-yes}"
	echo "client: $(crictl --version 2>/dev/null)"
}

# start_kubernetes [no]: containerd, with or without us for all pods
start_kubernetes() {
	local KUBERNETES=${1:-yes}
	start_containerd "${CONTAINERD:-2}"
	wait_for 60 'the CRI plugin' crictl info
}

crictl() {
	"$CLIENTS/crictl" --config "$W/crictl.yaml" "$@"
}

# pod_config NAME [MEMBERS]: of a pod on the host's network
pod_config() {
	mkdir -p "$W/logs/$1"
	cat >"$W/$1.pod.json" <<-J
		{"metadata": {"name": "$1", "namespace": "default", "uid": "uid-$1", "attempt": 1},
		 "log_directory": "$W/logs/$1",
		 "linux": {"cgroup_parent": "$CGROUP_PARENT",
		           "security_context": {"namespace_options": {"network": ${2:-2}}}}${3:+, $3}}
	J
	echo "$W/$1.pod.json"
}

# container_config NAME IMAGE COMMAND-AS-JSON
container_config() {
	cat >"$W/$1.json" <<-J
		{"metadata": {"name": "$1"}, "image": {"image": "$2"}, "command": $3,
		 "log_path": "$1.log", "linux": {}}
	J
	echo "$W/$1.json"
}

# start_container NAME POD POD-CONFIG IMAGE COMMAND-AS-JSON: its id
start_container() {
	local c
	c=$(crictl create "$2" "$(container_config "$1" "$4" "$5")" "$3") &&
		crictl start "$c" >/dev/null || return
	echo "$c"
}

# finished CONTAINER: waits for its end, prints the line that it printed
finished() {
	wait_for 60 "the end of container $1" is_state "$1" CONTAINER_EXITED
	wait_for 60 "the log of container $1" test -s "$(crictl inspect "$1" | jq -r .status.logPath)"
	crictl logs "$1" 2>&1
}

# remove_pods POD...: with their containers
remove_pods() {
	crictl stopp "$@" >/dev/null
	crictl rmp -f "$@" >/dev/null
}

# The state that the CRI shows for a container
container_state() {
	crictl inspect "$1" | jq -r .status.state
}

is_state() { # CONTAINER STATE
	[ "$(container_state "$1")" = "$2" ]
}

# assert_cri_lazy IMAGE: containerd holds no layer of it, and both are lazy
assert_cri_lazy() {
	local i d
	for i in 0 1; do
		d=$(layer_info "$1" $i)
		assert_state "$d" lazy complete
		! ctr content ls -q 2>/dev/null | found "$d" ||
			fail "layer $d of $1 was downloaded by containerd: not lazy"
	done
}
