#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# table.sh [FILE]: build/bench.tsv as the table of ARCHITECTURE.md, "Figures".
set -eu
awk -F'\t' '
	BEGIN { print "| id | figure | ours | peer | ratio | goal | runs |"; print "|---|---|---|---|---|---|---|" }
	$1 == "#id" { next }
	$1 == "#" { $1 = ""; if ($4 == "-") $5 = ""; $6 = "" }
	$4 == "-" { $4 = ""; $5 = "" }
	{ gsub(/^<=/, "≤ ", $6); gsub(/^>=/, "≥ ", $6)
	  printf "| %s | %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 }
' "${1:-$(dirname "$0")/../../build/bench.tsv}"
