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
};

/* An ordinary Prepare or View: folders, row, mounts. upper.c */
int snapshotter_create(struct snapshotter *s, const struct prepare_req *rq,
		       struct mount_list *ret, struct err *e) must_check;

#endif
