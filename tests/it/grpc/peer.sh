#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gRPC's own implementation as the client: 200 calls at a time, slow Prepares,
# every error, 16 MiB messages, deadlines, clients that go, List of 10,000.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
ROWS=10000 serve_pid=''

start serve "$B/tests/lib/grpcserve" "$W/s" $ROWS
wait_for 10 'the server' grep -q ready "$W/serve.log"
timeout 120 /usr/bin/python3 -B "$TOP/tests/it/grpc/peer.py" "$W/s" $ROWS || {
	cat "$W/serve.log"
	fail "peer.py"
}
kill -TERM "$serve_pid"
wait "$serve_pid" || fail "the server ends badly: $(cat "$W/serve.log")"
grep '^begun' "$W/serve.log"
