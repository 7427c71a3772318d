/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verified extents that the disk has no room for, in memory for as long as their
 * readers need them: a full disk slows readers down and does not fail them.
 * Bounded in bytes and in time, so that what has been read is cached again soon
 * after there is room. Known by content: who may read it has been decided before.
 */
#ifndef SNAPSHOTTER_SPILL_H
#define SNAPSHOTTER_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

#define SPILL_MAX (32u << 20) /* bytes; the oldest go */
#define SPILL_MS 20000u

struct spill;

int spill_new(struct spill **ret) must_check;
void spill_free(struct spill *s); /* accepts NULL */

/* @p: content with digest @d. -ENOMEM; -ENOSPC: too large. */
int spill_put(struct spill *s, const struct digest *d, const void *p,
	      size_t len) must_check;
bool spill_has(struct spill *s, const struct digest *d);
/* Bytes [off, off + len) of it. -EAGAIN: it is not here (any more). */
int spill_read(struct spill *s, const struct digest *d, size_t off, void *p,
	       size_t len) must_check;
/* Cheap. */
bool spill_is_empty(struct spill *s);

#endif
