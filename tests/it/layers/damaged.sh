#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A layer whose index or map is damaged, or whose folder is gone, is replaced by
# a new one under another number; the next image that has it is lazy. Status
# says what to do about the old one, which goes with its last user.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

# All share a layer, above a base of their own: they are unpacked one by one.
image() { # NAME
	make_image "$1" <<-J
		{"layers": [{"entries": [{"path": "base", "content": "base of $1"}]},
		            {"entries": [{"path": "shared", "content": "shared"},
		                         {"path": "many/", "type": "dir"},
		                         $(printf '{"path": "many/%s", "content": "x"},' {1..400})
		                         {"path": "bin/", "type": "dir"},
		                         {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}}]}]}
	J
}
seqs() { layer_status "$shared" .seq | sort -n | paste -sd' '; }
bad() { # what status says of the damaged ones
	layer_status "$shared" 'select(.state == "bad") | .reason'
}
runs() { # NAME
	[ "$(ctr run --rm --snapshotter verity "$REG/$1:latest" "$1" /bin/sh -c 'read l </shared; read m </base; echo "$l, $m"')" = "shared, base of $1" ] ||
		fail "$1 does not run"
}

restart() {
	start_daemon
	wait_for 20 'containerd to reconnect' ctr snapshots --snapshotter verity ls
}

start_scripted
config 'read_timeout = 5' 'prepare_budget = 5' 'background_fill = false'
start_daemon
start_containerd 1
image first
shared=$(layer_info first 1)
pull first
runs first
last=first

# name | what happens while the daemon is down, in the folder of the layer
cases=(
	'index|printf XXXXXXXX | dd of=index bs=1 seek=600 conv=notrunc status=none'
	'map|printf XXXXXXXX | dd of=map bs=1 seek=20 conv=notrunc status=none'
	'inner|printf XXXXXXXX | dd of=index bs=1 seek=$(($(stat -c %s index) - 5000)) conv=notrunc status=none'
	'leaves|truncate -s 100 index.state'
	'folder|rm -r "$PWD"'
)
for c in "${cases[@]}"; do
	IFS='|' read -r name damage <<<"$c"
	old=$(seqs)
	[[ $old != *' '* ]] || fail "two layers: $old"
	stop daemon
	(cd "$ROOT/layer/$old" && eval "$damage")
	restart
	image "$name"
	[ "$(layer_info "$name" 1)" = "$shared" ] || fail 'the layer is not shared'
	# Its users: an error that says what to do, once the damage is known.
	pull "$name"
	! err=$(ctr run --rm --snapshotter verity "$REG/$last:latest" x /bin/true 2>&1) ||
		fail "$name: $last runs above a damaged layer"
	[[ $err == *'pull it again'* ]] || fail "$name: $err"
	[ "$(seqs | wc -w)" = 2 ] || fail "$name: layers $(seqs) instead of $old and a new one"
	runs "$name"
	[[ $(bad) == *'pull it again'* ]] || fail "$name: status says '$(bad)' of the old layer"
	[ "$name" = inner ] || ! cat "$ROOT/l/$old/shared" 2>/dev/null || fail "$name: the damaged layer is still served"
	# The former image, as status says: removed, pulled again.
	remove "$last"
	wait_for 5 "the damaged layer to go" eval '[ "$(seqs | wc -w)" = 1 ]'
	[ ! -e "$ROOT/layer/$old" ] || fail "$name: layer/$old is left"
	pull "$last"
	runs "$last"
	[ "$(seqs | wc -w)" = 1 ] || fail "$name: layers $(seqs)"
	remove "$last"
	echo "$name: $old is replaced by $(seqs)"
	last=$name
done

# Out of file descriptors for a while: nothing is said about the layer.
stop daemon
restart
old=$(seqs)
prlimit --pid "$daemon_pid" --nofile=8:1024
! cat "$ROOT/l/$old/shared" 2>/dev/null || fail 'the layer was open before it was asked for'
prlimit --pid "$daemon_pid" --nofile=1024:1024
[ -z "$(bad)" ] || fail "bad after EMFILE: $(bad)"
image later
pull later
runs later
[ "$(seqs)" = "$old" ] || fail "layers $(seqs), not $old"
