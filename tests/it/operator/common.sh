# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of verityctl doctor; source it behind lib.sh.

# doctor [ARGS...]: its findings in $W/found, its exit status in $doctor_status
doctor() {
	doctor_status=0
	"$CTL" --run "$RUN" doctor --json --config "$W/daemon.toml" --containerd "$CONTAINERD_ADDRESS" "$@" \
		>"$W/found" 2>"$W/doctor.err" || doctor_status=$?
	[ ! -s "$W/doctor.err" ] || fail "doctor says: $(cat "$W/doctor.err")"
	jq -e --argjson s "$doctor_status" '(.problems > 0) == ($s == 1) and
		.problems == ([.findings[] | select(.level == "problem")] | length) and
		.warnings == ([.findings[] | select(.level == "warning")] | length) and
		all(.findings[]; .level == "ok" or .level == "unknown" or .why != "")' "$W/found" >/dev/null ||
		fail "status $doctor_status, $(cat "$W/found")"
}

# finding CHECK LEVEL TEXT [FIX-LINE...]: it is there, with these words in it
# and these lines among what is to be done
finding() {
	local check=$1 level=$2 text=$3 line
	shift 3
	jq -e --arg c "$check" --arg l "$level" --arg t "$text" \
		'any(.findings[]; .check == $c and .level == $l and (.what | contains($t)))' "$W/found" >/dev/null ||
		fail "no $level of $check with '$text': $(jq -c --arg c "$check" '.findings[] | select(.check == $c or .level == "problem")' "$W/found")"
	for line; do
		jq -r --arg c "$check" --arg l "$level" '.findings[] | select(.check == $c and .level == $l).fix' "$W/found" |
			grep -qxF -- "$line" || fail "$check does not say what to do: $line"
	done
}

# only CHECK...: nothing else is a problem
only() {
	local found
	found=$(jq -r '.findings[] | select(.level == "problem").check' "$W/found" | sort -u | xargs)
	[ "$found" = "$*" ] || fail "problems: '$found', not '$*': $(jq -c '.findings[] | select(.level == "problem")' "$W/found")"
}
