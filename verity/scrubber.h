/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading files again, in the helper process "scrub" (verity/helper.h): a bad
 * sector there is a signal in a mapping, which must never reach the daemon, and
 * hours of reading must not stop the sealer. It maps, so that what it reads
 * gains no place in the page cache (verity/stream.h), and reads no faster than
 * it is told.
 */
#ifndef VERITY_SCRUBBER_H
#define VERITY_SCRUBBER_H

#include "base/digest.h"
#include "verity/helper_call.h"

#define SCRUBBER_ROLE "scrub"
#define SCRUBBER_MEMORY (32u << 20) /* bytes of its cgroup */

struct scrub_job {
	int fd; /* open read-only, borrowed */
	uint64_t size; /* bytes that the file must have */
	uint64_t rate; /* bytes a second; 0: as fast as may be */
	struct digest want; /* fs-verity digest */
};

struct scrub_result {
	/* 0: as it must be. -EBADMSG: other bytes, another size, or blocks that
	 * cannot be read. Else -errno: nothing is known. */
	int err;
	bool sealed; /* the kernel has compared, not we */
	uint64_t n_unreadable; /* blocks of 4096 bytes */
	uint64_t first_unreadable;
	uint64_t bytes; /* looked at */
};

struct helper_caller *scrubber_new(void); /* NULL: out of memory or threads */

/*
 * scrubber_read() - have all of a file looked at
 *
 * Of a file that the kernel has sealed with job->want each page is touched;
 * any other is hashed. Pages that are in the page cache count as read.
 * 0: *ret says what came of it. -errno: as helper_call(). Blocks for as long as
 * that takes.
 */
int scrubber_read(struct helper_caller *s, const struct scrub_job *job,
		  const atomic_bool *stop, struct scrub_result *ret) must_check;

/* The helper's side: serves until the socket ends. */
int scrub_serve(int sock, uint64_t memory) must_check;

#endif
