#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every path of every test image through the layers view and as overlayfs has
# it after an unpack: the same (compare.py says in what).
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"

start_registry
start_daemon
start_containerd 1
for i in ${TREES:-hello attrs names links merged wide deep tools}; do
	same "$i"
done
# the same layer at two places
same odd --repeated
same twice --repeated
total
