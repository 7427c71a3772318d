# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How tests/run.sh runs and counts: parts (one command, one result), counted
# parts (a command whose last line counts) and integration tests.
passed=0 failed=0 skipped=0
compared_images=0 compared_paths=0 compared_bytes=0
logs=build/logs
mkdir -p "$logs"

say() {
	printf '%-5s %-40s %6ss %s\n' "$1" "$2" "$3" "${4:-}"
}

# run_part NAME COMMAND...
run_part() {
	local name=$1 log start=$SECONDS
	shift
	log=$logs/${name//[ \/]/-}.log
	if "$@" >"$log" 2>&1; then
		passed=$((passed + 1))
		say ok "$name" $((SECONDS - start))
	else
		failed=$((failed + 1))
		say FAIL "$name" $((SECONDS - start))
		tail -n 60 "$log"
		return 1
	fi
}

# run_counted NAME COMMAND...: its last line is "N passed, N failed, N skipped"
# or "...: N of M passed"; each of those is a test here.
run_counted() {
	local name=$1 log start=$SECONDS last status=0 n
	shift
	log=$logs/${name//[ \/]/-}.log
	"$@" >"$log" 2>&1 || status=$?
	last=$(tail -n 1 "$log")
	if [[ $last =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
		n=${BASH_REMATCH[1]}
		[ "${BASH_REMATCH[2]}" = 0 ] || status=1
	elif [[ $last =~ :\ ([0-9]+)\ of\ ([0-9]+)\ passed ]]; then
		n=${BASH_REMATCH[1]}
		[ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] || status=1
	else
		n=0 status=1
	fi
	passed=$((passed + n))
	if [ "$status" = 0 ] && [ "$n" -gt 0 ]; then
		say ok "$name" $((SECONDS - start)) "$n tests"
	else
		failed=$((failed + 1))
		say FAIL "$name" $((SECONDS - start)) "$last"
		grep -A40 -E '^FAIL' "$log" | head -n 120 || tail -n 60 "$log"
		return 1
	fi
}

# One integration test in namespaces of its own. Prints nothing; the log and
# the exit status tell.
one_it() {
	local script=$1 bin=$TOP/$2 dir status=0
	dir=$(mktemp -d /tmp/vs-it.XXXXXX)
	ASAN_OPTIONS=log_path=$dir/san:detect_leaks=1 UBSAN_OPTIONS=log_path=$dir/san:print_stacktrace=1 \
		TSAN_OPTIONS="log_path=$dir/san:suppressions=$TOP/tests/lib/tsan.supp" \
		W=$dir B=$bin DAEMON=$bin/verity-snapshotter CTL=$bin/verityctl \
		timeout -k 10 "${IT_TIMEOUT:-300}" \
		unshare -m -n -p --propagation private --fork --kill-child --mount-proc \
		bash -c 'ip link set lo up; mount -t tmpfs none /run; exec "$0"' "$TOP/$script" || status=$?
	# What a sanitizer found, in whichever process.
	if compgen -G "$dir/san.*" >/dev/null; then
		cat "$dir"/san.*
		[ $status != 0 ] || status=99
	fi
	# The namespace is gone, and every mount in it.
	rm -rf --one-file-system "$dir"
	return $status
}

declared_skip() {
	grep -qE "^$1([[:space:]]|\$)" tests/skips
}

# What the tests of it/tree have held against overlayfs, all together.
count_compared() { # LOG
	local images paths bytes rest
	while read -r images _ paths _ bytes rest; do
		compared_images=$((compared_images + images))
		compared_paths=$((compared_paths + paths))
		compared_bytes=$((compared_bytes + bytes))
	done < <(grep -hE '^[0-9]+ images, [0-9]+ paths, [0-9]+ bytes compared' "$1")
}

judge() { # NAME STATUS LOG SECONDS
	if [ "$2" = 0 ]; then
		passed=$((passed + 1))
		count_compared "$3"
		say ok "$1" "$4" "$(grep -ho '^client: .*' "$3" | sort -u | paste -sd';')"
	elif [ "$2" = 77 ] && declared_skip "$1"; then
		skipped=$((skipped + 1))
		say skip "$1" "$4" "$(grep -h '^SKIP' "$3" | tail -n 1)"
	else
		failed=$((failed + 1))
		say FAIL "$1" "$4" "status $2"
		tail -n 60 "$3"
	fi
}

# run_its BUILD PATH...: every executable *.sh below, two at a time
run_its() {
	local B=$1 scripts=() s name log
	shift
	for s in "${@:-tests/it}"; do
		if [ -x "$s.sh" ]; then
			scripts+=("$s.sh")
		else
			mapfile -t -O ${#scripts[@]} scripts < <(find "$s" -name '*.sh' -perm -u+x 2>/dev/null | sort)
		fi
	done
	[ ${#scripts[@]} -gt 0 ] || { echo "no test: $*" >&2; failed=$((failed + 1)); return 1; }
	its_batch "$B" "${scripts[@]}"
}

its_batch() {
	local B=$1 running=() s
	shift
	for s; do
		start_it "$B" "$s" &
		running+=("$!:$s")
		if [ ${#running[@]} = "${IT_JOBS:-2}" ]; then
			reap_it "$B" "${running[0]}"
			running=("${running[@]:1}")
		fi
	done
	for s in "${running[@]}"; do reap_it "$B" "$s"; done
}

it_log() { # BUILD SCRIPT
	local n=${2#tests/}
	echo "$logs/$(basename "$1")-${n//\//-}.log"
}

start_it() {
	local log start=$SECONDS status=0
	log=$(it_log "$1" "$2")
	one_it "$2" "$1" >"$log" 2>&1 || status=$?
	echo $((SECONDS - start)) >"$log.time"
	exit $status
}

reap_it() { # BUILD PID:SCRIPT
	local pid=${2%%:*} s=${2#*:} status=0 log name
	wait "$pid" || status=$?
	log=$(it_log "$1" "$s")
	name=${s#tests/}
	name=${name%.sh}
	case $1 in
	*-address-*) name="$name (asan)" ;;
	*-thread) name="$name (tsan)" ;;
	esac
	judge "$name" "$status" "$log" "$(cat "$log.time")"
}

test_exists() {
	case $1 in
	unit/*) [ -f "tests/unit/test_${1#unit/}.c" ] ;;
	fuzz/*) [ -f "tests/fuzz/fuzz_${1#fuzz/}.c" ] ;;
	it/* | guest/it/*) [ -x "tests/$1.sh" ] ;;
	lint | build | clang | asan | tsan | fuzz | conformance | install | asan-it | tsan-it | guest | bench | demo) true ;;
	*) false ;;
	esac
}

finish() {
	echo
	echo "real clients that ran:"
	grep -hos '^client: .*' "$logs"/gcc-{it,guest}-*.log | sort -u | sed 's/^client: /    /'
	[ "$compared_images" = 0 ] ||
		echo "trees compared with overlayfs': $compared_images images, $compared_paths paths, $compared_bytes bytes"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
	exit
}
