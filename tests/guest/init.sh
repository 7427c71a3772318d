#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# init.sh: process 1 of the guest. Its root is the host's file tree, read-only;
# what a system writes to is a tmpfs here. Runs $GUEST_X/job with the host's
# folder $GUEST_X writable, leaves its exit status there and powers off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TERM=dumb
x=$GUEST_X

stty -opost <&1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t mqueue mqueue /dev/mqueue
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for d in /dev/shm /run /tmp /var/tmp /var/lib/containers; do
	[ ! -d $d ] || mount -t tmpfs tmpfs $d
done
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname guest
ulimit -n 65536

# The host's folders below those that a tmpfs has just covered.
bind() { # HOW FOLDER
	mkdir -p "$2" && mount -t hostfs -o "$1,$2" none "$2"
}
status=125
# shellcheck source=/dev/null
if bind rw "$x" && . "$x/env" && bind ro "$TOP"; then
	cd "$TOP" && bash "$x/job"
	status=$?
fi
dmesg >"$x/dmesg"
echo $status >"$x/status"
sync
# Waits until the console has taken everything.
stty -opost <&1
busybox poweroff -f
