#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Caps: a function of at most 120 lines, a file of at most 800, headers included.
set -u
cd "$(dirname "$0")/../.." || exit 1
mapfile -t files < <(git ls-files '*.c' '*.h' '*.py' '*.sh')
wc -l "${files[@]}" | awk '$2 != "total" && $1 > 800 { print $2 ": " $1 " lines" }'
mapfile -t c < <(git ls-files '*.c')
ctags --languages=C --kinds-C=f --fields=+ne -f - "${c[@]}" 2>/dev/null |
	awk -F'\t' '{
		line = end = 0
		for (i = 4; i <= NF; i++) {
			if ($i ~ /^line:/) line = substr($i, 6)
			if ($i ~ /^end:/) end = substr($i, 5)
		}
		if (end - line + 1 > 120)
			print $2 ":" line ": " $1 "() has " end - line + 1 " lines"
	}'
exit 0
