#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The name of a fault point stands for one place.
set -u
cd "$(dirname "$0")/../.." || exit 1
git grep -ohE 'fault_point\("[a-z0-9_]+"\)' -- plugin fuse verity snapshotter | sort | uniq -d |
	sed 's/$/: used twice/'
exit 0
