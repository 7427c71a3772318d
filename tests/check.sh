#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh: what `make check` runs from $B: unit tests, then every corpus
# through its parser, CHECK_JOBS (2) at a time. Prints one line a program and a
# closing count.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build/gcc}
passed=0 failed=0
export LOGS
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
# A leak is a failure, too.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# A mount namespace of its own: a test that dies leaves no mount behind.
unit() {
	local name=${1##*/} status=0
	timeout -k 10 300 unshare -m --propagation private "$1" >"$LOGS/$name.log" 2>&1 || status=$?
	echo "$status" >"$LOGS/$name.status"
}
replay() {
	local name=${1##*/} status=0
	timeout -k 10 120 "$1" "tests/fuzz/corpus/${name#replay_}" >"$LOGS/$name.log" 2>&1 || status=$?
	echo "$status" >"$LOGS/$name.status"
}
export -f unit replay

# side_by_side FUNCTION PROGRAM...
side_by_side() {
	local f=$1
	shift
	[ $# = 0 ] || printf '%s\0' "$@" | xargs -0 -n 1 -P "${CHECK_JOBS:-2}" bash -c "$f \"\$1\"" _
}

report() { # NAME STATUS COUNT LOG
	if [ "$2" = 0 ]; then
		printf 'ok    %-28s %s\n' "$1" "$3"
		passed=$((passed + $3))
	else
		printf 'FAIL  %-28s status %s\n' "$1" "$2"
		tail -n 40 "$4"
		failed=$((failed + 1))
	fi
}

units=() replays=()
for t in tests/unit/test_*.c; do
	t=$B/${t%.c}
	[ ! -x "$t" ] || units+=("$t")
done
for d in tests/fuzz/corpus/*/; do
	d=$(basename "$d")
	[ ! -x "$B/tests/fuzz/replay_$d" ] || replays+=("$B/tests/fuzz/replay_$d")
done
side_by_side unit "${units[@]}"
side_by_side replay "${replays[@]}"

for t in "${units[@]}"; do
	t=${t##*/} log=$LOGS/${t##*/}.log
	status=$(cat "$LOGS/$t.status")
	n=$(sed -n 's/.*PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
	[ "$status" != 0 ] || [ "${n:-0}" != 0 ] || status='no test ran'
	report "$t" "$status" "${n:-0}" "$log"
done
for t in "${replays[@]}"; do
	t=${t##*/}
	report "corpus ${t#replay_}" "$(cat "$LOGS/$t.status")" 1 "$LOGS/$t.log"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
