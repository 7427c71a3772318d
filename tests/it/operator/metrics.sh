#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metrics: three ways to get them, the format, and that a pull, reads, a fault
# and a fallback change the right ones, by what the registry counts, too.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
TCP=127.0.0.1:9099
P=verity_snapshotter

make_image good <<-'J'
	{"layers": [
	    {"entries": [{"path": "a", "content": {"random": 300000, "seed": 1}},
	                 {"path": "b", "content": {"random": 300000, "seed": 2}}]},
	    {"entries": [{"path": "c", "content": {"random": 200000, "seed": 3}}]}]}
J
make_image bad <<<'{"layers": [{"entries": [{"path": "f", "content": {"random": 200000, "seed": 4}}]}]}'
make_image denied <<<'{"layers": [{"entries": [{"path": "f", "content": {"random": 1000, "seed": 5}}]}]}'
start_scripted
# Sealed or not, the daemon reads.
config 'background_fill = false' 'passthrough = false' "metrics_address = \"$TCP\""
start_daemon
start_containerd 1

scrape() { "$CTL" --run "$RUN" metrics >"$W/metrics" && python3 "$TOP/tests/lib/metrics.py" <"$W/metrics" >"$W/series"; }
value() { # SERIES, without the prefix
	local v
	v=$(awk -v s="${P}_$1" '$1 == s { print $2 }' "$W/series")
	[ -n "$v" ] || fail "no series $1"
	echo "$v"
}
sum() { awk -v s="${P}_$1" 'index($1, s "{") == 1 || $1 == s { n += $2 } END { printf "%d\n", n }' "$W/series"; }
is() { # SERIES VALUE
	[ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1"), not $2"
}
at_least() { # SERIES VALUE
	[ "$(value "$1")" -ge "$2" ] || fail "$1 is $(value "$1"), less than $2"
}

# Three ways to the same.
names() { grep '^# ' | sort; }
scrape || fail "format: $(python3 "$TOP/tests/lib/metrics.py" <"$W/metrics" 2>&1 | tail -n 1)"
names <"$W/metrics" >"$W/names"
[ "$(wc -l <"$W/names")" -ge 40 ] || fail "few families: $(cat "$W/names")"
curl -sfD "$W/head" --unix-socket "$RUN/control.sock" http://localhost/metrics | names | cmp - "$W/names" || fail "over the socket"
curl -sfD "$W/head.tcp" "http://$TCP/metrics" | names | cmp - "$W/names" || fail "over TCP"
for f in head head.tcp; do
	grep -qi '^content-type: text/plain; version=0.0.4' "$W/$f" || fail "type: $(cat "$W/$f")"
done
code() { curl -s -o "$W/body" -w '%{http_code}' "$@"; }
[ "$(code "http://$TCP/")" = 404 ] || fail 'a path that is none'
[ "$(code -X POST -d x "http://$TCP/metrics")" = 405 ] || fail 'a POST'
[ "$(code --unix-socket "$RUN/control.sock" http://localhost/status)" = 404 ] || fail 'a path that is none, on the socket'
if command -v promtool >/dev/null; then
	promtool check metrics <"$W/metrics" >"$W/promtool" 2>&1 || fail "promtool: $(cat "$W/promtool")"
fi

# Nobody has asked for anything.
for s in fetched_bytes_total served_bytes_total reads_total read_errors_total fallbacks_total registry_received_bytes_total \
	verification_failures_total prepare_duration_seconds_count read_duration_seconds_count parked_reads; do
	[ "$(sum $s)" = 0 ] || fail "$s is $(sum $s) at the start"
done

# A pull: two lazy Prepares, and nothing of the contents but the tables.
pull good
scrape
is 'prepare_duration_seconds_count{result="lazy"}' 2
[ "$(sum fallbacks_total)" = 0 ] || fail "fallbacks: $(grep fallbacks "$W/series")"
at_least 'registry_received_bytes_total{from="registry"}' 1
is 'registry_received_bytes_total{from="mirror"}' 0
at_least registry_requests_total 2
is registry_token_requests_total 0

# Reads of what is not here, then of what is.
a=$(layer_path "$(layer_info good 0)")/a
cat "$a" >/dev/null
scrape
at_least 'reads_total{result="miss"}' 1
at_least 'served_bytes_total{source="fetched"}' 1
at_least 'read_duration_seconds_count{source="fetched"}' 1
[ "$(sum served_bytes_total)" -ge 300000 ] || fail "served: $(grep served "$W/series")"
at_least 'fetched_bytes_total{purpose="reader"}' 300000 # random: it does not shrink
[ "$(sum fetched_bytes_total)" -le "$(sum registry_received_bytes_total)" ] || fail 'more fetched than received'
sent() { [ "$(reg_stats '[.by_digest[].bytes] | add')" -ge "$(sum registry_received_bytes_total)" ]; }
wait_for 10 'the registry to have counted what it sent' sent
is parked_reads 0
hits=$(value 'reads_total{result="hit"}') local=$(value 'served_bytes_total{source="local"}') fetched=$(sum fetched_bytes_total)
python3 - "$a" <<-'P'
	import os, sys
	fd = os.open(sys.argv[1], os.O_RDONLY)
	os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
	while os.read(fd, 1 << 20):
	    pass
P
scrape
at_least 'reads_total{result="hit"}' $((hits + 1))
at_least 'served_bytes_total{source="local"}' $((local + 300000))
at_least 'read_duration_seconds_count{source="local"}' $((hits + 1))
at_least 'opens_total{mode="cached"}' 2
[ "$(sum fetched_bytes_total)" = "$fetched" ] || fail 'what is here was fetched again'

# Wrong bytes, refused credentials.
pull bad
d=$(layer_info bad 0)
for off in 1000 50000 100000 150000; do fault "{\"match\": \"$d\", \"fault\": \"tamper:$off\"}"; done
[ "$(read_errno "$(layer_path "$d")/f")" = EIO ] || fail 'wrong bytes were read'
fault "{\"match\": \"$(layer_info denied 0)\", \"fault\": \"status:403\", \"count\": 1}"
pull denied
assert_fallback "$(layer_info denied 0)" 403
scrape
at_least 'verification_failures_total{where="fetched"}' 1
at_least refetched_bytes_total 1
at_least 'read_errors_total{errno="EIO"}' 1
is 'fallbacks_total{reason="denied"}' 1
[ "$(sum fallbacks_total)" = 1 ] || fail "fallbacks: $(grep fallbacks "$W/series")"
at_least 'prepare_duration_seconds_count{result="ordinary"}' 1
at_least 'registry_faults_total{kind="denied"}' 1

# No name of an image, a layer or a host; the same series as at the start.
! grep -E "$REG|127\.0|good|sha256|$(layer_info good 0)" "$W/series" || fail 'names'
names <"$W/metrics" | cmp - "$W/names" || fail 'other families than at the start'
"$CTL" --run "$RUN" metrics >/dev/full 2>"$W/out" && fail "a full disk is not noticed"

# A port that is taken does not keep a node from starting.
stop daemon
start squatter socat "TCP-LISTEN:${TCP##*:},bind=${TCP%:*},reuseaddr,fork" EXEC:/bin/false
wait_for 10 'the port to be taken' socat -u OPEN:/dev/null "TCP:$TCP"
start_daemon
grep -q "metrics are not served over TCP: .*$TCP" "$W/daemon.log" || fail "no word of it: $(cat "$W/daemon.log")"
scrape
echo 'metrics: three ways, a pull, reads, faults'
