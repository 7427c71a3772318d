#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon with a real image below a real overlay: what is being filled, what
# is complete, one copy in the page cache, and 20,000 opens of 2,000 files.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
FILES=2000 ROUNDS=10

cp "$(realpath /bin/busybox)" "$W/busybox"
make_image mix <<-J
	{"layers": [{"chunk_size": 65536, "entries": [
	  {"path": "a", "content": {"random": 400000, "seed": 1}},
	  {"path": "b", "content": {"random": 400000, "seed": 2}},
	  {"path": "small", "content": {"random": 100000, "seed": 3}},
	  {"path": "busybox", "mode": 493, "content": {"file": "$W/busybox"}}]}]}
J
python3 - $FILES <<-'P' | make_image many
	import json, sys
	print(json.dumps({"layers": [{"entries": [{"path": f"f{i}", "content": {"zeros": 131072 + i}}
	                                          for i in range(int(sys.argv[1]))]}]}))
P
want() { # SIZE SEED
	python3 -c "
import sys; sys.path.insert(0, '$TOP/tests/lib')
import mkestargz
sys.stdout.buffer.write(mkestargz.Content({'random': $1, 'seed': $2}).bytes())"
}
want 400000 1 >"$W/a"
want 400000 2 >"$W/b"

opens() { status | jq ".view.opens.$1"; }
is() { [ "$(opens "$1")" = "$2" ]; }
expect() { # NAME VALUE...
	while [ $# -gt 0 ]; do
		is "$1" "$2" || fail "$1 is $(opens "$1"), not $2 (line ${BASH_LINENO[0]})"
		shift 2
	done
}
closed() { wait_for 30 'all files to be closed' is cached 0 && wait_for 30 'all files to be closed' is passthrough 0; }

start_scripted
config 'unsealed_reads = "passthrough"' 'verity = "off"' 'background_fill = false'
start_daemon
state=$(status | jq -r '.features[] | select(.name == "passthrough") | .state')
[ "$state" = on ] || skip "passthrough is $state"
start_containerd 1
pull mix
dir=$(layer_path "$(layer_info mix 0)")
[ -n "$dir" ] || fail 'mix is not lazy'
mkdir "$W/up" "$W/work" "$W/o"
mount -t overlay overlay -o "lowerdir=$dir,upperdir=$W/up,workdir=$W/work" "$W/o"

# Opened before it is complete: cached, also for those who come afterwards.
exec 7<"$W/o/a"
head -c 1000 <&7 | cmp -n 1000 - "$W/a"
expect cached 1 passthrough 0
cmp "$W/o/a" "$W/a"
exec 8<"$W/o/a"
wait_for 30 'the second reader to be gone' is cached 2
expect passthrough 0 changeable 1
"$CTL" --run "$RUN" status | found '1 could be when they are opened again' || fail 'status does not say that one file could be passed through'
exec 7<&- 8<&-
closed
exec 7<"$W/o/a"
expect cached 0 passthrough 1 backing_files 1
before=$(status | jq .view.reads)
cmp - "$W/a" <&7
[ "$(status | jq .view.reads)" = "$before" ] || fail 'the daemon was asked for bytes'

# One copy: that of the body.
body=$(find "$ROOT/body" -type f ! -name '*.state' -size 400000c | head -n 1)
if n=$("$TOP/tests/lib/cachestat.py" "$dir/a"); then
	[ "$n" = 0 ] || fail "$n pages of the view's file are cached, too"
	[ "$("$TOP/tests/lib/cachestat.py" "$body")" = 98 ] || fail 'the body is not what is cached'
fi
exec 7<&-

# The pack is read once, past the page cache where the file system can.
cat "$W/o/small" >/dev/null
if [ "$(status | jq -r '.page_cache[0].way')" = dontcache ] &&
	n=$("$TOP/tests/lib/cachestat.py" "$ROOT"/layer/*/pack); then
	drop_caches
	cat "$W/o/small" >/dev/null
	n=$("$TOP/tests/lib/cachestat.py" "$ROOT"/layer/*/pack)
	[ "$n" = 0 ] || fail "$n pages of the pack are cached"
	[ "$("$TOP/tests/lib/cachestat.py" "$dir/small")" = 25 ] || fail 'the small file is not cached'
fi

# Programs: run once while they are fetched, then through the kernel.
[ "$("$W/o/busybox" echo one)" = one ] || fail 'a program that is being fetched'
cat "$W/o/busybox" >/dev/null
closed
exec 7<"$W/o/busybox"
expect passthrough 1
[ "$("$W/o/busybox" echo two)" = two ] || fail 'a program that is passed through'
exec 7<&-
closed
expect backing_files 0
umount "$W/o"

# The kernel reads ahead what one READ may carry.
bdi=$(stat -c %d "$ROOT/l")
kb=/sys/class/bdi/0:$((bdi & 255 | bdi >> 12 & 0xfff00))/read_ahead_kb
[ ! -w "$kb" ] || [ "$(cat "$kb")" = 1024 ] || fail "readahead is $(cat "$kb") KiB"

# Descriptors: as many after the last round as after the first ones.
pull many
d=$(layer_info many 0)
dir=$(layer_path "$d")
[ -n "$dir" ] || fail 'many is not lazy'
cat "$dir"/f* | wc -c | found -x $((FILES * 131072 + FILES * (FILES - 1) / 2)) || fail 'not all bytes were read'
closed
python3 - "$dir" $FILES $ROUNDS "/proc/${daemon_pid:?}/fd" <<-'P' || fail 'descriptors'
	import os, resource, sys
	dir, files, rounds, fds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
	_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
	resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * files), hard))
	n = []
	for r in range(rounds):
	    held = [os.open(f"{dir}/f{i}", os.O_RDONLY) for i in range(files)]
	    for i, fd in enumerate(held):
	        if os.pread(fd, 10, 131072 + i - 5) != bytes(5):
	            sys.exit(f"f{i}: other bytes")
	    n.append(len(os.listdir(fds)))
	    for fd in held:
	        os.close(fd)
	print(f"descriptors of the daemon in each round: {n}")
	sys.exit(0 if max(n[1:]) <= n[1] + 50 and max(n) < 20000 else 1)
P
total=$(opens passthrough_total)
[ "$total" -ge $((FILES * ROUNDS)) ] || fail "only $total opens were passed through"
closed
expect backing_files 0
