#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Under a real systemd: the journal's fields tell which image, layer and host a
# line is about; the doctor judges the unit, and finds a unit whose mounts
# containerd does not see.
set -u
cd "$(dirname "$0")/../../.." || exit 1
B=${B:-build/gcc}

if [ "${1:-}" != inside ]; then
	exec tests/lib/sd-ns.sh -t 180 -- env B="$B" bash "tests/it/operator/${0##*/}" inside
fi

unit=verity-snapshotter
sock=/run/verity-snapshotter/snapshotter.sock
found=/tmp/found

fail() {
	echo "FAIL: $*" >&2
	systemctl --no-pager -l status $unit.service >&2
	journalctl -q --no-pager -n 30 -u $unit.service >&2
	exit 1
}
wait_for() { # COMMAND...
	local end=$((SECONDS + 60))
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "waited in vain for: $*"
		sleep .05
	done
}
doctor() {
	verityctl doctor --json >$found
}
finding() { # CHECK LEVEL TEXT
	jq -e --arg c "$1" --arg l "$2" --arg t "$3" \
		'any(.findings[]; .check == $c and .level == $l and (.what | contains($t)))' $found >/dev/null ||
		fail "no $2 of $1 with '$3': $(jq -c --arg c "$1" '.findings[] | select(.check == $c)' $found)"
}

export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
make -s -o all B="$B" install >/dev/null || fail 'make install'
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/$unit.conf || fail tmpfiles
# A build with sanitizers looks for leaks by ptrace, which the unit forbids.
mkdir -p /run/systemd/system/$unit.service.d
printf '[Service]\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n' >/run/systemd/system/$unit.service.d/leaks.conf
systemctl daemon-reload

# --- the unit: stopped, running, enabled
doctor
finding daemon.unit problem "$unit.service is inactive"
systemctl start $unit.service || fail start
doctor
finding daemon.unit warning 'is active, but disabled'
systemctl -q enable $unit.service 2>/dev/null || fail enable
doctor
finding daemon.unit ok 'active and enabled'
finding daemon.running ok "pid $(systemctl show -p MainPID --value $unit.service)"
finding daemon.caps ok 'capabilities that it needs'

# --- a layer that cannot be lazy: nobody listens at that registry
layer=sha256:$(printf 1%.0s {1..64}) image=127.0.0.1:1/some/image:v1
PYTHONPATH=tests/it/grpc timeout 60 /usr/bin/python3 -B - "$sock" "$layer" "$image" <<-'P' || fail Prepare
	import sys
	import pb
	from client import Client
	sock, layer, image = sys.argv[1:]
	p = "containerd.io/snapshot/"
	labels = {p[:-1] + ".ref": "sha256:" + "2" * 64, p + "cri.image-ref": image, p + "cri.layer-digest": layer,
	          p + "cri.image-layers": layer, p + "stargz/toc.digest": "sha256:" + "3" * 64}
	assert pb.mounts(Client(sock).call("Prepare", pb.prepare("k8s.io/1/extract-1 x", labels_=labels)))
P
entry() { # JQ-CONDITION
	journalctl -q -u $unit.service -o json |
		jq -se --arg l "$layer" --arg i "$image" "any(.VS_LAYER == \$l and .VS_IMAGE == \$i and .VS_HOST == \"127.0.0.1:1\" and $1)"
}
wait_for entry '.PRIORITY == "6" and .VS_ERROR_KIND == "unavailable" and (.VS_ERR | contains("127.0.0.1:1")) and (.MESSAGE | startswith("layer not lazy: "))'
wait_for entry '.PRIORITY == "4" and (.VS_REASON | contains("127.0.0.1:1")) and .SYSLOG_IDENTIFIER == "verity-snapshotter"'
journalctl -q -u $unit.service -o cat VS_LAYER="$layer" | grep -q 'falls back to ordinary mounts' || fail 'the journal cannot be asked for a layer'

# --- what hides the mounts
mkdir -p /etc/containerd
cat >/etc/containerd/config.toml <<-C
	version = 2
	disabled_plugins = ["io.containerd.grpc.v1.cri"]
	[plugins."io.containerd.internal.v1.opt"]
	  path = "/tmp/opt"
	[proxy_plugins.verity]
	  type = "snapshot"
	  address = "$sock"
C
systemd-run -q --unit=ctd /usr/bin/containerd || fail 'start of containerd'
wait_for ctr version
doctor
finding containerd.mounts ok 'sees the layers'
printf '[Service]\nPrivateMounts=yes\n' >/run/systemd/system/$unit.service.d/private.conf
systemctl daemon-reload
systemctl restart $unit.service || fail restart
doctor
finding containerd.mounts problem 'the daemon is in another mount namespace'
jq -e 'any(.findings[]; .check == "containerd.mounts" and (.fix | contains("PrivateMounts=")))' $found >/dev/null ||
	fail "$(cat $found)"
systemctl stop ctd $unit.service $unit.socket 2>/dev/null
echo 'journal: fields of image, layer, host and kind; the unit; hidden mounts'
