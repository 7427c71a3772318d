#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh: the main job on a real image, on a fresh Debian 12 machine, as root.
#
# Installs what is missing, builds, makes an eStargz image of Debian with Python
# (a few hundred MB unpacked), puts it into a private registry behind a link of
# 100 Mbit/s and 10 ms, pulls it lazily, runs it, and pulls the same image the
# ordinary way for comparison. All of that happens in mount, network and process
# namespaces of its own: when the script ends, nothing of it is left but build/.
set -eu -o pipefail
TOP=$(cd "$(dirname "$0")/.." && pwd)
export TOP

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}

if [ -z "${DEMO_INSIDE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo 'run as root: it mounts file systems and starts containers' >&2; exit 1; }
	say 'Packages, build, image'
	bash "$TOP/tests/lib/install-packages.sh"
	make -s -C "$TOP" -j"$(nproc)" all tools
	if "$TOP/tests/clients/have-go.sh"; then
		[ -e "$TOP/build/clients/.stamp" ] || echo 'building nerdctl and containerd (once, two minutes)'
		"$TOP/tests/clients/build.sh" "$TOP/build/clients"
	fi
	[ -e "$TOP/build/images/.py" ] || echo 'making the image (once, two minutes)'
	bash "$TOP/tests/lib/images.sh" "$TOP/build/images" py
	W=$(mktemp -d /tmp/vs-demo.XXXXXX)
	trap 'rm -rf --one-file-system "$W"' EXIT
	export W DAEMON=$TOP/build/verity-snapshotter CTL=$TOP/build/verityctl
	DEMO_INSIDE=1 unshare -m -n -p --propagation private --fork --kill-child --mount-proc bash "$0"
	exit
fi

# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
mount -t tmpfs none /run
ref=127.0.0.1:5001/py:esgz
program='import json, decimal, ssl, sqlite3, asyncio, http.client, yaml, numpy; print("numpy", numpy.__version__, "imported")'

clock() {
	date +%s%N
}
seconds_since() {
	awk -v a="$1" -v b="$(clock)" 'BEGIN { printf "%.1f", (b - a) / 1e9 }'
}
megabytes() {
	awk -v b="$1" 'BEGIN { printf "%.1f MB", b / 1e6 }'
}

if "$TOP/tests/clients/have-go.sh"; then
	flavour=2 client=nerdctl
	pull() { SNAPSHOTTER=$1 nd pull -q "$ref" >/dev/null; }
	run() { SNAPSHOTTER=$1 nd run --rm --net=none --entrypoint /usr/bin/python3 "$ref" -c "$program"; }
else
	flavour=1 client=ctr-remote
	pull() {
		case $1 in
		verity) ctr-remote images rpull --snapshotter verity --plain-http "$ref" >/dev/null ;;
		*) ctr images pull --plain-http --snapshotter "$1" "$ref" >/dev/null ;;
		esac
	}
	run() { ctr run --rm --snapshotter "$1" "$ref" "demo-$1" /usr/bin/python3 -c "$program"; }
fi

say 'Starting registry, slow link, daemon, containerd'
start_registry
start proxy "$TOP/build/gcc/tests/lib/slowproxy" --listen 127.0.0.1:5001 --to "$REG" --mbit 100 --rtt 10
config 'background_fill = false'
start_daemon
start_containerd $flavour

say "Lazy: $client pulls and runs $ref"
t=$(clock)
pull verity
echo "pulled after $(seconds_since "$t") s"
run verity
lazy=$(seconds_since "$t")
echo "pulled and ran in $lazy s"
assert_lazy "$ref"
echo 'containerd holds no layer of it'

say 'What is here'
"$CTL" --run "$RUN" status
fetched=$(status | jq .registry.bytes)
size=$(skopeo inspect --raw --tls-verify=false "docker://$REG/py:esgz" | jq '[.layers[].size] | add')

say 'Ordinary: the same image by overlayfs'
t=$(clock)
pull overlayfs
run overlayfs
full=$(seconds_since "$t")
echo "pulled and ran in $full s"

say 'Result'
echo "fetched:  $(megabytes "$fetched") of $(megabytes "$size")"
echo "pull+run: $lazy s lazily, $full s by overlayfs"
stop containerd
stop daemon
