#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl pull-status: an image that is not here, comes, is here, is a lie.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

two_layers() { # NAME SEED
	python3 - "$2" <<-'P' | make_image "$1"
		import json, sys
		seed = int(sys.argv[1])
		print(json.dumps({"layers": [
		    {"entries": [{"path": f"{d}{i}", "content": {"random": 300000, "seed": seed + i}} for i in range(4)]}
		    for d in "ab"]}))
	P
}
two_layers one 1
python3 - <<-'P' | make_image more
	import json
	print(json.dumps({"layers": [
	    {"entries": [{"path": f"{d}{i}", "content": {"random": 300000, "seed": s + i}} for i in range(4)]}
	    for d, s in [("a", 1), ("b", 1), ("c", 50)]]}))
P
two_layers away 100
make_image lie <<<'{"layers": [{"entries": [{"path": "etc/f", "content": "true\n"}], "fextra": {"etc/f": "evil\n"}}]}'
start_scripted
config 'background_fill = false'
start_daemon
start_containerd 1

expect() { # STATUS TEXT ARGS...: of pull-status
	local want=$1 text=$2 status=0
	shift 2
	timeout 60 "$CTL" --run "$RUN" pull-status "$@" >"$W/out" 2>&1 </dev/null || status=$?
	[ "$status" = "$want" ] || fail "status $status, not $want: $* ($(cat "$W/out"))"
	grep -qF -- "$text" "$W/out" || fail "no '$text' in: $(cat "$W/out")"
}
expect 2 'an image is missing'
expect 2 'too many arguments: b' a b
expect 2 'unrecognized option' --now a
expect 1 'is not an image reference' 'A b'
expect 1 "no layer of '$REG/one:latest' is here" "$REG/one:latest"

pull one
expect 3 'fetching 0%, 0 B of 2.3 MiB' --no-wait "$REG/one:latest"
expect 3 '0 of 2 layers' --no-wait "$REG/one"
expect 3 '"state":"fetching","layers":2,"complete":0' --no-wait --json "$REG/one"

# follow NAME COMMAND...: until COMMAND has ended, with its status in NAME.status
follow() {
	local name=$1
	shift
	(
		status=0
		timeout 120 "$@" >"$W/$name.out" 2>&1 </dev/null || status=$?
		echo "$status" >"$W/$name.status"
	) &
}
ended() { # NAME STATUS
	wait_for 60 "the end of $1" test -s "$W/$1.status"
	[ "$(cat "$W/$1.status")" = "$2" ] || fail "$1 ended with $(cat "$W/$1.status"), not $2: $(cat "$W/$1.out")"
}
follow lines "$CTL" --run "$RUN" pull-status "$REG/one"
follow documents "$CTL" --run "$RUN" pull-status --json "$REG/one"
follow terminal python3 -c 'import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$CTL" --run "$RUN" pull-status "$REG/one"
for f in lines documents terminal; do
	wait_for 60 "the first word of $f" grep -q 'fetching' "$W/$f.out"
	[ ! -e "$W/$f.status" ] || fail "$f ended before all was here: $(cat "$W/$f.out")"
done
for i in 0 1; do
	cat "$(layer_path "$(layer_info one $i)")"/* >/dev/null
done
for f in lines documents terminal; do ended $f 0; done

grep -Eq '^(complete|proven) 100%, 2.3 MiB of 2.3 MiB, .*/s, 2 of 2 layers$' "$W/lines.out" || fail "lines: $(cat "$W/lines.out")"
jq -se --arg i "$REG/one" 'all(.[]; .image == $i and .layers == 2 and .bytes_local <= .bytes_total) and
	.[0].state == "fetching" and (.[-1] | (.state | IN("complete", "proven")) and .complete == 2 and .bytes_local == .bytes_total)' \
	"$W/documents.out" >/dev/null || fail "documents: $(cat "$W/documents.out")"
grep -q $'\r\\[\\.*\\] fetching 0%' "$W/terminal.out" || fail "no empty bar: $(cat -v "$W/terminal.out")"
grep -Eq '\[#+\] (complete|proven) 100%' "$W/terminal.out" || fail "no full bar: $(cat -v "$W/terminal.out")"
expect 0 '100%' "$REG/one"

# An image of layers that another one brought, and one more.
pull more
expect 3 '2 of 3 layers' --no-wait "$REG/more"
expect 0 '2 of 2 layers' --no-wait "$REG/one"

# It ends, too, when the image is removed, and when the daemon is.
pull away
follow removed "$CTL" --run "$RUN" pull-status "$REG/away"
wait_for 60 'a look' grep -q fetching "$W/removed.out"
remove away
ended removed 1
grep -q 'no layer of' "$W/removed.out" || fail "removed: $(cat "$W/removed.out")"
pull away
follow orphan "$CTL" --run "$RUN" pull-status "$REG/away"
wait_for 60 'a look' grep -q fetching "$W/orphan.out"
stop daemon
ended orphan 1
grep -q 'no daemon listens' "$W/orphan.out" || fail "orphan: $(cat "$W/orphan.out")"

# What only the background fetches: the rest of an image, and its proof.
: >"$W/daemon.toml"
start_daemon
wait_for 60 'containerd to find the daemon again' ctr snapshots --snapshotter verity ls
expect 0 '2 of 2 layers' "$REG/away"
expect 0 '3 of 3 layers' "$REG/more"
expect 0 'proven 100%' --proven "$REG/one"

# A layer that lies is the end, with the reason.
pull lie
expect 1 'reason: ' --proven "$REG/lie"
grep -q '^bad 0%' "$W/out" || fail "a lie: $(cat "$W/out")"
echo 'pull-status: lines, documents, a bar; complete, proven, bad, gone'
