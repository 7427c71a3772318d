/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers that outlived the daemon. Their overlay mounts stand on a view
 * that is gone, so what they read fails until they are started again. Mounts
 * like that are found in mountinfo at start and told in status until they go.
 *
 * Found are, of this mount namespace:
 *  - overlays with a lower directory ROOT/l/<seq>, or l/<seq> where containerd
 *    has shortened a long list to relative paths, or a bare <seq> next to an
 *    upper directory in ROOT/s (a list of nothing but lazy layers, shortened);
 *  - bind mounts of a layer (a View) whose session is mounted nowhere as a
 *    whole, or at ROOT/l. Those of another daemon that lives are not ours.
 */
#ifndef SNAPSHOTTER_BROKEN_H
#define SNAPSHOTTER_BROKEN_H

#include "base/buf.h"

struct broken;

/**
 * broken_find() - what stands on an earlier session of @root; logs a warning
 * @root: canonical
 *
 * Call it before dead views are detached and before a new one is mounted: all
 * that is there then is dead. 0 or -errno.
 */
int broken_find(const char *root, struct broken **ret) must_check;
void broken_free(struct broken *b); /* accepts NULL */

/*
 * broken_refresh() - forget mounts that have gone
 *
 * The kernel gives their ids to new mounts. containerd asks for the mounts of a
 * snapshot between the end of one container and the start of the next, so a
 * refresh at each such request is often enough. Any thread; costs nothing when
 * nothing is broken.
 */
void broken_refresh(struct broken *b);

/* JSON member "broken", refreshed; @b may be NULL. */
void broken_json(struct broken *b, struct buf *out);

/* The same on a given text of mountinfo, which is used up; for tests. */
int broken_find_in(char *text, const char *root, struct broken **ret)
	must_check;
void broken_refresh_in(struct broken *b, char *text);
void broken_json_of(struct broken *b, struct buf *out);

/* "<namespace>/<id>" of a mount point that a containerd shim made, else "". */
void broken_container(const char *path, char *ret, size_t size);

#endif
