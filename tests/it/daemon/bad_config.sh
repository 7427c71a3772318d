#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Wrong command lines and configurations: status 2, one clear last line, and
# nothing made on the disk.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"

# refused TEXT ARGS...
refused() {
	local want=$1 status=0
	shift
	timeout 20 "$DAEMON" "$@" --root "$ROOT" --run "$RUN" >"$W/log" 2>&1 || status=$?
	[ "$status" = 2 ] || fail "status $status, not 2: $* ($(cat "$W/log"))"
	tail -n 1 "$W/log" | found -F -- "$want" || fail "no '$want' in: $(cat "$W/log")"
	! ls -d "$ROOT" "$RUN" 2>/dev/null || fail "folders were made: $*"
}

# refused_config TEXT LINE...
refused_config() {
	local want=$1
	shift
	printf '%s\n' "$@" >"$W/bad.toml"
	refused "$W/bad.toml:$want" --config "$W/bad.toml"
}

refused_config "2: unknown key 'polcy'" '' 'polcy = "x"'
refused_config '1: prepare_budget must be an integer, not a string' 'prepare_budget = "20"'
refused_config '1: background_fill must be true or false, not an integer' 'background_fill = 1'
refused_config '3: policy must be "prefer-lazy"' '# one' '# two' 'policy = "never"'
refused_config '1: verity must be "require", "prefer" or "off"' 'verity = "on"'
refused_config '1: unsealed_reads must be "verify" or "passthrough"' 'unsealed_reads = "always"'
refused_config '1: string without closing "' 'policy = "prefer-lazy'
refused_config "1: unknown key 'section'" '[section]'
printf 'policy = "\xff"\n' >"$W/bad.toml"
refused "$W/bad.toml:1: text is not UTF-8" --config "$W/bad.toml"
refused "read configuration '$W/absent.toml': No such file" --config "$W/absent.toml"
refused "read configuration '$W': Is a directory" "--config=$W"
head -c 1100000 /dev/zero | tr '\0' '#' >"$W/bad.toml"
refused 'larger than 1048576 bytes' --config "$W/bad.toml"

refused "unrecognized option '--bogus'" --bogus
refused '--log-level must be' --log-level loud
refused "unknown feature 'fusee'; known are: fuse, dontcache" --without fuse,fusee
refused 'arguments other than options' start
refused 'an empty path' --address=

# An empty file is fine, and so is every key at its default.
: >"$W/daemon.toml"
start_daemon
stop daemon
sed 's/^#\([a-z]\)/\1/' "$TOP/deploy/config.toml" >"$W/daemon.toml"
grep -q '^policy' "$W/daemon.toml" || fail "no key is uncommented"
start_daemon --log-level=warn --without=fuse,big-reads
stop daemon

"$DAEMON" --version | found -x 'verity-snapshotter [0-9.]*' || fail "--version"
"$DAEMON" --help | found -- '--without LIST' || fail "--help"
echo 'configurations and command lines'
