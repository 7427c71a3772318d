/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of open bodies: one object per body, however many layers use it.
 *
 * bs->lock is never held over a system call that can block: who has to touch
 * the disk marks the body busy, and others wait for that to end.
 */
#include <string.h>

#include "base/fs.h"
#include "snapshotter/body_priv.h"
#include "snapshotter/spill.h"
#include "verity/stream.h"

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
	bs->open_max = bodies_open_max();
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

void bodies_on_damage(struct bodies *bs, void (*fn)(void *ctx), void *ctx)
{
	bs->on_damage = fn;
	bs->on_damage_ctx = ctx;
}

void bodies_keep_cached(struct bodies *bs, bool keep)
{
	atomic_store(&bs->keep_cached, keep);
	if (!keep)
		stream_set_cached_max(0);
}

struct spill *bodies_spill(struct bodies *bs)
{
	return bs->spill;
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
	list_init(&b->retired);
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
	while (bodies_relieve(bs, r, &tries));
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
	c = body_detach_fds(b);
	lock_drop(&bs->lock);
	body_close_all(&c);
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
