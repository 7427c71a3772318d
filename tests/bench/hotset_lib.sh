# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What hotset.sh does here and in the guest: an application's hot files, idle, in
# a cgroup of 192 MiB, beside what streams. The caller defines
#
#   group NAME BYTES       a fresh memory cgroup with that limit; NAME of "vs" may
#                          make children
#   leave                  back to the cgroup of before, and these removed
#   join NAME              the calling shell
#
# WAYS gets a line for each way to stream a file: where, way, % of the hot file
# left, MB of the streamed file left, MB/s, CPU ms a GB.
MIB=$((1 << 20))
LIMIT=$((192 * MIB))
HOT=$((128 * MIB))
STREAM=$((4 * 192 * MIB))

within() { # GROUP COMMAND...
	(join "$1" && "${@:2}")
}
resident() { # FILE...
	fincore -b -n -o RES "$@" | awk '{ s += $1 } END { print s + 0 }'
}
# Not in memory any more
cold() { # FILE
	dd of="$1" oflag=nocache conv=notrunc,fdatasync count=0 status=none
	[ "$(resident "$1")" = 0 ] || fail "$1 stays in memory"
}
warm_hot() {
	cold "$W/hot"
	within app cat "$W/hot" "$W/hot" >/dev/null
	[ "$(resident "$W/hot")" = $HOT ] || fail 'the application does not get its file into memory'
}
hot_left() { # in percent
	calc "$(resident "$W/hot") * 100 / $HOT"
}

# measure_ways WHERE FILE: each way, in the application's own cgroup
measure_ways() {
	local way s cpu n
	for way in plain noreuse fadvise dontcache mmap mmap-noreuse map; do
		group app $LIMIT
		cold "$2"
		warm_hot
		read -r s cpu n < <(within app "$B/tests/lib/cachetool" read $way "$2")
		printf '%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\n' "$1" "read, $way" "$(hot_left)" "$(calc "$(resident "$2") / 1e6")" \
			"$(calc "$n / 1e6 / $s")" "$(calc "$cpu * 1e12 / $n")" >>"$WAYS"
		leave
	done
	for way in plain fadvise dontcache; do
		group app $LIMIT
		warm_hot
		read -r s cpu n < <(within app "$B/tests/lib/cachetool" write $way "$W/written" $((512 * MIB)))
		printf '%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\n' "$1" "write, $way" "$(hot_left)" \
			"$(calc "$(resident "$W/written") / 1e6")" "$(calc "$n / 1e6 / $s")" "$(calc "$cpu * 1e12 / $n")" >>"$WAYS"
		rm "$W/written"
		leave
	done
}

# What a pull is over with.
settled() {
	status | jq -e '.layers | length > 0 and all(.proof == "proven" and
		(.state == "sealed" or '"${SEALS:-false}"' == false))' >/dev/null
}

# pull_beside GROUP [WITHOUT...]: "PERCENT-LEFT SECONDS", what is left after a scrub
# and how long the pull took; the daemon in that cgroup
pull_beside() {
	local t
	group app $LIMIT
	[ "$1" = app ] || group "$1" $LIMIT
	warm_hot
	rm -rf --one-file-system "$ROOT" "$RUN" "$W/ctd"
	# shellcheck disable=SC2034 # read by start()
	daemon_pid=
	start_daemon_in "$@"
	start_containerd 1 >/dev/null
	t=$(clock)
	PULL
	wait_for 200 'the layer to be here, proven and sealed' settled
	t=$(seconds "$t")
	"$CTL" --run "$RUN" scrub >/dev/null || fail 'the scrub finds damage'
	echo "$(hot_left) $t"
	stop containerd
	stop daemon
	leave
}
start_daemon_in() { # GROUP ARGS...
	local g=$1
	shift
	join_and_exec() {
		join "$g"
		exec "$DAEMON" --root "$ROOT" --run "$RUN" --config "$W/daemon.toml" --log-level info "$@"
	}
	start daemon join_and_exec "$@"
	wait_for 20 'the daemon' daemon_answers
}
PULL() {
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/big:latest" >/dev/null
}

# measure_pull WHERE ID GOAL: rows for the daemon in its own cgroup and in the
# application's, with hints and without
measure_pull() {
	rm -f "$W"/p.*
	config 'scrub_rate = 0'
	pull_beside vs >/dev/null # the registry has it in memory then
	for _ in $(seq "$RUNS"); do
		pull_beside vs >>"$W/p.own"
		pull_beside vs --without page-cache-hints >>"$W/p.plain"
	done
	pull_beside app >"$W/p.app"
	pull_beside app --without page-cache-hints >"$W/p.appplain"
	absolute P4 "$1: % left of 128 MB hot, $2" '>=99' "$(column 1 "$W/p.own")" "$RUNS"
	compare P4 "$1: MB/s pulled so, without hints" '>=0.95' "$(calc "$STREAM / 1e6 / $(best 2 "$W/p.own")")" \
		"$(calc "$STREAM / 1e6 / $(best 2 "$W/p.plain")")" "$RUNS"
	note "$1: % left without hints" "$(column 1 "$W/p.plain")" "$RUNS"
	note "$1: % left, all in the application's cgroup" "$(column 1 "$W/p.app")"
	note "$1: % left, so and without hints" "$(column 1 "$W/p.appplain")"
}

# make_big DIR: an image whose one layer is four times that memory
make_big() {
	head -c $STREAM /dev/urandom >"$W/big"
	OCI=$1
	mkdir -p "$OCI"
	python3 "$TOP/tests/lib/mkestargz.py" --out "$OCI/big" --name "$REG/big:latest" - >/dev/null <<-J
		{"layers": [{"level": 0, "entries": [{"path": "big", "content": {"file": "$W/big"}}]}]}
	J
	rm "$W/big"
}
