#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What deploy/kubernetes.md tells to write does what it says, below each kind of
# configuration that nodes have: one of `containerd config default`, a short one
# of version 2, and one that k3s generates.
. "$TOP/tests/lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'
doc=$TOP/deploy/kubernetes.md
echo "client: $("$CLIENTS/containerd" --version)"
mkdir -p "$W/conf.d"
cp "$TOP"/deploy/containerd/verity{,-kubernetes}.toml "$W/conf.d"

# effective NAME: what containerd makes of $W/NAME.toml
effective() {
	"$CLIENTS/containerd" -c "$W/$1.toml" config dump 2>"$W/err" >"$W/$1.dump" || fail "$1: $(cat "$W/err")"
	# The command that the page gives, and what the page says that it prints.
	sed -n 's/^# containerd config dump | //p' "$doc" >"$W/look"
	sed -n '/^# containerd config dump/,/^```/{/^    /p}' "$doc" >"$W/want"
	[ -s "$W/look" ] && [ -s "$W/want" ] || fail 'the page has changed'
	sh "$W/look" <"$W/$1.dump" >"$W/got"
	cmp "$W/want" "$W/got" || fail "$1: $(cat "$W/got")"
	[ "$(grep -c "unpack_config\]\]" "$W/$1.dump")" = 2 ] || fail "$1: unpack_config: $(cat "$W/$1.dump")"
	grep -qF "snapshotter = 'overlayfs'" "$W/$1.dump" || fail "$1: overlayfs is not unpacked for"
}

# kept NAME TEXT: the drop-ins leave alone what the node has
kept() {
	grep -qF "$2" "$W/$1.dump" || fail "$1: lost: $2"
}

imports=$(sed -n '/^imports.*conf\.d/p' "$doc" | sed "s#/etc/containerd/conf.d#$W/conf.d#")
[ -n "$imports" ] || fail 'the page has no line for the imports'

"$CLIENTS/containerd" config default 2>/dev/null >"$W/default"
grep -q '^imports' "$W/default" || fail 'containerd config default imports nothing'
grep -q 'conf.d/\*\.toml' <(grep '^imports' "$W/default") || fail 'another folder is the default'
sed "s#^imports.*#$imports#" "$W/default" >"$W/plain.toml"
effective plain

cat >"$W/kubeadm.toml" <<-C
	version = 2
	$imports
	[plugins."io.containerd.grpc.v1.cri"]
	  sandbox_image = "registry.example/pause:3"
	  [plugins."io.containerd.grpc.v1.cri".containerd]
	    snapshotter = "overlayfs"
	    disable_snapshot_annotations = true
	    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
	      runtime_type = "io.containerd.runc.v2"
	      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
	        SystemdCgroup = true
	  [plugins."io.containerd.grpc.v1.cri".registry]
	    config_path = "/somewhere/certs.d"
C
effective kubeadm
kept kubeadm "sandbox = 'registry.example/pause:3'"
kept kubeadm 'SystemdCgroup = true'
kept kubeadm "config_path = '/somewhere/certs.d'"

# The template of the page, with what k3s puts in the place of its base.
cat >"$W/base" <<-C
	# generated
	version = 3
	root = "$W/k3s/containerd"
	state = "$W/k3s/state"
	[grpc]
	  address = "$W/k3s/containerd.sock"
	[plugins.'io.containerd.cri.v1.images']
	  snapshotter = "overlayfs"
	  disable_snapshot_annotations = true
	  use_local_image_pull = true
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	  sandbox = "registry.example/pause:3"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	  runtime_type = "io.containerd.runc.v2"
C
sed -n '/^imports.*config-v3/,/^```/p' "$doc" | sed -e '/^```/d' \
	-e "s#/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d#$W/conf.d#" \
	-e "/{{ template \"base\" . }}/{r $W/base
	d}" >"$W/k3s.toml"
grep -q '^version' "$W/k3s.toml" || fail 'the template of the page does not name the base'
effective k3s
kept k3s "sandbox = 'registry.example/pause:3'"
kept k3s "address = '$W/k3s/containerd.sock'"

# The class of pods: another default, and a handler of its own.
rm "$W/conf.d/verity-kubernetes.toml"
sed -n '/^version = 3$/,/^```/p' "$doc" | sed '/^```/d' >"$W/conf.d/class.toml"
"$CLIENTS/containerd" -c "$W/plain.toml" config dump 2>"$W/err" >"$W/class.dump" || fail "class: $(cat "$W/err")"
kept class 'runtimes.lazy]'
kept class 'runtime_platforms.lazy]'
kept class 'runtimes.runc]'
