/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of open bodies: one object per body, however many layers use it,
 * and the file descriptors that all of them together may keep open. A body that
 * nobody is reading or writing right now may lose its fds at any time; the next
 * body_pin() opens them again.
 *
 * bs->lock is never held over a system call that can block: who has to touch
 * the disk marks the body busy, and others wait for that to end.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fs.h"
#include "snapshotter/body_priv.h"
#include "snapshotter/spill.h"
#include "verity/stream.h"

#define OPEN_MAX 1024u /* bodies with open fds, each with two or three */
#define OPEN_MIN 8u
#define OPEN_SHARE 4 /* of the fds that the process may have */
#define RELIEF 16 /* closed at once when the process runs out of fds */
#define RELIEF_TRIES 200u
#define RELIEF_WAIT_US 2000 /* when all are being used, but for a moment */

/* fds taken out of a body under the lock, to be closed without it. */
struct closing {
	int fd[3];
};

static struct closing detach_fds(struct body *b)
{
	struct closing c = { { b->data_fd, b->state_fd, b->write_fd } };

	if (b->data_fd >= 0)
		b->bs->n_open--;
	list_remove(&b->closable);
	b->data_fd = b->state_fd = b->write_fd = -1;
	return c;
}

static void close_all(const struct closing *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->fd); i++) {
		if (c->fd[i] >= 0)
			(void)close(c->fd[i]);
	}
}

static unsigned open_max(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 ||
	    rl.rlim_cur >= (rlim_t)OPEN_MAX * OPEN_SHARE)
		return OPEN_MAX;
	if (rl.rlim_cur <= (rlim_t)OPEN_MIN * OPEN_SHARE)
		return OPEN_MIN;
	return (unsigned)rl.rlim_cur / OPEN_SHARE;
}

int bodies_new(int rootfd, struct bodies **ret)
{
	struct bodies *bs;
	int r = mkdir_exact(rootfd, BODY_FANOUT, 0700);

	if (r < 0)
		return r;
	bs = calloc(1, sizeof(*bs));
	if (!bs)
		return -ENOMEM;
	r = spill_new(&bs->spill);
	if (r == 0)
		r = cond_init(&bs->idle);
	if (r < 0) {
		spill_free(bs->spill);
		free(bs);
		return r;
	}
	lock_init(&bs->lock, RANK_BODIES);
	list_init(&bs->closable);
	bs->rootfd = rootfd;
	bs->open_max = open_max();
	state_boot_id(bs->boot);
	*ret = bs;
	return 0;
}

void bodies_free(struct bodies *bs)
{
	if (!bs)
		return;
	spill_free(bs->spill);
	cond_release(&bs->idle);
	lock_release(&bs->lock);
	free(bs);
}

struct spill *bodies_spill(struct bodies *bs)
{
	return bs->spill;
}

/* Closes the fds of up to @n idle bodies; how many. */
static unsigned close_idle(struct bodies *bs, unsigned n)
{
	struct closing c[RELIEF];
	unsigned n_closed = 0;

	lock_take(&bs->lock);
	while (n_closed < n && n_closed < RELIEF && !list_empty(&bs->closable))
		c[n_closed++] = detach_fds(
			list_first(&bs->closable, struct body, closable));
	lock_drop(&bs->lock);
	for (unsigned i = 0; i < n_closed; i++)
		close_all(&c[i]);
	return n_closed;
}

/*
 * What returned @r is worth trying again: the process, or the system, was out
 * of fds. Those of idle bodies are closed; if there are none, the others are in
 * use for no longer than a read takes. Ends after some tries, 0.4 s at most.
 */
static bool relieve(struct bodies *bs, int r, unsigned *tries)
{
	if ((r != -EMFILE && r != -ENFILE) || ++*tries > RELIEF_TRIES)
		return false;
	if (!close_idle(bs, RELIEF))
		(void)usleep(RELIEF_WAIT_US);
	return true;
}

static void body_free(struct body *b)
{
	if (!b)
		return;
	lock_release(&b->lock);
	free(b->bits);
	free(b->unsure);
	free(b);
}

static int body_new(struct bodies *bs, const struct body_id *id,
		    struct body **ret)
{
	struct body *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->bs = bs;
	b->id = *id;
	b->key.ckey = id->ckey;
	if (digest_is_zero(&id->ckey))
		b->key.seq = id->seq;
	list_init(&b->closable);
	b->data_fd = b->state_fd = b->write_fd = -1;
	lock_init(&b->lock, RANK_BODY);
	*ret = b;
	return 0;
}

/* The body with @b's key when nobody is busy with it, or NULL. */
static struct body *find_idle_locked(struct bodies *bs, const struct body *b)
{
	struct body *found;

	for (;;) {
		HASH_FIND(hh, bs->table, &b->key, sizeof(b->key), found);
		if (!found || !found->busy)
			return found;
		cond_wait(&bs->idle, &bs->lock);
	}
}

static int add_busy_locked(struct bodies *bs, struct body *b)
{
	HASH_ADD(hh, bs->table, key, sizeof(b->key), b);
	if (!HTAB_ADDED(b))
		return -ENOMEM;
	b->busy = true;
	return 0;
}

static void end_busy(struct bodies *bs, struct body *b, bool keep)
{
	lock_take(&bs->lock);
	b->busy = false;
	if (keep)
		b->n_refs = 1;
	else
		HASH_DEL(bs->table, b);
	cond_broadcast(&bs->idle);
	lock_drop(&bs->lock);
}

static bool same_body(const struct body_id *a, const struct body_id *b)
{
	return a->size == b->size && a->n_extents == b->n_extents;
}

int body_open(struct bodies *bs, const struct body_id *id,
	      const struct body_layout *lay, struct body **ret)
{
	struct body *b, *found;
	unsigned tries = 0;
	int r;

	if (id->size == 0 || id->size > STATE_SIZE_MAX || id->n_extents == 0 ||
	    id->n_extents > id->size)
		return -EINVAL;
	r = body_new(bs, id, &b);
	if (r < 0)
		return r;
	lock_take(&bs->lock);
	found = find_idle_locked(bs, b);
	if (!found)
		r = add_busy_locked(bs, b);
	else if (same_body(&found->id, id))
		found->n_refs++;
	else
		r = -EUCLEAN;
	lock_drop(&bs->lock);
	if (found || r < 0) {
		body_free(b);
		if (r == 0)
			*ret = found;
		return r;
	}
	/* On failure nothing has been loaded, and no half-made file stays. */
	do
		r = body_load(b, lay);
	while (relieve(bs, r, &tries));
	end_busy(bs, b, r == 0);
	if (r < 0) {
		body_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void body_put(struct body *b)
{
	struct closing c;
	struct bodies *bs;

	if (!b)
		return;
	bs = b->bs;
	lock_take(&bs->lock);
	if (--b->n_refs) {
		lock_drop(&bs->lock);
		return;
	}
	HASH_DEL(bs->table, b);
	c = detach_fds(b);
	lock_drop(&bs->lock);
	close_all(&c);
	body_free(b);
}

int bodies_unlink(struct bodies *bs, const struct body_id *id)
{
	struct body *b;
	int r = body_new(bs, id, &b);

	if (r < 0)
		return r;
	lock_take(&bs->lock);
	if (find_idle_locked(bs, b))
		r = -EBUSY;
	else
		r = add_busy_locked(bs, b);
	lock_drop(&bs->lock);
	if (r == 0) {
		r = body_unlink_files(bs, id);
		end_busy(bs, b, false);
	}
	body_free(b);
	return r;
}

static int open_file(struct body *b, const char *suffix, int flags)
{
	char path[BODY_PATH_MAX];
	unsigned tries = 0;
	int r;

	body_path(&b->id, suffix, path);
	do {
		r = openat(b->bs->rootfd, path, flags | O_NOFOLLOW | O_CLOEXEC);
		if (r < 0)
			r = -errno;
	} while (relieve(b->bs, r, &tries));
	return r;
}

/* What @have lacks is opened; -1 stays where nothing is needed. */
static int open_missing(struct body *b, const struct body_fds *have, bool write,
			struct closing *ret)
{
	owned(fd) int data = -1;
	owned(fd) int state = -1;
	owned(fd) int writer = -1;

	if (have->data < 0) {
		data = open_file(b, "", O_RDONLY);
		if (data < 0)
			return data;
		stream_hint(data);
		state = open_file(b, ".state", O_RDWR);
		if (state < 0)
			return state;
	}
	if (write && have->write < 0) {
		writer = open_file(b, "", O_WRONLY);
		if (writer < 0)
			return writer;
	}
	ret->fd[0] = take_fd(&data);
	ret->fd[1] = take_fd(&state);
	ret->fd[2] = take_fd(&writer);
	return 0;
}

/* Gives the body what it still lacks; *c keeps what it has got already. */
static void install_fds_locked(struct body *b, struct closing *c)
{
	if (b->data_fd < 0 && c->fd[0] >= 0) {
		b->data_fd = take_fd(&c->fd[0]);
		b->state_fd = take_fd(&c->fd[1]);
		b->bs->n_open++;
	}
	if (b->write_fd < 0)
		b->write_fd = take_fd(&c->fd[2]);
}

static struct body_fds fds_of(const struct body *b)
{
	return (struct body_fds){ b->data_fd, b->state_fd, b->write_fd };
}

int body_pin(struct body *b, bool write, struct body_fds *ret)
{
	struct bodies *bs = b->bs;
	struct closing c = { { -1, -1, -1 } };
	struct body_fds f;
	unsigned n_excess;
	int r;

	lock_take(&bs->lock);
	b->n_pins++;
	b->n_write_pins += write;
	list_remove(&b->closable); /* a pinned body keeps its fds */
	f = fds_of(b);
	lock_drop(&bs->lock);
	if (f.data >= 0 && (!write || f.write >= 0)) {
		*ret = f;
		return 0;
	}
	r = open_missing(b, &f, write, &c);
	if (r < 0) {
		body_unpin(b, write);
		return r;
	}
	lock_take(&bs->lock);
	install_fds_locked(b, &c);
	f = fds_of(b);
	n_excess = bs->n_open > bs->open_max ? bs->n_open - bs->open_max : 0;
	lock_drop(&bs->lock);
	close_all(&c);
	if (n_excess)
		(void)close_idle(bs, n_excess);
	*ret = f;
	return 0;
}

void body_unpin(struct body *b, bool write)
{
	struct bodies *bs = b->bs;
	int writer = -1;

	lock_take(&bs->lock);
	b->n_write_pins -= write;
	/* A finished body is sealed soon, which an open writer prevents. */
	if (!b->n_write_pins && atomic_load(&b->state) != BODY_PARTIAL)
		writer = take_fd(&b->write_fd);
	if (--b->n_pins == 0 && b->data_fd >= 0)
		list_push(&bs->closable, &b->closable);
	lock_drop(&bs->lock);
	if (writer >= 0)
		(void)close(writer);
}
