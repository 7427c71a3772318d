/* SPDX-License-Identifier: Apache-2.0 */
/* verityctl ls: the images that containerd knows, and which of them are lazy. */
#ifndef PLUGIN_CTL_LS_H
#define PLUGIN_CTL_LS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

struct ls_opts {
	const char *run; /* of the daemon */
	const char *image; /* only this; without tag or digest: all that it has.
			    * NULL: all */
	bool json;
	FILE *out;
};

/* Asks the daemon and prints. ERR_UNAVAILABLE: no daemon, or no such image;
 * ERR_INVALID: @image is no reference, or the answer no list. */
int ctl_ls(const struct ls_opts *o, struct err *e) must_check;

/* What ctl_ls() makes of an answer. */
int ctl_ls_print(struct json_object *doc, const struct ls_opts *o,
		 struct err *e) must_check;

#endif
