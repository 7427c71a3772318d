/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletion in the background; see trash.h. Owns ROOT/trash: nobody else puts
 * anything there. The search for orphans is in orphans.c.
 *
 * The thread keeps no list: it empties the folder, whatever is in it. So what a
 * killed process left behind, and what could not be removed the last time, are
 * no special cases. Folders deeper than a few levels are moved up into the
 * trash first: however deep a container has built, neither the stack nor the
 * number of open files grows with it.
 */
#include "trash.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"

#define TRASH "trash"
#define DEPTH_MAX 32 /* levels taken apart in place */
#define RETRY_MS 30000 /* something was busy: look again after so long */

struct trash {
	int rootfd; /* own */
	uint64_t tag; /* random, so that names of two lives never meet */
	atomic_ullong n_added;
	atomic_bool stop;
	pthread_t thread;

	struct lock lock; /* rank 80; guards what follows */
	struct cond cond;
	uint64_t n_wanted, n_done; /* rounds */
};

static void new_name(struct trash *t, char *buf, size_t size)
{
	(void)snprintf(buf, size, TRASH "/%016" PRIx64 "-%llu", t->tag,
		       atomic_fetch_add(&t->n_added, 1));
}

/* One round: a path of folders, each open, each with its name in the one
 * before. */
struct round {
	struct trash *t;
	struct level {
		DIR *d;
		char name[NAME_MAX + 1];
	} level[DEPTH_MAX];
	unsigned depth;
	dev_t dev;
	bool moved; /* there is more now than there was */
	bool clean;
};

static void note(struct round *r, const char *name, int err)
{
	if (err == ENOENT)
		return;
	r->clean = false;
	log_limited(LOG_LEVEL_WARN, NULL,
		    "trash not removed, later again: name='%s' err='%s'", name,
		    strerror(err));
}

static void move_up(struct round *r, int dirfd, const char *name)
{
	char to[64];

	new_name(r->t, to, sizeof(to));
	if (renameat(dirfd, name, r->t->rootfd, to) < 0)
		note(r, name, errno);
	else
		r->moved = true;
}

static void descend(struct round *r, int dirfd, const char *name)
{
	int fd = open_dir(dirfd, name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		note(r, name, fd < 0 ? -fd : ENOMEM);
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	r->level[r->depth].d = d;
	(void)snprintf(r->level[r->depth].name, NAME_MAX + 1, "%s", name);
	r->depth++;
}

static void remove_one(struct round *r, int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) <
	    0)
		note(r, name, errno);
	else if (st.st_dev != r->dev) /* somebody's mount: not ours to empty */
		note(r, name, EBUSY);
	else if (!S_ISDIR(st.st_mode)) {
		if (unlinkat(dirfd, name, 0) < 0)
			note(r, name, errno);
	} else if (r->depth == DEPTH_MAX)
		move_up(r, dirfd, name);
	else
		descend(r, dirfd, name);
}

/* The deepest folder has been read to its end. */
static void ascend(struct round *r)
{
	struct level *l = &r->level[--r->depth];

	(void)closedir(l->d);
	if (r->depth == 0)
		return;
	if (unlinkat(dirfd(r->level[r->depth - 1].d), l->name, AT_REMOVEDIR) <
	    0)
		note(r, l->name, errno);
	if (r->depth == 1)
		(void)fault_point("trash_entry_removed");
}

static void empty_once(struct round *r)
{
	struct stat st;

	if (fstatat(r->t->rootfd, TRASH, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		note(r, TRASH, errno);
		return;
	}
	r->dev = st.st_dev;
	descend(r, r->t->rootfd, TRASH);
	while (r->depth && !atomic_load(&r->t->stop)) {
		DIR *d = r->level[r->depth - 1].d;
		struct dirent *de = readdir(d);

		if (!de)
			ascend(r);
		else if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			remove_one(r, dirfd(d), de->d_name);
	}
	while (r->depth) /* told to stop: the next start goes on */
		(void)closedir(r->level[--r->depth].d);
}

/* False: something could not be removed. */
static bool empty_trash(struct trash *t)
{
	struct round *r = calloc(1, sizeof(*r));
	bool clean;

	if (!r)
		return false;
	do {
		*r = (struct round){ .t = t, .clean = true };
		empty_once(r);
	} while (r->moved && !atomic_load(&t->stop));
	clean = r->clean;
	free(r);
	return clean;
}

static void *trash_main(void *arg)
{
	struct trash *t = arg;
	bool clean = true;

	(void)pthread_setname_np(pthread_self(), "vs-trash");
	lock_take(&t->lock);
	while (!atomic_load(&t->stop)) {
		uint64_t round = t->n_wanted;

		if (round == t->n_done && clean) {
			cond_wait(&t->cond, &t->lock);
			continue;
		}
		if (round == t->n_done &&
		    cond_wait_until(&t->cond, &t->lock, now_ms() + RETRY_MS) ==
			    0)
			continue;
		lock_drop(&t->lock);
		clean = empty_trash(t);
		lock_take(&t->lock);
		t->n_done = round;
		cond_broadcast(&t->cond);
	}
	lock_drop(&t->lock);
	return NULL;
}

static int trash_init(struct trash *t, int rootfd)
{
	int r;

	t->rootfd = fcntl(rootfd, F_DUPFD_CLOEXEC, 3);
	if (t->rootfd < 0)
		return -errno;
	if (getrandom(&t->tag, sizeof(t->tag), 0) != sizeof(t->tag))
		return -EIO;
	r = mkdir_exact(t->rootfd, TRASH, 0700);
	if (r < 0)
		return r;
	t->n_wanted = 1; /* what lies there already */
	return -pthread_create(&t->thread, NULL, trash_main, t);
}

int trash_open(int rootfd, struct trash **ret, struct err *e)
{
	struct trash *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_sys(e, -ENOMEM, "trash");
	r = cond_init(&t->cond);
	if (r < 0) {
		free(t);
		return err_sys(e, r, "trash");
	}
	lock_init(&t->lock, RANK_LEAF);
	t->rootfd = -1;
	r = trash_init(t, rootfd);
	if (r < 0) {
		if (t->rootfd >= 0)
			(void)close(t->rootfd);
		cond_release(&t->cond);
		lock_release(&t->lock);
		free(t);
		return err_sys(e, r, "folder '" TRASH "'");
	}
	*ret = t;
	return 0;
}

void trash_close(struct trash *t)
{
	if (!t)
		return;
	lock_take(&t->lock);
	atomic_store(&t->stop, true);
	cond_broadcast(&t->cond);
	lock_drop(&t->lock);
	(void)pthread_join(t->thread, NULL);
	(void)close(t->rootfd);
	cond_release(&t->cond);
	lock_release(&t->lock);
	free(t);
}

void trash_kick(struct trash *t)
{
	lock_take(&t->lock);
	t->n_wanted++;
	cond_broadcast(&t->cond);
	lock_drop(&t->lock);
}

int trash_add(struct trash *t, const char *path)
{
	char to[64];

	new_name(t, to, sizeof(to));
	if (renameat(t->rootfd, path, t->rootfd, to) < 0)
		return errno == ENOENT ? 0 : -errno;
	(void)fault_point("trash_renamed");
	trash_kick(t);
	return 0;
}

void trash_drain(struct trash *t)
{
	uint64_t round;

	lock_take(&t->lock);
	round = ++t->n_wanted;
	cond_broadcast(&t->cond);
	while (t->n_done < round && !atomic_load(&t->stop))
		cond_wait(&t->cond, &t->lock);
	lock_drop(&t->lock);
}

int trash_rootfd(const struct trash *t)
{
	return t->rootfd;
}
