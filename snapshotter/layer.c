/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which layers there are. Rows are loaded at start; files are opened
 * (layer_open.c) when the view first asks, so that a start costs no disk access per layer and one
 * damaged layer hurts nobody else. A layer that the view has asked for stays
 * open until it is removed. One that was opened only to see how complete it is,
 * and is, gives its file descriptors back: a node may have thousands.
 */
#include "snapshotter/layer.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/proof.h"
#include "snapshotter/scrub.h"
#include "snapshotter/seal.h"

#define JOBS_MAX 128
#define JOBS_PER_HOST 16

/* ---- references ---- */

static struct layer *find_locked(struct layers *ls, uint32_t seq)
{
	struct layer *l;

	HASH_FIND(hh, ls->table, &seq, sizeof(seq), l);
	return l;
}

struct layer *layer_get(struct layers *ls, uint32_t seq)
{
	struct layer *l;

	lock_take(&ls->lock);
	l = ls->closing ? NULL : find_locked(ls, seq);
	if (l) {
		l->n_refs++;
		if (l->state != LAYER_OPEN)
			layer_open_locked(l);
	}
	lock_drop(&ls->lock);
	return l;
}

/* Bodies that no layer refers to any more, once nobody reads them. */
static void unlink_doomed(struct layer *l)
{
	for (size_t i = 0; i < l->n_doomed; i++) {
		struct body_id id = { .ckey = l->doomed[i] };
		int r = bodies_unlink(l->ls->o.bodies, &id);

		if (r < 0 && r != -ENOENT)
			log_warn("body not removed: seq=%u err='%s'",
				 l->row.seq, strerror(-r));
	}
	free(l->doomed);
}

static void layer_free(struct layer *l)
{
	if (!l)
		return;
	layer_close_files(l);
	unlink_doomed(l);
	free(l->proof_below);
	layer_free_repos(l);
	cond_release(&l->unparked);
	lock_release(&l->lock);
	free(l);
}

void layer_put(struct layer *l)
{
	struct layers *ls;
	bool last;

	if (!l)
		return;
	ls = l->ls;
	lock_take(&ls->lock);
	last = --l->n_refs == 0;
	lock_drop(&ls->lock);
	if (last)
		layer_free(l);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int layers_seqs(struct layers *ls, uint32_t **ret, size_t *ret_n)
{
	struct layer *l, *tmp;
	uint32_t *v;
	size_t n = 0;

	lock_take(&ls->lock);
	v = malloc((HASH_COUNT(ls->table) + 1) * sizeof(*v));
	if (v)
		htab_each (ls->table, l, tmp)
			v[n++] = l->row.seq;
	lock_drop(&ls->lock);
	if (!v)
		return -ENOMEM;
	qsort(v, n, sizeof(*v), by_number);
	*ret = v;
	*ret_n = n;
	return 0;
}

static struct layer *look(struct layers *ls, uint32_t seq, bool open,
			  bool *ret_was_closed)
{
	struct layer *l;

	lock_take(&ls->lock);
	l = ls->closing ? NULL : find_locked(ls, seq);
	if (l) {
		l->n_refs++;
		/* or is being opened, for another look most likely */
		*ret_was_closed =
			l->state == LAYER_CLOSED || l->state == LAYER_OPENING;
		if (l->state != LAYER_OPEN &&
		    (open || l->state != LAYER_CLOSED ||
		     !atomic_load(&l->complete)))
			layer_open_locked(l);
	}
	lock_drop(&ls->lock);
	return l;
}

struct layer *layer_look(struct layers *ls, uint32_t seq, bool *ret_was_closed)
{
	return look(ls, seq, false, ret_was_closed);
}

struct layer *layer_use(struct layers *ls, uint32_t seq, bool *ret_was_closed)
{
	return look(ls, seq, true, ret_was_closed);
}

void layer_unlook(struct layer *l, bool was_closed)
{
	struct layers *ls;
	bool close;

	if (!l)
		return;
	ls = l->ls;
	lock_take(&ls->lock);
	/* Nobody else: only the table and we have a reference. */
	close = was_closed && l->state == LAYER_OPEN && l->n_refs == 2 &&
		atomic_load(&l->complete) && find_locked(ls, l->row.seq) == l;
	if (close)
		l->state = LAYER_OPENING; /* who comes now waits */
	lock_drop(&ls->lock);
	if (close) {
		layer_close_files(l);
		lock_take(&ls->lock);
		l->state = LAYER_CLOSED;
		cond_broadcast(&ls->changed);
		lock_drop(&ls->lock);
	}
	layer_put(l);
}

enum layer_open_state layer_state(struct layer *l)
{
	enum layer_open_state state;

	lock_take(&l->ls->lock);
	state = l->state;
	lock_drop(&l->ls->lock);
	return state;
}

static struct source *source_get(void *ctx, uint32_t seq)
{
	struct layer *l = layer_get(ctx, seq);

	return l ? &l->src : NULL;
}

static void source_put(void *ctx, struct source *s)
{
	(void)ctx;
	layer_put(container_of(s, struct layer, src));
}

void layers_source_set(struct layers *ls, struct source_set *ret)
{
	ret->get = source_get;
	ret->put = source_put;
	ret->ctx = ls;
}

/* ---- the table ---- */

/*
 * Whether a bad layer is one that nobody may read: its table lied, or all that
 * claim it lie. Else its files were damaged, and it serves as far as it can.
 */
static int was_condemned(struct layers *ls, const struct layer_row *row,
			 bool *ret, struct err *e)
{
	struct claims c = { 0 };

	if (row->bad && row->proof == PROOF_PROVEN &&
	    store_claims(ls->o.store, row->seq, &row->diff_id, &c, e) < 0)
		return -1;
	*ret = row->bad && (row->proof == PROOF_FAILED || claims_all_false(&c));
	return 0;
}

static int insert(struct layers *ls, const struct layer_row *row,
		  bool inherited, struct err *e)
{
	struct layer *l = NULL;
	bool condemned;

	if (was_condemned(ls, row, &condemned, e) < 0)
		return -1;
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_sys(e, -ENOMEM, "layer %u", row->seq);
	if (cond_init(&l->unparked) < 0) {
		free(l);
		return err_sys(e, -ENOMEM, "layer %u", row->seq);
	}
	list_init(&l->parked);
	l->ls = ls;
	l->row = *row;
	atomic_init(&l->proof, row->proof);
	atomic_init(&l->condemned, condemned);
	atomic_init(&l->damage_recorded, row->bad);
	atomic_init(&l->checked, !inherited);
	l->n_refs = 1;
	l->dirfd = -1;
	l->inherited = inherited;
	l->made_ms = now_ms();
	l->src.ops = &layer_source_ops;
	l->src.seq = row->seq;
	l->src.ino_base = row->ino_base;
	lock_init(&l->lock, RANK_LAYER);
	if (layer_load_repos(l, e) < 0) {
		layer_free(l);
		return -1;
	}
	lock_take(&ls->lock);
	HASH_ADD(hh, ls->table, row.seq, sizeof(l->row.seq), l);
	if (!HTAB_ADDED(l)) {
		lock_drop(&ls->lock);
		layer_free(l);
		return err_sys(e, -ENOMEM, "layer %u", row->seq);
	}
	lock_drop(&ls->lock);
	return 0;
}

int layers_insert(struct layers *ls, const struct layer_row *row, struct err *e)
{
	if (insert(ls, row, false, e) < 0)
		return -1;
	sealing_layer(ls->sealing, row->seq);
	return 0;
}

static int load_rows(struct layers *ls, struct err *e)
{
	owned(mem) struct layer_row *rows = NULL;
	size_t n = 0;

	if (store_layers(ls->o.store, &rows, &n, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (insert(ls, &rows[i], true, e) < 0)
			return -1;
	return 0;
}

int layers_open(const struct layers_opts *o, struct layers **ret, struct err *e)
{
	struct layers *ls = calloc(1, sizeof(*ls));
	int r;

	if (!ls)
		return err_sys(e, -ENOMEM, "layers");
	ls->o = *o;
	lock_init(&ls->lock, RANK_LAYERS);
	r = cond_init(&ls->changed);
	/* A job waits for its registry in a thread, for minutes when that is
	 * silent. So each registry gets a share of them, and of many each gets
	 * less than the one before: the layers of another need not wait. */
	if (r == 0)
		r = pool_new("layer", 1, JOBS_MAX, &ls->pool);
	if (r == 0)
		r = host_jobs_new(ls->pool, JOBS_MAX, JOBS_PER_HOST,
				  &ls->host_jobs);
	if (r == 0)
		r = prover_new(ls, &ls->prover);
	if (r == 0)
		r = sealing_new(ls, &ls->sealing);
	if (r == 0)
		r = scrubbing_new(ls, &ls->scrubbing);
	if (r < 0) {
		(void)err_sys(e, r, "start of the layer jobs");
		layers_close(ls);
		return -1;
	}
	if (load_rows(ls, e) < 0) {
		layers_close(ls);
		return -1;
	}
	*ret = ls;
	return 0;
}

void layers_close(struct layers *ls)
{
	struct layer *l, *tmp;

	if (!ls)
		return;
	lock_take(&ls->lock);
	ls->closing = true;
	lock_drop(&ls->lock);
	layer_jobs_cancel(ls);
	pool_free(ls->pool);
	host_jobs_free(ls->host_jobs);
	prover_stop(ls->prover);
	scrubbing_stop(ls->scrubbing);
	sealing_stop(ls->sealing);
	htab_each (ls->table, l, tmp) {
		HASH_DEL(ls->table, l);
		layer_free(l);
	}
	prover_free(ls->prover);
	scrubbing_free(ls->scrubbing);
	sealing_free(ls->sealing);
	free(ls->fallbacks);
	cond_release(&ls->changed);
	lock_release(&ls->lock);
	free(ls);
}

/* ---- use and removal ---- */

static void start_filling(struct layer *l)
{
	struct layers *ls = l->ls;
	uint32_t n_units;
	uint64_t end;

	lock_take(&ls->lock);
	l->claimed = true;
	lock_drop(&ls->lock);
	layers_clear_fallback(ls, &l->row.blob);
	if (l->fill) {
		n_units = map_n_units(l->map);
		end = map_prefetch_end(l->map);
		for (uint32_t i = 0; end && i < n_units; i++) {
			struct unit u;

			if (map_unit(l->map, i, &u) < 0)
				break;
			if (u.blob_off < end)
				continue;
			fill_range(l->fill, 0, i, FILL_PREFETCH);
			break;
		}
		/* Looked at when it was opened, but not while nobody used it. */
		if (!atomic_load(&l->complete))
			layer_check_complete(l);
		if (ls->o.background_fill && !atomic_load(&l->complete))
			fill_range(l->fill, 0, n_units, FILL_BACKGROUND);
	}
	prover_consider(ls->prover, l);
}

void layers_used(struct layers *ls, uint32_t seq)
{
	struct layer *l = layer_get(ls, seq);

	if (l)
		start_filling(l);
	layer_put(l);
}

bool layers_is_news(struct layers *ls, const struct digest *d, unsigned ms)
{
	uint64_t now = now_ms();
	bool known = false;

	lock_take(&ls->lock);
	for (unsigned i = 0; i < NEWS_MAX; i++)
		known |= ls->news[i].until_ms > now &&
			 digest_equal(&ls->news[i].d, d);
	if (!known)
		ls->news[ls->next_news++ % NEWS_MAX] =
			(struct news){ .d = *d, .until_ms = now + ms };
	lock_drop(&ls->lock);
	return !known;
}

int layers_resume(struct layers *ls, struct err *e)
{
	owned(mem) uint32_t *seqs = NULL;
	size_t n = 0;
	int r = layers_seqs(ls, &seqs, &n);

	if (r < 0)
		return err_sys(e, r, "list of layers");
	for (size_t i = 0; i < n; i++) {
		uint64_t users;
		bool was_closed = false;
		struct layer *l;

		if (store_layer_users(ls->o.store, seqs[i], &users, e) < 0)
			return -1;
		if (!users)
			continue;
		l = layer_look(ls, seqs[i], &was_closed);
		if (l)
			start_filling(l);
		layer_unlook(l, was_closed);
		sealing_layer(ls->sealing, seqs[i]);
	}
	return 0;
}

/* A reference to the layer if its time of grace is over, or NULL. */
static struct layer *candidate(struct layers *ls, uint32_t seq,
			       unsigned grace_s)
{
	struct layer *l;

	lock_take(&ls->lock);
	l = find_locked(ls, seq);
	if (l && !l->claimed && !l->inherited &&
	    now_ms() - l->made_ms < grace_s * 1000ull)
		l = NULL;
	if (l)
		l->n_refs++;
	lock_drop(&ls->lock);
	return l;
}

/*
 * The row is gone: nobody finds the layer any more. Somebody may still read an
 * open file of it; files are closed and bodies go with the last reference.
 * Consumes @ckeys.
 */
static void remove_layer(struct layers *ls, struct layer *l,
			 struct digest *ckeys, size_t n)
{
	lock_take(&ls->lock);
	HASH_DEL(ls->table, l);
	l->n_refs--;
	l->doomed = ckeys;
	l->n_doomed = n;
	while (l->state == LAYER_OPENING)
		cond_wait(&ls->changed, &ls->lock);
	lock_drop(&ls->lock);
	if (l->fill)
		fill_close(l->fill);
	log_info("layer removed: layer=%s seq=%u", digest_str(&l->row.blob).s,
		 l->row.seq);
}

/* Drops the layer unless somebody uses it. */
static int sweep_one(struct layers *ls, struct layer *l,
		     void (*gone)(void *ctx, uint32_t seq), void *ctx,
		     struct err *e)
{
	struct digest *ckeys = NULL;
	uint32_t seq = l->row.seq;
	uint64_t users;
	size_t n = 0;

	/* Nearly all are in use: no transaction is begun for these. */
	if (store_layer_users(ls->o.store, seq, &users, e) < 0)
		return -1;
	if (users)
		return 0;
	if (store_drop_layer(ls->o.store, seq, &ckeys, &n, e) < 0)
		return e->kind == ERR_PRECONDITION ? 0 : -1;
	remove_layer(ls, l, ckeys, n);
	gone(ctx, seq);
	return 0;
}

/* What FUSE threads have found out; they may not write it down. */
static int record_damage(struct layers *ls, uint32_t seq, struct err *e)
{
	struct layer *l;
	int r = 0;

	lock_take(&ls->lock);
	l = find_locked(ls, seq);
	if (l)
		l->n_refs++;
	lock_drop(&ls->lock);
	if (l && layer_is_damaged(l))
		r = layer_record_damage(l, e);
	layer_put(l);
	return r;
}

int layers_sweep(struct layers *ls, unsigned grace_s,
		 void (*gone)(void *ctx, uint32_t seq), void *ctx,
		 struct err *e)
{
	owned(mem) uint32_t *seqs = NULL;
	size_t n = 0;
	int r = layers_seqs(ls, &seqs, &n);

	if (r < 0)
		return err_sys(e, r, "list of layers");
	for (size_t i = 0; i < n && r == 0; i++) {
		struct layer *l;
		struct err one = ERR_INIT;

		if (record_damage(ls, seqs[i], e) < 0)
			return -1;
		l = candidate(ls, seqs[i], grace_s);
		if (l && sweep_one(ls, l, gone, ctx, &one) < 0) {
			*e = one;
			r = -1;
		}
		layer_put(l);
	}
	return r;
}
