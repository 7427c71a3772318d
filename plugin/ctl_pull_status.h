/* SPDX-License-Identifier: Apache-2.0 */
/* verityctl pull-status: how much of an image is here, until all of it is. */
#ifndef PLUGIN_CTL_PULL_STATUS_H
#define PLUGIN_CTL_PULL_STATUS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum pull_state {
	PULL_UNKNOWN, /* no layer of it is known to the daemon */
	PULL_BAD, /* a layer is damaged, or not what the image claims */
	PULL_FETCHING,
	PULL_COMPLETE, /* all contents are here */
	PULL_PROVEN, /* and every lazy layer is what the image claims */
	PULL_FALLBACK, /* containerd unpacked all of its layers itself */
};

/* An image, put together from its layers. Those that containerd unpacked count
 * as layers and have no bytes here. */
struct pull_sum {
	enum pull_state state;
	unsigned n_layers, n_complete, n_proven, n_fallback;
	uint64_t bytes_total, bytes_local;
	unsigned n_waiting; /* readers */
	char reason[256]; /* of the layer that is worst off, clean, or "" */
};

/**
 * pull_sum_up() - the layers of @image in a status document
 * @image: as a user writes it: "alpine" is docker.io/library/alpine:latest
 *
 * A layer that several images share has the name of the one that brought it,
 * and counts for all whose own layers stand on it.
 * ERR_INVALID: @image is no reference, or @doc has no layers.
 */
int pull_sum_up(struct json_object *doc, const char *image,
		struct pull_sum *ret, struct err *e) must_check;

/* The numbers of its layers that the daemon serves; errors as above. */
int pull_layer_seqs(struct json_object *doc, const char *image, uint64_t **ret,
		    size_t *ret_n, struct err *e) must_check;

const char *pull_state_name(enum pull_state st);

/* One line without its end, at most @width columns: a bar, and figures as far
 * as there is room. */
void pull_bar(const struct pull_sum *ps, uint64_t bytes_per_s, unsigned width,
	      char *out, size_t size);

struct pull_opts {
	const char *run, *image;
	bool json; /* documents, one a line */
	bool no_wait; /* one look */
	bool until_proven; /* "complete" is not the end */
	FILE *out;
};

/**
 * pull_status() - show, and follow to the end
 * @ret: the last state; anything but FETCHING is an end, and COMPLETE, too,
 *       unless @o->until_proven
 *
 * Blocks as long as that takes. -1: the daemon cannot be asked or @o->out not
 * be written.
 */
int pull_status(const struct pull_opts *o, enum pull_state *ret, struct err *e)
	must_check;

#endif
