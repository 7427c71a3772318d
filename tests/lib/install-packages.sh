#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install-packages.sh [LIST]: installs what is missing of tests/lib/packages.
# Says nothing and asks nobody when all is there.
set -eu
list=${1:-$(dirname "$0")/packages}
missing=()
while read -r p; do
	case $p in '' | '#'*) continue ;; esac
	# A Go of one's own (newer, usually) serves as well as Debian's.
	[ "$p" = golang-go ] && command -v go >/dev/null && continue
	dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
done <"$list"
[ ${#missing[@]} = 0 ] && exit 0
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=180 -o Dpkg::Use-Pty=0)
"${apt[@]}" update
# Nothing that is installed may start a service of its own.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
	trap 'rm -f $policy' EXIT
fi
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
