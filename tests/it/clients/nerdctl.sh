#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main path: an unmodified nerdctl pulls an eStargz image lazily with the
# containerd snippet that we ship, and its container runs and reads.
. "$(dirname "$0")/../../lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_registry
config 'background_fill = false'
start_daemon
start_containerd 2
echo "client: $(nerdctl --version)"
ref=$REG/hello:esgz

nd pull -q "$ref"
assert_lazy "$ref"
[ "$(status | jq '[.layers[] | select(.state == "lazy")] | length')" = 3 ] || fail "status: $(status)"

run() {
	nd run --rm --net=none --entrypoint /bin/sh "$ref" -c "$1"
}
[ "$(run 'cat /data/one /data/two')" = $'one\ntwo' ] || fail 'wrong contents'
[ "$(run 'ls /data')" = $'blob\none\nopaque\ntwo' ] || fail "whiteout: $(run 'ls /data')"
[ "$(run 'ls /data/opaque')" = above ] || fail 'opaque directory'
want=$(python3 -c 'import hashlib,random; print(hashlib.sha256(random.Random(1).randbytes(3 << 20)).hexdigest())')
[ "$(run 'sha256sum </data/blob')" = "$want  -" ] || fail 'blob differs'
run 'echo x >/data/one && cat /data/one' | found -x x || fail 'copy-up'
run 'exec id -u' | found -x 0

# An ordinary image through the same snapshotter, and overlayfs beside it.
nd pull -q "$REG/hello:gzip"
[ "$(nd run --rm --net=none --entrypoint /bin/cat "$REG/hello:gzip" /data/two)" = two ] || fail 'plain image'
SNAPSHOTTER=overlayfs nd pull -q "$REG/hello:gzip"
[ "$(SNAPSHOTTER=overlayfs nd run --rm --net=none --entrypoint /bin/cat "$REG/hello:gzip" /data/two)" = two ] ||
	fail 'overlayfs beside us'
