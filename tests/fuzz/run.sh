#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh FOLDER - run every fuzzer in FOLDER for FUZZ_SECONDS (20) each
#
# A fuzzer fuzz_X starts from a copy of tests/fuzz/corpus/X, so that what it
# finds does not change the tree. What makes it fail is kept, under its own
# name, in FOLDER/crashes. Exits non-zero when one failed, or none was there.
set -u

folder=${1:?usage: run.sh FOLDER}
seconds=${FUZZ_SECONDS:-20}
here=$(cd "$(dirname "$0")" && pwd)
crashes=$folder/crashes
log=$(mktemp) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work" "$log"' EXIT
n=0
failed=0

mkdir -p "$crashes" || exit 1
for fuzzer in "$folder"/fuzz_*; do
	if [ ! -f "$fuzzer" ] || [ ! -x "$fuzzer" ]; then
		continue
	fi
	name=${fuzzer##*/fuzz_}
	n=$((n + 1))
	mkdir "$work/$name" || exit 1
	if [ -d "$here/corpus/$name" ]; then
		cp -r "$here/corpus/$name/." "$work/$name" || exit 1
	fi
	if "$fuzzer" -max_total_time="$seconds" -timeout=20 \
		-rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$crashes/$name-" "$work/$name" \
		>"$log" 2>&1; then
		runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
		echo "ok   $name (${runs:-?} runs)"
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		tail -n 60 "$log"
	fi
done
if [ "$n" -eq 0 ]; then
	echo "no fuzzer in $folder" >&2
	exit 1
fi
[ "$failed" -eq 0 ]
