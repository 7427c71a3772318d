/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletion: things are renamed to ROOT/trash first and removed later, by one
 * background thread, so that Remove and Cleanup answer at once. Also the
 * search for orphans at start: folders without a row are garbage.
 */
#ifndef SNAPSHOTTER_TRASH_H
#define SNAPSHOTTER_TRASH_H

#include <stdint.h>

#include "base/err.h"
#include "snapshotter/store.h"

struct trash;

/* Makes ROOT/trash; what lies there is removed. @rootfd is duplicated. */
int trash_open(int rootfd, struct trash **ret, struct err *e) must_check;
/* Stops at once, leaves the rest for the next start. */
void trash_close(struct trash *t);

/* Rename @path (relative to the root) into the trash and remove it later.
 * -ENOENT counts as done. Blocks on one rename. Any thread. After -EBUSY and
 * other errors the thing is where it was: the next start finds it. */
int trash_add(struct trash *t, const char *path) must_check;
/* What could not be removed is tried again now, not in half a minute. */
void trash_kick(struct trash *t);
/* Wait until the trash is empty; tests and a clean stop only. */
void trash_drain(struct trash *t);

/*
 * trash_orphans() - compare s/, layer/, body/ with the rows, at start
 *
 * Before anything else is created. Touches only names that this daemon makes:
 * decimal numbers, two hex digits and 64 hex digits, with ".state" or ".tmp".
 * Active snapshots and views without folder get an empty one (a warning names
 * them); committed ones do not (an error names them: an empty layer would run,
 * wrongly); layers without folder are the layer code's business.
 */
int trash_orphans(struct trash *t, struct store *s, struct err *e) must_check;

/* The state directory, for orphans.c. */
int trash_rootfd(const struct trash *t);

#endif
