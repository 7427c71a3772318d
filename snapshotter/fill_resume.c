/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a range whose transfer has ended before the range did. What
 * it brought is never asked for again while it is of use: whole units have
 * landed already, and of the unit that has begun, bytes and the state of its
 * decoder are kept (the range itself, cut to that unit) until it is asked for
 * again. So an image comes over any link that brings something at all, however
 * often it breaks and however slow it is; nothing here knows a unit's length.
 *
 * Nobody may wait any more for what comes slowly, and the next reader of it
 * would begin afresh: it goes on by itself as long as it is useful.
 */
#include "base/io.h"
#include "snapshotter/fill_priv.h"

#define USEFUL_RATE 1024u /* bytes a second that are worth a connection */
#define PROGRESS_MIN (16u << 10) /* so much, and the link is not down */
#define ABSENT_MS 1500u /* a registry that copies or collects may err */
#define ABSENT_FORGET_MS 60000u
#define GROW_MIN_MS 60000u
#define GROW_MAX_MS 3600000u

/* ---- how much is asked for at once ---- */

size_t size_of_transfer(const struct link_size *s, size_t left)
{
	return s->max < RANGE_MAX && s->max < left ? s->max : left;
}

bool size_note_silent(struct link_size *s, size_t asked, uint64_t now)
{
	if (asked <= RANGE_MIN) {
		/* It answers nothing: its size is not to blame. */
		s->grow_at_ms = 0;
		return false;
	}
	/* Others were under way that asked for as much. */
	if (s->max < RANGE_MAX && asked > s->max)
		return true;
	if (asked > RANGE_MAX)
		asked = RANGE_MAX;
	s->max = asked / 2 > RANGE_MIN ? asked / 2 : RANGE_MIN;
	s->grow_pause_ms =
		s->grow_pause_ms ? s->grow_pause_ms * 2 : GROW_MIN_MS;
	if (s->grow_pause_ms > GROW_MAX_MS)
		s->grow_pause_ms = GROW_MAX_MS;
	s->grow_at_ms = now + s->grow_pause_ms;
	return true;
}

void size_note_good(struct link_size *s, uint64_t now)
{
	if (s->max >= RANGE_MAX || now < s->grow_at_ms)
		return;
	s->max *= 2;
	if (s->max >= RANGE_MAX) {
		s->max = RANGE_MAX;
		s->grow_pause_ms = 0;
	}
}

/* ---- what is kept ---- */

void half_drop_locked(struct ureq *u)
{
	struct range *r = u->half;

	if (!r)
		return;
	u->half = NULL;
	r->fill->fl->half_bytes -= r->half_bytes;
	range_unref_locked(r);
}

struct range *half_take_locked(struct ureq *u)
{
	struct range *r = u->half;

	if (!r)
		return NULL;
	u->half = NULL;
	r->fill->fl->half_bytes -= r->half_bytes;
	r->half_bytes = 0;
	return r;
}

/* Is there memory for it? One huge unit has its own, if its turn is next. */
static bool reserve_locked(struct range *r, bool queued)
{
	struct filler *fl = r->fill->fl;
	size_t n = r->space->cap + r->space->xcap;

	if (n <= HALVES_MAX - fl->half_bytes) {
		fl->half_bytes += n;
		r->half_bytes = n;
		fl->n_huge -= r->huge;
		r->huge = false;
		return true;
	}
	return r->huge && queued;
}

bool half_keep_locked(struct range *r)
{
	struct fill *f = r->fill;
	struct ureq *u = r->units[r->cur];
	bool waited = !list_empty(&u->waiters);
	/* Background's way leads past it again. Others were asked for. */
	bool queued = waited || r->prio != FILL_BACKGROUND;
	bool kept = !f->closing && (waited || r->useful) &&
		    reserve_locked(r, queued);
	struct list none;

	u->state = UREQ_QUEUED;
	u->not_before_ms = now_ms() + r->pause_ms;
	list_init(&none);
	if (!kept && !waited) {
		ureq_give_up_locked(u, &none);
		return false;
	}
	if (kept)
		u->half = r;
	if (queued && r->pause_ms)
		list_push(&f->host->queue, &u->node);
	else if (queued)
		list_push_front(&f->host->queue, &u->node);
	return kept;
}

/* ---- the end of a transfer ---- */

/* Every source says so, and has for a while. */
static bool is_absent_locked(struct fill *f, uint64_t now)
{
	if (!f->absent_since_ms || now - f->absent_last_ms > ABSENT_FORGET_MS)
		f->absent_since_ms = now;
	f->absent_last_ms = now;
	return now - f->absent_since_ms >= ABSENT_MS;
}

/* Ranges that fail together are one failure. */
static void back_off_locked(struct fill *f, uint64_t now)
{
	if (f->backoff_ms && now - f->backoff_at_ms < f->backoff_ms)
		return;
	f->backoff_at_ms = now;
	f->backoff_ms = f->backoff_ms ? f->backoff_ms * 2 : BACKOFF_MIN_MS;
	if (f->backoff_ms > BACKOFF_MAX_MS)
		f->backoff_ms = BACKOFF_MAX_MS;
}

/* A transfer has failed, but not for good: when is the next one? */
static unsigned pause_after_locked(struct range *r, uint64_t now)
{
	struct fill *f = r->fill;
	size_t asked = r->upto - r->from, got = r->received - r->from;

	if (r->req.silent && !got &&
	    size_note_silent(&r->host->size, asked, now))
		return 0; /* that was a pause */
	if (got >= PROGRESS_MIN) {
		f->backoff_ms = 0;
		return BACKOFF_MIN_MS;
	}
	back_off_locked(f, now);
	return f->backoff_ms;
}

/* Sets r->pause_ms, and when unasked work may go on. true: to ask again may
 * help. */
static bool judge_locked(struct range *r, uint64_t now)
{
	struct fill *f = r->fill;
	bool part = r->err.kind == ERR_NONE;
	bool preempted = r->err.kind == ERR_CANCELLED && r->cancelled;

	r->pause_ms = 0;
	r->useful = true;
	if (f->closing) { /* as fill_close() tells the others */
		(void)err_set(&r->err, ERR_CANCELLED,
			      "the layer is being closed");
		return false;
	}
	if (part || preempted)
		return true;
	if (r->err.kind == ERR_UNAVAILABLE && r->req.no_blob &&
	    is_absent_locked(f, now))
		r->err.kind = ERR_DENIED;
	f->stats.last_error = r->err;
	if (r->err.kind != ERR_UNAVAILABLE) {
		/* Refused: leave it alone for a while, readers may ask. */
		f->retry_not_before_ms = now + REFUSED_PAUSE_MS;
		return false;
	}
	r->host->failed = true;
	r->useful = (r->received - r->from) * 1000000 >=
		    USEFUL_RATE * (now_ns() / 1000 - r->asked_us);
	r->pause_ms = pause_after_locked(r, now);
	f->retry_not_before_ms = now + 4ull * r->pause_ms;
	return true;
}

/* Some of the current unit is here. */
static bool has_begun(const struct range *r)
{
	return r->fed > r->units[r->cur]->rec.blob_off - r->off;
}

static void cut_to_current(struct range *r)
{
	const struct unit *u = &r->units[r->cur]->rec;

	r->n_units = r->cur + 1;
	r->len = (size_t)(u->blob_off - r->off) + u->clen;
}

void range_give_back(struct range *r)
{
	struct fill *f = r->fill;
	uint64_t now = now_ms();
	struct list told;
	uint32_t i = r->cur;
	bool again;

	list_init(&told);
	lock_take(&f->fl->lock);
	again = judge_locked(r, now);
	if (r->prio == FILL_BACKGROUND &&
	    f->background.next > r->units[i]->unit)
		f->background.next = r->units[i]->unit;
	r->kept = again && has_begun(r);
	for (i += r->kept; i < r->n_units; i++) {
		struct ureq *u = r->units[i];

		if (again && !list_empty(&u->waiters)) {
			u->state = UREQ_QUEUED;
			u->not_before_ms = now + r->pause_ms;
			list_push(&f->host->queue, &u->node);
		} else {
			ureq_give_up_locked(u, &told);
		}
	}
	if (r->kept)
		cut_to_current(r);
	lock_drop(&f->fl->lock);
	fill_tell(&told, &r->err);
}
