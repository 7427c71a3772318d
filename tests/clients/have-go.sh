#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# have-go.sh: succeeds when Go can build the newest clients (1.26 or newer).
v=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || exit 1
v=${v#go}
major=${v%%.*}
rest=${v#*.}
minor=${rest%%.*}
[ "$major" -gt 1 ] || { [ "$major" = 1 ] && [ "${minor%%[!0-9]*}" -ge 26 ]; }
