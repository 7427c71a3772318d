#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A View of one layer is a bind of our mount: setuid and file-capability
# programs, devices and access lists in it work for users.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/view.sh"

l=$W/l
mkdir "$l"
cp /usr/bin/id "$l/id"
chmod 4755 "$l/id"
cp /usr/bin/cat "$l/cat"
# CAP_SETUID and CAP_NET_RAW, permitted and effective
setfattr -n security.capability -v 0x0100000280200000000000000000000000000000 "$l/cat"
mknod "$l/null" c 1 3
chmod 666 "$l/null"
echo secret >"$l/acl"
chmod 640 "$l/acl"
setfacl -m u:1001:r,g::-,m:r "$l/acl"
echo '#!/bin/sh
echo script' >"$l/script"
chmod 755 "$l/script"
mkdir -m 700 "$l/private"
echo x >"$l/private/f"
serve -- 1="$l"

mkdir "$W/view"
mount --bind "$M/1" "$W/view"
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
for at in "$M/1" "$W/view"; do
	[ "$(as 65534 "$at/id" -u)" = 0 ] || fail "setuid in $at"
	eff=$(as 65534 "$at/cat" /proc/self/status | awk '$1 == "CapEff:" { print $2 }')
	[ "$eff" = 0000000000002080 ] || fail "capabilities in $at: $eff"
	as 65534 sh -c "echo x >$at/null" || fail "device in $at"
	[ "$(as 1001 cat "$at/acl")" = secret ] || fail "access list in $at: allowed user"
	! as 1002 cat "$at/acl" 2>/dev/null || fail "access list in $at: other user"
	! as 65534 cat "$at/private/f" 2>/dev/null || fail "private directory in $at"
	[ "$(as 65534 "$at/script")" = script ] || fail "script in $at"
done
getfacl -cp "$M/1/acl" | found -x 'user:1001:r--' || fail 'access list is not shown'
umount "$W/view"
close_view
