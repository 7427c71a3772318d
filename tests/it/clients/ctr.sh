#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ctr of containerd 2.3 pulls lazily through the transfer service.
. "$(dirname "$0")/../../lib/lib.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_registry
start_daemon
start_containerd 2
echo "client: $(ctr --version)"
ref=$REG/odd:esgz
ctr image pull --plain-http --snapshotter verity "$ref" >/dev/null
assert_lazy "$ref"
out=$(ctr run --rm --snapshotter verity "$ref" one /bin/sh -c 'cat /odd/plain; stat -c %h /odd/hl-a; ls /odd/replaced /odd/file-then-dir 2>&1 || true')
grep -qx plain <<<"$out" || fail "contents: $out"
grep -qx 3 <<<"$out" || fail "hard links: $out"
grep -qx in <<<"$out" || fail "file became directory: $out"
# A setuid program works for a user.
out=$(ctr run --rm --snapshotter verity --allow-new-privs --user 1000 "$ref" two /odd/setuid)
[ "$out" = 0 ] || fail "setuid: $out"
out=$(ctr run --rm --snapshotter verity --allow-new-privs --user 1000 "$ref" three /odd/cap)
[ "$out" = raw ] || fail "file capability: $out"
