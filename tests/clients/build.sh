#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT: the real clients of the tests, from the versions that tests/go.mod
# pins: containerd, its shim, ctr, nerdctl, and containerd's conformance suite
# as a test binary; and crictl, which has a go.mod of its own because it wants
# other versions of what containerd is built from. Needs Go 1.26 or newer. Does
# nothing when OUT is up to date.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
crictl=$here/clients/crictl
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here"/conformance/*.go \
	"$crictl/go.mod" "$crictl/go.sum" "$0" | sha256sum)
[ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0
# Built aside and renamed: tests may be running what is there.
new=$(mktemp -d "$out/.new.XXXXXX")
trap 'rm -rf "$new"' EXIT
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
tags='no_btrfs no_devmapper no_zfs'
c=github.com/containerd/containerd/v2/cmd
cd "$here"
go build -p 2 -trimpath -buildvcs=false -ldflags '-s -w' -tags "$tags" -o "$new/" \
	$c/containerd $c/containerd-shim-runc-v2 $c/ctr \
	github.com/containerd/nerdctl/v2/cmd/nerdctl
go test -c -trimpath -buildvcs=false -ldflags '-s -w' -tags "$tags" \
	-o "$new/conformance.test" ./conformance
cd "$crictl"
v=$(go list -m -f '{{.Version}}' sigs.k8s.io/cri-tools)
go build -p 2 -trimpath -buildvcs=false -o "$new/" \
	-ldflags "-s -w -X sigs.k8s.io/cri-tools/pkg/version.Version=$v" \
	sigs.k8s.io/cri-tools/cmd/crictl
mv -f "$new"/* "$out/"
printf '%s\n' "$stamp" > "$out/.stamp"
