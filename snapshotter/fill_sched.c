/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is fetched next: one thread that forms ranges and watches deadlines.
 *
 * Per registry: readers first, then prefetch, then background. The latter two
 * leave slots free for readers, and background only runs while no reader has
 * waited for a while. A range starts at a wanted unit and takes neighbours: a
 * reader's only what is wanted too or costs little (its next question, often;
 * fill_ahead.c says how much that is), the others as much as fits.
 */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/fill_priv.h"

#define TICK_MS 200
#define TICK_MAX_MS 5000

/* A range being planned: units [first, first + n) with their records. */
struct plan {
	struct fill *fill;
	enum fill_prio prio;
	uint32_t first, n;
	uint32_t end; /* where the stretch ends that is being fetched */
	struct cursor *cursor; /* in the fill; NULL for a reader's */
	uint32_t from; /* where the cursor was */
	uint64_t len;
	size_t ahead; /* how much a reader's range may take along */
	size_t max; /* of a range with more than one unit */
	struct unit recs[RANGE_UNITS_MAX];
};

/* ---- deadlines ---- */

static void collect_expired_locked(struct filler *fl, struct list *out)
{
	uint64_t now = now_ms();

	while (!list_empty(&fl->by_time)) {
		struct fill_waiter *w =
			list_first(&fl->by_time, struct fill_waiter, by_time);

		if (w->deadline_ms > now)
			return;
		list_remove(&w->by_time);
		list_remove(&w->node);
		list_push(out, &w->node);
		w->fill->host->n_waiters--;
		w->fill->stats.n_waiters--;
		ureq_unwanted_locked(w->fill, w->unit);
		/* Its fill must not go before done() has returned. */
		w->fill->n_busy++;
	}
}

static void tell_expired(struct filler *fl, struct list *expired)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, ERR_UNAVAILABLE,
		      "no verified answer from the registry within %u s",
		      fl->read_timeout_ms / 1000);
	while (!list_empty(expired)) {
		struct fill_waiter *w =
			list_first(expired, struct fill_waiter, node);
		struct fill *f = w->fill;

		list_remove(&w->node);
		w->done(w, &e);
		lock_take(&fl->lock);
		fill_unbusy_locked(f);
		lock_drop(&fl->lock);
	}
}

/* ---- choice, with the lock held ---- */

/* The first request of the host's queue whose time has come. */
static struct ureq *first_reader_locked(struct fill_host *h, uint64_t now)
{
	struct list *p;

	list_each (p, &h->queue) {
		struct ureq *u = list_entry(p, struct ureq, node);

		if (u->not_before_ms <= now && !u->fill->closing)
			return u;
	}
	return NULL;
}

static bool cursor_wants(const struct cursor *c)
{
	return c->next < c->end;
}

/* The next one that wants something, in turn; NULL: none does. */
static struct cursor *next_prefetch_locked(struct fill *f)
{
	for (unsigned i = 1; i <= PREFETCHES; i++) {
		unsigned n = (f->last_prefetch + i) % PREFETCHES;

		if (cursor_wants(&f->prefetch[n])) {
			f->last_prefetch = n;
			return &f->prefetch[n];
		}
	}
	return NULL;
}

static bool has_prefetch_locked(const struct fill *f)
{
	for (unsigned i = 0; i < PREFETCHES; i++)
		if (cursor_wants(&f->prefetch[i]))
			return true;
	return false;
}

/* At the end of the background's way it goes back to what it has missed, each
 * time after a longer pause. */
static void go_back_locked(struct fill *f, uint64_t now)
{
	if (cursor_wants(&f->background) || f->missed >= f->background.end)
		return;
	f->background.next = f->missed;
	f->missed = UINT32_MAX;
	f->missed_pause_ms =
		f->missed_pause_ms ? f->missed_pause_ms * 2 : REFUSED_PAUSE_MS;
	if (f->missed_pause_ms > MISSED_PAUSE_MAX_MS)
		f->missed_pause_ms = MISSED_PAUSE_MAX_MS;
	f->background_not_before_ms = now + f->missed_pause_ms;
}

static struct fill *first_fill_locked(struct fill_host *h, enum fill_prio p,
				      uint64_t now)
{
	struct list *n;

	list_each (n, &h->fills) {
		struct fill *f = list_entry(n, struct fill, by_host);

		if (f->closing || f->retry_not_before_ms > now)
			continue;
		if (p == FILL_BACKGROUND)
			go_back_locked(f, now);
		if (p == FILL_BACKGROUND && f->background_not_before_ms > now)
			continue;
		if (p == FILL_PREFETCH ? has_prefetch_locked(f)
				       : cursor_wants(&f->background)) {
			/* Fair among the layers of a host. */
			list_remove(&f->by_host);
			list_push(&h->fills, &f->by_host);
			return f;
		}
	}
	return NULL;
}

static bool choose_locked(struct filler *fl, struct fill_host *h,
			  struct plan *pl)
{
	uint64_t now = now_ms();
	struct ureq *u;

	if (h->n_inflight >= fl->ranges_per_host)
		return false;
	pl->max = h->size.max;
	u = first_reader_locked(h, now);
	if (u) {
		pl->fill = u->fill;
		pl->prio = FILL_READER;
		pl->ahead = pace_ahead(&h->pace, h->n_inflight);
		pl->first = u->unit;
		pl->end = u->fill->stats.n_units;
		pl->cursor = NULL;
		return true;
	}
	if (h->n_background + 2 >= fl->ranges_per_host)
		return false;
	pl->fill = first_fill_locked(h, FILL_PREFETCH, now);
	pl->prio = FILL_PREFETCH;
	if (!pl->fill && !h->n_waiters &&
	    now - h->last_reader_ms >= IDLE_BEFORE_BACKGROUND_MS) {
		pl->fill = first_fill_locked(h, FILL_BACKGROUND, now);
		pl->prio = FILL_BACKGROUND;
	}
	if (!pl->fill)
		return false;
	pl->cursor = pl->prio == FILL_PREFETCH ? next_prefetch_locked(pl->fill)
					       : &pl->fill->background;
	pl->first = pl->from = pl->cursor->next;
	pl->end = pl->cursor->end;
	return true;
}

/* ---- planning, without the lock (the fill is busy, so it stays) ---- */

static bool wanted_by_reader(struct fill *f, uint32_t unit)
{
	struct ureq *u;
	bool r;

	lock_take(&f->fl->lock);
	u = ureq_find_locked(f, unit);
	r = u && u->state == UREQ_QUEUED && ureq_is_asked_locked(u);
	lock_drop(&f->fl->lock);
	return r;
}

/* What somebody else has brought need not be kept in part. */
static void forget_landed(struct fill *f, uint32_t unit)
{
	struct list none;
	struct ureq *u;

	list_init(&none);
	lock_take(&f->fl->lock);
	u = ureq_find_locked(f, unit);
	if (u && u->state == UREQ_QUEUED && list_empty(&u->waiters))
		ureq_finish_locked(u, &none);
	lock_drop(&f->fl->lock);
}

static bool take_neighbour(const struct plan *pl, const struct unit *u,
			   uint32_t num)
{
	uint64_t len = pl->len + u->clen;

	if (len > pl->max)
		return false;
	if (pl->prio != FILL_READER)
		return true;
	return len <= pl->ahead || wanted_by_reader(pl->fill, num);
}

/*
 * Fills pl->recs from pl->first on. Skips landed units at the start for a
 * cursor (pl->first moves), stops at the first landed one after that.
 * 1: something to fetch; 0: nothing; -errno.
 */
static int plan_units(struct plan *pl)
{
	struct fill *f = pl->fill;

	pl->n = 0;
	pl->len = 0;
	for (uint32_t i = pl->first; i < pl->end && pl->n < RANGE_UNITS_MAX;
	     i++) {
		struct unit *u = &pl->recs[pl->n];
		int landed, r = map_unit(f->map, i, u);

		if (r < 0)
			return r;
		if (pl->n && (u->blob_off != pl->recs[0].blob_off + pl->len ||
			      !take_neighbour(pl, u, i)))
			break;
		/* One without extents (tar headers only) rides along when it
		 * lies between two others, and is never a reason to fetch. */
		landed = u->n_x || !pl->n ? fill_unit_landed(f, u) : 0;
		if (landed < 0)
			return landed;
		if (landed && pl->n)
			break;
		if (landed && pl->prio == FILL_READER)
			return 0;
		if (landed) {
			forget_landed(f, i);
			pl->first = i + 1;
			continue;
		}
		pl->len += u->clen;
		pl->n++;
	}
	return pl->n > 0;
}

/* ---- claiming, with the lock held ---- */

/* Units that have been taken by somebody else meanwhile end the range, and so
 * do those of which a part is here. What comes after it is another matter:
 * *ret_next is where a cursor goes on. */
static uint32_t claim_locked(struct plan *pl, struct range *r,
			     uint32_t *ret_next)
{
	struct fill *f = pl->fill;
	uint32_t n;

	r->len = 0;
	for (n = 0; n < pl->n; n++) {
		struct ureq *u = ureq_find_locked(f, pl->first + n);

		if (u && u->state == UREQ_FLYING) {
			*ret_next = pl->first + n + 1;
			return n;
		}
		if (u && u->half)
			break;
		if (!u)
			u = ureq_new_locked(f, pl->first + n, &pl->recs[n]);
		if (!u)
			break;
		list_remove(&u->node);
		u->state = UREQ_FLYING;
		r->units[n] = u;
		r->len += pl->recs[n].clen;
	}
	*ret_next = pl->first + n;
	return n;
}

static void advance_cursor_locked(struct plan *pl, uint32_t to)
{
	/* Unless the cursor was set anew, or back, meanwhile. */
	if (pl->cursor && pl->cursor->next == pl->from)
		pl->cursor->next = to;
}

/* With the lock held: @r is under way from here on, and may be cancelled. */
static void enlist_locked(const struct plan *pl, struct range *r)
{
	struct fill *f = pl->fill;

	r->n_refs++; /* ours until it runs */
	r->host = f->host;
	r->prio = pl->prio;
	r->err = (struct err)ERR_INIT;
	r->net_done = r->queued = r->cancelled = r->kept = false;
	r->from = r->kicked_at = r->received;
	r->upto = r->from + size_of_transfer(&f->host->size, r->len - r->from);
	r->req.blob = f->blob;
	r->req.urgent = pl->prio == FILL_READER;
	r->req.deadline_ms = f->fl->read_timeout_ms;
	r->req.silence_ms = f->fl->silence_ms;
	r->req.yields = true;
	list_push(&f->ranges, &r->node);
	f->n_ranges++;
	r->host->n_inflight++;
	metrics_move(METRIC_FETCHES, 0, 1);
	r->host->n_background += pl->prio != FILL_READER;
}

/* The unit that broke off goes on, alone. NULL: it did not. */
static struct range *claim_half(struct plan *pl)
{
	struct fill *f = pl->fill;
	struct range *r = NULL;
	struct ureq *u;

	lock_take(&f->fl->lock);
	u = ureq_find_locked(f, pl->first);
	if (u && u->state == UREQ_QUEUED && !f->closing)
		r = half_take_locked(u);
	if (r) {
		list_remove(&u->node);
		u->state = UREQ_FLYING;
		advance_cursor_locked(pl, pl->first + 1);
		enlist_locked(pl, r);
	}
	lock_drop(&f->fl->lock);
	return r;
}

static struct range *claim(struct plan *pl)
{
	struct fill *f = pl->fill;
	struct range *r = claim_half(pl);
	uint32_t next = pl->first;

	if (r)
		return r;
	r = calloc(1, sizeof(*r) + pl->n * sizeof(r->units[0]));
	if (!r)
		return NULL;
	lock_take(&f->fl->lock);
	/* Units may have 256 MiB each: only one such in memory at a time. */
	if (!f->closing && !(pl->len > RANGE_MAX && f->fl->n_huge))
		r->n_units = claim_locked(pl, r, &next);
	/* A unit under way is somebody else's: the cursor passes it. */
	advance_cursor_locked(pl, next);
	if (r->n_units) {
		r->fill = f;
		r->n_refs = 1; /* the transfer's */
		r->off = pl->recs[0].blob_off;
		r->huge = r->len > RANGE_MAX;
		f->fl->n_huge += r->huge;
		enlist_locked(pl, r);
	}
	lock_drop(&f->fl->lock);
	if (!r->n_units) {
		free(r);
		return NULL;
	}
	return r;
}

/* It could not even start: its units fail, its place is free again. */
static void range_failed(struct range *r, const struct err *e)
{
	struct fill *f = r->fill;
	struct list told;

	list_init(&told);
	lock_take(&f->fl->lock);
	for (uint32_t i = r->cur; i < r->n_units; i++)
		ureq_give_up_locked(r->units[i], &told);
	f->stats.last_error = *e;
	f->retry_not_before_ms = now_ms() + BACKOFF_MAX_MS;
	r->host->n_inflight--;
	metrics_move(METRIC_FETCHES, 0, -1);
	r->host->n_background -= r->prio != FILL_READER;
	list_remove(&r->node);
	f->n_ranges--;
	range_unref_locked(r);
	lock_drop(&f->fl->lock);
	fill_tell(&told, e);
}

/* The wanted unit needs no fetch (it landed), or its map cannot be read. */
static void settle_without_fetch(struct plan *pl, int res)
{
	struct fill *f = pl->fill;
	struct err e = ERR_INIT;
	struct list told;
	struct ureq *u;

	list_init(&told);
	if (res < 0)
		(void)err_sys(&e, res, "map of unit %u", pl->first);
	lock_take(&f->fl->lock);
	if (pl->prio == FILL_READER) {
		u = ureq_find_locked(f, pl->first);
		if (u && u->state == UREQ_QUEUED)
			ureq_finish_locked(u, &told);
	} else if (res < 0) {
		pl->cursor->end = 0;
	} else {
		advance_cursor_locked(pl, pl->first);
	}
	lock_drop(&f->fl->lock);
	fill_tell(&told, &e);
}

/* Out of memory, or of room for another huge range: not again at once. */
static void postpone(struct plan *pl)
{
	struct fill *f = pl->fill;
	uint64_t then = now_ms() + BACKOFF_MIN_MS;
	struct ureq *u;

	lock_take(&f->fl->lock);
	u = ureq_find_locked(f, pl->first);
	if (pl->prio != FILL_READER)
		f->retry_not_before_ms = then;
	else if (u)
		u->not_before_ms = then;
	lock_drop(&f->fl->lock);
}

/* Consumes the reference of claim(). */
static void start_range(struct range *r)
{
	struct filler *fl = r->fill->fl;
	struct err e = ERR_INIT;
	bool cancelled;

	if (range_start(r, &e) < 0)
		range_failed(r, &e);
	lock_take(&fl->lock);
	/* Who cancelled it before it had a transfer has cancelled nothing. */
	cancelled = r->cancelled && !r->net_done;
	lock_drop(&fl->lock);
	if (cancelled)
		blob_cancel(&r->req);
	lock_take(&fl->lock);
	range_unref_locked(r);
	lock_drop(&fl->lock);
}

static void run_plan(struct plan *pl)
{
	int res = plan_units(pl);
	struct range *r;

	if (res <= 0) {
		settle_without_fetch(pl, res);
		return;
	}
	r = claim(pl);
	if (!r)
		postpone(pl);
	else
		start_range(r);
}

/* With the lock held: a background range that nobody waits for. */
static struct range *victim_locked(struct fill_host *h)
{
	struct list *p, *q;

	list_each (p, &h->fills) {
		struct fill *f = list_entry(p, struct fill, by_host);

		list_each (q, &f->ranges) {
			struct range *r = list_entry(q, struct range, node);
			bool waited = false;

			if (r->prio != FILL_BACKGROUND || r->net_done ||
			    r->cancelled)
				continue;
			for (uint32_t i = r->cur; i < r->n_units; i++)
				waited |= !list_empty(&r->units[i]->waiters);
			if (!waited)
				return r;
		}
	}
	return NULL;
}

/*
 * A reader is about to ask: the link is his. Background transfers of the same
 * registry end here; what they brought is kept, the rest comes later.
 */
static void preempt_background(struct filler *fl, struct fill_host *h)
{
	struct range *r;

	lock_take(&fl->lock);
	while ((r = victim_locked(h))) {
		struct fill *f = r->fill;

		r->cancelled = true;
		r->n_refs++;
		f->n_busy++; /* keeps the blob, too */
		lock_drop(&fl->lock);
		blob_cancel(&r->req);
		lock_take(&fl->lock);
		range_unref_locked(r);
		fill_unbusy_locked(f);
	}
	lock_drop(&fl->lock);
}

/* One round over all hosts; true when something was started. */
static bool schedule_once(struct filler *fl, struct plan *pl)
{
	struct fill_host *h, *tmp;
	bool found = false;

	lock_take(&fl->lock);
	htab_each (fl->hosts, h, tmp) {
		if (choose_locked(fl, h, pl)) {
			pl->fill->n_busy++;
			found = true;
			break;
		}
	}
	lock_drop(&fl->lock);
	if (!found)
		return false;
	if (pl->prio == FILL_READER)
		preempt_background(fl, pl->fill->host);
	run_plan(pl);
	lock_take(&fl->lock);
	fill_unbusy_locked(pl->fill);
	lock_drop(&fl->lock);
	return true;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When unasked work of @f may go on. What its registry has no room for waits
 * for a range to end, which wakes the scheduler. */
static uint64_t next_of_fill_locked(struct fill *f, uint64_t now)
{
	uint64_t at = f->retry_not_before_ms;

	if (f->closing)
		return UINT64_MAX;
	if (!has_prefetch_locked(f)) {
		go_back_locked(f, now);
		if (!cursor_wants(&f->background))
			return UINT64_MAX;
		if (f->background_not_before_ms > at)
			at = f->background_not_before_ms;
	}
	return at;
}

/* When something will have to be done that nobody wakes the scheduler for;
 * UINT64_MAX: never. Not later than that, perhaps too early. */
static uint64_t next_look_locked(struct filler *fl)
{
	uint64_t now = now_ms(), at = UINT64_MAX;
	struct fill_host *h, *tmp;

	if (!list_empty(&fl->by_time))
		at = list_first(&fl->by_time, struct fill_waiter, by_time)
			     ->deadline_ms;
	if (!list_empty(&fl->spaces))
		at = earlier(at, fl->spaces_until_ms);
	htab_each (fl->hosts, h, tmp) {
		struct list *p;

		list_each (p, &h->queue)
			at = earlier(at, list_entry(p, struct ureq, node)
						 ->not_before_ms);
		list_each (p, &h->fills)
			at = earlier(
				at, next_of_fill_locked(
					    list_entry(p, struct fill, by_host),
					    now));
	}
	/* What is due and yet was not done waits for others: look often. What
	 * is far away may be brought forward by what nobody told us. */
	if (at == UINT64_MAX)
		return at;
	if (at < now + TICK_MS)
		return now + TICK_MS;
	return earlier(at, now + TICK_MAX_MS);
}

/* Sleeps until there is something to do. */
static void wait_locked(struct filler *fl)
{
	uint64_t at;

	if (fl->poked || fl->stopping)
		return;
	at = next_look_locked(fl);
	if (at == UINT64_MAX)
		cond_wait(&fl->wake, &fl->lock);
	else
		(void)cond_wait_until(&fl->wake, &fl->lock, at);
}

void *fill_scheduler(void *arg)
{
	struct filler *fl = arg;
	struct list expired;
	struct plan pl; /* some 16 KiB */

	(void)pthread_setname_np(pthread_self(), "vs-fill");
	list_init(&expired);
	lock_take(&fl->lock);
	while (!fl->stopping) {
		fl->poked = false;
		collect_expired_locked(fl, &expired);
		lock_drop(&fl->lock);
		tell_expired(fl, &expired);
		fills_move(fl);
		while (schedule_once(fl, &pl))
			;
		lock_take(&fl->lock);
		spaces_trim_locked(fl, now_ms());
		wait_locked(fl);
	}
	lock_drop(&fl->lock);
	return NULL;
}
