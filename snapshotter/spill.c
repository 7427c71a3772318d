/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What had no room on the disk; see spill.h. A table by digest and a list by
 * age; everything is old after the same time, so both ends of the list say all.
 */
#include "snapshotter/spill.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/htab.h"
#include "base/io.h"
#include "base/list.h"
#include "base/lock.h"

struct spilled {
	struct digest d;
	UT_hash_handle hh;
	struct list by_age;
	uint64_t until_ms;
	size_t len;
	uint8_t p[];
};

struct spill {
	struct lock lock; /* guards all below */
	struct spilled *table;
	struct list by_age; /* oldest first */
	size_t n_bytes;
	atomic_uint n; /* of the table; read without the lock */
};

int spill_new(struct spill **ret)
{
	struct spill *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	lock_init(&s->lock, RANK_CACHE);
	list_init(&s->by_age);
	*ret = s;
	return 0;
}

static void drop_oldest_locked(struct spill *s)
{
	struct spilled *x = list_first(&s->by_age, struct spilled, by_age);

	HASH_DEL(s->table, x);
	list_remove(&x->by_age);
	s->n_bytes -= x->len;
	atomic_fetch_sub(&s->n, 1);
	free(x);
}

void spill_free(struct spill *s)
{
	if (!s)
		return;
	lock_take(&s->lock);
	while (!list_empty(&s->by_age))
		drop_oldest_locked(s);
	lock_drop(&s->lock);
	lock_release(&s->lock);
	free(s);
}

/* Drops what is old, and for @len > 0 more until that fits. */
static void make_room_locked(struct spill *s, size_t len)
{
	uint64_t now = now_ms();

	while (!list_empty(&s->by_age)) {
		const struct spilled *x =
			list_first(&s->by_age, struct spilled, by_age);

		if (x->until_ms > now &&
		    (len == 0 || s->n_bytes + len <= SPILL_MAX))
			return;
		drop_oldest_locked(s);
	}
}

static struct spilled *find_locked(struct spill *s, const struct digest *d)
{
	struct spilled *x;

	make_room_locked(s, 0);
	HASH_FIND(hh, s->table, d, sizeof(*d), x);
	return x;
}

int spill_put(struct spill *s, const struct digest *d, const void *p,
	      size_t len)
{
	struct spilled *x;
	int r = 0;

	x = malloc(sizeof(*x) + len);
	if (!x)
		return -ENOMEM;
	memset(x, 0, sizeof(*x));
	x->d = *d;
	x->len = len;
	x->until_ms = now_ms() + SPILL_MS;
	memcpy(x->p, p, len);
	lock_take(&s->lock);
	make_room_locked(s, len);
	if (!find_locked(s, d)) {
		HASH_ADD(hh, s->table, d, sizeof(x->d), x);
		if (HTAB_ADDED(x)) {
			list_push(&s->by_age, &x->by_age);
			s->n_bytes += len;
			atomic_fetch_add(&s->n, 1);
			x = NULL;
		} else {
			r = -ENOMEM;
		}
	}
	lock_drop(&s->lock);
	free(x);
	return r;
}

bool spill_is_empty(struct spill *s)
{
	return atomic_load(&s->n) == 0;
}

bool spill_has(struct spill *s, const struct digest *d)
{
	bool r;

	if (spill_is_empty(s))
		return false;
	lock_take(&s->lock);
	r = find_locked(s, d) != NULL;
	lock_drop(&s->lock);
	return r;
}

int spill_read(struct spill *s, const struct digest *d, size_t off, void *p,
	       size_t len)
{
	const struct spilled *x;
	int r = -EAGAIN;

	if (spill_is_empty(s))
		return r;
	lock_take(&s->lock);
	x = find_locked(s, d);
	if (x && off <= x->len && len <= x->len - off) {
		memcpy(p, x->p + off, len);
		r = 0;
	}
	lock_drop(&s->lock);
	return r;
}
