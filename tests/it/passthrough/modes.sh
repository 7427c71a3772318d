#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who reads a file: one mode and one backing file for an inode, one copy in the
# page cache, the change from one mode to the other, and what must not wait.
. "$(dirname "$0")/../../lib/lib.sh"
. "$TOP/tests/it/view/view.sh"

mkdir "$W/l"
head -c 3000000 /dev/urandom >"$W/l/large"
head -c 131072 /dev/urandom >"$W/l/least"
head -c 131071 /dev/urandom >"$W/l/small"
head -c 4000000 /dev/urandom >"$W/l/slow"
head -c 3000000 /dev/urandom >"$W/l/mapped"
head -c 3000000 /dev/urandom >"$W/l/new"
cp "$(realpath /bin/busybox)" "$W/l/busybox"
[ "$(stat -c %s "$W/l/busybox")" -ge 131072 ] || fail 'busybox is too small for this test'
serve -- 3="$W/l"
L=$M/3
offered=$(stat_of flags)
[ $((0x$offered >> 37 & 1)) = 1 ] || skip 'the kernel has no FUSE passthrough'

is() { [ "$(stat_of "$1")" = "$2" ]; }
expect() { # NAME VALUE...
	while [ $# -gt 0 ]; do
		is "$1" "$2" || fail "$1 is $(stat_of "$1"), not $2 (line ${BASH_LINENO[0]})"
		shift 2
	done
}
# RELEASE comes when it comes
closed() { wait_for 30 'the files to be closed' is open 0; }
# pages that the view's own inode holds; -: the kernel cannot say
pages() { "$TOP/tests/lib/cachestat.py" "$1" || echo -; }
no_pages() { [[ $(pages "$1") =~ ^(0|-)$ ]]; }
some_pages() { [ "$(pages "$1")" != 0 ]; }

# Large files are passed through, small ones are not.
ask pass >/dev/null
exec 7<"$L/large"
expect open 1 passthrough 1 backing 1 error 0
exec 8<"$L/large" 9<"$L/least"
expect open 3 passthrough 3 backing 2
exec 6<"$L/small"
expect open 4 passthrough 3 backing 2
cmp - "$W/l/large" <&7
cmp - "$W/l/least" <&9
no_pages "$L/large" || fail 'a second copy in the page cache'
expect reads 0
cmp - "$W/l/small" <&6
[ "$(stat_of reads)" -gt 0 ] || fail 'nobody was asked for the small file'
exec 7<&- 9<&- 6<&-
wait_for 30 'three files to be closed' is open 1
expect backing 1
exec 8<&-
closed
expect backing 0
echo 'large files are passed through'

# What is open stays as it is; at the next opening the pages go.
ask nopass >/dev/null
exec 7<"$L/new"
cmp - "$W/l/new" <&7
expect passthrough 0
some_pages "$L/new" || fail 'nothing is cached'
ask pass >/dev/null
exec 8<"$L/new"
cmp - "$W/l/new" <&8
expect open 2 passthrough 0
exec 7<&- 8<&-
closed
exec 7<"$L/new"
expect open 1 passthrough 1 backing 1
no_pages "$L/new" || fail 'the pages of the cached time are still there'
cmp - "$W/l/new" <&7
exec 7<&-
closed
echo 'and go over when nobody has them open'

# A mapping holds an inode like an open file does.
ask nopass >/dev/null
exec {map_in}> >(exec python3 -c "
import mmap, sys
f = open('$L/mapped', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
f.close()
print('mapped', flush=True)
for line in sys.stdin:
    print('same' if m[:] == open('$W/l/mapped', 'rb').read() else 'other', flush=True)
" >"$W/map.log")
wait_for 30 'the mapping' grep -q mapped "$W/map.log"
ask pass >/dev/null
cmp "$L/mapped" "$W/l/mapped"
expect passthrough 0
echo >&"$map_in"
wait_for 30 'the mapped bytes' grep -q same "$W/map.log"
exec {map_in}>&-
closed
[ "$("$L/busybox" echo ran)" = ran ] || fail 'a program is not executed'
closed
expect backing 0
echo 'mappings and programs'

# Threads that open one inode while it may change: never EIO, never other bytes.
python3 - "$L" "$W/l" >"$W/threads.log" 2>&1 <<'P' &
import os, sys, threading
seen, src = sys.argv[1:]
want = {n: open(f"{src}/{n}", "rb").read() for n in ("large", "least")}
bad = []

def run(n):
    for i in range(200):
        name = ("large", "least")[(i + n) % 2]
        try:
            with open(f"{seen}/{name}", "rb") as f:
                off = i * 4096 % 100000
                f.seek(off)
                if f.read(4096) != want[name][off:off + 4096]:
                    bad.append(f"{name}: other bytes")
        except OSError as e:
            bad.append(f"{name}: {e}")

threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
sys.exit(bad[0] if bad else 0)
P
threads=$!
while kill -0 $threads 2>/dev/null; do
	ask nopass >/dev/null
	ask pass >/dev/null
done
wait $threads || fail "$(cat "$W/threads.log")"
closed
expect backing 0
echo 'many threads'

# A file that turns out bad gets a successor: who opens it from now on reads
# that one, who has it open or mapped keeps the old one.
exec 7<"$L/large"
expect passthrough 1
cp "$W/l/large" "$W/old"
head -c 3000000 /dev/urandom >"$W/l/.next"
mv "$W/l/.next" "$W/l/large"
ask recheck >/dev/null
exec 8<"$L/large"
expect passthrough 0 healed 2 backing 1
cmp - "$W/l/large" <&8
cmp - "$W/old" <&7
exec 7<&- 8<&-
closed
cmp "$L/large" "$W/l/large"
closed
expect backing 0 healed 0
echo 'a successor'

# A READ waits for its bytes, its reader is killed, and the file may be passed
# through from now on: nothing must wait for the page that the READ holds.
ask nopass >/dev/null
cat "$L/slow" >/dev/null &
reader=$!
waits() { [ "$(ask waits)" -gt 0 ]; }
wait_for 30 'a parked read' waits
ask pass >/dev/null
kill -9 $reader
wait $reader 2>/dev/null || true
waits || fail 'no READ is left to wait for'
exec 7<"$L/slow"
expect passthrough 0
ask arrive >/dev/null
cmp - "$W/l/slow" <&7
exec 7<&-
closed
exec 7<"$L/slow"
expect passthrough 1
no_pages "$L/slow" || fail 'pages are left'
cmp - "$W/l/slow" <&7
exec 7<&-
closed
ask withhold >/dev/null
ask nopass >/dev/null
drop_caches
cat "$L/slow" >/dev/null 2>&1 &
reader=$!
wait_for 30 'a parked read' waits
ask pass >/dev/null
exec 7<"$L/slow" 8<"$L/slow"
kill -9 $reader
exec 7<&-
# The server ends at once, whatever is parked.
server=$VIEW_PID
kill -9 "$server"
gone() { ! kill -0 "$server" 2>/dev/null; }
wait_for 30 'the server to end' gone
exec 8<&-
wait $reader 2>/dev/null || true
