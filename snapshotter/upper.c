/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New ordinary snapshots: the folders s/<id>/{fs,work} first, durable, then the
 * row. They are made under the name s/<id>.tmp, so that a number stands for a
 * whole snapshot or for nothing.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "snapshotter/snapshotter_priv.h"

struct upper_attr {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/*
 * The root folder of the new upper hides those of its parents, so it takes
 * their attributes over. A lazy layer has none, see root_entry() in
 * builder_tree.c: look further down. Without a parent: 0755, ours.
 */
static int parent_attr(struct snapshotter *s, const char *sn,
		       const struct snap *parent, struct upper_attr *ret,
		       struct err *e)
{
	owned(snap) struct snap below = { 0 };
	const struct snap *at = parent;
	struct stat st;
	char path[40];

	while (at->seq != NO_LAYER) { /* the rows bound the chain's length */
		owned(snap) struct snap next = { 0 };

		if (!*at->parent)
			return 0;
		if (store_get(s->store, sn, at->parent, &next, e) < 0)
			return err_wrap(e, "parent of '%s'", at->name);
		snap_release(&below);
		below = next;
		next = (struct snap){ 0 };
		at = &below;
	}
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", at->id);
	if (fstatat(s->rootfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, -errno, "folder '%s'", path);
	ret->uid = st.st_uid;
	ret->gid = st.st_gid;
	ret->mode = st.st_mode & 07777;
	return 0;
}

static int make_fs(int dirfd, const struct upper_attr *a)
{
	int r = mkdir_exact(dirfd, "fs", a->mode);

	if (r < 0)
		return r;
	/* chown drops setuid and setgid bits: mode again, behind it. */
	if (fchownat(dirfd, "fs", a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return fchmodat(dirfd, "fs", a->mode, 0) < 0 ? -errno : 0;
}

static int fill_folder(int dirfd, const struct upper_attr *a, bool work)
{
	int r = make_fs(dirfd, a);

	if (r == 0 && work)
		r = mkdir_exact(dirfd, "work", 0711);
	if (r == 0 && fsync(dirfd) < 0)
		r = -errno;
	return r;
}

static int make_folder(struct snapshotter *s, uint64_t id,
		       const struct upper_attr *a, bool work)
{
	char tmp[40], path[40];
	int fd, r;

	(void)snprintf(path, sizeof(path), "s/%" PRIu64, id);
	(void)snprintf(tmp, sizeof(tmp), "s/%" PRIu64 ".tmp", id);
	r = mkdir_exact(s->rootfd, tmp, 0700);
	if (r < 0)
		return r;
	fd = open_dir(s->rootfd, tmp);
	if (fd < 0)
		return fd;
	r = fill_folder(fd, a, work);
	(void)close(fd);
	(void)fault_point("snapshot_folder_made");
	if (r == 0 && renameat(s->rootfd, tmp, s->rootfd, path) < 0)
		r = -errno;
	if (r == 0)
		r = fsync_dir(s->rootfd, "s");
	(void)fault_point("snapshot_folder_renamed");
	return r;
}

static void drop_path(struct snapshotter *s, const char *path)
{
	int r = trash_add(s->trash, path);

	if (r < 0)
		log_warn("folder stays until the next start: path=%s err='%s'",
			 path, strerror(-r));
}

/* Both names: the one that is not there counts as done. */
static void drop_folder(struct snapshotter *s, uint64_t id)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "s/%" PRIu64, id);
	drop_path(s, path);
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 ".tmp", id);
	drop_path(s, path);
}

/* The parent's attributes, and early answers: what store_create() would refuse
 * costs no folder. */
static int look_at_parent(struct snapshotter *s, const struct prepare_req *rq,
			  struct upper_attr *a, struct err *e)
{
	owned(snap) struct snap parent = { 0 };

	if (!*rq->parent)
		return 0;
	if (store_get(s->store, rq->sn, rq->parent, &parent, e) < 0)
		return err_wrap(e, "parent");
	if (parent.kind != SNAP_KIND_COMMITTED)
		return err_set(e, ERR_INVALID,
			       "parent snapshot '%s' is not committed",
			       rq->parent);
	/* A view has no upper of its own. */
	return rq->view ? 0 : parent_attr(s, rq->sn, &parent, a, e);
}

int snapshotter_create(struct snapshotter *s, const struct prepare_req *rq,
		       struct mount_list *ret, struct err *e)
{
	struct upper_attr a = { .uid = geteuid(),
				.gid = getegid(),
				.mode = 0755 };
	bool has_folder = !rq->view || !*rq->parent;
	uint64_t id = store_new_id(s->store);
	int r = 0;

	if (look_at_parent(s, rq, &a, e) < 0)
		return -1;
	if (has_folder)
		r = make_folder(s, id, &a, !rq->view);
	if (r < 0) {
		(void)err_sys(e, r, "folder 's/%" PRIu64 "'", id);
		drop_folder(s, id);
		return -1;
	}
	if (store_create(s->store, id, rq->sn, rq->key, rq->parent,
			 rq->view ? SNAP_KIND_VIEW : SNAP_KIND_ACTIVE,
			 rq->labels, NULL, e) < 0) {
		if (has_folder)
			drop_folder(s, id);
		return -1;
	}
	return snapshotter_mounts(s, rq->sn, rq->key, ret, e);
}
