/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing in a process of its own: the helper "sealer" (verity/helper.h) gets a
 * read-only fd, makes the file a verity file, makes that durable, and answers
 * with the digest that the kernel enforces from then on. Whether it is the
 * right one is for the caller to say.
 *
 * In the helper two files are sealed at a time. A file that is not in the page
 * cache is read ahead of the kernel's hashing, and dropped behind it; when it is
 * done nothing of the file stays in the page cache.
 */
#ifndef VERITY_SEALER_H
#define VERITY_SEALER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/list.h"
#include "verity/helper.h"

#define SEALER_ROLE "sealer"
#define SEALER_PARALLEL 2u
#define SEALER_MEMORY (48u << 20) /* bytes of its cgroup, by default */

struct seal_result {
	/* 0: a verity file now, or before; else -errno of FS_IOC_ENABLE_VERITY,
	 * FS_IOC_MEASURE_VERITY or fsync. -EOPNOTSUPP: the file system or the
	 * kernel cannot; -EPIPE: the helper died, nothing is known. */
	int err;
	struct digest digest; /* on 0 */
	uint32_t ms; /* how long it took */
	uint64_t bytes_read; /* from the disk; 0 also where it is not told */
};

struct seal_job {
	uint64_t size; /* bytes of the file */
	bool cached; /* most of it should be in the page cache */
	/* Exactly once, the helper's thread, no lock held. */
	void (*done)(struct seal_job *j, const struct seal_result *res);
	struct list node; /* private */
	uint64_t id; /* private */
};

struct sealer;

/* Starts the helper; see helper_new(). @memory: bytes of its cgroup. */
int sealer_new(uint64_t memory, struct sealer **ret) must_check;
/* Jobs that are not done get -ECANCELED. */
void sealer_free(struct sealer *s);

/*
 * sealer_submit() - seal the file behind @fd
 *
 * @fd: open read-only; borrowed for the call. Never blocks. 0: done() will be
 * called; -EPIPE or another -errno: it will not.
 */
int sealer_submit(struct sealer *s, struct seal_job *j, int fd) must_check;

void sealer_get_status(struct sealer *s, struct helper_status *ret);

/* The helper's side: serves until the socket ends. */
int sealer_serve(int sock, uint64_t memory) must_check;

DEFINE_OWNED(sealer, struct sealer *, sealer_free)

#endif
