#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT: the real clients of the tests, from the versions that tests/go.mod
# pins: containerd, its shim, ctr, nerdctl, and containerd's conformance suite
# as a test binary. Needs Go 1.26 or newer. Does nothing when OUT is up to date.
set -eu
out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here"/conformance/*.go "$0" | sha256sum)
[ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0
mkdir -p "$out"
cd "$here"
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
tags='no_btrfs no_devmapper no_zfs'
c=github.com/containerd/containerd/v2/cmd
go build -p 2 -trimpath -buildvcs=false -ldflags '-s -w' -tags "$tags" -o "$out/" \
	$c/containerd $c/containerd-shim-runc-v2 $c/ctr \
	github.com/containerd/nerdctl/v2/cmd/nerdctl
go test -c -trimpath -buildvcs=false -ldflags '-s -w' -tags "$tags" \
	-o "$out/conformance.test" ./conformance
printf '%s\n' "$stamp" > "$out/.stamp"
