/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disk usage of snapshots; see usage.h. The tree is a container's, which may be
 * running and may mean ill: no recursion, a bounded number of open folders, and
 * what vanishes under the walk is not an error.
 */
#include "usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/htab.h"
#include "base/log.h"

struct linked {
	uint64_t key[2]; /* device, inode */
	UT_hash_handle hh;
};

struct walk {
	DIR *open[USAGE_DEPTH_MAX];
	unsigned depth;
	struct linked *linked; /* inodes with several names, seen once */
	uint64_t size, inodes;
	bool too_deep;
};

static void owned_walk(struct walk *w)
{
	struct linked *l, *tmp;

	while (w->depth)
		(void)closedir(w->open[--w->depth]);
	htab_each (w->linked, l, tmp) {
		HASH_DEL(w->linked, l);
		free(l);
	}
}

/* 1: not seen before, 0, -ENOMEM */
static int first_time(struct walk *w, const struct stat *st)
{
	uint64_t key[2] = { st->st_dev, st->st_ino };
	struct linked *l;

	if (st->st_nlink < 2 || S_ISDIR(st->st_mode))
		return 1;
	HASH_FIND(hh, w->linked, key, sizeof(key), l);
	if (l)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	memcpy(l->key, key, sizeof(key));
	HASH_ADD(hh, w->linked, key, sizeof(l->key), l);
	if (!HTAB_ADDED(l)) {
		free(l);
		return -ENOMEM;
	}
	return 1;
}

static int enter(struct walk *w, int dirfd, const char *name)
{
	int fd;

	if (w->depth == USAGE_DEPTH_MAX) {
		w->too_deep = true;
		return 0;
	}
	fd = open_dir(dirfd, name);
	if (fd < 0)
		return fd;
	w->open[w->depth] = fdopendir(fd);
	if (!w->open[w->depth]) {
		(void)close(fd);
		return -ENOMEM;
	}
	w->depth++;
	return 0;
}

/* Counts @name and, if it is a folder, opens it. */
static int visit(struct walk *w, int dirfd, const char *name)
{
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	r = first_time(w, &st);
	if (r < 0)
		return r;
	if (r > 0) {
		w->size += (uint64_t)st.st_blocks * 512;
		w->inodes++;
	}
	if (!S_ISDIR(st.st_mode))
		return 0;
	r = enter(w, dirfd, name);
	/* Removed or replaced a moment ago. */
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

static int walk(struct walk *w, int rootfd, const char *path)
{
	int r = visit(w, rootfd, path);

	while (r == 0 && w->depth) {
		DIR *d = w->open[w->depth - 1];
		struct dirent *de = readdir(d);

		if (!de) {
			(void)closedir(d);
			w->depth--;
		} else if (strcmp(de->d_name, ".") &&
			   strcmp(de->d_name, "..")) {
			r = visit(w, dirfd(d), de->d_name);
		}
	}
	return r;
}

int usage_scan(int rootfd, uint64_t id, uint64_t *ret_size,
	       uint64_t *ret_inodes, struct err *e)
{
	owned(walk) struct walk w = { 0 };
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", id);
	r = walk(&w, rootfd, path);
	if (r < 0)
		return err_sys(e, r, "usage of '%s'", path);
	if (w.too_deep)
		log_warn(
			"usage of very deep folders is not counted: path=%s levels=%d",
			path, USAGE_DEPTH_MAX);
	*ret_size = w.size;
	*ret_inodes = w.inodes;
	return 0;
}

int usage_of(int rootfd, const struct snap *sp, uint64_t *ret_size,
	     uint64_t *ret_inodes, struct err *e)
{
	switch (sp->kind) {
	case SNAP_KIND_ACTIVE:
		return usage_scan(rootfd, sp->id, ret_size, ret_inodes, e);
	case SNAP_KIND_COMMITTED:
		*ret_size = sp->size;
		*ret_inodes = sp->inodes;
		return 0;
	case SNAP_KIND_VIEW:
	default:
		*ret_size = 0;
		*ret_inodes = 0;
		return 0;
	}
}
