#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make install, then make uninstall, into an empty folder: nothing may be left.
set -eu
cd "$(dirname "$0")/../.."
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
make -s install DESTDIR="$d" PREFIX=/usr
find "$d" -type f -o -type l | sed "s#^$d##" | sort
for f in /usr/sbin/verity-snapshotter /usr/bin/verityctl /etc/verity-snapshotter/config.toml; do
	[ -e "$d$f" ] || { echo "not installed: $f"; exit 1; }
done
make -s uninstall DESTDIR="$d" PREFIX=/usr
left=$(find "$d" -type f -o -type l)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
