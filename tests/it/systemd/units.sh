#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The units as `make install` leaves them, under a real systemd: socket
# activation, Type=notify, restart, watchdog, journal fields, a clean stop.
set -u
cd "$(dirname "$0")/../../.." || exit 1
B=${B:-build/gcc}

if [ "${1:-}" != inside ]; then
	exec tests/lib/sd-ns.sh -t 180 -- env B="$B" bash "tests/it/systemd/${0##*/}" inside
fi

root=/var/lib/verity-snapshotter
run=/run/verity-snapshotter
unit=verity-snapshotter

fail() {
	echo "FAIL: $*" >&2
	systemctl --no-pager -l status $unit.service >&2
	journalctl -q --no-pager -n 30 -u $unit.service >&2
	exit 1
}
show() { systemctl show -p "$1" --value $unit.service; }
count_mounts() { grep -c " $root/" /proc/self/mountinfo; }
# The reply does not matter, only that somebody accepts.
connect() { timeout 10 socat -u /dev/null "UNIX-CONNECT:$run/snapshotter.sock"; }
wait_for() { # COMMAND...
	local end=$((SECONDS + 30))
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep .05
	done
}
is_other_pid() { [ "$(show MainPID)" != 0 ] && [ "$(show MainPID)" != "$1" ] && systemctl -q is-active $unit.service; }

make -s -o all B="$B" install >/dev/null || fail "make install"
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/verity-snapshotter.conf || fail "tmpfiles"
[ "$(stat -c %a $root)" = 700 ] || fail "mode of $root"
# A build with sanitizers looks for leaks by ptrace, which the unit forbids.
mkdir -p /run/systemd/system/$unit.service.d
printf '[Service]\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n' >/run/systemd/system/$unit.service.d/leaks.conf
systemctl daemon-reload

# verify exits 0 whatever it has to say: what counts is that it is silent.
said=$(systemd-analyze verify $unit.service $unit.socket 2>&1)
[ -z "$said" ] || fail "systemd-analyze verify: $said"

systemctl start $unit.socket || fail "start of the socket"
[ "$(stat -c %a $run/snapshotter.sock)" = 600 ] || fail "mode of the socket"
systemctl -q is-active $unit.service && fail "the service runs before anybody connects"
connect || fail "connect"
wait_for systemctl -q is-active $unit.service || fail "a connection does not start the service"
[[ $(show StatusText) == "listening on $run/snapshotter.sock" ]] || fail "status text: $(show StatusText)"
/usr/local/bin/verityctl status --json | jq -e '.socket_activated and (.layers | type == "array")' >/dev/null ||
	fail "verityctl status"
[ "$(readlink "/proc/$(show MainPID)/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ] ||
	fail "the service has a mount namespace of its own"
mounts=$(count_mounts)
[ "$mounts" = 1 ] || fail "mounts below $root: $mounts, not the view alone"

journalctl -q -u $unit.service -o json | jq -se 'any(.VS_ADDRESS == "'$run'/snapshotter.sock" and .PRIORITY == "6")' >/dev/null ||
	fail "no journal entry with fields"

old=$(show MainPID)
systemctl restart $unit.service || fail "restart"
is_other_pid "$old" || fail "restart did not change the process"
[ "$(count_mounts)" = "$mounts" ] || fail "mounts after a restart: $(count_mounts), not $mounts"
connect || fail "connect after a restart"

old=$(show MainPID)
kill -9 "$old"
connect || fail "nobody keeps the socket open while the daemon is away"
wait_for is_other_pid "$old" || fail "not started again after kill -9"
[ "$(count_mounts)" = "$mounts" ] || fail "mounts after kill -9: $(count_mounts), not $mounts"

# A watchdog is not in the unit, but whoever adds one gets it served.
printf '[Service]\nWatchdogSec=1\n' >/run/systemd/system/$unit.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart $unit.service
old=$(show MainPID)
sleep 2.5
[ "$(show MainPID)" = "$old" ] || fail "the watchdog is not served"
kill -STOP "$old"
wait_for is_other_pid "$old" || fail "the watchdog does not bite"
rm /run/systemd/system/$unit.service.d/watchdog.conf
systemctl daemon-reload

systemctl stop $unit.service 2>/dev/null || fail "stop"
[ "$(show Result)" = success ] || fail "result of the stop: $(show Result)"
[ "$(count_mounts)" = 0 ] || fail "mounts after the stop: $(count_mounts)"
journalctl -q -u $unit.service -o cat | grep -q "stopped: reason='signal SIGTERM'" || fail "no reason for the end in the journal"

# A configuration that is wrong is tried once.
echo 'polisy = "x"' >/etc/verity-snapshotter/config.toml
systemctl start $unit.service 2>/dev/null && fail "started with a wrong configuration"
sleep .5
[ "$(show NRestarts)" = 0 ] || fail "a wrong configuration is tried again and again"
journalctl -q -u $unit.service -o cat | grep -q "/etc/verity-snapshotter/config.toml:1: unknown key 'polisy'" ||
	fail "the journal does not name the wrong line"
cp deploy/config.toml /etc/verity-snapshotter/config.toml

systemctl stop $unit.socket $unit.service 2>/dev/null
[ ! -e $run/snapshotter.sock ] || fail "the socket file outlives the socket unit"
make -s -o all B="$B" uninstall >/dev/null || fail "make uninstall"
left=$(find /usr/local /etc/verity-snapshotter -name '*verity*' 2>/dev/null)
[ -z "$left" ] || fail "uninstall leaves: $left"
echo "units: socket activation, notify, restart, kill -9, watchdog, journal, stop"
