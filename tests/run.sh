#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--list] [--no-install] [NAME...]: all that CI runs, or the parts named.
#
# Parts: lint build unit clang asan tsan fuzz conformance install it asan-it tsan-it
# guest, or one integration test by path (it/clients/nerdctl) or folder (it/clients).
# Ends with `N passed, N failed, N skipped`. A test that exits 77 counts as
# skipped only if tests/skips has it, with the reason; else as failed.
set -u
TOP=$(cd "$(dirname "$0")/.." && pwd)
export TOP
cd "$TOP" || exit 1
# shellcheck source=tests/lib/runner.sh
. tests/lib/runner.sh

list_sections() {
	local line name bad=0
	while read -r line; do
		case $line in
		'' | '#'*) continue ;;
		'['*) printf '%s\n' "$line" ;;
		*)
			name=${line%% *}
			printf '    %s\n' "$line"
			test_exists "$name" || { echo "        does not exist: $name" >&2; bad=1; }
			;;
		esac
	done <tests/sections
	return $bad
}

install=yes names=()
for a; do
	case $a in
	--list)
		list_sections
		exit
		;;
	--no-install) install=no ;;
	-h | --help)
		sed -n '3,9s/^# \{0,1\}//p' "$0"
		exit
		;;
	*) names+=("$a") ;;
	esac
done
[ ${#names[@]} -gt 0 ] || names=(lint build unit clang asan tsan fuzz conformance install it asan-it tsan-it guest tree)
[ "$(id -u)" = 0 ] || { echo 'run as root: the tests mount file systems and start containers' >&2; exit 1; }
[ "$install" = no ] || bash tests/lib/install-packages.sh || exit 1

part_lint() { run_part lint make -s lint; }
part_build() { run_part 'build gcc' make -s -j2 CC=gcc WERROR=1 all tools; }
part_unit() {
	run_part 'build unit tests' make -s -j2 CC=gcc WERROR=1 unit-tests replays &&
		run_counted 'unit gcc' env B=build/gcc tests/check.sh
}
part_clang() { run_part 'build clang' make -s -j2 CC=clang WERROR=1 all unit-tests; }
part_asan() {
	run_part 'build asan' make -s -j2 CC=gcc SAN=address,undefined all tools unit-tests replays &&
		run_counted 'unit asan' env B=build/gcc-address-undefined tests/check.sh
}
part_tsan() {
	run_part 'build tsan' make -s -j2 CC=gcc SAN=thread unit-tests &&
		run_counted 'unit tsan' env B=build/gcc-thread TSAN_OPTIONS="suppressions=$TOP/tests/lib/tsan.supp" tests/check.sh
}
part_fuzz() { run_part fuzz env FUZZ_SECONDS="${FUZZ_SECONDS:-20}" make -s -j2 fuzz; }
part_conformance() { run_counted conformance tests/conformance/run.sh build/verity-snapshotter; }
part_install() { run_part install tests/lint/install.sh; }
part_it() { prepare_it && run_its build/gcc tests/it "$@"; }
part_asan_it() {
	prepare_it && run_part 'build asan daemon' make -s -j2 CC=gcc SAN=address,undefined all tools &&
		run_its build/gcc-address-undefined tests/it
}
# The daemon itself under ThreadSanitizer, with pulls, readers and removals at once.
part_tsan_it() {
	prepare_it && run_part 'build tsan daemon' make -s -j2 CC=gcc SAN=thread all &&
		IT_JOBS=1 run_its build/gcc-thread tests/it/stress/churn tests/it/clients/debian
}
# The same on a kernel of their own, with fs-verity (tests/guest/run.sh).
part_guest() { prepare_it && guest_kernel && run_its build/gcc tests/guest/it; }
part_tree() { run_part 'untracked files' clean_tree; }

# Clients and images that the integration tests use.
prepare_it() {
	# Whatever is there may be older than the sources.
	make -s -j2 CC=gcc WERROR=1 all tools >"$logs/build-gcc.log" 2>&1 || part_build || return 1
	if tests/clients/have-go.sh; then
		run_part 'build clients' tests/clients/build.sh build/clients || return 1
	fi
	run_part 'test images' tests/lib/images.sh build/images hello odd py \
		attrs names links merged twice deep wide damaged tools
}

# GUEST_KERNEL is "none" where its package cannot be had: then the tests skip.
guest_kernel() { run_part 'guest kernel' find_guest_kernel; }
find_guest_kernel() {
	local status=0
	[ -n "${GUEST_KERNEL:-}" ] || GUEST_KERNEL=$(tests/guest/build.sh) || status=$?
	[ $status != 77 ] || GUEST_KERNEL=none status=0
	export GUEST_KERNEL
	return $status
}

clean_tree() {
	local left
	left=$(git status --porcelain --ignored=no)
	[ -z "$left" ] || { echo "$left"; return 1; }
}

for n in "${names[@]}"; do
	case $n in
	it/*) prepare_it && run_its build/gcc "tests/$n" ;;
	guest/it/*) prepare_it && guest_kernel && run_its build/gcc "tests/$n" ;;
	lint | build | unit | clang | asan | tsan | fuzz | conformance | install | it | asan-it | tsan-it | guest | tree) "part_${n//-/_}" ;;
	*) echo "no such part: $n (see --help)" >&2; exit 2 ;;
	esac
done
finish
