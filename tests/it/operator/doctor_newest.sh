#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl doctor with containerd 2.3: each way to configure it wrong is found
# by name, with the lines that mend it.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/it/operator/common.sh
. "$TOP/tests/it/operator/common.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_daemon
start_containerd 2
doctor
only
[ "$doctor_status" = 0 ] || fail "status $doctor_status"
finding containerd.running ok "pid $containerd_pid"
finding containerd.version ok 'version 2.3'
finding containerd.stale ok 'as it is now'
finding containerd.plugin ok '"verity"'
finding containerd.exports ok annotations
finding containerd.unpack_config ok 'entries for "verity" and "overlayfs"'
finding containerd.mounts ok "$ROOT/l"
finding daemon.running ok "pid $daemon_pid"
finding daemon.version ok 'both of version'
finding daemon.view ok "$ROOT/l"
finding state.writable ok "$ROOT"

cp "$W/verity.toml" "$W/good.toml"
cp "$W/containerd.toml" "$W/main.toml"
# with SED-SCRIPT...: the drop-in changed like that
with() {
	cp "$W/main.toml" "$W/containerd.toml"
	sed "$@" "$W/good.toml" >"$W/verity.toml"
	doctor
}
TRANSFER='plugins."io.containerd.transfer.v1.local"'

# --- exports
with '/enable_remote_snapshot_annotations =/d'
only containerd.exports
finding containerd.exports problem 'does not export enable_remote_snapshot_annotations' \
	'[proxy_plugins.verity.exports]' '  enable_remote_snapshot_annotations = "true"'
with 's/\(enable_remote_snapshot_annotations = \)"true"/\1"yes"/'
only containerd.exports
# A boolean is no string: containerd itself refuses the file.
with 's/\(enable_remote_snapshot_annotations = \)"true"/\1true/'
only containerd.config
finding containerd.config problem "$W/containerd.toml cannot be read"
with 's#^    root = .*#    root = "/nowhere"#'
only
finding containerd.exports.root warning 'exports root = "/nowhere"' "  root = \"$ROOT\""

# --- unpack_config: without us, without overlayfs, with nobody's list
with 's/snapshotter = "verity"/snapshotter = "other"/'
only containerd.unpack_config
finding containerd.unpack_config problem 'no entry for "verity"' "in $W/verity.toml add:" \
	"[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]" '  snapshotter = "verity"'
with 's/snapshotter = "overlayfs"/snapshotter = "other"/'
only containerd.unpack_config
finding containerd.unpack_config problem 'no entry for "overlayfs"' '  snapshotter = "overlayfs"'
with "/^\\[\\[${TRANSFER}/,\$d"
only containerd.unpack_config
finding containerd.unpack_config problem 'no entry for "verity"' "in $W/containerd.toml add:" \
	'  snapshotter = "verity"' '  snapshotter = "overlayfs"'

# --- a drop-in that takes the place of another one's list
cat >"$W/zz.toml" <<-T
	version = 2
	[[$TRANSFER.unpack_config]]
	  platform = "linux"
	  snapshotter = "overlayfs"
T
cp "$W/good.toml" "$W/verity.toml"
sed "s#^imports = .*#imports = [\"$W/verity.toml\", \"$W/zz.toml\"]#" "$W/main.toml" >"$W/containerd.toml"
touch -d '10 seconds' "$W/containerd.toml" # the start is known to the second
doctor
only containerd.unpack_config
finding containerd.unpack_config problem "unpack_config of $W/zz.toml replaces that of $W/verity.toml" "in $W/zz.toml add:"
finding containerd.stale warning 'was changed after containerd was started' 'systemctl restart containerd'

# --- a drop-in that nobody reads
mkdir "$W/conf.d"
cp "$W/good.toml" "$W/conf.d/verity.toml"
sed '/^imports/d' "$W/main.toml" >"$W/containerd.toml"
doctor
only containerd.imports
finding containerd.imports problem "$W/conf.d/verity.toml is not read" "imports = [\"$W/conf.d/*.toml\"]"
rm "$W/conf.d/verity.toml"
doctor
only containerd.plugin
finding containerd.plugin problem "no proxy plugin of containerd has the address '$SOCK'" '[proxy_plugins.verity]' "  address = \"$SOCK\""

# --- the plugin itself
with "s#address = .*#address = \"$W/elsewhere.sock\"#"
only containerd.address
finding containerd.address problem "has the address '$W/elsewhere.sock', the daemon listens on '$SOCK'" "  address = \"$SOCK\""
with 's/^  type = "snapshot"/&\n  capabilities = ["rebase"]/'
only containerd.capabilities
ln -s "$RUN" "$W/link"
with "s#address = .*#address = \"$W/link/snapshotter.sock\"#"
only

# --- Kubernetes: a local pull without annotations
with ''
sed -i '/^disabled_plugins/d' "$W/containerd.toml"
sed "\$a [plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"verity\"" "$W/good.toml" >"$W/verity.toml"
doctor
only
finding containerd.cri ok 'Kubernetes uses "verity"'
cp "$W/verity.toml" "$W/pods.toml"
while read -r setting; do
	{ cat "$W/pods.toml" && echo "$setting"; } >"$W/verity.toml"
	doctor
	only containerd.cri
	finding containerd.cri problem disable_snapshot_annotations "[plugins.'io.containerd.cri.v1.images']" '  disable_snapshot_annotations = false'
done <<-'T'
	discard_unpacked_layers = true
	use_local_image_pull = true
	image_pull_with_sync_fs = true
	max_concurrent_downloads = 5
	registry.configs."registry.example".auth.username = "u"
	registry.mirrors."registry.example".endpoint = ["https://mirror.example"]
T
{ cat "$W/pods.toml" && echo 'max_concurrent_downloads = 3'; } >"$W/verity.toml"
doctor
only

# --- no TOML at all
with 's/^version.*/version = /'
only containerd.config

# For people: a fault, why, and what to do.
with '/enable_remote_snapshot_annotations =/d'
"$CTL" --run "$RUN" doctor --config "$W/daemon.toml" --containerd "$CONTAINERD_ADDRESS" >"$W/text" && fail 'exit status 0 with a problem'
grep -A9 '^problem  plugin "verity" does not export' "$W/text" >"$W/part" || fail "$(cat "$W/text")"
grep -q '^ *why: containerd does not tell which layer' "$W/part" || fail "$(cat "$W/part")"
grep -q '^ *do: *\[proxy_plugins.verity.exports\]$' "$W/part" || fail "$(cat "$W/part")"
grep -q '^1 problems, ' "$W/text" || fail "$(tail -n 1 "$W/text")"
echo 'doctor: exports, unpack_config, drop-ins, addresses, CRI'
