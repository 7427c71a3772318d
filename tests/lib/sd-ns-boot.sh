#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sd-ns-boot.sh WORK DIR SYSTEMD: the inner half of sd-ns.sh. Runs as PID 1 in
# fresh namespaces: builds the file tree, enters it and becomes SYSTEMD.
set -eu
work=$1 keep=$2 systemd=$3
root=$work/root

# What cgroups look like outside; read before anything hides it.
awk '$3 ~ /^cgroup2?$/ && $2 ~ "^/sys/fs/cgroup" { print $2, $3, $4 }' /proc/mounts | sort -u >"$work/cgroup-mounts"

mount --make-rprivate /
mount --rbind / "$root"
mount --make-rprivate "$root"
mount -t proc proc "$root/proc"
# The kernel's settings are the host's: not to be changed from here.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"

# /dev: devtmpfs is one for the whole kernel, and systemd writes into it.
mkdir "$work/dev"
mount -t tmpfs -o mode=755 dev "$work/dev"
(cd /dev && find . -xdev \( -type b -o -type c -o -type l \) -exec cp -a --parents -t "$work/dev" {} +)
rm -f "$work/dev/ptmx" "$work/dev/console"
mkdir -p "$work/dev/pts" "$work/dev/shm"
ln -s pts/ptmx "$work/dev/ptmx"
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$work/dev/pts"
mount -t tmpfs -o mode=1777 shm "$work/dev/shm"
mount --rbind "$work/dev" "$root/dev"

# Cgroups again, now as the namespace shows them: the same set as outside.
umount -R "$root/sys/fs/cgroup" 2>/dev/null || :
# Read only, as in any container, which keeps udevd out.
mount -o remount,bind,ro "$root/sys" 2>/dev/null || :
if ! grep -qv cgroup2 "$work/cgroup-mounts"; then
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
	mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup"
	while read -r point type options; do
		mkdir -p "$root$point"
		if [ "$type" = cgroup ]; then
			options=$(tr , '\n' <<<"$options" | grep -vxE 'rw|ro|relatime|nosuid|nodev|noexec' |
				sed 's/^name=/none,name=/' | paste -sd, -)
		else
			options=rw
		fi
		mount -t "$type" -o "$options" "$type" "$root$point"
	done <"$work/cgroup-mounts"
fi

# Throw-away writes.
mkdir "$work/upper"
mount -t tmpfs -o mode=755 upper "$work/upper"
for d in etc usr var; do
	mkdir "$work/upper/$d" "$work/upper/$d.work"
	mount -t overlay -o "lowerdir=$root/$d,upperdir=$work/upper/$d,workdir=$work/upper/$d.work" "$d" "$root/$d"
done
echo sd-ns >"$root/etc/hostname"
rm -f "$root/etc/machine-id"
: >"$root/etc/machine-id"
: >"$root/etc/fstab"

# Fresh /run and /tmp; the folder of the test comes back where it was.
mkdir "$work/upper/keep"
mount --bind "$keep" "$work/upper/keep"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir -p "$root/run/systemd/system" "$root/run/lock" "$root/run/share"
mount --bind "$work/share" "$root/run/share"
cp "$work"/units/* "$root/run/systemd/system/"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mkdir -p "$root$keep"
mount --bind "$work/upper/keep" "$root$keep"

cd "$root"
pivot_root . .
umount -l .
cd /
unset NOTIFY_SOCKET LISTEN_FDS LISTEN_PID LISTEN_FDNAMES
export container=sd-ns
exec "$systemd" --system --unit=sd-ns.target --show-status=no --log-target=console --log-level="${SD_NS_LOG:-err}"
