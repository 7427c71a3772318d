/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer's uncompressed tar stream, from its first byte to its last, by two
 * roads: from what is on the disk (bodies and residue; what is missing there is
 * fetched and kept), or from the blob alone, hashed as a whole on the way.
 *
 * Both attest that every unit begins and ends at gzip member boundaries, that
 * the table of contents is one member up to the footer, and that each extent
 * has the digest that the map gives. Blocks on disk and network; memory is one
 * extent and one residue record.
 */
#ifndef SNAPSHOTTER_PROOF_STREAM_H
#define SNAPSHOTTER_PROOF_STREAM_H

#include <stdatomic.h>

#include "snapshotter/layer_priv.h"

struct proof_sink {
	/* The output of @u begins; @u NULL: of the table of contents. */
	int (*unit)(void *ctx, const struct unit *u, const struct extent *x,
		    uint32_t n, struct err *e);
	int (*bytes)(void *ctx, const void *p, size_t len, struct err *e);
	void *ctx;
};

struct proof_stream {
	struct layer *l;
	struct proof_sink sink;
	const atomic_bool *stop; /* then ERR_CANCELLED, soon */
	bool may_fetch; /* else ERR_UNAVAILABLE where bytes are missing */
};

/* ERR_CORRUPT: what is here, or was fetched, does not fit together; all other
 * errors say nothing about the layer. */
int proof_stream_local(const struct proof_stream *ps, struct err *e) must_check;

/*
 * proof_stream_blob() - the same from the blob, start to end, keeping nothing
 * @ret_same: has the blob the layer's digest? Only set when all of it was read,
 *	      which is so on success and with ERR_CORRUPT.
 */
int proof_stream_blob(const struct proof_stream *ps, bool *ret_same,
		      struct err *e) must_check;

#endif
