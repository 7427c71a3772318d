/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a layer: what the view reads, what the filler lands. Everything
 * about a file comes from the map, record by record; nothing of it is kept.
 */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/proof.h"
#include "snapshotter/seal.h"
#include "snapshotter/spill.h"

#define ASK_MAX 64u /* units that one read asks for at once */
#define AHEAD_EXTENTS 8u /* of a file that is read in order */
#define SEQUENTIAL_SLACK (2u << 20) /* kernel readahead reorders a little */

/* ---- for the filler ---- */

/* Marks the layer complete when all its bodies are. Cheap when it is not. */
void layer_check_complete(struct layer *l)
{
	for (uint32_t i = 0; i < l->n_bodies; i++) {
		struct map_body rec;
		struct body *b;

		if (map_body(l->map, i, &rec) < 0)
			return;
		if (!rec.n_extents)
			continue;
		if (layer_find_body(l, i, &b) != 1)
			return;
		if (body_get_state(b) == BODY_PARTIAL)
			return;
	}
	if (!atomic_exchange(&l->complete, true)) {
		log_info("layer complete: layer=%s seq=%u image='%s'",
			 digest_str(&l->row.blob).s, l->row.seq, l->row.image);
		prover_consider(l->ls->prover, l);
		sealing_layer(l->ls->sealing, l->row.seq);
	}
}

static int land(void *ctx, uint32_t extent, const struct extent *x,
		const void *p, size_t len)
{
	struct layer *l = ctx;
	struct body_place pl;
	int r = layer_find_place(l, extent, x, &pl);

	if (r < 0)
		return r;
	r = body_write(pl.b, &pl.lay, pl.bit, p, len);
	if (r < 0)
		return r;
	if (body_n_landed(pl.b) == pl.v.rec.n_extents) {
		r = body_complete(pl.b, &pl.lay);
		if (r == 0) {
			sealing_body(l->ls->sealing, l->row.seq, pl.f.body);
			if (atomic_exchange(&l->sealed, false)) /* repaired */
				sealing_layer(l->ls->sealing, l->row.seq);
			layer_check_complete(l);
			/* The body may be what others waited for, too. */
			if (pl.f.body > 0)
				prover_look(l->ls->prover);
		} else if (r != -EAGAIN)
			log_warn("body stays partial: seq=%u err='%s'",
				 l->row.seq, strerror(-r));
	}
	return 0;
}

static int spill(void *ctx, uint32_t extent, const struct extent *x,
		 const void *p, size_t len)
{
	struct layer *l = ctx;

	(void)extent;
	log_limited(
		LOG_LEVEL_WARN, digest_str(&l->row.blob).s,
		"the disk takes nothing, served without caching: layer=%s image='%s'",
		digest_str(&l->row.blob).s, l->row.image);
	return spill_put(bodies_spill(l->ls->o.bodies), &x->digest, p, len);
}

static bool landed(void *ctx, uint32_t extent, const struct extent *x)
{
	struct layer *l = ctx;
	struct body_place pl;

	if (spill_has(bodies_spill(l->ls->o.bodies), &x->digest))
		return true;
	return layer_find_place(l, extent, x, &pl) == 0 &&
	       body_has(pl.b, pl.bit);
}

int layer_read_extent(struct layer *l, uint32_t i, const struct extent *x,
		      uint32_t off, void *p, size_t len)
{
	struct body_place pl;
	int r = layer_find_place(l, i, x, &pl);

	if (r == 0)
		r = body_read(pl.b, &pl.lay,
			      pl.f.body_off + (x->addr - pl.f.addr) + off, p,
			      len);
	if (r == -EAGAIN || spill_is_for(r))
		r = spill_read(bodies_spill(l->ls->o.bodies), &x->digest, off,
			       p, len);
	return r;
}

static void keep_residue(void *ctx, uint32_t unit, const void *p, size_t len)
{
	struct layer *l = ctx;
	int r = l->residue ? residue_add(l->residue, unit, p, len) : 0;

	if (r < 0)
		log_debug("residue not kept: seq=%u unit=%u err='%s'",
			  l->row.seq, unit, strerror(-r));
}

void layer_fill_ops(struct layer *l, struct fill_ops *ret)
{
	*ret = (struct fill_ops){ .land = land,
				  .spill = spill,
				  .landed = landed,
				  .residue = keep_residue,
				  .ctx = l };
}

/* ---- for the view ---- */

static struct layer *layer_of(struct source *s)
{
	return container_of(s, struct layer, src);
}

/* Updates the streams; returns the number of the first extent that a reader
 * in order will want next, or UINT32_MAX when he does not read in order. */
static uint32_t stream_ahead(struct layer *l, const struct map_file *f,
			     const struct source_file *sf, uint64_t off,
			     uint64_t end, uint32_t last)
{
	struct stream *st = NULL;
	uint32_t from = UINT32_MAX;

	lock_take(&l->lock);
	for (unsigned i = 0; i < N_STREAMS; i++)
		if (l->streams[i].ino == sf->ino)
			st = &l->streams[i];
	if (!st) {
		st = &l->streams[l->next_stream++ % N_STREAMS];
		*st = (struct stream){ .ino = sf->ino };
	} else if (off + SEQUENTIAL_SLACK >= st->next_off &&
		   off <= st->next_off + SEQUENTIAL_SLACK) {
		/* Half of the window is used up: move it. */
		if (last + AHEAD_EXTENTS / 2 >= st->ahead) {
			from = last + 1 > st->ahead ? last + 1 : st->ahead;
			st->ahead = last + 1 + AHEAD_EXTENTS;
		}
	} else {
		st->ahead = 0;
	}
	st->next_off = end;
	lock_drop(&l->lock);
	return from >= f->first_extent + f->n_extents ? UINT32_MAX : from;
}

/* A file of several extents is read in order: ask for the next ones early. */
static void read_ahead(struct layer *l, const struct map_file *f,
		       const struct source_file *sf, uint64_t off, size_t len)
{
	uint32_t last, from, to, end = f->first_extent + f->n_extents;
	struct extent a, b;

	if (f->n_extents < 2 || atomic_load(&l->complete))
		return;
	if (map_find_extent(l->map, f, off + len - 1, &last, &a) < 0)
		return;
	from = stream_ahead(l, f, sf, off, off + len, last);
	if (from == UINT32_MAX)
		return;
	to = from + AHEAD_EXTENTS < end ? from + AHEAD_EXTENTS : end;
	if (map_extent(l->map, from, &a) == 0 &&
	    map_extent(l->map, to - 1, &b) == 0 && a.unit != UNIT_HOLE &&
	    b.unit != UNIT_HOLE && a.unit <= b.unit)
		fill_range(l->fill, a.unit, b.unit + 1, FILL_PREFETCH);
}

/* Its content is not what its image claims: see proof.h. */
static bool is_condemned(struct layer *l)
{

	if (!atomic_load(&l->condemned))
		return false;
	log_limited(
		LOG_LEVEL_WARN, digest_str(&l->row.blob).s,
		"read refused, the layer is quarantined: layer=%s image='%s'",
		digest_str(&l->row.blob).s, l->row.image);
	return true;
}

/* What an application sees is never without its cause in the log. */
static void source_failed(struct source *s, const struct source_file *sf,
			  uint64_t off, const char *why)
{
	const struct layer *l = layer_of(s);

	log_limited(
		LOG_LEVEL_WARN, digest_str(&l->row.blob).s,
		"read fails: layer=%s image='%s' host=%s inode=%u offset=%llu err='%s'",
		digest_str(&l->row.blob).s, l->row.image,
		l->blob ? blob_host(l->blob) : "", sf->ino,
		(unsigned long long)off, why);
}

static void log_failed_read(struct layer *l, const struct source_file *sf,
			    uint64_t off, int r)
{
	if (r != -EINTR && r != -ECANCELED) /* somebody is there to see it */
		source_failed(&l->src, sf, off, strerror(-r));
}

/* Extent by extent: some of them may be in memory only. */
static int read_extents(struct layer *l, const struct map_file *f, uint64_t off,
			uint8_t *p, size_t len)
{
	while (len) {
		struct extent x;
		uint64_t at;
		uint32_t i;
		size_t n;
		int r = map_find_extent(l->map, f, off, &i, &x);

		if (r < 0)
			return r;
		at = off - (x.addr - f->addr);
		if (at >= x.len)
			return -EUCLEAN;
		n = len < x.len - at ? len : (size_t)(x.len - at);
		if (x.unit == UNIT_HOLE)
			memset(p, 0, n);
		else
			r = layer_read_extent(l, i, &x, (uint32_t)at, p, n);
		if (r < 0)
			return r;
		off += n;
		p += n;
		len -= n;
	}
	return 0;
}

static int read_file(struct layer *l, const struct map_file *f, uint64_t off,
		     void *p, size_t len)
{
	struct body_layout lay;
	struct body_view v;
	struct body *b;
	int r = layer_body(l, f->body, &b);

	if (r == 0)
		r = layer_view(l, f->body, &v, &lay);
	if (r == 0)
		r = body_read(b, &lay, f->body_off + off, p, len);
	/* Its file is not the sealed one any more. */
	if (r == 0 && body_get_state(b) == BODY_COMPLETE &&
	    atomic_exchange(&l->sealed, false))
		sealing_layer(l->ls->sealing, l->row.seq);
	if (r != -EAGAIN && !spill_is_for(r))
		return r;
	/* On a full disk it may be impossible to make the body, too. */
	if (spill_is_empty(bodies_spill(l->ls->o.bodies)))
		return -EAGAIN;
	return read_extents(l, f, off, p, len);
}

static int source_read(struct source *s, const struct source_file *sf,
		       uint64_t off, void *p, size_t len)
{
	struct layer *l = layer_of(s);
	struct map_file f;
	int r;

	if (is_condemned(l))
		return -EIO;
	r = map_file(l->map, sf->ino, &f);
	if (r == 0 &&
	    (f.size != sf->size || off > f.size || len > f.size - off))
		r = -EUCLEAN;
	if (r == 0) {
		r = read_file(l, &f, off, p, len);
		if (len)
			read_ahead(l, &f, sf, off, len);
	}
	if (r < 0 && r != -EAGAIN)
		log_failed_read(l, sf, off, r);
	return r;
}

/* A parked read. It waits for one absent extent after the other; all of them
 * are asked for at the start, so this costs no extra round trip. */
struct parked {
	struct fill_waiter w;
	struct list node; /* in layer->parked until done() has returned */
	struct layer *l;
	struct source_wait *sw;
	struct source_file sf;
	struct map_file f;
	uint64_t off, end;
	atomic_bool cancelled;
};

static void parked_end(struct parked *pk)
{
	struct layer *l = pk->l;

	atomic_fetch_sub(&l->n_waiting, 1);
	lock_take(&l->lock);
	list_remove(&pk->node);
	cond_broadcast(&l->unparked);
	lock_drop(&l->lock);
	free(pk);
}

static void parked_finish(struct parked *pk, int r)
{
	pk->sw->done(pk->sw, r);
	parked_end(pk);
}

/*
 * Waits for the first absent extent of [pk->off, pk->end). 1: nothing is
 * absent; 0: waiting; -errno. An image may have a unit for each byte: a bounded
 * number of the others is asked for.
 */
static int park_next(struct parked *pk, bool ask_all)
{
	struct layer *l = pk->l;
	uint32_t first_unit = 0, first_extent = 0;
	unsigned n_asked = 0;
	bool found = false;
	int r;

	for (uint64_t off = pk->off; off < pk->end && n_asked < ASK_MAX;) {
		struct extent x;
		uint32_t i;

		r = map_find_extent(l->map, &pk->f, off, &i, &x);
		if (r < 0)
			return r;
		off = x.addr - pk->f.addr + x.len;
		if (x.unit == UNIT_HOLE || landed(l, i, &x))
			continue;
		if (!found) {
			found = true;
			first_unit = x.unit;
			first_extent = i;
			if (!ask_all)
				break;
		} else if (x.unit != first_unit) {
			r = fill_want(l->fill, x.unit, i, NULL);
			if (r < 0)
				return r;
			n_asked++;
		}
	}
	if (!found)
		return 1;
	return fill_want(l->fill, first_unit, first_extent, &pk->w);
}

static int errno_of(const struct err *e)
{
	switch (e->kind) {
	case ERR_UNAVAILABLE:
		return -ETIMEDOUT;
	case ERR_NO_SPACE:
		return -ENOSPC;
	case ERR_CANCELLED:
		return -EINTR;
	default:
		return -EIO;
	}
}

static void parked_done(struct fill_waiter *w, const struct err *e)
{
	struct parked *pk = container_of(w, struct parked, w);
	struct layer *l = pk->l;
	int r;

	if (e->kind != ERR_NONE) {
		source_failed(&l->src, &pk->sf, pk->off, e->msg);
		parked_finish(pk, errno_of(e));
		return;
	}
	r = atomic_load(&pk->cancelled) ? -EINTR : park_next(pk, false);
	if (r < 0)
		log_failed_read(l, &pk->sf, pk->off, r);
	if (r != 0)
		parked_finish(pk, r < 0 ? r : 0);
}

static int source_want(struct source *s, const struct source_file *sf,
		       uint64_t off, size_t len, struct source_wait *sw)
{
	struct layer *l = layer_of(s);
	struct parked *pk = calloc(1, sizeof(*pk));
	int r;

	if (!pk)
		return -ENOMEM;
	pk->l = l;
	pk->sw = sw;
	pk->sf = *sf;
	pk->off = off;
	pk->end = off + len;
	pk->w.done = parked_done;
	list_init(&pk->w.node);
	list_init(&pk->w.by_time);
	sw->impl = pk;
	r = map_file(l->map, sf->ino, &pk->f);
	if (r == 0 && (off > pk->f.size || len > pk->f.size - off))
		r = -EUCLEAN;
	atomic_fetch_add(&l->n_waiting, 1);
	lock_take(&l->lock);
	list_push(&l->parked, &pk->node);
	lock_drop(&l->lock);
	if (r == 0)
		r = park_next(pk, true);
	if (r == 0)
		return 0;
	if (r > 0) {
		parked_finish(pk, 0);
		return 0;
	}
	parked_end(pk);
	log_failed_read(l, sf, off, r);
	return r;
}

static struct parked *find_parked_locked(struct layer *l,
					 const struct source_wait *sw)
{
	struct list *p;

	list_each (p, &l->parked) {
		struct parked *pk = list_entry(p, struct parked, node);

		if (pk->sw == sw)
			return pk;
	}
	return NULL;
}

/*
 * Between two extents the waiter is in nobody's list for a moment, so this
 * asks again until it has caught it or done() has returned.
 */
static void source_cancel(struct source *s, struct source_wait *sw)
{
	struct layer *l = layer_of(s);
	struct parked *pk;

	lock_take(&l->lock);
	while ((pk = find_parked_locked(l, sw))) {
		atomic_store(&pk->cancelled, true);
		/* rank 34 below 30: fine; it only unlinks */
		if (fill_cancel(l->fill, &pk->w)) {
			lock_drop(&l->lock);
			parked_finish(pk, -EINTR);
			return;
		}
		(void)cond_wait_until(&l->unparked, &l->lock, now_ms() + 10);
	}
	lock_drop(&l->lock);
}

/* Files in the pack share it: the kernel knows whole files only. */
static int source_backing_fd(struct source *s, const struct source_file *sf)
{
	struct layer *l = layer_of(s);
	struct map_body rec;
	struct map_file f;
	struct body *b;
	int r;

	if (atomic_load(&l->condemned))
		return -EAGAIN; /* the reads are refused, with a reason */
	r = map_file(l->map, sf->ino, &f);
	if (r == 0 && f.body == 0)
		return -EAGAIN;
	if (r == 0)
		r = map_body(l->map, f.body, &rec);
	if (r < 0)
		return r;
	if (f.size != sf->size || f.body_off != 0 || rec.size != f.size)
		return -EUCLEAN;
	r = layer_find_body(l, f.body, &b);
	if (r != 1)
		return r < 0 ? r : -EAGAIN;
	return body_backing_fd(b, l->ls->o.unsealed_passthrough);
}

const struct source_ops layer_source_ops = { .read = source_read,
					     .want = source_want,
					     .cancel = source_cancel,
					     .backing_fd = source_backing_fd,
					     .failed = source_failed };
