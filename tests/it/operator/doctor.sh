#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl doctor with Debian's containerd, with and without it and the daemon;
# the machine's limits; mounts that containerd does not see.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/it/operator/common.sh
. "$TOP/tests/it/operator/common.sh"

# Folders of the system that are looked at by default, empty and ours.
for d in /etc/containerd /etc/verity-snapshotter /var/lib; do
	[ ! -d $d ] || mount -t tmpfs none $d
done
text() { # TEXT ARGS...: doctor for people says so; its exit status is 1
	local status=0 want=$1
	shift
	"$CTL" doctor "$@" >"$W/text" 2>&1 || status=$?
	[ "$status" = 1 ] || fail "status $status: $(cat "$W/text")"
	grep -qF -- "$want" "$W/text" || fail "no '$want' in: $(cat "$W/text")"
}

# --- nothing runs
text "no daemon listens on '/run/verity-snapshotter/control.sock'"
doctor
[ "$doctor_status" = 1 ] || fail "status $doctor_status"
only containerd.plugin containerd.running daemon.running
finding daemon.running problem "no daemon listens on '$RUN/control.sock'" \
	'systemctl enable --now verity-snapshotter.socket verity-snapshotter.service'
finding containerd.running problem "cannot be reached at '$CONTAINERD_ADDRESS'"
finding containerd.version ok 'version 1.6'
finding containerd.plugin problem "has the address '$RUN/snapshotter.sock'" 'in /etc/containerd/config.toml:'
finding state.type unknown 'is not there'
status=0
PATH=/nowhere "$CTL" --run "$RUN" doctor --json >"$W/found" || status=$?
[ "$status" = 1 ] || fail "status $status without a containerd anywhere"
only containerd.running daemon.running

# --- a daemon without containerd, a containerd without daemon
start_daemon
doctor
only containerd.plugin containerd.running
finding daemon.view ok "$ROOT/l"
stop daemon
start_containerd 1
doctor
only daemon.running
finding containerd.plugin ok '"verity"'
finding containerd.plugin ok '"stargz"'

# --- both; what only newer ones read is not asked of 1.6
start_daemon
doctor
only
finding containerd.running ok "pid $containerd_pid"
finding containerd.version ok 'version 1.6'
finding containerd.mounts ok "$ROOT/l"
! jq -e '.findings[] | select(.check | test("exports|unpack_config"))' "$W/found" >/dev/null || fail 'asks for what 1.6 has not'
cp "$W/verity.toml" "$W/good.toml"
sed '/stargz\]/,/^$/d' "$W/good.toml" >"$W/verity.toml"
doctor
only
finding containerd.alias warning 'by no name that nerdctl does' '[proxy_plugins.stargz]' "  address = \"$SOCK\""
cat >>"$W/verity.toml" <<-T
	[plugins."io.containerd.grpc.v1.cri".containerd]
	  snapshotter = "verity"
	  disable_snapshot_annotations = true
T
sed -i '/^disabled_plugins/d' "$W/containerd.toml"
doctor
only containerd.cri
finding containerd.cri problem disable_snapshot_annotations '  disable_snapshot_annotations = false'
stop containerd

# --- the default place, and no mounts of others: PrivateMounts= in miniature
sed '/^imports/d' "$W/containerd.toml" >/etc/containerd/config.toml
mkdir /etc/containerd/conf.d
cp "$W/good.toml" /etc/containerd/conf.d/verity.toml
stop daemon
start containerd unshare -m --propagation private containerd
wait_for 30 'containerd' ctr version
start_daemon
doctor
only containerd.imports containerd.mounts
finding containerd.imports problem '/etc/containerd/conf.d/verity.toml is not read' 'imports = ["/etc/containerd/conf.d/*.toml"]'
finding containerd.mounts problem "does not see '$ROOT/l': it is in another mount namespace"
stop containerd

# --- limits of the machine
for name in max_request_timeout default_request_timeout max_pages_limit; do
	[ -e "/proc/sys/fs/fuse/$name" ] || continue
	echo 30 >"$W/limit"
	mount --bind "$W/limit" "/proc/sys/fs/fuse/$name"
	doctor
	if [ $name = max_pages_limit ]; then
		finding fuse.$name warning 'is 30 pages'
	else
		finding fuse.$name problem "fs.fuse.$name is 30 seconds" "sysctl -w fs.fuse.$name=0"
	fi
	umount "/proc/sys/fs/fuse/$name"
done

# --- the daemon: features, descriptors, a wrong configuration
stop daemon
config 'policy = "never-lazy"'
(ulimit -n 1000 && exec "$DAEMON" --root "$ROOT" --run "$RUN" --without fuse,dontcache) >"$W/few.log" 2>&1 &
few=$!
wait_for 30 'the daemon' daemon_answers
doctor
finding daemon.view problem 'masked by --without fuse'
finding kernel.dontcache warning "'dontcache' is switched off"
finding daemon.fds warning 'may open only 1000 files'
finding daemon.policy warning 'never-lazy' 'policy = "prefer-lazy"'
kill "$few"
wait "$few" || true
config 'polisy = "x"'
doctor
finding daemon.config problem "$W/daemon.toml:1: unknown key 'polisy'"
: >"$W/daemon.toml"

# --- a full disk, one that cannot hold changes, one that is read only
small=$W/small
mkdir "$small" "$W/lower" "$W/upper" "$W/work"
fake() { # JQ-PROGRAM: a daemon that says this of itself
	jq -n "$1" >"$W/fake.json"
	mkdir -p "$W/fake"
	rm -f "$W/fake/control.sock"
	# It reads the request first: what is written to nobody is an error.
	start fake socat "UNIX-LISTEN:$W/fake/control.sock,fork" "SYSTEM:read -r request && cat $W/fake.json"
	wait_for 30 'the fake daemon' test -S "$W/fake/control.sock"
	wait_for 30 'its answer' "$CTL" --run "$W/fake" status
	RUN=$W/fake doctor
	stop fake
}
at() { # what a daemon with its root at $small says
	fake "{version: \"0.0.1\", pid: $$, root: \"$small\", address: \"/a\", view: {mounted: false, reason: \"r\u001b\"},
		features: [{name: \"resend\", state: \"absent\", why: \"w\"}], broken: [{container: \"default/web\"}], layers: []}"
}
mount -t tmpfs -o size=1m,nr_inodes=50 small "$small"
at
finding daemon.version warning 'the daemon is of version 0.0.1' 'systemctl restart verity-snapshotter'
finding daemon.view problem 'the daemon shows no layers: r'
finding daemon.broken problem "'default/web' first"
finding kernel.resend warning "'resend' is missing"
finding state.space ok '1.0 MiB left'
for i in {1..46}; do : >"$small/$i"; done
at
finding state.inodes warning 'inodes left'
rm "$small"/?*
dd if=/dev/zero of="$small/fill" bs=4096 >/dev/null 2>&1 || true
at
finding state.space problem '0 B left, 0%'
mount -o remount,ro "$small"
at
finding state.writable problem "no file can be made in '$small': Read-only file system"
umount "$small"
mount -t overlay -o "lowerdir=$W/lower,upperdir=$W/upper,workdir=$W/work" overlay "$small"
at
finding state.type problem 'of type overlay'
umount "$small"

status=0
"$CTL" doctor a b >"$W/out" 2>&1 || status=$?
[ "$status" = 2 ] || fail "status $status of a wrong command line"
status=0
"$CTL" status --containerd x >"$W/out" 2>&1 || status=$?
[ "$status" = 2 ] || fail "status $status of an option of another command"
"$CTL" --run "$RUN" doctor >/dev/full 2>"$W/out" && fail 'a full disk is not noticed'
grep -q 'write the findings' "$W/out" || fail "$(cat "$W/out")"
echo 'doctor: daemon, containerd 1.6, mounts, limits, disks'
