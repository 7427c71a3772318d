#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P12: anonymous memory of the daemon (10^6 bytes): idle; after a walk of a layer
# with 50,000 files; and its peak while a table of 100,000 entries is parsed.
# images: many
. "$(dirname "$0")/lib.sh"
config 'background_fill = false'

# memory FILE: RssAnon and VmRSS into a line of it
memory() {
	sleep 1
	echo "$(daemon_memory RssAnon) $(daemon_memory VmRSS)" >>"$1"
}

report() { # FILE NAME GOAL
	absolute P12 "RssAnon $2, MB" "$3" "$(column 1 "$1")" "$RUNS"
	note "VmRSS $2, MB" "$(column 2 "$1")" "$RUNS"
}

# An image of one layer whose table has 100,000 entries.
make_entries() {
	python3 - >"$W/spec.json" <<-'P'
		import json
		files = [{"path": "d%03d" % d, "type": "dir"} for d in range(100)]
		files += [{"path": "d%03d/file-%05d" % (i % 100, i), "type": "reg", "content": "%d\n" % i} for i in range(99900)]
		print(json.dumps({"entries": files, "level": 1}))
	P
	python3 "$TOP/tests/lib/mkestargz.py" --out "$W/layout" --name "$REG/entries:esgz" "$W/spec.json" >/dev/null
}

peak_while() { # COMMAND...: the highest RssAnon seen, every 5 ms
	"$@" &
	local job=$! peak=0 now
	while kill -0 $job 2>/dev/null; do
		now=$(daemon_memory RssAnon)
		peak=$(printf '%s\n' "$peak" "$now" | sort -g | tail -n 1)
		sleep 0.005
	done
	wait $job || fail "$*"
	echo "$peak"
}

start_registry
for _ in $(seq "$RUNS"); do
	fresh_node
	memory "$W/idle"
	pull verity "$REG/many:esgz"
	mount_image verity "$REG/many:esgz" "$W/m"
	find "$W/m" -ls >/dev/null
	memory "$W/walked"
	unmount_image verity "$W/m"
done
stop registry
report "$W/idle" idle '<=12'
report "$W/walked" 'after a walk of 50,000 files' '<=30'

make_entries
start_registry "$W/storage"
skopeo copy -q --dest-tls-verify=false "oci:$W/layout" "docker://$REG/entries:esgz"
for _ in $(seq "$RUNS"); do
	fresh_node
	echo 5 >"/proc/${daemon_pid:?}/clear_refs"
	before=$(daemon_memory VmHWM)
	anon=$(peak_while pull verity "$REG/entries:esgz")
	[ "$(status | jq '[.layers[] | select(.state == "lazy")] | length')" = 1 ] || fail "not lazy: $(status)"
	echo "$(daemon_memory VmHWM) $before $anon" >>"$W/parsed"
done
absolute P12 'VmHWM while 100,000 entries are parsed, MB' '<=64' "$(column 1 "$W/parsed")" "$RUNS"
note 'VmHWM before that, MB' "$(column 2 "$W/parsed")" "$RUNS"
note 'RssAnon while 100,000 entries are parsed, MB' "$(column 3 "$W/parsed")" "$RUNS"
stop_node
