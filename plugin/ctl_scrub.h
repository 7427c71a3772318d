/* SPDX-License-Identifier: Apache-2.0 */
/* verityctl scrub: have the daemon read again what it has, and say what came of
 * it. */
#ifndef PLUGIN_CTL_SCRUB_H
#define PLUGIN_CTL_SCRUB_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

struct scrub_opts {
	const char *run;
	const char *image; /* NULL: all layers */
	bool json; /* one document at the end */
	bool no_wait;
	FILE *out;
};

/*
 * ctl_scrub() - ask, and wait for the end unless o->no_wait
 *
 * @ret_bad: something was bad, healed or not, or could not be looked at
 * Blocks for as long as the scrub takes; the daemon goes on with it if this is
 * interrupted. ERR_UNAVAILABLE: no daemon, another one meanwhile, or no layer of
 * that image.
 */
int ctl_scrub(const struct scrub_opts *o, bool *ret_bad, struct err *e)
	must_check;

/* What the scrubber has found between two status documents, as text; bad: as
 * above. */
bool ctl_scrub_print(struct json_object *before, struct json_object *after,
		     FILE *out);

#endif
