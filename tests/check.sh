#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh: what `make check` runs from $B: unit tests, then every corpus
# through its parser. Prints one line a program and a closing count.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build/gcc}
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A leak is a failure, too; the suppressions name what libraries keep for life.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

report() { # NAME STATUS COUNT
	if [ "$2" = 0 ]; then
		printf 'ok    %-28s %s\n' "$1" "$3"
		passed=$((passed + $3))
	else
		printf 'FAIL  %-28s status %s\n' "$1" "$2"
		tail -n 40 "$log"
		failed=$((failed + 1))
	fi
}

for t in "$B"/tests/unit/test_*; do
	[ -x "$t" ] && [ -f "$t" ] || continue
	case $t in *.[od]) continue ;; esac
	[ -f "tests/unit/$(basename "$t").c" ] || continue
	# A mount namespace of its own: a test that dies leaves no mount behind.
	timeout 300 unshare -m --propagation private "$t" >"$log" 2>&1
	status=$?
	n=$(sed -n 's/.*PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
	[ "$status" = 0 ] && [ "${n:-0}" = 0 ] && status='no test ran'
	report "$(basename "$t")" "$status" "${n:-0}"
done
for r in "$B"/tests/fuzz/replay_*; do
	[ -x "$r" ] && [ -f "$r" ] || continue
	case $r in *.[od]) continue ;; esac
	name=${r##*/replay_}
	[ -d "tests/fuzz/corpus/$name" ] || continue
	timeout 120 "$r" "tests/fuzz/corpus/$name" >"$log" 2>&1
	report "corpus $name" $? 1
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
