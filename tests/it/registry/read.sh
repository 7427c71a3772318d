#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a registry can do to a read. It ends with an errno at its deadline (at
# once where asking again is of no use), nothing of it sticks: once the registry
# is good again, so are the reads, without a restart. Metadata needs no network.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

# Each file in a unit of its own, too large for a neighbour to ride along.
files_image() { # NAME SEED
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "d/", "type": "dir"},
		  {"path": "d/a", "content": {"random": 200000, "seed": $2}},
		  {"path": "d/b", "content": {"random": 200000, "seed": $(($2 + 1))}},
		  {"path": "d/c", "content": {"random": 200000, "seed": $(($2 + 2))}},
		  {"path": "d/link", "type": "hardlink", "link": "d/a"},
		  {"path": "tiny", "content": "seed $2"}]}]}
	J
}
want() { # SEED: what a file with this seed must hash to
	python3 - "$1" <<-P
		import sys; sys.path.insert(0, "$TOP/tests/lib")
		import hashlib, mkestargz
		print("ok", hashlib.sha256(mkestargz.Content({"random": 200000, "seed": $1}).bytes()).hexdigest())
	P
}

declare -A fault=([f500]='status:500' [f403]='status:403' [f404]='status:404' [freset]='reset'
	[fshort]='short:1000' [fsilent]='silent' [ftamper]='' [fstall]='stall:5000')
declare -A errno=([f500]=ETIMEDOUT [f403]=EIO [f404]=EIO [freset]=ETIMEDOUT
	[fshort]=ETIMEDOUT [fsilent]=ETIMEDOUT [ftamper]=EIO [fstall]=ETIMEDOUT)
declare -A dir seed digest
n=0
for f in "${!fault[@]}" fine; do
	n=$((n + 1))
	seed[$f]=$((n * 10))
	files_image "$f" $((n * 10))
	digest[$f]=$(layer_info "$f" 0)
done
start_scripted
config 'read_timeout = 8' 'prepare_budget = 3' 'background_fill = false'
start_daemon
start_containerd 1
for f in "${!fault[@]}" fine; do
	pull "$f"
	dir[$f]=$(layer_path "${digest[$f]}")
	[ -n "${dir[$f]}" ] || fail "$f is not lazy: $(layer_status "${digest[$f]}" .reason)"
done

# In an honest layer of this kind, where in the blob the contents of d/a lie:
# early. Every answer is tampered with, wherever it begins.
for f in "${!fault[@]}"; do
	case $f in
	ftamper) for off in 1000 50000 100000 150000; do fault "{\"match\": \"${digest[$f]}\", \"fault\": \"tamper:$off\"}"; done ;;
	*) fault "{\"match\": \"${digest[$f]}\", \"fault\": \"${fault[$f]}\"}" ;;
	esac
done
for f in "${!fault[@]}"; do
	read_errno "${dir[$f]}/d/a" >"$W/$f.out" &
	eval "pid_$f=$!"
done
wait_for 3 'readers to be parked' eval '[ "$(status | jq "[.layers[].waiting] | add")" -ge 4 ]'

# --- meanwhile: metadata, other images, and status
for f in "${!fault[@]}"; do
	[ "$(find "${dir[$f]}" -ls | wc -l)" = 7 ] || fail "find in $f"
	[ "$(stat -c '%h %s' "${dir[$f]}/d/link")" = '2 200000' ] || fail "stat in $f"
done
[ "$(read_errno "${dir[fine]}/d/b")" = "$(want $((seed[fine] + 1)))" ] || fail 'a reader of another image suffers'
# ... and all that is done before the first of them is told
[ "$(layer_status "${digest[fsilent]}" '"\(.waiting) \(.waiting_for)"')" = "1 $REG" ] ||
	fail "status does not show the waiting reader: $(layer_status "${digest[fsilent]}" .)"

# --- how they end
for f in "${!fault[@]}"; do
	eval "wait \$pid_$f"
	out=$(cat "$W/$f.out")
	echo "$f: $out ($(layer_status "${digest[$f]}" .reason))"
	[[ $out == "${errno[$f]}"* ]] || fail "$f: reader got '$out', not ${errno[$f]}"
	[ "${errno[$f]}" = ok ] || [ -n "$(layer_status "${digest[$f]}" .reason)" ] || fail "$f: status gives no reason"
done

# --- and when: the kernel repeats a failed READ, the application does not wait
# twice for it, whatever it asks with
python3 - "${dir[fsilent]}/d" <<-'P' || fail 'a reader of a silent registry'
	import errno, mmap, os, sys, time
	from concurrent.futures import ThreadPoolExecutor
	TIMEOUT = 8

	def timed(what, fd, n, direct=False, off=0):
	    buf, began = mmap.mmap(-1, n), time.monotonic()
	    try:
	        os.preadv(fd, [buf], off)
	        got = "bytes"
	    except OSError as e:
	        got = errno.errorcode[e.errno]
	    took = time.monotonic() - began
	    print(f"{what}: {got} after {took:.1f} s")
	    if got != "ETIMEDOUT" or not TIMEOUT - 1 < took < 2 * TIMEOUT - 1:
	        sys.exit(f"{what}: {got} after {took:.1f} s")

	def opened(name, flags=0):
	    return os.open(f"{sys.argv[1]}/{name}", os.O_RDONLY | flags)

	time.sleep(0.3)
	jobs = [("4 KiB", opened("a"), 4096), ("4 KiB as well", opened("a"), 4096), ("of 1 MiB", opened("b"), 1 << 20),
	        ("of 1 MiB, direct", opened("c", os.O_DIRECT), 1 << 20)]
	with ThreadPoolExecutor(4) as pool:
	    for f in [pool.submit(timed, *j) for j in jobs]:
	        f.result()
	# no negative cache: the same thread waits anew
	time.sleep(0.3)
	fd = opened("a")
	timed("4 KiB anew", fd, 4096, off=8192)
	time.sleep(0.3)
	timed("4 KiB once more", fd, 4096, off=8192)
P

# --- the registry is good again: so is everything, at once
all_good
sleep 0.3
for f in "${!fault[@]}"; do
	for i in 0 1 2; do
		file=$(tr 012 abc <<<$i)
		[ "$(read_errno "${dir[$f]}/d/$file")" = "$(want $((seed[$f] + i)))" ] || fail "$f: d/$file after the fault"
	done
	[ "$(cat "${dir[$f]}/tiny")" = "seed ${seed[$f]}" ] || fail "$f: tiny"
done
[ "$(status | jq '[.layers[].waiting] | add')" = 0 ] || fail 'somebody still waits'
