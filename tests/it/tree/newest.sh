#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# As same.sh, with containerd 2.3's own unpack and its own lazy pull.
. "$(dirname "$0")/../../lib/lib.sh"
. "$(dirname "$0")/tree.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

start_registry
start_daemon
start_containerd 2
export CONTAINERD=2
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1
for i in attrs names links merged deep tools; do
	same "$i"
done
same twice --repeated
total
