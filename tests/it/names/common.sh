# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests of image names share. Source it behind lib.sh and scripted.sh.

names() {
	"$CTL" --run "$RUN" ls --json
}

# of_name NAME JQ-FILTER [NAMESPACE]: of the entry of that name
of_name() {
	names | jq -r --arg n "$1" --arg s "${3:-default}" \
		".images[] | select(.name == \$n and .namespace == \$s) | $2"
}

name_is() { # NAME JQ-CONDITION [NAMESPACE]
	[ "$(of_name "$@")" = true ]
}

# wait_name NAME JQ-CONDITION [NAMESPACE]
wait_name() {
	wait_for 30 "$1: $2; it is: $(of_name "$1" . "${3:-default}")" name_is "$@"
}

no_name() { # NAME [NAMESPACE]
	[ -z "$(of_name "$1" .name "${2:-default}")" ]
}

connected() {
	[ "$(names | jq .containerd.connected)" = "$1" ]
}

# one_file NAME TEXT: an image of one layer
one_file() {
	make_image "$1" <<<"{\"layers\": [{\"entries\": [{\"path\": \"which\", \"content\": \"$2\\n\"}]}]}"
}

# The digest that containerd has for a name.
target() {
	ctr images ls "name==$1" | awk 'NR == 2 { print $3 }'
}

# Everything that can happen to names, under one version of containerd.
follow_names() { # 2|1
	local a=$REG/one:latest b=$REG/two:latest tag=$REG/app:stable da db seq

	one_file one first
	one_file two second
	"$CTL" --run "$RUN" ls >"$W/out" 2>&1 && fail 'no daemon, and a list'
	start_scripted
	config "containerd_address = \"$CONTAINERD_ADDRESS\"" 'background_fill = false'
	start_daemon
	# absent at start
	connected false || fail "connected to nothing: $(names)"
	[ "$(names | jq '.images | length')" = 0 ] || fail "names from nowhere: $(names)"
	"$CTL" --run "$RUN" ls | found 'cannot be asked now' || fail 'nothing is said of it'
	start_containerd "$1"
	wait_for 30 'containerd to be found' connected true

	pull one
	pull two
	wait_name "$a" '.lazy and .reason == ""'
	wait_name "$b" .lazy
	da=$(target "$a") db=$(target "$b")
	[ -n "$da" ] && [ "$da" != "$db" ] || fail "targets: '$da' '$db'"
	name_is "$a" ".digest == \"$da\"" || fail "$(of_name "$a" .)"
	seq=$(layer_status "$(layer_info one 0)" .seq)
	name_is "$a" ".layers == [$seq] and .host == \"$REG\" and .repository == \"one\" and .suffix == \":latest\"" ||
		fail "layer $seq: $(of_name "$a" .)"

	# added, without any pull
	ctr images tag "$a" "$tag" >/dev/null
	wait_name "$tag" ".lazy and .digest == \"$da\" and .layers == [$seq]"
	# moved
	ctr images tag --force "$b" "$tag" >/dev/null
	wait_name "$tag" ".lazy and .digest == \"$db\" and .layers != [$seq]"
	# back to an earlier digest
	ctr images tag --force "$a" "$tag" >/dev/null
	wait_name "$tag" ".lazy and .digest == \"$da\" and .layers == [$seq]"
	[ "$("$CTL" --run "$RUN" ls "$REG/app" | awk 'NR == 2 { print $3, $4 }')" = "yes $tag" ] ||
		fail "$("$CTL" --run "$RUN" ls "$REG/app")"
	"$CTL" --run "$RUN" ls "$REG/app:other" >"$W/out" 2>&1 && fail 'a tag that is not there'
	grep -q "containerd has no image '$REG/app:other'" "$W/out" || fail "$(cat "$W/out")"

	# containerd away: what was known stays
	stop containerd
	wait_for 30 'the end to be seen' connected false
	name_is "$tag" ".lazy and .digest == \"$da\"" || fail "forgotten: $(names)"
	start_containerd "$1"
	wait_for 30 'containerd to be found again' connected true
	name_is "$tag" .lazy || fail "forgotten: $(names)"

	# removed; the other name of the same image stays
	ctr images rm --sync "$tag" >/dev/null
	wait_for 30 'the name to go' no_name "$tag"
	name_is "$a" .lazy || fail "gone with another: $(names)"
	# Another namespace has names of its own.
	CONTAINERD_NAMESPACE=other pull one
	wait_name "$a" ".lazy and .layers == [$seq]" other
	no_name "$b" other || fail "of another namespace: $(names)"
	ctr images rm --sync "$a" >/dev/null
	wait_for 30 'the name to go here' no_name "$a"
	name_is "$a" .lazy other || fail "gone with another: $(names)"

	# What cannot be shown, and why.
	ctr images tag "$b" "sha256:$(printf '%064d' 7)" >/dev/null
	wait_name "sha256:$(printf '%064d' 7)" '.reason == "its name is not host/repository:tag" and (.lazy | not)'
	one_file three third
	ctr-remote images rpull --snapshotter overlayfs --plain-http "$REG/three:latest" >/dev/null
	wait_name "$REG/three:latest" \
		".reason == \"layer 1 of 1 is not here as a lazy layer: $(layer_info three 0)\" and (.lazy | not)"
	# It comes without any change of the image itself.
	ctr-remote images rpull --snapshotter verity --plain-http "$REG/three:latest" >/dev/null
	wait_name "$REG/three:latest" '.lazy and .reason == ""'
}
