#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A daemon that may have few file descriptors: with more readers and files than
# that, every read succeeds.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
FILES=400 THREADS=64 FDS=256

# Each is large enough for a body of its own.
python3 - $FILES <<-'P' | make_image many
	import json, sys
	print(json.dumps({"layers": [{"entries": [{"path": f"f{i}", "content": {"random": 140000, "seed": i + 1}}
	                                          for i in range(int(sys.argv[1]))]}]}))
P
cat >"$W/few" <<-S
	#!/bin/sh
	exec prlimit --nofile=$FDS:$FDS "$DAEMON" "\$@"
S
chmod +x "$W/few"
DAEMON=$W/few
start_scripted
config 'read_timeout = 30' 'background_fill = false'
start_daemon
[ "$(awk '/Max open files/ {print $4}' "/proc/${daemon_pid:?}/limits")" = $FDS ] || fail 'the daemon has another limit'
start_containerd 1
pull many
dir=$(layer_path "$(layer_info many 0)")
[ -n "$dir" ] || fail 'many is not lazy'

# Cold, and from the bodies once more.
for round in cold warm; do
	python3 - "$dir" $FILES $THREADS "$TOP/tests/lib" <<-'P' || fail "$round: $(tail -n 3 "$W/daemon.log")"
		import sys; sys.path.insert(0, sys.argv[4])
		import mkestargz, os
		from concurrent.futures import ThreadPoolExecutor

		def check(i):
		    want = mkestargz.Content({"random": 140000, "seed": i + 1}).bytes()
		    try:
		        with open(f"{sys.argv[1]}/f{i}", "rb") as f:
		            return None if f.read() == want else f"f{i}: other bytes"
		    except OSError as e:
		        return f"f{i}: {e}"

		with ThreadPoolExecutor(int(sys.argv[3])) as pool:
		    bad = [b for b in pool.map(check, range(int(sys.argv[2]))) if b]
		if bad:
		    sys.exit(f"{len(bad)} of {sys.argv[2]} fail, first {bad[0]}")
	P
	drop_caches
done
n=$(find "/proc/$daemon_pid/fd" -mindepth 1 | wc -l)
[ "$n" -lt $FDS ] || fail "$n fds are open"
