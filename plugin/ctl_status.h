/* SPDX-License-Identifier: Apache-2.0 */
/* The status document of the daemon, for people. */
#ifndef PLUGIN_CTL_STATUS_H
#define PLUGIN_CTL_STATUS_H

#include <json-c/json.h>
#include <stdio.h>

#include "base/err.h"

/**
 * ctl_status_print() - daemon, missing features, one row per layer
 * @doc: as control.h describes it; members that are missing print as "-"
 *
 * Names come from images and registries: what could act on a terminal is
 * replaced. ERR_INVALID when @doc has no array of layers.
 */
int ctl_status_print(struct json_object *doc, FILE *out, struct err *e)
	must_check;

#endif
