/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verified extents that the disk does not take, in memory for as long as their
 * readers need them: a full disk, or one that has become read-only, slows readers
 * down and does not fail them.
 * Bounded in bytes and in time, so that what has been read is cached again soon
 * after there is room. Known by content: who may read it has been decided before.
 */
#ifndef SNAPSHOTTER_SPILL_H
#define SNAPSHOTTER_SPILL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

#define SPILL_MAX \
	(32u << 20) /* bytes; the oldest go. One extent may have more
			       * and is then alone */
#define SPILL_MS 20000u

struct spill;

int spill_new(struct spill **ret) must_check;
void spill_free(struct spill *s); /* accepts NULL */

/* Is -errno @r of a write what spilling is for? Bytes, inodes or quota are used
 * up, or the file system takes nothing any more. */
static inline bool spill_is_for(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -EROFS;
}

/* @p: content with digest @d. -ENOMEM. */
int spill_put(struct spill *s, const struct digest *d, const void *p,
	      size_t len) must_check;
bool spill_has(struct spill *s, const struct digest *d);
/* Bytes [off, off + len) of it. -EAGAIN: it is not here (any more). */
int spill_read(struct spill *s, const struct digest *d, size_t off, void *p,
	       size_t len) must_check;
/* Cheap. */
bool spill_is_empty(struct spill *s);

#endif
