#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install and uninstall: all files, the right paths in them, an existing
# configuration kept, and nothing left.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
cd "$TOP"

D=$W/dest
mk() { make -s -o all B="$B" DESTDIR="$D" PREFIX=/opt/vs SYSCONFDIR=/opt/etc "$@" >"$W/make.log" 2>&1 || fail "make $*: $(cat "$W/make.log")"; }
tree() { (cd "$D" && find . ! -type d | sort); }
config=$D/opt/etc/verity-snapshotter/config.toml

mk install
[ "$(tree | wc -l)" -ge 18 ] || fail "few files: $(tree)"
jq -e .panels "$D/opt/vs/share/verity-snapshotter/grafana/verity-snapshotter.json" >/dev/null || fail "dashboard"
tree | found '\.new$' && fail "unfinished files: $(tree)"
for p in sbin/verity-snapshotter bin/verityctl; do
	[ "$(stat -c %a "$D/opt/vs/$p")" = 755 ] || fail "mode of $p"
	"$D/opt/vs/$p" --version >/dev/null || fail "$p does not run"
done
! grep -rIl '@[A-Z]*DIR@' "$D" || fail "a path was not filled in"
grep -qx 'ExecStart=/opt/vs/sbin/verity-snapshotter' "$D/opt/vs/lib/systemd/system/verity-snapshotter.service" || fail "unit"
grep -q '/opt/vs/share/verity-snapshotter/containerd/' "$D/opt/vs/share/man/man8/verity-snapshotter.8" || fail "man page"
for m in "$D"/opt/vs/share/man/man?/*; do
	said=$(mandoc -T lint -W warning "$m") || fail "mandoc: $said"
done
tree >"$W/first"

# Again over itself, then away again.
mk install
tree | cmp - "$W/first" || fail "a second install differs"
mk uninstall
[ -z "$(tree)" ] || fail "left behind: $(tree)"
! ls -d "${config%/*}" "$D/opt/vs/share/verity-snapshotter" 2>/dev/null || fail "empty folders of our own are left"

# A configuration that somebody wrote stays, in both directions.
mkdir -p "${config%/*}"
echo 'policy = "never-lazy"' >"$config"
mk install
[ "$(cat "$config")" = 'policy = "never-lazy"' ] || fail "the configuration was overwritten"
mk uninstall
[ "$(tree)" = ./opt/etc/verity-snapshotter/config.toml ] || fail "after uninstall: $(tree)"
[ "$(cat "$config")" = 'policy = "never-lazy"' ] || fail "the configuration was changed"
echo 'install and uninstall'
