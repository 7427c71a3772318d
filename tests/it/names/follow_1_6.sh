#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verityctl ls follows what containerd 1.6 knows: tags that come, move, return
# and go, without any pull; containerd absent at the start, and away.
. "$TOP/tests/lib/lib.sh"
# shellcheck source=tests/lib/scripted.sh
. "$TOP/tests/lib/scripted.sh"
# shellcheck source=tests/it/names/common.sh
. "$TOP/tests/it/names/common.sh"

follow_names 1
