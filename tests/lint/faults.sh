#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The name of a fault point stands for one place.
set -u
cd "$(dirname "$0")/../.." || exit 1
# tx_end()'s name is one, too.
{
	git grep -ohE 'fault_point\("[a-z0-9_]+"\)' -- plugin rpc fuse verity snapshotter
	git grep -ohE '"[a-z0-9]+_[a-z0-9_]+", e\);' -- 'snapshotter/store*.c'
} | grep -oE '"[a-z0-9_]+"' | sort | uniq -d | sed 's/$/: used twice/'
exit 0
