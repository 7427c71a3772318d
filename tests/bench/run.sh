#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [FIGURE...]: measures (the default is all of them but those of
# "run.sh faults", "run.sh sealing" and "run.sh view"), prints a line per figure
# and writes build/bench.tsv: tab-separated id, name, ours, peer, ratio, goal,
# runs. Rows that begin with # have no goal. A figure names the test images that
# it needs in its head.
#
# Ours and the peer alternate in the same run, in namespaces of their own. A
# figure is a median; RUNS says of how many (3). No time passes or fails here:
# a figure that could not be measured does.
set -u -o pipefail
TOP=$(cd "$(dirname "$0")/../.." && pwd)
cd "$TOP" || exit 1
[ "$(id -u)" = 0 ] || { echo 'run as root: it mounts file systems and starts containers' >&2; exit 1; }
if [ "${1:-}" = faults ]; then
	TSV=${TSV:-$TOP/build/bench-faults.tsv}
	set -- neighbours beside_fill rounds crowd thousand
elif [ "${1:-}" = sealing ]; then
	TSV=${TSV:-$TOP/build/bench-seal.tsv} IT_TIMEOUT=1800
	set -- seal hotset
elif [ "${1:-}" = view ]; then
	TSV=${TSV:-$TOP/build/bench-view.tsv}
	set -- reads
fi
export TOP TSV=${TSV:-$TOP/build/bench.tsv} RUNS=${RUNS:-3} IT_TIMEOUT=${IT_TIMEOUT:-900}
# shellcheck source=tests/lib/runner.sh
. tests/lib/runner.sh

[ $# -gt 0 ] || set -- cold_start sequential walk memory disk proof
bash tests/lib/install-packages.sh >/dev/null || exit 1
if tests/clients/have-go.sh; then
	tests/clients/build.sh build/clients >/dev/null || exit 1
fi
echo 'test images (made once)'
mapfile -t images < <(for f; do sed -n 's/^# images: //p' "tests/bench/$f.sh"; done | tr ' ' '\n' | sort -u)
[ ${#images[@]} = 0 ] || bash tests/lib/images.sh build/images "${images[@]}" || exit 1

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
