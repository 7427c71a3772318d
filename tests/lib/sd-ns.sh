#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sd-ns.sh [-t SECONDS] -- COMMAND...
#
# Runs COMMAND as root under a real systemd: this machine's own, as PID 1 of
# private pid, mount, uts, ipc and cgroup namespaces. What it changes in /etc,
# /var and /usr lands in a tmpfs and is gone afterwards; /run and /tmp are
# fresh. The current folder is there under its name, and writable.
# Prints COMMAND's output and exits with its status; 125: systemd did not get
# that far, 77: no systemd or no cgroups here.
set -eu

limit=120
while getopts t: opt; do
	case $opt in
	t) limit=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "usage: sd-ns.sh [-t SECONDS] -- COMMAND..." >&2; exit 2; }

systemd=/lib/systemd/systemd
mapfile -t hierarchies < <(awk '$3 ~ /^cgroup2?$/ && $2 ~ "^/sys/fs/cgroup" { print $2 }' /proc/mounts | sort -u)
if [ ! -x $systemd ] || [ ${#hierarchies[@]} = 0 ]; then
	echo "sd-ns: needs $systemd and mounted cgroups" >&2
	exit 77
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/sd-ns.XXXXXX")
cgroups=()

# All processes are gone by then, but a cgroup may stay busy for a moment.
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
	local dir try
	for try in 1 2 3 4 5 6 7 8 9 10; do
		for dir in "${cgroups[@]}"; do
			[ ! -d "$dir" ] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || :
		done
		for dir in "${cgroups[@]}"; do
			[ ! -d "$dir" ] || { sleep .1; continue 2; }
		done
		break
	done
	[ "$try" -lt 10 ] || echo "sd-ns: cgroups left behind: ${cgroups[*]}" >&2
	rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# A cgroup of our own in each hierarchy becomes the root that systemd sees.
# v1: a new cpuset is empty. v2: controllers must be handed down.
for h in "${hierarchies[@]}"; do
	dir=$h/${work##*/}
	mkdir "$dir"
	cgroups+=("$dir")
	if [ -e "$h/cgroup.controllers" ]; then
		for c in $(<"$h/cgroup.controllers"); do
			{ echo "+$c" >"$h/cgroup.subtree_control"; } 2>/dev/null || :
		done
	else
		for f in cpuset.cpus cpuset.mems; do
			[ ! -e "$dir/$f" ] || cat "$h/$f" >"$dir/$f"
		done
	fi
done
printf '%s/cgroup.procs\n' "${cgroups[@]}" >"$work/procs"

mkdir "$work/root" "$work/share" "$work/units"
{
	printf 'cd %q\n' "$PWD"
	printf '%q ' "$@"
} >"$work/share/command"
cat >"$work/units/sd-ns-command.service" <<UNIT
[Unit]
Description=The command of sd-ns.sh
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=$limit
Environment=PATH=$PATH
ExecStart=/bin/bash -c 'bash /run/share/command >/run/share/output 2>&1; echo \$? >/run/share/status'
UNIT
cat >"$work/units/sd-ns.target" <<UNIT
[Unit]
Description=What sd-ns.sh boots
Requires=sd-ns-command.service
AllowIsolate=yes
UNIT

# Only PID 1 joins the cgroups, and does so before its cgroup namespace is
# made: in v2 a cgroup with children must hold no process.
# shellcheck disable=SC2016 # expanded by the inner shell
timeout -k 5 $((limit + 30)) unshare --mount --pid --uts --ipc --fork --kill-child --propagation private \
	bash -c 'while read -r f; do echo 0 >"$f"; done <"$1/procs"
		exec unshare --cgroup bash "$2" "$1" "$3" "$4"' \
	- "$work" "$(dirname "$(readlink -f "$0")")/sd-ns-boot.sh" "$PWD" $systemd \
	</dev/null >"$work/console" 2>&1 || :

[ ! -e "$work/share/output" ] || cat "$work/share/output"
[ ! -s "$work/share/status" ] || exit "$(<"$work/share/status")"
echo "sd-ns: the command did not end; last of the console:" >&2
tail -n 40 "$work/console" >&2
exit 125
