/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind the facade share. */
#ifndef SNAPSHOTTER_SNAPSHOTTER_PRIV_H
#define SNAPSHOTTER_SNAPSHOTTER_PRIV_H

#include <sys/stat.h>

#include "snapshotter/lazy.h"
#include "snapshotter/snapshotter.h"
#include "snapshotter/trash.h"

struct snapshotter {
	int rootfd;
	char *root; /* env.root */
	struct mounts_env env;
	struct store *store;
	struct trash *trash;
	struct lazy *lazy;
	unsigned prepare_budget_s;

	/*
	 * Attributes of a lazy layer's root folder, from its index: nobody in
	 * this process may look below ROOT/l. 0; -ENOENT: the layer names none,
	 * look further down; -errno: defaults are used.
	 */
	int (*parent_root_attr)(void *ctx, uint32_t seq, struct stat *ret);
	void *parent_root_ctx;
};

/* An ordinary Prepare or View: folders, row, mounts. upper.c */
int snapshotter_create(struct snapshotter *s, const struct prepare_req *rq,
		       struct mount_list *ret, struct err *e) must_check;

#endif
