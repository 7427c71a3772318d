# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of what is sealed; source it behind guest.sh.
# shellcheck source=tests/it/crash/common.sh
. "$TOP/tests/it/crash/common.sh"

# A layer with each kind of file, large ones and small ones that fill a pack,
# above a base of the image's own.
seal_image() { # NAME SEED
	python3 - "$TOP/tests/lib" "$1" "$2" "$W/$1.sums" <<-'P' | make_image "$1"
		import hashlib, json, sys
		sys.path.insert(0, sys.argv[1])
		from mkestargz import Content
		seed = int(sys.argv[3]) * 100
		sizes = {"large": 3 << 20, "medium": (1 << 20) + 12345, "above": 131073}
		sizes.update({f"small{i}": 120000 + i for i in range(12)})
		entries, sums = [], open(sys.argv[4], "w")
		for i, (name, size) in enumerate(sizes.items()):
		    spec = {"random": size, "seed": seed + i}
		    entries.append({"path": name, "content": spec})
		    print(hashlib.sha256(Content(spec).bytes()).hexdigest(), "", name, file=sums)
		base = {"entries": [{"path": "base", "content": "base of " + sys.argv[2]}]}
		print(json.dumps({"layers": [base, {"chunk_size": 262144, "entries": entries}]}))
	P
}

# Pulled, all of it here, all of it sealed. The command runs between.
pull_sealed() { # NAME [COMMAND...]
	containerd_in_memory
	pull "$1"
	"${@:2}"
	wait_for 60 "$1 to be sealed" all_sealed
	wait_until_whole "$1"
	stop containerd
	umount -l "$W/ctd"
}

all_sealed() {
	status | jq -e '.layers | length > 0 and all(.state == "sealed")'
}

# The files of the layers: index, map, pack and bodies.
layer_files() {
	find "$ROOT/layer" "$ROOT/body" -type f ! -name '*.state' ! -name residue
}

# Each of them is what our leaves say, and the kernel holds on to that.
sealed_as_ours() { # [FILE...]: all
	local -a files=("$@")
	[ $# -gt 0 ] || mapfile -t files < <(layer_files)
	"$B/tests/lib/sealtool" digest "${files[@]}" >"$W/ours" && fsverity measure "${files[@]}" >"$W/measured" &&
		diff "$W/ours" "$W/measured"
}

# The file below ROOT that holds NAME's bytes: of the size of the member.
body_of() { # SIZE
	find "$ROOT/body" -type f -size "$1c" ! -name '*.state'
}

# Where the view shows the layer of files.
shown() { # IMAGE
	layer_path "$(layer_info "$1" 1)"
}

read_layer() { # IMAGE
	(cd "$(shown "$1")" && sha256sum --quiet -c "$W/$1.sums")
}

# "ok" when every byte is right, else the errno; wrong bytes end the test.
read_whole() { # IMAGE NAME
	local got want
	got=$(read_errno "$(shown "$1")/$2")
	want=$(awk -v n="$2" '$2 == n { print $1 }' "$W/$1.sums")
	[[ $got != 'ok '* || $got = "ok $want" ]] || fail "wrong bytes of $2"
	echo "${got% *}"
}

# All readable, and all sealed: also after something was repaired.
wait_until_whole() { # IMAGE
	wait_for 60 "all of $1 to be readable" read_layer "$1"
	wait_for 60 'all to be sealed' sealed_as_ours
}
