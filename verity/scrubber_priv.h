/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two ends of scrubber.h: scrubber.c in the daemon, scrub_serve.c in
 * the helper. */
#ifndef VERITY_SCRUBBER_PRIV_H
#define VERITY_SCRUBBER_PRIV_H

#include "verity/scrubber.h"

#define SCRUB_REQUEST (HELPER_FIRST + 0u) /* to the helper, with an fd */
#define SCRUB_ANSWER (HELPER_FIRST + 1u)

struct scrub_request {
	struct helper_head h;
	uint64_t size, rate;
	struct digest want;
};

struct scrub_answer {
	struct helper_head h;
	uint64_t n_unreadable, first_unreadable, bytes;
	int32_t err; /* of struct scrub_result */
	uint32_t sealed;
};

/* All of the file that has @rq->size bytes, or should have. Once at a time in a
 * process, which gets a handler for SIGBUS. @sock: when it ends, this does. */
void scrub_file(int fd, const struct scrub_request *rq, int sock,
		struct scrub_answer *a);

#endif
