/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lower layers say about a directory that a layer implies but does not
 * name. As an unpack does it (containerd archive/tar.go, mkparent()): the
 * topmost lower that has the path gives owner, mode, time and attributes.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/fs.h"
#include "snapshotter/index_write.h"
#include "snapshotter/layer_priv.h"

#define XATTRS_MAX (64u << 10)

/* What speaks to overlayfs or needs privileges is not for the new layer. */
static bool is_copied(const char *name)
{
	return strncmp(name, "trusted.", 8) != 0 && !strstr(name, ".overlay.");
}

/* One value that @get gives with a size of 64 KiB, into @out. */
struct xattr_source {
	ssize_t (*list)(const void *from, char *buf, size_t cap);
	ssize_t (*get)(const void *from, const char *name, char *buf,
		       size_t cap);
	const void *from;
};

static int copy_xattrs(const struct xattr_source *s, struct buf *out)
{
	owned(mem) char *names = malloc(2 * (size_t)XATTRS_MAX);
	char *value = names + XATTRS_MAX;
	ssize_t n, len;
	int r = 0;

	if (!names)
		return -ENOMEM;
	n = s->list(s->from, names, XATTRS_MAX);
	for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		if (!is_copied(p))
			continue;
		len = s->get(s->from, p, value, XATTRS_MAX);
		if (len == -ENODATA)
			continue;
		r = len < 0 ? (int)len
			    : index_xattr_add(out, p, value, (size_t)len);
		if (r < 0 && r != -EOPNOTSUPP)
			return r;
	}
	return n < 0 ? (int)n : 0;
}

struct inode_at {
	struct index *ix;
	const struct inode *in;
};

static ssize_t inode_list(const void *from, char *buf, size_t cap)
{
	const struct inode_at *at = from;

	return index_listxattr(at->ix, at->in, buf, cap);
}

static ssize_t inode_get(const void *from, const char *name, char *buf,
			 size_t cap)
{
	const struct inode_at *at = from;

	return index_getxattr(at->ix, at->in, name, buf, cap);
}

static ssize_t fd_list(const void *from, char *buf, size_t cap)
{
	ssize_t n = flistxattr(*(const int *)from, buf, cap);

	return n < 0 ? (errno == EOPNOTSUPP ? 0 : -errno) : n;
}

static ssize_t fd_get(const void *from, const char *name, char *buf, size_t cap)
{
	ssize_t n = fgetxattr(*(const int *)from, name, buf, cap);

	return n < 0 ? -errno : n;
}

static int implied_in_layer(struct layers *ls, uint32_t seq, const char *path,
			    struct implied_attr *ret)
{
	struct layer *l = layer_get(ls, seq);
	struct inode in;
	int r = !l || !l->src.index ? -EAGAIN
				    : index_walk(l->src.index, path, &in);

	if (r == 0 && !S_ISDIR(in.mode))
		r = S_ISLNK(in.mode) ? -ELOOP : -ENOTDIR;
	if (r == 0) {
		struct inode_at at = { l->src.index, &in };
		struct xattr_source s = { inode_list, inode_get, &at };

		ret->mode = in.mode & 07777;
		ret->uid = in.uid;
		ret->gid = in.gid;
		ret->mtime = in.mtime;
		ret->mtime_nsec = in.mtime_nsec;
		if (in.xattr_len)
			r = copy_xattrs(&s, ret->xattrs);
	}
	layer_put(l);
	return r;
}

static int implied_in_snapshot(struct layers *ls, uint64_t id, const char *path,
			       struct implied_attr *ret)
{
	owned(fd) int fd = -1;
	struct xattr_source s = { fd_list, fd_get, &fd };
	char full[4400];
	struct stat st;

	if ((size_t)snprintf(full, sizeof(full), "s/%llu/fs/%s",
			     (unsigned long long)id, path) >= sizeof(full))
		return -ENAMETOOLONG;
	if (fstatat(ls->o.rootfd, full, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
	fd = open_dir(ls->o.rootfd, full);
	if (fd < 0)
		return fd;
	ret->mode = st.st_mode & 07777;
	ret->uid = st.st_uid;
	ret->gid = st.st_gid;
	ret->mtime = st.st_mtim.tv_sec;
	ret->mtime_nsec = (uint32_t)st.st_mtim.tv_nsec;
	return copy_xattrs(&s, ret->xattrs);
}

int layer_implied(struct layers *ls, const struct snap_link *below,
		  size_t n_below, const char *path, struct implied_attr *ret)
{
	for (size_t i = 0; i < n_below; i++) {
		const struct snap_link *k = &below[i];
		int r = k->seq != NO_LAYER
				? implied_in_layer(ls, k->seq, path, ret)
				: implied_in_snapshot(ls, k->id, path, ret);

		if (r == 0)
			return 0;
		if (r == -ENOTDIR)
			return -ENOENT; /* hidden by a file or a whiteout */
		if (r != -ENOENT)
			return r;
	}
	return -ENOENT;
}
