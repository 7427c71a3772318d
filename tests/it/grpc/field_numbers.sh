#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Our .proto files have the fields of containerd's, as Debian packages them.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
api=/usr/share/gocode/src/github.com/containerd/containerd/api

[ -d $api ] || fail "golang-github-containerd-containerd-dev is not installed"
cd "$TOP/proto"
# of theirs, only Mount is wanted from the file with the types
/usr/bin/python3 -B "$TOP/tests/it/grpc/field_numbers.py" snapshots.proto mount.proto -- \
	$api/services/snapshots/v1/snapshots.proto $api/types/mount.proto
/usr/bin/python3 -B "$TOP/tests/it/grpc/field_numbers.py" wellknown.proto -- \
	/usr/include/google/protobuf/{timestamp,field_mask,empty}.proto
! /usr/bin/python3 -B "$TOP/tests/it/grpc/field_numbers.py" snapshots.proto mount.proto -- \
	<(sed 's/string parent = 3/string parent = 9/' $api/services/snapshots/v1/snapshots.proto) \
	$api/types/mount.proto >/dev/null || fail "a difference is not seen"
# As a client we read a part of what these services have.
part() { # FILE...: theirs of the images service in place of the real one
	/usr/bin/python3 -B "$TOP/tests/it/grpc/field_numbers.py" --part containerd.proto -- \
		$api/services/{namespaces,content,events}/v1/*.proto $api/types/descriptor.proto "$@"
}
part $api/services/images/v1/images.proto
! part <(sed 's/target = 3/target = 4/' $api/services/images/v1/images.proto) >/dev/null ||
	fail "a difference is not seen"
echo "the same"
