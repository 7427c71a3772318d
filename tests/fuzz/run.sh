#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh FOLDER - run every fuzzer in FOLDER for FUZZ_SECONDS (20) each, two at
# a time
#
# A fuzzer fuzz_X starts from a copy of tests/fuzz/corpus/X, so that what it
# finds does not change the tree. What makes it fail is kept, under its own
# name, in FOLDER/crashes. Exits non-zero when one failed, or none was there.
set -u

folder=${1:?usage: run.sh FOLDER}
seconds=${FUZZ_SECONDS:-20}
here=$(cd "$(dirname "$0")" && pwd)
crashes=$folder/crashes
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work"
n=0

fuzz() { # FUZZER
	local name=${1##*/fuzz_}
	local log=$work/$name.log runs
	mkdir "$work/$name" || return 1
	if [ -d "$here/corpus/$name" ]; then
		cp -r "$here/corpus/$name/." "$work/$name" || return 1
	fi
	if "$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$crashes/$name-" \
		"$work/$name" >"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		echo "ok   $name (${runs:-?} runs)"
	else
		# In one piece, whatever the other one prints.
		printf 'FAIL %s\n%s\n' "$name" "$(tail -n 60 "$log")"
		return 1
	fi
}

mkdir -p "$crashes" || exit 1
for fuzzer in "$folder"/fuzz_*; do
	if [ ! -f "$fuzzer" ] || [ ! -x "$fuzzer" ]; then
		continue
	fi
	if [ "$n" -ge 2 ]; then
		wait -n
	fi
	n=$((n + 1))
	{ fuzz "$fuzzer" || : >"$work/.failed"; } &
done
wait
if [ "$n" -eq 0 ]; then
	echo "no fuzzer in $folder" >&2
	exit 1
fi
[ ! -e "$work/.failed" ]
