/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handlers of requests. libfuse decodes and encodes; a handler looks the
 * node up in the index of its layer and replies exactly once.
 *
 * Handlers use no state but the index, so a request that is sent again after a
 * take-over gets the same answer. No handler waits for the network.
 */
#ifndef FUSE_OPS_H
#define FUSE_OPS_H

#include <stddef.h>
#include <stdint.h>

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 314 /* what Debian 12 has; newer ones accept it */
#endif
#include <fuse_lowlevel.h>

struct source_set;
struct reads;
struct passthrough;

/* What the handlers of one session share; fuse_req_userdata(). */
struct ops_ctx {
	const struct source_set *sources;
	struct reads *reads;
	struct passthrough *passthrough;
};

/* What libfuse does not hand on about the request in hand; set by the reading
 * thread, which owns the scratch memory. */
struct ops_call {
	uint64_t unique;
	unsigned n_interrupts; /* see reads_n_interrupts() */
	char *scratch; /* OPS_SCRATCH_BYTES, locked */
};
extern __thread struct ops_call ops_call;

/* The largest attribute value is 64 KiB, and it is a good size of a piece of
 * a directory: some 400 entries with their attributes. */
#define OPS_SCRATCH_BYTES 65536

/* A year: layers never change. */
#define OPS_TIMEOUT (365 * 86400.0)

extern const struct fuse_lowlevel_ops ops_table;

#endif
