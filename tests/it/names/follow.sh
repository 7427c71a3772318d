#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl ls follows what containerd 2.3 knows: tags that come, move, return
# and go, without any pull; containerd absent at the start, and away.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/names/common.sh
. "$TOP/tests/it/names/common.sh"
"$TOP/tests/clients/have-go.sh" || skip 'Go 1.26 is missing'

follow_names 2
