/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt at the proof of a layer. */
#ifndef SNAPSHOTTER_PROOF_RUN_H
#define SNAPSHOTTER_PROOF_RUN_H

#include <stdatomic.h>

#include "snapshotter/layer_priv.h"

struct attempt {
	struct digest diff_id; /* of the stream, as far as it went */
	bool sound; /* tree and member boundaries are as they should be */
	struct err why; /* not */
	bool same_blob; /* from the blob: it has the layer's digest */
};

/*
 * proof_attempt() - stream the layer, rebuild its tree, compare
 * @from_blob: not from what is on the disk
 * @may_fetch: what is missing there; else ERR_UNAVAILABLE
 *
 * -1: nothing was found out (ERR_CANCELLED, network, disk, memory).
 */
int proof_attempt(struct layer *l, bool from_blob, bool may_fetch,
		  const atomic_bool *stop, struct attempt *ret, struct err *e)
	must_check;

#endif
