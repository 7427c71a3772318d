/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who wants which unit: waiters, their deadlines, and the life of a fill.
 * Decides nothing about order (fill_sched.c) and touches no bytes
 * (fill_decode.c).
 */
#include "snapshotter/fill.h"

#include <string.h>

#include "base/io.h"
#include "snapshotter/fill_priv.h"

static unsigned default_decoders(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 4 ? 4 : (unsigned)n;
}

int filler_new(const struct filler_opts *o, struct filler **ret)
{
	struct filler *fl = calloc(1, sizeof(*fl));
	int r;

	if (!fl)
		return -ENOMEM;
	fl->ranges_per_host = o->ranges_per_host ? o->ranges_per_host : 6;
	fl->read_timeout_ms =
		(o->read_timeout_s ? o->read_timeout_s : 60) * 1000;
	/* So that a reader sees several tries, each for half as much. */
	fl->silence_ms = fl->read_timeout_ms / 6;
	if (fl->silence_ms < SILENCE_MIN_MS)
		fl->silence_ms = SILENCE_MIN_MS;
	if (fl->silence_ms > SILENCE_MAX_MS)
		fl->silence_ms = SILENCE_MAX_MS;
	lock_init(&fl->lock, RANK_FILL);
	list_init(&fl->by_time);
	list_init(&fl->spaces);
	r = cond_init(&fl->wake);
	if (r == 0)
		r = cond_init(&fl->idle);
	if (r == 0)
		r = pool_new("decode", 1,
			     o->n_decode ? o->n_decode : default_decoders(),
			     &fl->decode);
	if (r == 0)
		r = -pthread_create(&fl->thread, NULL, fill_scheduler, fl);
	if (r < 0) {
		filler_free(fl);
		return r;
	}
	fl->thread_runs = true;
	*ret = fl;
	return 0;
}

/* Every fill has been freed before. */
void filler_free(struct filler *fl)
{
	struct fill_host *h, *tmp;

	if (!fl)
		return;
	lock_take(&fl->lock);
	fl->stopping = true;
	fill_poke_locked(fl);
	lock_drop(&fl->lock);
	if (fl->thread_runs)
		(void)pthread_join(fl->thread, NULL);
	pool_free(fl->decode);
	lock_take(&fl->lock);
	spaces_trim_locked(fl, UINT64_MAX);
	lock_drop(&fl->lock);
	htab_each (fl->hosts, h, tmp) {
		HASH_DEL(fl->hosts, h);
		free(h->name);
		free(h);
	}
	cond_release(&fl->wake);
	cond_release(&fl->idle);
	lock_release(&fl->lock);
	free(fl);
}

void filler_stats(struct filler *fl, struct filler_stats *ret)
{
	struct filler_stats st = { .max_waiters = MAX_WAITERS_PER_HOST };
	struct fill_host *h, *tmp;

	lock_take(&fl->lock);
	htab_each (fl->hosts, h, tmp)
		if (h->n_waiters > st.n_waiters)
			st.n_waiters = h->n_waiters;
	st.n_refused = fl->n_refused;
	lock_drop(&fl->lock);
	*ret = st;
}

void fill_poke_locked(struct filler *fl)
{
	fl->poked = true;
	cond_signal(&fl->wake);
}

struct fill_host *fill_host_get_locked(struct filler *fl, const char *name)
{
	struct fill_host *h;

	HASH_FIND_STR(fl->hosts, name, h);
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->name = strdup(name);
	h->size.max = RANGE_MAX;
	list_init(&h->queue);
	list_init(&h->fills);
	if (h->name)
		HASH_ADD_KEYPTR(hh, fl->hosts, h->name, strlen(h->name), h);
	if (!h->name || !HTAB_ADDED(h)) {
		free(h->name);
		free(h);
		return NULL;
	}
	return h;
}

int fill_new(struct filler *fl, struct map *m, struct blob *b,
	     const struct fill_ops *ops, struct fill **ret)
{
	const char *host = blob_good_host(b, blob_host(b));
	struct fill *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->fl = fl;
	f->map = m;
	f->ops = *ops;
	f->missed = UINT32_MAX;
	f->stats.n_units = map_n_units(m);
	list_init(&f->ranges);
	lock_take(&fl->lock);
	f->host = fill_host_get_locked(fl, host);
	if (f->host)
		list_push(&f->host->fills, &f->by_host);
	lock_drop(&fl->lock);
	if (!f->host) {
		free(f);
		return -ENOMEM;
	}
	f->blob = blob_ref(b);
	*ret = f;
	return 0;
}

/* With the lock held: a range whose transfer nobody has cancelled yet. */
static struct range *next_to_cancel_locked(struct fill *f)
{
	struct list *p;

	list_each (p, &f->ranges) {
		struct range *r = list_entry(p, struct range, node);

		if (!r->net_done && !r->cancelled)
			return r;
	}
	return NULL;
}

/* Cancels every range and waits until the last callback has returned. */
static void cancel_ranges(struct fill *f)
{
	struct filler *fl = f->fl;
	struct range *r;

	lock_take(&fl->lock);
	while ((r = next_to_cancel_locked(f))) {
		r->cancelled = true;
		r->n_refs++;
		lock_drop(&fl->lock);
		blob_cancel(&r->req);
		lock_take(&fl->lock);
		range_unref_locked(r);
	}
	while (f->n_ranges || f->n_busy)
		cond_wait(&fl->idle, &fl->lock);
	lock_drop(&fl->lock);
}

void fill_close(struct fill *f)
{
	struct ureq *u, *tmp;
	struct list told;
	struct err e = ERR_INIT;

	list_init(&told);
	lock_take(&f->fl->lock);
	f->closing = true;
	lock_drop(&f->fl->lock);
	cancel_ranges(f);
	lock_take(&f->fl->lock);
	htab_each (f->ureqs, u, tmp)
		ureq_finish_locked(u, &told);
	lock_drop(&f->fl->lock);
	(void)err_set(&e, ERR_CANCELLED, "the layer is being closed");
	fill_tell(&told, &e);
}

void fill_free(struct fill *f)
{
	if (!f)
		return;
	fill_close(f);
	lock_take(&f->fl->lock);
	list_remove(&f->by_host);
	lock_drop(&f->fl->lock);
	blob_unref(f->blob);
	free(f);
}

struct ureq *ureq_find_locked(struct fill *f, uint32_t unit)
{
	struct ureq *u;

	HASH_FIND(hh, f->ureqs, &unit, sizeof(unit), u);
	return u;
}

struct ureq *ureq_new_locked(struct fill *f, uint32_t unit,
			     const struct unit *rec)
{
	struct ureq *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->unit = unit;
	u->rec = *rec;
	u->fill = f;
	list_init(&u->node);
	list_init(&u->waiters);
	HASH_ADD(hh, f->ureqs, unit, sizeof(u->unit), u);
	if (!HTAB_ADDED(u)) {
		free(u);
		return NULL;
	}
	return u;
}

void fill_detach_locked(struct ureq *u, uint32_t extent, struct list *out)
{
	struct fill *f = u->fill;
	struct list *p, *n;

	list_each_safe (p, n, &u->waiters) {
		struct fill_waiter *w = list_entry(p, struct fill_waiter, node);

		if (extent != UINT32_MAX && w->extent != extent)
			continue;
		list_remove(&w->node);
		list_remove(&w->by_time);
		list_push(out, &w->node);
		f->host->n_waiters--;
		f->host->last_reader_ms = now_ms();
		f->stats.n_waiters--;
	}
}

void ureq_finish_locked(struct ureq *u, struct list *out)
{
	struct fill *f = u->fill;

	fill_detach_locked(u, UINT32_MAX, out);
	half_drop_locked(u);
	list_remove(&u->node);
	HASH_DEL(f->ureqs, u);
	free(u);
}

void ureq_give_up_locked(struct ureq *u, struct list *out)
{
	struct fill *f = u->fill;

	if (u->unit < f->background.next && u->unit < f->missed)
		f->missed = u->unit;
	ureq_finish_locked(u, out);
}

void ureq_unwanted_locked(struct fill *f, uint32_t unit)
{
	struct ureq *u = ureq_find_locked(f, unit);
	struct list none;

	if (!u || u->state != UREQ_QUEUED || !list_empty(&u->waiters))
		return;
	/* It comes slowly, but it comes. */
	if (u->half && u->half->useful)
		return;
	list_init(&none);
	ureq_give_up_locked(u, &none);
}

void fill_tell(struct list *l, const struct err *e)
{
	lock_assert_none();
	while (!list_empty(l)) {
		struct fill_waiter *w = list_first(l, struct fill_waiter, node);

		list_remove(&w->node);
		w->done(w, e);
	}
}

void fill_unbusy_locked(struct fill *f)
{
	f->n_busy--;
	cond_broadcast(&f->fl->idle);
}

int fill_unit_landed(struct fill *f, const struct unit *u)
{
	for (uint32_t i = 0; i < u->n_x; i++) {
		struct extent x;
		uint32_t n;
		int r = map_unit_extent(f->map, u->first_x + i, &n);

		if (r == 0)
			r = map_extent(f->map, n, &x);
		if (r < 0)
			return r;
		if (!f->ops.landed(f->ops.ctx, n, &x))
			return 0;
	}
	return 1;
}

static void wait_add_locked(struct fill *f, struct ureq *u,
			    struct fill_waiter *w)
{
	w->deadline_ms = now_ms() + f->fl->read_timeout_ms;
	list_push(&u->waiters, &w->node);
	list_push(&f->fl->by_time, &w->by_time);
	f->host->n_waiters++;
	f->stats.n_waiters++;
}

/* With the lock held: attach @w to a request for @unit, new or running. */
static int want_locked(struct fill *f, uint32_t unit, const struct unit *rec,
		       struct fill_waiter *w)
{
	struct ureq *u = ureq_find_locked(f, unit);

	if (f->closing)
		return -ECANCELED;
	if (w && f->host->n_waiters >= MAX_WAITERS_PER_HOST) {
		f->fl->n_refused++;
		return -EBUSY;
	}
	f->host->last_reader_ms = now_ms();
	if (!u) {
		u = ureq_new_locked(f, unit, rec);
		if (!u)
			return -ENOMEM;
		u->state = UREQ_QUEUED;
	}
	if (u->state == UREQ_QUEUED && list_empty(&u->node))
		list_push(&f->host->queue, &u->node);
	/* A reader's question is asked at once: no negative cache. Where others
	 * wait out a pause already, nearly so: a crowd makes no storm. */
	if (u->state == UREQ_QUEUED && w && list_empty(&u->waiters))
		u->not_before_ms = 0;
	else if (u->state == UREQ_QUEUED && w &&
		 u->not_before_ms > now_ms() + BACKOFF_MIN_MS)
		u->not_before_ms = now_ms() + BACKOFF_MIN_MS;
	if (w)
		wait_add_locked(f, u, w);
	fill_poke_locked(f->fl);
	return 0;
}

int fill_want(struct fill *f, uint32_t unit, uint32_t extent,
	      struct fill_waiter *w)
{
	struct unit rec;
	int r = map_unit(f->map, unit, &rec);

	if (r < 0)
		return r;
	lock_take(&f->fl->lock);
	/* Under the lock: somebody may try to cancel it meanwhile. */
	if (w) {
		w->fill = f;
		w->unit = unit;
		w->extent = extent;
		list_init(&w->node);
		list_init(&w->by_time);
	}
	r = want_locked(f, unit, &rec, w);
	lock_drop(&f->fl->lock);
	return r;
}

bool fill_cancel(struct fill *f, struct fill_waiter *w)
{
	bool mine;

	lock_take(&f->fl->lock);
	/* by_time, not node: a detached waiter is in a list of fill_tell(). */
	mine = !list_empty(&w->by_time);
	if (mine) {
		list_remove(&w->node);
		list_remove(&w->by_time);
		f->host->n_waiters--;
		f->stats.n_waiters--;
		ureq_unwanted_locked(f, w->unit);
		fill_poke_locked(f->fl); /* the background may go on */
	}
	lock_drop(&f->fl->lock);
	return mine;
}

/* A stream goes on where it was, or gets a free place, or another's in turn;
 * the image's wish makes room for none. */
static void add_prefetch_locked(struct fill *f, struct cursor c)
{
	struct cursor *to = NULL;

	if (c.next == 0) {
		to = &f->prefetch[PREFETCH_START];
		/* What is read in order from there on wishes for less. */
		if (to->end < c.end)
			*to = c;
		return;
	}
	for (unsigned i = PREFETCH_START + 1; i < PREFETCHES; i++) {
		struct cursor *p = &f->prefetch[i];

		if (c.next >= p->next && c.next <= p->end && p->end) {
			if (p->end < c.end)
				p->end = c.end;
			return;
		}
		if (!to && p->next >= p->end)
			to = p;
	}
	if (!to)
		to = &f->prefetch[PREFETCH_START + 1 +
				  f->next_stream++ % (PREFETCHES - 1)];
	*to = c;
}

void fill_range(struct fill *f, uint32_t first, uint32_t last, enum fill_prio p)
{
	uint32_t n = map_n_units(f->map);
	struct cursor c = { first, last < n ? last : n };

	if (c.next >= c.end)
		return;
	lock_take(&f->fl->lock);
	if (p == FILL_PREFETCH) {
		add_prefetch_locked(f, c);
	} else {
		f->background = c;
		f->missed = UINT32_MAX;
		f->missed_pause_ms = 0;
		/* The other layers of the image come first. */
		f->background_not_before_ms =
			now_ms() + IDLE_BEFORE_BACKGROUND_MS;
	}
	fill_poke_locked(f->fl);
	lock_drop(&f->fl->lock);
}

bool ureq_is_asked_locked(const struct ureq *u)
{
	return u->state == UREQ_FLYING || !list_empty(&u->node);
}

bool fill_is_fetching(struct fill *f, uint32_t unit)
{
	struct ureq *u;
	bool r;

	lock_take(&f->fl->lock);
	u = ureq_find_locked(f, unit);
	r = u && ureq_is_asked_locked(u);
	lock_drop(&f->fl->lock);
	return r;
}

void fill_stats(struct fill *f, struct fill_stats *ret)
{
	lock_take(&f->fl->lock);
	*ret = f->stats;
	lock_drop(&f->fl->lock);
}
