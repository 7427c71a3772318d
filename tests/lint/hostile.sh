#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each test that tests/hostile.md names exists, and each row of an attack that
# applies names one.
set -u
cd "$(dirname "$0")/../.." || exit 1
table=tests/hostile.md

# `test_X:function`, `it/script`, `fuzz_X` in the last column
sed -n '/^## Not applicable/q; /^|/p' "$table" | grep -vE '^\|(---|\s*attack )' | while IFS= read -r row; do
	# As far as "| shown by" may be told from the rest: its names are in backquotes.
	column=${row%|}
	column=${column##*|}
	names=$(grep -oE '`[^`]+`' <<<"$column" | tr -d '`')
	[ -n "$names" ] || echo "$table: no test: $row"
	for name in $names; do
		case $name in
		test_*:*) grep -qsE "^static void ${name#*:}\(void \*\*" "tests/unit/${name%%:*}.c" ;;
		it/*) [ -f "tests/$name.sh" ] ;;
		fuzz_*) [ -f "tests/fuzz/$name.c" ] && [ -d "tests/fuzz/corpus/${name#fuzz_}" ] ;;
		*) false ;;
		esac || echo "$table: no such test: $name"
	done
done
exit 0
