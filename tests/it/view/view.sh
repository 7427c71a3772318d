# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the tests of the view after lib.sh: a view over directories below
# $W, spoken to through two pipes.
: "${W:?}" "${B:?}"
M=$W/m
chmod 755 "$W"
mkdir -p "$M"

# serve [OPTIONS] -- SEQ=DIR...: mounts the view at $M
serve() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	coproc VIEW { exec "$B/tests/lib/viewserve" "${options[@]}" "$M" "$@"; }
	# copies, because a subshell does not get those of the coprocess
	exec {view_out}<&"${VIEW[0]}" {view_in}>&"${VIEW[1]}"
	read -r -t 20 -u "$view_out" line && [ "$line" = ready ] || fail "the view does not start: ${line-}"
}

# ask COMMAND: one line to the server; its answer on stdout
ask() {
	local line
	echo "$*" >&"$view_in"
	read -r -t 20 -u "$view_out" line || fail "no answer to: $*"
	echo "$line"
}

# stat_of NAME: one counter
stat_of() {
	ask stats | tr ' ' '\n' | sed -n "s/^$1=//p"
}

close_view() {
	ask quit | found -x closed || fail 'the view does not close'
}
