#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make lint: each check prints what is wrong and where; all run, then the exit
# status says whether one failed. CC, CPPFLAGS, CLANG_FORMAT come from make.
set -u
cd "$(dirname "$0")/../.." || exit 1
CC=${CC:-gcc} CLANG_FORMAT=${CLANG_FORMAT:-clang-format-14}
failed=0
mapfile -t c_files < <(git ls-files '*.c' '*.h')
mapfile -t sh_files < <(git ls-files '*.sh' .ci/run)
mapfile -t ours < <(git ls-files plugin fuse verity snapshotter | grep '\.[ch]$')

check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1) && [ -z "$out" ]; then
		printf 'lint: %-12s ok\n' "$name"
	else
		printf 'lint: %-12s FAILED\n%s\n' "$name" "$(head -n 40 <<<"$out")"
		failed=1
	fi
}

format() { "$CLANG_FORMAT" --dry-run -Werror "${c_files[@]}"; }

headers() {
	local h flags
	read -ra flags <<<"${CPPFLAGS:-}"
	for h in "${ours[@]}"; do
		case $h in *.h) ;; *) continue ;; esac
		# shellcheck disable=SC2086
		printf '#include "%s"\n' "$h" |
			"$CC" -std=gnu17 -Wall -Wextra -fsyntax-only "${flags[@]//\'/}" -x c - || echo "$h"
	done
}

places() {
	# No file names the folder that somebody happens to have it in.
	git grep -nIF "$PWD/" -- .
	return 0
}

pipes() {
	# tests/lib/lib.sh sets pipefail, and has found() in its place.
	git grep -nE '\| *grep -[a-zA-Z]*q' -- tests/it tests/guest ':!*/systemd/*' ':!*/operator/journal.sh'
	return 0
}

skips() {
	# Who may skip is on the list, or a machine that lacks something fails.
	local f name
	for f in $(git ls-files 'tests/guest/it/*.sh') $(git grep -lE "(^|\|\| )skip '|have-go\.sh" -- 'tests/it/*.sh'); do
		name=${f#tests/} name=${name%.sh}
		[ ! -x "$f" ] || grep -q "^${name}[[:space:]]" tests/skips || echo "$f is not in tests/skips"
	done
}

whitespace() {
	git grep -nIE '[[:space:]]+$' -- '*.c' '*.h' '*.sh' '*.md' '*.py' Makefile
	return 0
}

check format format
check layers tests/lint/layers.sh
check banned tests/lint/banned.sh
check size tests/lint/size.sh
check headers headers
check faults tests/lint/faults.sh
check hostile tests/lint/hostile.sh
check dashboard tests/lint/dashboard.py deploy/grafana/verity-snapshotter.json snapshotter/base/metrics.c
check shell shellcheck -x -S warning "${sh_files[@]}"
check skips skips
check space whitespace
check pipes pipes
check places places
if compgen -G 'deploy/man/*.[58]' >/dev/null; then
	check man mandoc -T lint -W warning deploy/man/*.[58]
fi
check spelling codespell -q 3 -I tests/lint/words "${ours[@]}" ./*.md deploy
exit $failed
