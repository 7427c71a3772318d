#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# P10, second part: what is left below the root, without the database, five
# seconds after the last image was removed.
# images: py many hello
. "$(dirname "$0")/lib.sh"

start_registry
fresh_node
for i in py:esgz many:esgz hello:gzip; do
	pull verity "$REG/$i"
done
run verity "$REG/py:esgz" /usr/bin/python3 -c 'import numpy'
sleep 3
held=$(state_bytes)
for i in py:esgz many:esgz hello:gzip; do
	remove "$REG/$i"
done
sleep 5
absolute P10 'bytes below the root 5 s after the last rmi' '<=409600' "$(state_bytes)" 1
note 'bytes below the root before that' "$held"
stop_node
