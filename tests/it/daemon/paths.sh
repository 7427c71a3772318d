#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A folder of others is no root, and sockets do not lie where the daemon covers
# or deletes: refused with a message, and nothing is changed.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

refused() { # TEXT ARGS...
	local want=$1 status=0
	shift
	timeout 20 "$DAEMON" "$@" >"$W/log" 2>&1 || status=$?
	[ "$status" = 1 ] || fail "status $status, not 1, of $*: $(cat "$W/log")"
	tail -n 1 "$W/log" | found -F -- "$want" || fail "no '$want' in: $(cat "$W/log")"
}

# --- folders of others keep their mode
mkdir -m 755 "$W/others"
mkdir "$W/others/dpkg"
touch "$W/others/lock"
refused "root '$W/others' holds what is not ours ('dpkg')" --root "$W/others" --run "$RUN"
[ "$(stat -c %a "$W/others")" = 755 ] || fail 'the mode of a foreign folder was changed'
[ "$(ls -A "$W/others")" = "$(printf 'dpkg\nlock')" ] || fail "made in a foreign folder: $(ls -A "$W/others")"
ln -s others "$W/to-others"
refused 'holds what is not ours' --root "$W/to-others" --run "$RUN"
[ "$(stat -c %a "$W/others")" = 755 ] || fail 'the mode of a foreign folder was changed through a link'
[ ! -e "$RUN" ] || fail 'a refused daemon made its run folder'

# --- an empty one, and a file system of one's own
mkdir -m 755 "$W/empty"
ROOT=$W/empty start_daemon
stop daemon
[ "$(stat -c %a "$W/empty")" = 700 ] || fail 'an empty folder was not taken'
mkdir "$W/disk"
mount -t tmpfs -o mode=755 none "$W/disk"
mkdir "$W/disk/lost+found"
ROOT=$W/disk start_daemon
stop daemon

# --- sockets where they are covered or deleted
mkdir "$W/links"
for name in l s/1 layer body/ab trash; do
	refused "lies at or below '${name%%/*}' of the root" --root "$ROOT" --run "$ROOT/$name/run"
	refused "lies at or below '${name%%/*}' of the root" --root "$ROOT" --run "$RUN" --address "$ROOT/$name/a.sock"
done
[ ! -e "$ROOT" ] || fail "a refused daemon made its root: $(ls -A "$ROOT")"
start_daemon
stop daemon
ln -s "$ROOT" "$W/links/root"
refused "lies at or below 'l' of the root" --root "$ROOT" --run "$W/links/root/l"
refused "lies at or below 's' of the root" --root "$ROOT" --run "$W/links/root/x/../s/9"

mkdir "$W/new"
ln -s "$W/new" "$W/links/new"
refused "lies at or below 'l' of the root" --root "$W/new" --run "$RUN" --address "$W/links/new/l"
[ ! -e "$W/new/l" ] || fail 'a socket took the place of the view'

# --- elsewhere below root is fine, also when it was made beforehand
mkdir -p "$W/fresh/sub/run"
ROOT=$W/fresh RUN=$W/fresh/sub/run start_daemon --address "$W/fresh/a.sock"
stop daemon
ROOT=$W/fresh RUN=$W/fresh start_daemon
stop daemon
echo 'foreign roots, covered sockets'
