#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Images that lie in their table of contents: ordinary mounts, and a reason that
# names the entry and what is wrong. Nothing is left of them, nothing is lost:
# what containerd unpacks runs, and an honest image afterwards is lazy.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

layer() { # NAME KEYS-OF-THE-LAYER
	count=$((count + 1))
	make_image "$1" <<-J
		{"layers": [{"entries": [
		  {"path": "bin/", "type": "dir"},
		  {"path": "bin/sh", "mode": "0755", "content": {"file": "/bin/busybox"}},
		  {"path": "a", "content": {"random": 5000, "seed": $count}},
		  {"path": "b", "content": {"random": 5000, "seed": $((count + 500))}},
		  {"path": "name", "content": "$1"}]${2:+, $2}}]}
	J
}
count=0
long=$(printf 'n%.0s' {1..300})
chunk='"chunkDigest": "sha256:'$(printf 'b%.0s' {1..64})'"'

# name | keys | what the reason must say (all parts)
cases=(
	'dotdot|"patch": [{"name": "a", "set": {"name": "../../etc/a"}}]|../../etc/a'
	'dotdot-in|"patch": [{"name": "a", "set": {"name": "x/../../a"}}]|x/../../a'
	'nul|"patch": [{"name": "a", "set": {"name": "a\u0000b"}}]|'
	'negative|"patch": [{"name": "a", "set": {"size": -1}}]|'
	'huge|"patch": [{"name": "a", "set": {"size": 9223372036854775807}}]|'
	'offset-behind|"patch": [{"name": "a", "set": {"offset": 9000000000000000000}}]|'
	'offset-overflow|"patch": [{"name": "a", "set": {"offset": 99999999999999999999}}]|'
	'offset-negative|"patch": [{"name": "a", "set": {"offset": -5}}]|'
	'overlap-file|"patch": [{"append": {"name": "c", "type": "reg", "size": 10, "offset": 300, '"$chunk"'}}, {"append": {"name": "c", "type": "chunk", "chunkOffset": 5, "chunkSize": 5, "offset": 300, '"$chunk"'}}]|'
	'inner-overflow|"patch": [{"name": "a", "set": {"innerOffset": 9223372036854775807}}]|'
	'chunk-overflow|"patch": [{"name": "a", "set": {"chunkSize": 9223372036854775800}}]|'
	'chunk-orphan|"patch": [{"insert": 0, "entry": {"name": "zz", "type": "chunk", "chunkOffset": 5, "chunkSize": 5, "offset": 300, '"$chunk"'}}]|'
	'link-self|"patch": [{"append": {"name": "h", "type": "hardlink", "linkName": "h"}}]|h'
	'link-cycle|"patch": [{"append": {"name": "h1", "type": "hardlink", "linkName": "h2"}}, {"append": {"name": "h2", "type": "hardlink", "linkName": "h1"}}]|h'
	'link-nowhere|"patch": [{"append": {"name": "h", "type": "hardlink", "linkName": "not/there"}}]|not/there'
	'link-dir|"patch": [{"append": {"name": "h", "type": "hardlink", "linkName": "bin"}}]|h'
	'file-as-dir|"patch": [{"append": {"name": "a/below", "type": "dir"}}]|a'
	'duplicate|"patch": [{"name": "b", "set": {"name": "a"}}]|named twice'
	'link-data|"patch": [{"append": {"name": "h", "type": "hardlink", "linkName": "a", "size": 5}}]|no regular file'
	'not-utf8|"patch": [{"name": "a", "set": {"name": "a\ufffd"}}]|U+FFFD'
	'root-file|"patch": [{"name": "a", "set": {"name": "./"}}]|root of the layer'
	'bad-type|"patch": [{"name": "a", "set": {"type": "wormhole"}}]|unknown type'
	'bad-digest|"patch": [{"name": "a", "set": {"chunkDigest": "sha256:12"}}]|'
	'bad-xattr|"patch": [{"name": "a", "set": {"xattrs": {"user.x": "%%%"}}}]|'
	'long-name|"patch": [{"name": "a", "set": {"name": "LONG"}}]|'
	'uid|"patch": [{"name": "a", "set": {"uid": -2}}]|'
	'deep|"toc_raw": "{\"version\":1,\"entries\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["|'
	'not-json|"toc_raw": "all your base"|'
	'version|"toc_raw": "{\"version\":7,\"entries\":[]}"|'
	'footer|"footer_offset": "ffffffffffffffff"|'
	'footer-text|"footer_offset": "000000000000000Z"|'
)

start_scripted
config 'read_timeout = 5' 'prepare_budget = 3' 'background_fill = false'
start_daemon
start_containerd 1
for c in "${cases[@]}"; do
	IFS='|' read -r name keys why <<<"${c/LONG/$long}"
	layer "$name" "$keys"
	d=$(layer_info "$name" 0)
	pull_within 5 "$name"
	if [ "$(layer_status "$d" .state)" != fallback ]; then
		echo "LAZY: $name"
		bad=1
		continue
	fi
	assert_fallback "$d" "$why"
	echo "$name: $(layer_status "$d" .reason)"
	# What containerd has unpacked is what the tar stream says.
	[ "$(ctr run --rm --snapshotter verity "$REG/$name:latest" "$name" /bin/sh -c 'read l </name; echo "$l"')" = "$name" ] ||
		fail "$name does not run"
done
[ -z "${bad:-}" ] || fail 'some were accepted'
grep -c 'falls back to ordinary mounts' "$W/daemon.log"
[ -z "$(ls "$ROOT/layer")" ] || fail "left behind: $(ls "$ROOT/layer")"

layer honest
pull honest
d=$(layer_info honest 0)
assert_state "$d" lazy
[ "$(cat "$(layer_path "$d")/name")" = honest ] || fail 'contents'
