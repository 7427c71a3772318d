#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two images claim one chain id: every order of their Prepares and Lists, over
# gRPC and without a containerd between, so that each step has its moment.
# shellcheck source=tests/lib/lib.sh
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"

image() { # NAME SEED [CONFIG]
	local config=${3:+", \"config\": $3"}
	make_image "$1" <<-J
		{"layers": [{"entries": [{"path": "name", "content": "$1"},
		                         {"path": "text", "content": {"text": 9000, "seed": $2}}]}]$config}
	J
}

image honest 1
image evil 2 "{\"rootfs\": {\"type\": \"layers\", \"diff_ids\": [\"$(layer_info honest 0 diff_id)\"]}}"
start_scripted
# Nothing is proven meanwhile: that would settle the matter.
config 'background_fill = false'
start_daemon

words() { # NAME
	echo "$REG/$1:latest $(layer_info "$1" 0) $(layer_info "$1" 0 toc_digest)"
}
timeout 120 /usr/bin/python3 -B "$TOP/tests/it/proof/interleave.py" "$SOCK" "$(layer_info honest 0 diff_id)" \
	"$(words honest)" "$(words evil)" || {
	tail -n 40 "$W/daemon.log"
	fail 'interleave.py'
}
