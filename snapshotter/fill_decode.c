/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arrives: the network thread appends to a range's buffer, one decode job
 * at a time follows it, inflates unit by unit, checks every extent and hands
 * the good ones to the layer. Nothing leaves this file that was not hashed.
 *
 * A unit that fails spoils no other: units begin at member boundaries, so the
 * decoder starts afresh at the next one.
 */
#include <string.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/fill_priv.h"
#include "snapshotter/formats/decode.h"
#include "snapshotter/spill.h"
#include "verity/sha256.h"

#define KICK_LEN (256u << 10) /* compressed bytes, of a large unit */

void range_unref_locked(struct range *r)
{
	if (--r->n_refs > 0)
		return;
	r->fill->fl->n_huge -= r->huge;
	space_put_locked(r->fill->fl, r->space);
	buf_release(&r->residue);
	free(r);
}

static uint64_t now_us(void)
{
	return now_ns() / 1000;
}

/* ---- the network thread ---- */

static void kick_locked(struct range *r)
{
	if (r->queued)
		return;
	r->queued = true;
	/* Refused only while the pool stops, and it stops after every fill. */
	if (pool_add(r->fill->fl->decode, &r->job) < 0)
		r->queued = false;
}

/*
 * With the lock held: is a wake-up worth it? The decode job takes all there is
 * before it sleeps, so this is about bytes that come later: the end of a unit,
 * or a part of one in which somebody may wait for an extent of several, is;
 * each packet in the middle of a large extent is not.
 */
static bool worth_a_kick_locked(const struct range *r)
{
	const struct unit *u;

	if (r->received == r->upto || r->cur == r->n_units ||
	    r->received - r->kicked_at >= KICK_LEN)
		return true;
	u = &r->units[r->cur]->rec;
	return u->n_x > 1 || r->received >= u->blob_off - r->off + u->clen;
}

static int on_data(struct blob_req *q, uint64_t off, const void *p, size_t len)
{
	struct range *r = q->ctx;
	struct filler *fl = r->fill->fl;
	uint64_t at = off - r->off;

	if (at != r->received || len > r->upto - r->received)
		return -EPROTO;
	memcpy(r->space->buf + at, p, len);
	if (at == r->from) {
		r->first_us = now_us();
		r->n_first = len;
	}
	lock_take(&fl->lock);
	r->received += len;
	r->fill->stats.bytes_fetched += len;
	metrics_add(METRIC_FETCHED_BYTES, (unsigned)r->prio, len);
	if (worth_a_kick_locked(r)) {
		r->kicked_at = r->received;
		kick_locked(r);
	}
	lock_drop(&fl->lock);
	return 0;
}

static void on_done(struct blob_req *q, const struct err *e)
{
	struct range *r = q->ctx;
	struct filler *fl = r->fill->fl;

	lock_take(&fl->lock);
	r->err = *e;
	r->net_done = true;
	if (r->received == r->upto)
		pace_note(&r->host->pace, r->asked_us, r->first_us, r->n_first,
			  now_us(), r->upto - r->from);
	if (e->kind == ERR_NONE && r->received < r->upto)
		(void)err_set(&r->err, ERR_UNAVAILABLE,
			      "answer ended after %zu of %zu bytes",
			      r->received - r->from, r->upto - r->from);
	kick_locked(r);
	lock_drop(&fl->lock);
}

/* ---- the decode threads ---- */

static struct ureq *cur_unit(struct range *r)
{
	return r->units[r->cur];
}

/* Loads extent r->x of the current unit. */
static int load_extent(struct range *r)
{
	struct map *m = r->fill->map;
	const struct unit *u = &cur_unit(r)->rec;
	int res;

	r->xvalid = false;
	if (r->x >= u->n_x)
		return 0;
	res = map_unit_extent(m, u->first_x + r->x, &r->xnum);
	if (res == 0)
		res = map_extent(m, r->xnum, &r->xrec);
	if (res < 0)
		return res;
	if (r->xrec.unit_off < r->out || r->xrec.len > MAP_EXTENT_MAX)
		return -EUCLEAN;
	res = space_want_extent(r->space, r->xrec.len);
	if (res < 0)
		return res;
	r->xlen = 0;
	r->xvalid = true;
	return sha256_begin(r->space->hash);
}

static void begin_unit(struct range *r)
{
	int res = r->space->dec
			  ? decoder_reset(r->space->dec, cur_unit(r)->rec.codec)
			  : decoder_new(cur_unit(r)->rec.codec, &r->space->dec);

	r->out = 0;
	r->x = 0;
	r->residue.len = 0;
	r->residue.failed = false;
	r->local_err = false;
	if (res == 0)
		res = load_extent(r);
	r->local_err = res < 0;
	r->unit_err = res;
}

static bool is_for_readers(struct range *r)
{
	struct filler *fl = r->fill->fl;
	bool waited;

	lock_take(&fl->lock);
	waited = !list_empty(&cur_unit(r)->waiters);
	lock_drop(&fl->lock);
	return waited || r->prio == FILL_READER;
}

/* Gives the verified extent to the layer. On a full disk readers go on; what
 * nobody asked for has no place then. */
static int land_extent(struct range *r)
{
	const struct fill_ops *ops = &r->fill->ops;
	int res = ops->land(ops->ctx, r->xnum, &r->xrec, r->space->xbuf,
			    r->xrec.len);

	if (!spill_is_for(res))
		return res;
	r->no_space = true;
	if (ops->spill && is_for_readers(r))
		return ops->spill(ops->ctx, r->xnum, &r->xrec, r->space->xbuf,
				  r->xrec.len);
	return res;
}

/* The current extent is complete in xbuf. */
static int finish_extent(struct range *r)
{
	struct fill *f = r->fill;
	struct err ok = ERR_INIT;
	struct list told;
	struct digest d;
	int res = sha256_end(r->space->hash, &d);

	if (res < 0)
		return res;
	if (!digest_equal(&d, &r->xrec.digest))
		return -EBADMSG;
	(void)fault_point("extent_verified");
	res = land_extent(r);
	if (res < 0) {
		r->local_err = true;
		return res;
	}
	(void)fault_point("extent_landed");
	list_init(&told);
	lock_take(&f->fl->lock);
	fill_detach_locked(cur_unit(r), r->xnum, &told);
	lock_drop(&f->fl->lock);
	fill_tell(&told, &ok);
	r->x++;
	return 0;
}

/* Output outside the extents. A bomb of padding is not worth keeping. */
static void keep_residue(struct range *r, const void *p, size_t n)
{
	if (!r->fill->ops.residue || r->residue.failed)
		return;
	if (n > RESIDUE_MAX - r->residue.len)
		r->residue.failed = true;
	else
		(void)buf_add(&r->residue, p, n);
}

/* Output of the current unit, in order. */
static int take_output(void *ctx, const void *data, size_t n)
{
	struct range *r = ctx;
	const uint8_t *p = data;

	while (n) {
		size_t take = n;
		int res;

		if (!r->xvalid) {
			keep_residue(r, p, n);
			r->out += n;
			return 0;
		}
		if (r->out < r->xrec.unit_off) {
			if (take > r->xrec.unit_off - r->out)
				take = r->xrec.unit_off - (size_t)r->out;
			keep_residue(r, p, take);
		} else {
			if (take > r->xrec.len - r->xlen)
				take = r->xrec.len - r->xlen;
			memcpy(r->space->xbuf + r->xlen, p, take);
			res = sha256_update(r->space->hash,
					    r->space->xbuf + r->xlen, take);
			if (res < 0)
				return res;
			r->xlen += take;
		}
		r->out += take;
		p += take;
		n -= take;
		if (r->out >= r->xrec.unit_off && r->xlen == r->xrec.len) {
			res = finish_extent(r);
			if (res < 0)
				return res;
			res = load_extent(r);
			if (res < 0) {
				r->local_err = true;
				return res;
			}
		}
	}
	return 0;
}

/* What came over the network is wrong; to ask again may help. */
static bool is_transfer_fault(const struct range *r)
{
	return r->unit_err == -EBADMSG && !r->local_err;
}

static void err_from_unit(const struct range *r, const struct ureq *u,
			  struct err *e)
{
	if (is_transfer_fault(r))
		(void)err_set(e, ERR_CORRUPT,
			      "bytes from %s do not match: unit %u at %llu",
			      r->host->name, u->unit,
			      (unsigned long long)u->rec.blob_off);
	else
		(void)err_sys(e, r->unit_err,
			      "unit %u, fetched from %s, cannot be kept",
			      u->unit, r->host->name);
}

/* The current unit is over: good, or r->unit_err says why not. */
static void end_unit(struct range *r)
{
	struct fill *f = r->fill;
	struct ureq *u = cur_unit(r);
	struct err e = ERR_INIT;
	struct list told;

	list_init(&told);
	if (is_transfer_fault(r))
		blob_blame(&r->req, u->rec.blob_off, u->rec.clen);
	if (!r->unit_err && f->ops.residue && !r->residue.failed)
		f->ops.residue(f->ops.ctx, u->unit, r->residue.p,
			       r->residue.len);
	lock_take(&f->fl->lock);
	if (!r->unit_err) {
		ureq_finish_locked(u, &told);
	} else if (is_transfer_fault(r) && !f->closing &&
		   ++u->attempts < ATTEMPTS_MAX) {
		u->state = UREQ_QUEUED;
		u->not_before_ms = now_ms() + BACKOFF_MIN_MS * u->attempts;
		list_push(&f->host->queue, &u->node);
		f->stats.bytes_refetched += u->rec.clen;
		metrics_add(METRIC_REFETCHED_BYTES, 0, u->rec.clen);
	} else {
		err_from_unit(r, u, &e);
		f->stats.last_error = e;
		r->any_bad = true;
		ureq_give_up_locked(u, &told);
	}
	r->cur++;
	lock_drop(&f->fl->lock);
	if (e.kind != ERR_NONE)
		log_limited(LOG_LEVEL_WARN, r->host->name,
			    "unit given up: host=%s err='%s'", r->host->name,
			    e.msg);
	fill_tell(&told, &e);
}

/* Feeds what has arrived of the current unit; true when the unit is over. */
static bool feed_unit(struct range *r, size_t avail)
{
	struct ureq *u = cur_unit(r);
	size_t end = (size_t)(u->rec.blob_off - r->off) + u->rec.clen;
	size_t upto = avail < end ? avail : end;
	int res = 0;

	if (upto > r->fed && !r->unit_err)
		res = decoder_feed(r->space->dec, r->space->buf + r->fed,
				   upto - r->fed, take_output, r);
	if (res < 0 && !r->unit_err)
		r->unit_err = res;
	r->fed = upto;
	if (upto < end)
		return false;
	if (!r->unit_err)
		r->unit_err = decoder_finish(r->space->dec);
	if (!r->unit_err && r->x < u->rec.n_x)
		r->unit_err = -EBADMSG; /* ended before its last extent */
	return true;
}

/* To fetch what nobody waits for would be to fetch it in vain. */
static void pause_for_space_locked(struct fill *f)
{
	f->retry_not_before_ms = now_ms() + REFUSED_PAUSE_MS;
	if (f->stats.last_error.kind == ERR_NONE)
		(void)err_set(&f->stats.last_error, ERR_NO_SPACE,
			      "the disk is full or read-only: served without "
			      "caching");
}

static void range_done(struct range *r)
{
	struct fill *f = r->fill;
	struct filler *fl = f->fl;

	/* Bad as far as it came: the rest would not make it better. */
	if (r->cur < r->n_units && r->unit_err)
		end_unit(r);
	if (r->cur < r->n_units)
		range_give_back(r);
	lock_take(&fl->lock);
	if (r->err.kind == ERR_NONE) {
		f->backoff_ms = 0;
		f->retry_not_before_ms = 0;
		f->absent_since_ms = 0;
		if (!r->any_bad)
			f->stats.last_error = r->err;
		if (r->no_space)
			pause_for_space_locked(f);
		size_note_good(&r->host->size, now_ms());
	}
	r->host->n_inflight--;
	metrics_move(METRIC_FETCHES, 0, -1);
	r->host->n_background -= r->prio != FILL_READER;
	list_remove(&r->node);
	f->n_ranges--;
	fill_poke_locked(fl);
	cond_broadcast(&fl->idle);
	/* Kept, it belongs to the scheduler as soon as the lock is dropped. */
	if (!r->kept || !half_keep_locked(r))
		range_unref_locked(r);
	lock_drop(&fl->lock);
}

static void range_work(struct job *j)
{
	struct range *r = container_of(j, struct range, job);
	struct filler *fl = r->fill->fl;

	for (;;) {
		size_t avail;
		bool net_done;

		lock_take(&fl->lock);
		avail = r->received;
		net_done = r->net_done;
		if (avail == r->fed && !net_done && r->cur < r->n_units) {
			r->queued = false;
			lock_drop(&fl->lock);
			return;
		}
		if (r->cur == r->n_units && !net_done) {
			/* All bytes are here; only the end is awaited. */
			r->queued = false;
			lock_drop(&fl->lock);
			return;
		}
		lock_drop(&fl->lock);
		while (r->cur < r->n_units && feed_unit(r, avail)) {
			end_unit(r);
			if (r->cur < r->n_units)
				begin_unit(r);
		}
		if (net_done && (r->cur == r->n_units || avail == r->fed)) {
			range_done(r);
			return;
		}
	}
}

int range_start(struct range *r, struct err *e)
{
	int res;

	if (!r->space) {
		res = space_get(r->fill->fl, r->len, &r->space);
		if (res < 0)
			return err_sys(e, res, "start of unit %u",
				       cur_unit(r)->unit);
		begin_unit(r);
		r->job.run = range_work;
		list_init(&r->job.node);
		r->req.on_data = on_data;
		r->req.done = on_done;
		r->req.ctx = r;
	}
	r->req.off = r->off + r->from;
	r->req.len = r->upto - r->from;
	r->asked_us = now_us();
	return blob_fetch(&r->req, e);
}
