#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# images.sh OUT [NAME...]: test images in the storage of a docker-registry,
# OUT/registry. Each NAME becomes NAME:gzip and NAME:esgz (converted by
# ctr-remote, the reference tool). What is there already is left alone.
#   hello   busybox and two small layers above it
#   odd     what a layer can hold: whiteouts, links, devices, xattrs, names
#   attrs names links merged twice deep wide damaged   what tests/it/tree compares:
#           attributes and ACLs, names, hard links, layers over layers, one layer
#           at two places, 120 layers, 10,000 entries, names that are not UTF-8
#   tools   programs of this machine (bash, cp, tar, rsync, find, ...) with their libraries
#   wide100k   100,000 entries in one directory
#   many    50,000 small files
#   big     one file of 1 GiB, another of 128 MiB, hard to compress
#   py      Debian with Python, from packages (needs the package mirror)
set -eu -o pipefail
if [ -z "${INSIDE:-}" ]; then
	# The packages come over the network, all else is made without it.
	case " ${*:2} " in *' py '*) python3 "$(dirname "$0")/mklayers.py" --packages "$1/cache" ;; esac
	INSIDE=1 exec unshare -m -n -p --propagation private --fork --kill-child --mount-proc bash "$0" "$@"
fi
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
reg=127.0.0.1:5000
W=$(mktemp -d)
trap 'rm -rf --one-file-system "$W"' EXIT

missing=()
for n in "${@:-hello}"; do
	[ -e "$out/.$n" ] || missing+=("$n")
done
[ ${#missing[@]} -gt 0 ] || exit 0

ip link set lo up
mount -t tmpfs none /run
mkdir -p /var/lib/containers
export CONTAINERD_ADDRESS=$W/c.sock
cat >"$W/registry.yml" <<Y
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $out/registry}}
http: {addr: $reg}
Y
cat >"$W/c.toml" <<C
version = 2
root = "$W/root"
state = "$W/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$W/c.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$W/opt"
C
docker-registry serve "$W/registry.yml" >"$W/registry.log" 2>&1 &
/usr/bin/containerd -c "$W/c.toml" >"$W/c.log" 2>&1 &
for i in $(seq 200); do
	curl -sf "http://$reg/v2/" >/dev/null && /usr/bin/ctr version >/dev/null 2>&1 && break
	[ "$i" != 200 ] || { cat "$W/c.log" "$W/registry.log" >&2; exit 1; }
	sleep 0.05
done

for n in "${missing[@]}"; do
	l=$W/oci/$n
	mkdir -p "$W/oci" "$W/layers"
	umoci init --layout "$l"
	umoci new --image "$l:v1"
	python3 "$here/mklayers.py" "$n" "$W/layers" "$out/cache" >"$W/list"
	while read -r layer; do
		umoci raw add-layer --image "$l:v1" "$layer"
	done <"$W/list"
	umoci config --image "$l:v1" --config.cmd /bin/sh \
		--config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	skopeo copy -q --dest-tls-verify=false "oci:$l:v1" "docker://$reg/$n:gzip"
	/usr/bin/ctr images pull --plain-http "$reg/$n:gzip" >/dev/null
	ctr-remote images convert --estargz --oci "$reg/$n:gzip" "$reg/$n:esgz" >/dev/null
	/usr/bin/ctr images push --plain-http "$reg/$n:esgz" >/dev/null
	/usr/bin/ctr images rm --sync "$reg/$n:esgz" "$reg/$n:gzip" >/dev/null
	touch "$out/.$n"
	rm -rf "$W/layers" "$l"
done
