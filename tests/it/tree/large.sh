#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is large: 100,000 entries in one directory, 50,000 of them files with
# contents, and a file of 1 GiB. Every path and byte as overlayfs has it.
# (120 layers are the image "deep" of it/tree/same.)
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/tree/tree.sh
. "$TOP/tests/it/tree/tree.sh"

# Zeros for the most part, and bytes of which no two blocks are the same.
python3 - "$W/gib" <<-'P'
	import random, sys
	r = random.Random(1)
	with open(sys.argv[1], "wb") as f:
	    for i in range(256):
	        f.write(r.randbytes(16384))
	        f.seek((i + 1) << 22)
	    f.truncate(1 << 30)
P
python3 - "$W/gib" <<-'P' >"$W/large.json"
	import json, sys
	wide = [{"path": "wide/", "type": "dir"}]
	for i in range(100000):
	    e = {"path": "wide/entry-%06d" % i}
	    if i % 2:
	        e["content"] = "%d\n" % i * (i % 7 + 1)
	    elif i % 10 == 0:
	        e.update(type="symlink", link="entry-%06d" % (i + 1))
	    elif i % 10 == 2:
	        e.update(type="hardlink", link="wide/entry-%06d" % (i - 1))
	    elif i % 100 == 4:
	        e.update(path=e["path"] + "/", type="dir")
	    else:
	        e.update(mode="0640", content="")
	    wide.append(e)
	gib = {"path": "gib", "content": {"file": sys.argv[1]}}
	json.dump({"layers": [{"level": 1, "entries": wide}, {"level": 1, "entries": [gib]}]}, sys.stdout)
P
make_image large <"$W/large.json"
rm "$W/gib"
start_scripted
start_daemon
start_containerd 1

since=$(date +%s) ref=$REG/large:latest
pull_both "$ref"
mount_both "$ref"
[ "$(stat -c %s "$W/lazy/gib")" = $((1 << 30)) ] || fail 'no file of 1 GiB'
compare_trees large --since "$since" || fail "$(head -n 40 "$W/differences")"
[ "$n_paths" -gt 100000 ] || fail "$n_paths paths"
umount_both "$ref"
total
