# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests that pull the plug at many steps: one life of the guest for each.
# It looks at what the life before left, then dies at the next step; what is on
# the disk then is what the kernel happened to have written before that.
# Source it behind guest.sh and give it the plan:
#
#	powercuts BEFORE DIE CHECK CUT...
#
# Each CUT is "POINT WHAT": a fault point and nothing, states or data, the part
# that reaches the disk. BEFORE runs once, at first; DIE POINT must have the
# daemon die there; CHECK POINT WHAT has the disk as it was found.
# shellcheck source=tests/it/crash/common.sh
. "$TOP/tests/it/crash/common.sh"

let_reach_the_disk() { # nothing|states|data
	case $1 in
	nothing) ;;
	states) find "$ROOT/layer" "$ROOT/body" -name '*.state' -exec sync {} + ;;
	data) find "$ROOT/layer" "$ROOT/body" -type f ! -name '*.state' -exec sync {} + ;;
	*) fail "what is '$1'?" ;;
	esac
}

fault_of() { # POINT[@N]
	echo "${1%@*}:kill${1#"${1%@*}"}"
}

# For BEFORE: image "i" is pulled, and no byte of a file is here.
record_layer() {
	crash_image i 1
	start_daemon
	containerd_in_memory
	workload_pull i >"$W/step.log" 2>&1 || fail "pull: $(cat "$W/step.log")"
	stop containerd
	stop daemon
	cp -a "$ROOT" "$W/recorded"
}

# As it was then.
forget_bytes() {
	rm -rf "$ROOT"
	cp -a "$W/recorded" "$ROOT"
	sync -f "$W"
}

powercuts() {
	local before=$1 die=$2 check=$3 step=${STEP:-0}
	shift 3
	local -a plan=("$@")
	start_scripted
	# shellcheck disable=SC2086 # two words
	if [ "$step" = 0 ]; then
		$before
		sync -f "$W"
	else
		$check ${plan[step - 1]}
	fi
	if [ "$step" = $# ]; then
		echo "$step power cuts"
		return
	fi
	$die "${plan[step]% *}"
	assert_killed_at "$(sed 's/@.*//; s/ .*//' <<<"${plan[step]}")"
	let_reach_the_disk "${plan[step]#* }"
	cut_power STEP=$((step + 1))
}
