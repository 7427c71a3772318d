#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [FIGURE...]: measures (cold_start sequential walk memory disk proof; default
# all), prints a line per figure and writes build/bench.tsv: tab-separated id,
# name, ours, peer, ratio, goal, runs. Rows that begin with # have no goal.
#
# Ours and the peer alternate in the same run, in namespaces of their own. A
# figure is a median; RUNS says of how many (3). No time passes or fails here:
# a figure that could not be measured does.
set -u -o pipefail
TOP=$(cd "$(dirname "$0")/../.." && pwd)
cd "$TOP" || exit 1
[ "$(id -u)" = 0 ] || { echo 'run as root: it mounts file systems and starts containers' >&2; exit 1; }
export TOP TSV=${TSV:-$TOP/build/bench.tsv} RUNS=${RUNS:-3} IT_TIMEOUT=400
# shellcheck source=tests/lib/runner.sh
. tests/lib/runner.sh

[ $# -gt 0 ] || set -- cold_start sequential walk memory disk proof
bash tests/lib/install-packages.sh >/dev/null || exit 1
if tests/clients/have-go.sh; then
	tests/clients/build.sh build/clients >/dev/null || exit 1
fi
echo 'test images (made once)'
bash tests/lib/images.sh build/images hello many big py || exit 1

printf '#id\tname\tours\tpeer\tratio\tgoal\truns\n' >"$TSV"
printf '%-4s %-52s %10s %10s %8s  %s\n' id figure ours peer ratio goal
status=0
for f; do
	log=$logs/bench-$f.log
	one_it "tests/bench/$f.sh" build/gcc 2>"$log" || {
		echo "$f: not measured, see $log" >&2
		tail -n 5 "$log" >&2
		status=1
	}
done
exit $status
