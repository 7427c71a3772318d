/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READ: answered from the disk at once, or parked until the bytes are there.
 *
 * A parked read holds its request and nothing else: no buffer, no thread. It is
 * answered exactly once: when its bytes have landed, when the provider gives
 * up, when its caller is killed, at the deadline, or when the view closes.
 */
#ifndef FUSE_READ_H
#define FUSE_READ_H

#include <stdint.h>

#include "fuse/buffers.h"
#include "fuse/ops.h"
#include "fuse/source.h"

struct reads;

struct reads_opts {
	const struct source_set *sources; /* outlives the object */
	struct buffers *buffers; /* likewise */
	uint64_t timeout_ms; /* a parked read then answers ETIMEDOUT */
	unsigned max_parked; /* per layer; one more answers EIO */
};

int reads_new(const struct reads_opts *o, struct reads **ret) must_check;
void reads_free(struct reads *rs); /* after reads_close() */

struct read_request {
	fuse_req_t req;
	struct source *src;
	struct source_file file;
	uint64_t off;
	size_t len; /* > 0, off + len <= file.size, len <= a buffer's */
	uint64_t unique;
	int pid; /* the calling thread; 0: not visible from here */
	unsigned n_interrupts; /* of reads_n_interrupts(), see there */
};

/*
 * reads_handle() - answer @rq now or later; consumes the request and @rq->src
 * Waits for the disk, never for the network.
 */
void reads_handle(struct reads *rs, const struct read_request *rq);

/*
 * reads_interrupt() - the kernel says that a signal waits for the caller
 *
 * Every handled signal gives an INTERRUPT, too. Applications do not expect
 * EINTR from a file, and for a page fault it would be SIGBUS: only a caller
 * that is being killed is answered, with EINTR at once. Whether it is, is
 * asked of /proc; a caller that is not visible there (pid 0: in a pid
 * namespace that is not below ours) waits for its bytes or the deadline.
 */
void reads_interrupt(struct reads *rs, uint64_t unique);

/*
 * reads_n_interrupts() - count of INTERRUPTs that met no parked read
 *
 * Taken by a thread before it reads a request from the device. If the count is
 * another one when the request has been parked, the INTERRUPT may have been
 * its own, so the caller's signals are looked at then.
 */
unsigned reads_n_interrupts(struct reads *rs);

/* Ends what is past its deadline. Returns when to come back, on now_ms(). */
uint64_t reads_expire(struct reads *rs);

/* Answers EIO to all that are parked, waits for them, refuses new ones. */
void reads_close(struct reads *rs);

struct reads_stats {
	uint64_t n_reads, n_parked_total;
	uint32_t n_parked;
};
void reads_stats(struct reads *rs, struct reads_stats *ret);
uint32_t reads_n_parked(struct reads *rs, uint32_t seq);

#endif
