/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file descriptors that all open bodies together may have. A body that
 * nobody is reading or writing right now may lose them at any time; the next
 * body_pin() opens them again.
 *
 * bs->lock is never held over a system call that can block.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "snapshotter/body_priv.h"
#include "verity/stream.h"

#define OPEN_MAX 1024u /* bodies with open fds, each with two or three */
#define OPEN_MIN 8u
#define OPEN_SHARE 4 /* of the fds that the process may have */
#define RELIEF 16 /* closed at once when the process runs out of fds */
#define RELIEF_TRIES 200u
#define RELIEF_WAIT_US 2000 /* when all are being used, but for a moment */

/* Not what the kernel reads for others, and not what is to be sealed soon. */
static bool may_drop(const struct body *b)
{
	return b->data_fd >= 0 && !b->data_sealed &&
	       !(atomic_load(&b->state) == BODY_COMPLETE &&
		 atomic_load(&b->bs->keep_cached) &&
		 b->id.size <= stream_cached_max());
}

struct closing body_detach_fds(struct body *b)
{
	struct closing c = { { b->data_fd, b->state_fd, b->write_fd },
			     may_drop(b) };

	if (b->data_fd >= 0)
		b->bs->n_open--;
	list_remove(&b->closable);
	b->data_fd = b->state_fd = b->write_fd = -1;
	b->data_sealed = false;
	return c;
}

void body_close_all(const struct closing *c)
{
	if (c->drop)
		stream_drop(c->fd[0]);
	for (size_t i = 0; i < ARRAY_LEN(c->fd); i++) {
		if (c->fd[i] >= 0)
			(void)close(c->fd[i]);
	}
}

unsigned bodies_open_max(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 ||
	    rl.rlim_cur >= (rlim_t)OPEN_MAX * OPEN_SHARE)
		return OPEN_MAX;
	if (rl.rlim_cur <= (rlim_t)OPEN_MIN * OPEN_SHARE)
		return OPEN_MIN;
	return (unsigned)rl.rlim_cur / OPEN_SHARE;
}

/* What open_missing() has found. */
struct opened {
	struct closing c;
	bool sealed; /* c.fd[0]: the kernel checks it */
};

/* Closes the fds of up to @n idle bodies; how many. */
static unsigned close_idle(struct bodies *bs, unsigned n)
{
	struct closing c[RELIEF];
	unsigned n_closed = 0;

	lock_take(&bs->lock);
	while (n_closed < n && n_closed < RELIEF && !list_empty(&bs->closable))
		c[n_closed++] = body_detach_fds(
			list_first(&bs->closable, struct body, closable));
	lock_drop(&bs->lock);
	for (unsigned i = 0; i < n_closed; i++)
		body_close_all(&c[i]);
	return n_closed;
}

/*
 * What returned @r is worth trying again: the process, or the system, was out
 * of fds. Those of idle bodies are closed; if there are none, the others are in
 * use for no longer than a read takes. Ends after some tries, 0.4 s at most.
 */
bool bodies_relieve(struct bodies *bs, int r, unsigned *tries)
{
	if ((r != -EMFILE && r != -ENFILE) || ++*tries > RELIEF_TRIES)
		return false;
	if (!close_idle(bs, RELIEF))
		(void)usleep(RELIEF_WAIT_US);
	return true;
}

int body_open_file(struct body *b, const char *suffix, int flags)
{
	char path[BODY_PATH_MAX];
	unsigned tries = 0;
	int r;

	body_path(&b->id, suffix, path);
	do {
		r = openat(b->bs->rootfd, path, flags | O_NOFOLLOW | O_CLOEXEC);
		if (r < 0)
			r = -errno;
	} while (bodies_relieve(b->bs, r, &tries));
	if (r >= 0)
		stream_hint(r);
	return r;
}

/* What @have lacks is opened; -1 stays where nothing is needed. @seal: what a
 * finished file must have, or zero. */
static int open_missing(struct body *b, const struct body_fds *have, bool write,
			const struct digest *seal, struct opened *ret)
{
	owned(fd) int data = -1;
	owned(fd) int state = -1;
	owned(fd) int writer = -1;

	if (have->data < 0) {
		data = body_open_file(b, "", O_RDONLY);
		if (data < 0)
			return data;
		ret->sealed =
			!digest_is_zero(seal) && body_fd_is_sealed(data, seal);
		state = body_open_file(b, ".state", O_RDWR);
		if (state == -EROFS) /* enough for who reads */
			state = body_open_file(b, ".state", O_RDONLY);
		if (state < 0)
			return state;
	}
	if (write && have->write < 0) {
		writer = body_open_file(b, "", O_WRONLY);
		if (writer < 0)
			return writer;
	}
	ret->c.fd[0] = take_fd(&data);
	ret->c.fd[1] = take_fd(&state);
	ret->c.fd[2] = take_fd(&writer);
	return 0;
}

/* Gives the body what it still lacks; *o keeps what it has got already. */
static void install_fds_locked(struct body *b, struct opened *o)
{
	if (b->data_fd < 0 && o->c.fd[0] >= 0) {
		b->data_fd = take_fd(&o->c.fd[0]);
		b->state_fd = take_fd(&o->c.fd[1]);
		b->data_sealed = o->sealed;
		b->bs->n_open++;
	}
	if (b->write_fd < 0)
		b->write_fd = take_fd(&o->c.fd[2]);
}

static struct body_fds fds_of(const struct body *b)
{
	return (struct body_fds){ b->data_fd, b->state_fd, b->write_fd,
				  b->data_sealed };
}

void body_retire_locked(struct body *b, struct retired *r)
{
	r->c = body_detach_fds(b);
	list_push(&b->retired, &r->node);
}

/* Before somebody writes: a file that was finished once gets a successor. One
 * thread makes it, others wait. Drops the lock meanwhile. */
static int replace_locked(struct body *b)
{
	struct bodies *bs = b->bs;
	struct retired *old;
	unsigned tries = 0;
	int r;

	while (b->replacing)
		cond_wait(&bs->idle, &bs->lock);
	if (!atomic_load(&b->frozen) || body_get_state(b) != BODY_PARTIAL)
		return 0;
	b->replacing = true;
	lock_drop(&bs->lock);
	old = malloc(sizeof(*old));
	r = old ? 0 : -ENOMEM;
	if (r == 0)
		do
			r = body_replace(b);
		while (bodies_relieve(bs, r, &tries));
	lock_take(&bs->lock);
	b->replacing = false;
	if (r == 0) {
		memset(&b->seal, 0, sizeof(b->seal));
		body_retire_locked(b, take_ptr(&old));
	}
	cond_broadcast(&bs->idle);
	free(old);
	return r;
}

/* Opens what a pinned body has not open. */
static int complete_fds(struct body *b, bool write, const struct digest *seal,
			struct body_fds *f)
{
	struct bodies *bs = b->bs;
	struct opened o = { .c.fd = { -1, -1, -1 } };
	unsigned n_excess;
	int r = open_missing(b, f, write, seal, &o);

	if (r < 0)
		return r;
	lock_take(&bs->lock);
	install_fds_locked(b, &o);
	*f = fds_of(b);
	n_excess = bs->n_open > bs->open_max ? bs->n_open - bs->open_max : 0;
	lock_drop(&bs->lock);
	body_close_all(&o.c);
	if (n_excess)
		(void)close_idle(bs, n_excess);
	return 0;
}

int body_pin(struct body *b, bool write, struct body_fds *ret)
{
	struct bodies *bs = b->bs;
	struct digest seal;
	struct body_fds f;
	bool open_writer;
	int r, sealed = BODY_SEALED;

	lock_take(&bs->lock);
	b->n_pins++;
	b->n_write_pins += write;
	list_remove(&b->closable); /* a pinned body keeps its fds */
	r = write ? replace_locked(b) : 0;
	open_writer = write && body_get_state(b) == BODY_PARTIAL;
	f = fds_of(b);
	seal = b->seal;
	lock_drop(&bs->lock);
	if (r == 0 && (f.data < 0 || (open_writer && f.write < 0)))
		r = complete_fds(b, open_writer, &seal, &f);
	/* Another file is there now: as body_load() would see it. */
	if (r == 0 && !f.sealed && !digest_is_zero(&seal))
		(void)atomic_compare_exchange_strong(&b->state, &sealed,
						     BODY_COMPLETE);
	if (r < 0) {
		body_unpin(b, write);
		return r;
	}
	*ret = f;
	return 0;
}

static void close_retired(struct list *retired)
{
	while (!list_empty(retired)) {
		struct retired *r = list_first(retired, struct retired, node);

		list_remove(&r->node);
		body_close_all(&r->c);
		free(r);
	}
}

void body_unpin(struct body *b, bool write)
{
	struct bodies *bs = b->bs;
	struct list retired;
	int writer = -1;

	list_init(&retired);
	lock_take(&bs->lock);
	b->n_write_pins -= write;
	/* A finished body is sealed soon, which an open writer prevents. */
	if (!b->n_write_pins && body_get_state(b) != BODY_PARTIAL)
		writer = take_fd(&b->write_fd);
	if (--b->n_pins == 0) {
		list_splice(&retired, &b->retired);
		if (b->data_fd >= 0)
			list_push(&bs->closable, &b->closable);
	}
	lock_drop(&bs->lock);
	if (writer >= 0)
		(void)close(writer);
	close_retired(&retired);
	if (atomic_load(&bs->damaged) && atomic_exchange(&bs->damaged, false) &&
	    bs->on_damage)
		bs->on_damage(bs->on_damage_ctx);
}
