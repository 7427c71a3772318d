#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# F5: 100 pulls at once, of 20 images, each into five namespaces.
. "$(dirname "$0")/../lib/scripted.sh"
. "$(dirname "$0")/lib.sh"
IMAGES_N=20 SPACES=5

for i in $(seq $IMAGES_N); do
	make_image "crowd$i" <<-J
		{"layers": [{"entries": [{"path": "base", "content": {"random": 300000, "seed": 1}}]},
		            {"entries": [{"path": "name", "content": "crowd$i"}, {"path": "data", "content": {"random": 1000000, "seed": $i}}]}]}
	J
done
start_scripted
fresh_node
t=$(clock)
pids=()
for i in $(seq $IMAGES_N); do
	for ns in $(seq $SPACES); do
		pull_bare "$REG/crowd$i:latest" "space$ns" >"$W/pull.$i.$ns" 2>&1 &
		pids+=($!)
	done
done
failed=0
for p in "${pids[@]}"; do wait "$p" || failed=$((failed + 1)); done
t=$(seconds "$t")
absolute F5 '100 parallel pulls of 20 images: fail' '<=0' $failed 1
note '100 parallel pulls of 20 images: s' "$t"
note '100 parallel pulls of 20 images: layers that are lazy' \
	"$(status | jq '[.layers[] | select(.state == "lazy" or .state == "complete")] | length')"
note '100 parallel pulls of 20 images: layers that are not' \
	"$(status | jq '[.layers[] | select(.state == "fallback")] | length')"
note '100 parallel pulls of 20 images: VmHWM, MB' "$(daemon_memory VmHWM)"
stop_node
