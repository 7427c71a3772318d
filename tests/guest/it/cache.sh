#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An application's hot files stay in memory while a layer larger than that memory
# is pulled, filled, proven, sealed and scrubbed: both in one cgroup whose limit
# they share, sealer and scrubber in cgroups of their own; with MGLRU and without
# it. Without hints they do not: so these are the hints, and not the kernel. First
# the same for each way to read a file, and for POSIX_FADV_NOREUSE, which acts on
# mappings only.
. "$(dirname "$0")/../guest.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

MIB=$((1 << 20))
HOT=$((32 * MIB))
BOX=/sys/fs/cgroup/box
head -c $HOT /dev/urandom >"$W/hot"
head -c $((110 * MIB)) /dev/urandom >"$W/huge"
make_image app <<-J
	{"layers": [{"level": 1, "entries": [{"path": "huge", "content": {"file": "$W/huge"}}]}]}
J
drop_caches

# BOX has the limit, BOX/app the application, BOX/vs the daemon: delegated, as
# systemd does it.
make_box() {
	mkdir -p $BOX
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control
	echo +memory >$BOX/cgroup.subtree_control
	echo $((96 * MIB)) >$BOX/memory.max
	mkdir -p $BOX/app
}
within() { # GROUP COMMAND...
	(echo $BASHPID >"$BOX/$1/cgroup.procs" && "${@:2}")
}
resident() { # FILE
	fincore -b -n -o RES "$1" | tr -d ' '
}
sealed() {
	[ "$(layer_status "$(layer_info app 0)" .state)" = sealed ]
}
daemon_in() { # ARGS...
	mkdir $BOX/vs
	setfattr -n user.delegate -v 1 $BOX/vs
	start daemon bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' $BOX/vs "$DAEMON" --root "$ROOT" --run "$RUN" \
		--config "$W/daemon.toml" "$@"
	wait_for 20 'the daemon' daemon_answers
}

warm() { # MGLRU
	echo "$1" >/sys/kernel/mm/lru_gen/enabled
	drop_caches
	within app cat "$W/hot" "$W/hot" >/dev/null
	[ "$(resident "$W/hot")" = $HOT ] || fail 'the application does not get its file into memory'
}

# way MGLRU WAY: percent of the hot file that is left beside a file read so, by
# a process of the application
way() {
	warm "$1"
	within app "$B/tests/lib/cachetool" read "$2" "$W/huge" >/dev/null
	left=$(($(resident "$W/hot") * 100 / HOT))
	echo "MGLRU $1, read by $2: $left % are left, and $(resident "$W/huge") bytes of what was read"
}

# round MGLRU NAME [WITHOUT...]: percent of the hot file that is left
round() {
	local left
	warm "$1"
	daemon_in "${@:3}"
	start_containerd 1 >/dev/null
	pull app
	wait_for 120 'the seal' sealed
	"$CTL" --run "$RUN" scrub || fail 'the scrub finds damage'
	left=$(($(resident "$W/hot") * 100 / HOT))
	echo "MGLRU $1, $2: $left % are left; cgroup $(status | jq -c .sealing.helper)"
	stop containerd
	stop daemon
	find $BOX/vs -depth -type d -exec rmdir {} +
	rm -rf "$ROOT" "$RUN" "$W/ctd"
	[ "$2" = plain ] || [ $left -ge 99 ] || fail "$left % of the hot file are left"
	[ "$2" != plain ] || [ $left -lt 99 ] || fail 'nothing is pushed out without hints either'
}

config 'scrub_rate = 0'
start_scripted
make_box
for lru in y n; do
	for w in dontcache fadvise map; do
		way $lru $w
		[ $left -ge 99 ] || fail "$left % of the hot file are left beside a file read by $w"
	done
	way $lru mmap-noreuse
	way $lru noreuse
	# what the advice does to read(2): nothing
	[ "$(resident "$W/huge")" -gt $((16 * MIB)) ] || fail 'POSIX_FADV_NOREUSE acts on read(2)'
	[ $lru = n ] || [ $left -lt 99 ] || fail 'POSIX_FADV_NOREUSE protects from read(2)'
done
round y plain --without page-cache-hints
round y hints
round n hints
