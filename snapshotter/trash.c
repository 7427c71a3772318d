/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deletion in the background; see trash.h. Owns ROOT/trash: nobody else puts
 * anything there. The search for orphans is in orphans.c.
 *
 * The thread keeps no list: it empties the folder, whatever is in it. So what a
 * killed process left behind, and what could not be removed the last time, are
 * no special cases.
 */
#include "trash.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"

#define TRASH "trash"
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

/* Names in a folder, copied, so that removing does not confuse readdir. */
static int next_name(DIR *d, char name[static NAME_MAX + 1])
{
	struct dirent *de;

	while ((de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		(void)snprintf(name, NAME_MAX + 1, "%s", de->d_name);
		return 1;
	}
	return 0;
}

/* One round. False: something could not be removed. */
static bool empty_once(struct trash *t)
{
	int fd = open_dir(t->rootfd, TRASH);
	owned(dir) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char name[NAME_MAX + 1];
	bool clean = true;

	if (!d) {
		log_warn("trash not readable: err='%s'",
			 strerror(fd < 0 ? -fd : errno));
		if (fd >= 0)
			(void)close(fd);
		return false;
	}
	while (!atomic_load(&t->stop) && next_name(d, name)) {
		int r = remove_tree(dirfd(d), name);

		if (r < 0) {
			clean = false;
			log_warn(
				"trash not removed, later again: name=%s err='%s'",
				name, strerror(-r));
		}
		(void)fault_point("trash_entry_removed");
	}
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
		clean = empty_once(t);
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

	(void)snprintf(to, sizeof(to), TRASH "/%016" PRIx64 "-%llu", t->tag,
		       atomic_fetch_add(&t->n_added, 1));
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
