/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: every path of an index, found as a file system finds it: list a
 * directory, look each name up, load its inode, go on below it.
 */
#ifndef TESTS_LIB_INDEX_VISIT_H
#define TESTS_LIB_INDEX_VISIT_H

#include <string.h>
#include <sys/stat.h>

#include "fuse/index.h"

struct visit {
	struct index *ix;
	/* @path: without slash at its front; 0, or what index_visit returns */
	int (*fn)(struct visit *v, const char *path, const struct inode *in);
	void *ctx;
	size_t len;
	char path[4400];
};

int index_visit_dir(struct visit *v, const struct inode *dir);

struct visit_level {
	struct visit *v;
	struct inode dir;
};

static int visit_name(void *ctx, const struct dirent_pos *d)
{
	struct visit_level *lv = ctx;
	struct visit *v = lv->v;
	size_t len = v->len;
	struct inode in;
	uint32_t nid;
	int r;

	if ((d->name_len == 1 && d->name[0] == '.') ||
	    (d->name_len == 2 && !memcmp(d->name, "..", 2)))
		return 0;
	if (len + 1 + d->name_len >= sizeof(v->path))
		return -ENAMETOOLONG;
	if (len)
		v->path[v->len++] = '/';
	memcpy(v->path + v->len, d->name, d->name_len);
	v->len += d->name_len;
	v->path[v->len] = '\0';
	r = index_lookup(v->ix, &lv->dir, d->name, d->name_len, &nid);
	if (r == 0 && nid != d->nid)
		r = -EUCLEAN;
	if (r == 0)
		r = index_inode(v->ix, nid, &in);
	if (r == 0 && d->dtype != (in.mode & S_IFMT) >> 12)
		r = -EUCLEAN;
	if (r == 0)
		r = v->fn(v, v->path, &in);
	if (r == 0 && S_ISDIR(in.mode))
		r = index_visit_dir(v, &in);
	v->len = len;
	v->path[len] = '\0';
	return r;
}

int index_visit_dir(struct visit *v, const struct inode *dir)
{
	struct visit_level lv = { v, *dir };

	return index_readdir(v->ix, dir, 0, visit_name, &lv);
}

/* The root first. */
static inline int index_visit(struct visit *v)
{
	struct inode root;
	int r = index_inode(v->ix, INDEX_ROOT_NID, &root);

	v->len = 0;
	v->path[0] = '\0';
	if (r == 0)
		r = v->fn(v, v->path, &root);
	return r ? r : index_visit_dir(v, &root);
}

#endif
