#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh DAEMON: containerd's conformance suite against the daemon's binary, a
# fresh process for each sub-test. The newest suite where Go 1.26 is there, else
# the one that Debian packages. Passes with 21 of 21 only.
set -eu -o pipefail
daemon=$(realpath "$1")
here=$(cd "$(dirname "$0")/.." && pwd)
build=$here/../build
want=21
umask 022

if "$here/clients/have-go.sh"; then
	"$here/clients/build.sh" "$build/clients"
	test=$build/clients/conformance.test
	echo "conformance: containerd $(sed -n 's/.*containerd\/v2 //p' "$here/go.mod" | head -n 1)"
else
	gopath=$build/gopath
	mkdir -p "$gopath/src/verity"
	ln -sfn "$here/conformance-debian" "$gopath/src/verity/conformance"
	test=$build/conformance-debian.test
	(cd "$gopath/src/verity/conformance" &&
		GO111MODULE=off GOPATH=$gopath:/usr/share/gocode go test -c -o "$test" .)
	echo "conformance: containerd $(dpkg-query -W -f '${Version}' golang-github-containerd-containerd-dev)"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
DAEMON="$daemon --root {root} --run {run} --address {sock} --log-level warn" \
	unshare -m --propagation private "$test" -test.root -test.v -test.timeout 300s >"$log" 2>&1 || status=$?
passed=$(grep -c '^    *--- PASS: TestConformance/' "$log" || true)
if [ "$status" != 0 ] || [ "$passed" != "$want" ]; then
	grep -vE '^=== ' "$log" | tail -n 80
	echo "conformance: $passed of $want passed"
	exit 1
fi
echo "conformance: $passed of $want passed"
