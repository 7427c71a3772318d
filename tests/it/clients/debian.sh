#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Debian's containerd 1.6: ctr-remote rpull is lazy, ctr run runs; a plain pull
# of a plain image works as with overlayfs.
. "$(dirname "$0")/../../lib/lib.sh"

start_registry
start_daemon
start_containerd 1
echo "client: $(ctr-remote --version)"
ref=$REG/hello:esgz
ctr-remote images rpull --snapshotter verity --plain-http "$ref" >/dev/null
assert_lazy "$ref"
[ "$(ctr run --rm --snapshotter verity "$ref" one /bin/cat /data/two)" = two ] || fail 'contents'
ctr image pull --plain-http --snapshotter verity "$REG/hello:gzip" >/dev/null
[ "$(ctr run --rm --snapshotter verity "$REG/hello:gzip" two /bin/cat /data/one)" = one ] || fail 'plain image'
