#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the samples anew: NAME.json gives NAME.esgz, and every NAME.esgz gives
# NAME.dump (what a parser must emit) by the Python reader. ctr-*.esgz were
# written by ctr-remote 0.14.3 and have no description here.
set -eu
cd "$(dirname "$0")"
for f in *.json; do
	python3 ../mkestargz.py --blob "${f%.json}.esgz" "$f" >/dev/null
done
for f in *.esgz; do
	python3 ../mkestargz.py --dump "$f" >"${f%.esgz}.dump"
done
