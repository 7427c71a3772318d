/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which registry's queue a layer stands. That of its first source, to begin
 * with; but hundreds may stand there who can be served by nobody else, and when
 * that registry fails, whoever has another source must not wait behind them for
 * an answer that will not come. He does not go back: the other one is as good.
 */
#include "snapshotter/fill_priv.h"

/* With the lock held: all that counts for the queue goes along. What is under
 * way stays where it was asked. */
static void move_locked(struct fill *f, struct fill_host *to)
{
	struct fill_host *from = f->host;
	struct list *p, *n;

	list_each_safe (p, n, &from->queue) {
		struct ureq *u = list_entry(p, struct ureq, node);

		if (u->fill != f)
			continue;
		list_remove(&u->node);
		/* That pause was for the other registry's sake. */
		u->not_before_ms = 0;
		list_push(&to->queue, &u->node);
	}
	from->n_waiters -= f->stats.n_waiters;
	to->n_waiters += f->stats.n_waiters;
	if (to->last_reader_ms < from->last_reader_ms && f->stats.n_waiters)
		to->last_reader_ms = from->last_reader_ms;
	list_remove(&f->by_host);
	list_push(&to->fills, &f->by_host);
	f->host = to;
	f->retry_not_before_ms = 0;
}

static void move_or_stay(struct fill *f)
{
	struct filler *fl = f->fl;
	const char *name = blob_good_host(f->blob, f->host->name);
	struct fill_host *to;

	lock_take(&fl->lock);
	to = name == f->host->name ? f->host : fill_host_get_locked(fl, name);
	if (to && to != f->host)
		move_locked(f, to);
	fill_unbusy_locked(f);
	lock_drop(&fl->lock);
}

/* With the lock held: the next one that has not been looked at; busy then. All
 * of them go through the list once, each to its end. */
static struct fill *next_locked(struct fill_host *h, unsigned *left)
{
	while (*left && !list_empty(&h->fills)) {
		struct fill *f = list_first(&h->fills, struct fill, by_host);

		(*left)--;
		list_remove(&f->by_host);
		list_push(&h->fills, &f->by_host);
		if (f->closing)
			continue;
		f->n_busy++;
		return f;
	}
	return NULL;
}

static struct fill_host *failed_locked(struct filler *fl)
{
	struct fill_host *h, *tmp;

	htab_each (fl->hosts, h, tmp) {
		if (!h->failed)
			continue;
		h->failed = false;
		return h;
	}
	return NULL;
}

static unsigned count_locked(const struct fill_host *h)
{
	const struct list *p;
	unsigned n = 0;

	list_each (p, &h->fills)
		n++;
	return n;
}

void fills_move(struct filler *fl)
{
	struct fill_host *h;
	struct fill *f;

	lock_take(&fl->lock);
	while ((h = failed_locked(fl))) {
		unsigned left = count_locked(h);

		while ((f = next_locked(h, &left))) {
			lock_drop(&fl->lock);
			move_or_stay(f);
			lock_take(&fl->lock);
		}
	}
	lock_drop(&fl->lock);
}
