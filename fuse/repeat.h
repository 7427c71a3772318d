/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads that the kernel repeats by itself.
 *
 * A readahead READ that fails leaves its pages in the cache, not up to date,
 * and whoever slept on one of them sends a READ of his own at once, without the
 * application having asked again (mm/filemap.c, seen with 5.10 to 6.12). After
 * a timeout that would be a second wait as long as the first, and one more for
 * each thread that sleeps on the same page. So a timeout is remembered for a
 * moment, and what looks like its repetition gets the same answer: once for
 * each thread, so that an application that tries again does wait anew.
 *
 * Not thread-safe; a bounded number is remembered, the oldest is forgotten.
 */
#ifndef FUSE_REPEAT_H
#define FUSE_REPEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPEAT_MS 200u
#define REPEATS_MAX 1024u
#define REPEAT_THREADS 8u

/* Bytes of a file that a thread asks for. */
struct repeat_range {
	uint64_t off;
	size_t len;
	uint32_t seq, ino;
	int pid; /* the thread; 0: any that is not visible from here */
};

struct repeat {
	struct repeat_range at;
	uint64_t until_ms;
	unsigned n_told;
	int told[REPEAT_THREADS]; /* a ring: who has had this answer */
};

struct repeats {
	struct repeat v[REPEATS_MAX]; /* a ring, in the order of until_ms */
	unsigned next;
};

/* @at is about to be answered ETIMEDOUT. */
void repeats_note(struct repeats *rs, const struct repeat_range *at,
		  uint64_t now_ms);
/* Is it the repetition of one that was? If so it is noted that it was told. */
bool repeats_tell(struct repeats *rs, const struct repeat_range *at,
		  uint64_t now_ms);

#endif
