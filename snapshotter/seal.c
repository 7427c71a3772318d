/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of what is to be sealed; see seal.h. Bodies are asked for as they
 * become complete, so that those in the page cache are sealed from there; a
 * layer is looked through when it is made, when it is complete, and after a
 * start, and looks again until all of it is sealed.
 */
#include "snapshotter/seal.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/layer_priv.h"
#include "verity/sealer.h"
#include "verity/stream.h"

#define SOON_FIRST_MS 50u
#define SOON_LAST_MS 30000u
#define LATER_LAST_MS 600000u
#define SCAN_FIRST_MS 500u
#define SCAN_LAST_MS 60000u
#define REJECTS_MAX 3u /* in a row, until it is tried less often */
#define STOP_POLL_MS 100u

unsigned sealing_later_ms = 5000;

struct item {
	struct key {
		uint32_t seq, what;
	} key;
	UT_hash_handle hh;
	struct list node;
	uint64_t not_before_ms;
	unsigned pause_ms;
	unsigned n_rejects;
	bool cached; /* just written */
	bool running, again; /* again: asked for while it ran */
};

struct sealing {
	struct layers *ls;
	struct sealer *sealer;
	atomic_bool stop;
	pthread_t threads[SEALER_PARALLEL];
	unsigned n_threads;

	struct lock lock; /* leaf; guards what follows */
	struct cond wake;
	struct item *table;
	struct list items; /* not running; in order of arrival */
	bool off;
	char off_reason[256];
	char last_error[256];
	uint64_t n_sealed, bytes_sealed, bytes_read, n_rejected;
	uint64_t n_seen; /* n_sealed when layers were looked at last */
};

/* ---- what an errno means ---- */

enum treatment {
	TREAT_SOON, /* passes: a writer, a signal, a helper that died */
	TREAT_LATER, /* may pass, and not by itself: a full disk */
	TREAT_NEVER, /* of this file */
	TREAT_OFF, /* of all files: no fs-verity here */
	TREAT_DAMAGE, /* the disk does not give the bytes */
};

/* Source: Linux Documentation/filesystems/fsverity.rst. EEXIST is no error for
 * the sealer, it measures then. */
static enum treatment treat(int err)
{
	switch (-err) {
	case ETXTBSY: /* a child that has not reached its exec has our writer */
	case EBUSY: /* somebody else is sealing it */
	case EINTR:
	case EAGAIN:
	case EPIPE: /* the helper died */
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return TREAT_SOON;
	case EFBIG: /* too large for a tree of this kind */
		return TREAT_NEVER;
	case EOPNOTSUPP:
	case ENOTTY:
	case EINVAL: /* blocks of the file system smaller than 4096 bytes */
		return TREAT_OFF;
	case EIO:
	case EBADMSG:
		return TREAT_DAMAGE;
	default: /* ENOSPC, EDQUOT, EROFS, EPERM, EACCES */
		return TREAT_LATER;
	}
}

/* ---- the queue ---- */

static struct item *find_locked(struct sealing *q, struct key key)
{
	struct item *it;

	HASH_FIND(hh, q->table, &key, sizeof(key), it);
	return it;
}

static void add_locked(struct sealing *q, struct key key, bool cached)
{
	struct item *it = find_locked(q, key);

	if (q->off || atomic_load(&q->stop))
		return;
	if (it) {
		it->again = true;
		return;
	}
	it = calloc(1, sizeof(*it));
	if (!it)
		return; /* the next look at the layer asks again */
	it->key = key;
	it->cached = cached;
	HASH_ADD(hh, q->table, key, sizeof(it->key), it);
	if (!HTAB_ADDED(it)) {
		free(it);
		return;
	}
	list_init(&it->node);
	list_push(&q->items, &it->node);
	metrics_move(METRIC_SEAL_QUEUE, 0, 1);
	cond_signal(&q->wake);
}

static void add(struct sealing *q, struct key key, bool cached)
{
	if (!q)
		return;
	lock_take(&q->lock);
	add_locked(q, key, cached);
	lock_drop(&q->lock);
}

void sealing_body(struct sealing *q, uint32_t seq, uint32_t i)
{
	add(q, (struct key){ seq, i }, true);
}

void sealing_layer(struct sealing *q, uint32_t seq)
{
	add(q, (struct key){ seq, SEAL_LAYER }, false);
}

static void add_found(void *ctx, uint32_t seq, uint32_t what)
{
	add(ctx, (struct key){ seq, what }, false);
}

static void drop_locked(struct sealing *q, struct item *it)
{
	HASH_DEL(q->table, it);
	list_remove(&it->node);
	metrics_move(METRIC_SEAL_QUEUE, 0, -1);
	free(it);
}

static void drop_all_locked(struct sealing *q)
{
	struct item *it, *tmp;

	htab_each (q->table, it, tmp)
		if (!it->running)
			drop_locked(q, it);
}

/* All files that were asked for have been tried: whose layers are sealed now? */
static bool look_again_locked(struct sealing *q)
{
	struct list *p;

	if (q->n_seen == q->n_sealed)
		return false;
	q->n_seen = q->n_sealed;
	list_each (p, &q->items) {
		struct item *it = list_entry(p, struct item, node);

		if (it->key.what == SEAL_LAYER)
			it->not_before_ms = 0;
	}
	return true;
}

/* The first that is due; NULL, and when to ask again. */
static struct item *due_locked(struct sealing *q, uint64_t *ret_until)
{
	uint64_t now = now_ms();
	struct list *p;

	*ret_until = UINT64_MAX;
	list_each (p, &q->items) {
		struct item *it = list_entry(p, struct item, node);

		if (it->not_before_ms <= now)
			return it;
		if (it->not_before_ms < *ret_until)
			*ret_until = it->not_before_ms;
	}
	return NULL;
}

/* ---- asking the helper ---- */

/* Outlives its asker when the daemon stops first. */
struct ask {
	struct seal_job job;
	struct lock lock; /* leaf */
	struct cond answered;
	unsigned n_refs;
	bool is_done;
	struct seal_result res;
};

static void ask_unref(struct ask *a)
{
	bool last;

	lock_take(&a->lock);
	last = --a->n_refs == 0;
	lock_drop(&a->lock);
	if (!last)
		return;
	cond_release(&a->answered);
	lock_release(&a->lock);
	free(a);
}

static void ask_done(struct seal_job *j, const struct seal_result *res)
{
	struct ask *a = container_of(j, struct ask, job);

	lock_take(&a->lock);
	a->res = *res;
	a->is_done = true;
	cond_signal(&a->answered);
	lock_drop(&a->lock);
	ask_unref(a);
}

static struct ask *ask_new(void)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a || cond_init(&a->answered) < 0) {
		free(a);
		return NULL;
	}
	lock_init(&a->lock, RANK_LEAF);
	a->n_refs = 2;
	a->job.done = ask_done;
	return a;
}

/* 0: *ret is the answer, which may be an error. -ECANCELED: stopping. */
static int ask_helper(struct sealing *q, const struct seal_target *t,
		      bool cached, struct seal_result *ret)
{
	struct ask *a = ask_new();
	int r;

	if (!a)
		return -ENOMEM;
	a->job.size = t->size;
	a->job.cached = cached && t->size <= stream_cached_max();
	r = sealer_submit(q->sealer, &a->job, t->fd);
	if (r < 0) {
		ask_unref(a);
		ask_unref(a);
		return r;
	}
	lock_take(&a->lock);
	while (!a->is_done && !atomic_load(&q->stop))
		(void)cond_wait_until(&a->answered, &a->lock,
				      now_ms() + STOP_POLL_MS);
	r = a->is_done ? 0 : -ECANCELED;
	if (r == 0)
		*ret = a->res;
	lock_drop(&a->lock);
	ask_unref(a);
	return r;
}

/* ---- one file ---- */

static const char *name_of(uint32_t what, char buf[16])
{
	if (what == SEAL_INDEX || what == SEAL_MAP || what == SEAL_LAYER)
		return what == SEAL_INDEX ? "index"
		       : what == SEAL_MAP ? "map"
					  : "layer";
	(void)snprintf(buf, 16, "body %u", what);
	return buf;
}

static void count_sealed(struct sealing *q, const struct seal_target *t,
			 const struct seal_result *res, struct key key)
{
	char name[16];

	lock_take(&q->lock);
	q->n_sealed++;
	q->bytes_sealed += t->size;
	q->bytes_read += res->bytes_read;
	lock_drop(&q->lock);
	metrics_add(METRIC_SEALS, METRIC_SEALED, 1);
	log_debug("sealed: seq=%u file='%s' bytes=%" PRIu64
		  " ms=%u bytes_read=%" PRIu64,
		  key.seq, name_of(key.what, name), t->size, res->ms,
		  res->bytes_read);
}

/* What turns sealing off is for the kernel to say. */
static int own_error(int r)
{
	return r < 0 && treat(r) == TREAT_OFF ? -EPROTO : r;
}

/* 0, 1: nothing to do; -EBADMSG: another digest; -errno. */
static int seal_file(struct sealing *q, struct layer *l, struct key key,
		     bool cached)
{
	struct seal_target t = { .fd = -1 };
	struct seal_result res = { 0 };
	int r = layer_seal_begin(l, key.what, &t);

	if (r != 0)
		return own_error(r);
	r = ask_helper(q, &t, cached, &res);
	if (r == 0)
		r = res.err;
	if (r == 0 && !digest_equal(&res.digest, &t.want))
		r = -EBADMSG;
	if (r == 0)
		r = own_error(layer_seal_end(&t));
	if (r == 0)
		count_sealed(q, &t, &res, key);
	else if (treat(r) != TREAT_SOON) /* not from the page cache any more */
		stream_drop(t.fd);
	(void)close(t.fd);
	return r;
}

/* What is read to find damage has to come from the disk: the page cache may
 * have other bytes than the kernel's digest. */
static int reject(struct sealing *q, struct layer *l, struct key key, int err)
{
	char name[16];
	int r;

	lock_take(&q->lock);
	q->n_rejected++;
	lock_drop(&q->lock);
	metrics_add(METRIC_SEALS, METRIC_SEAL_REJECTED, 1);
	log_warn(
		"file is not what it must be, repairing: seq=%u file='%s' err='%s'",
		key.seq, name_of(key.what, name),
		err == -EBADMSG ? "measured another digest" : strerror(-err));
	r = own_error(layer_seal_reject(l, key.what));
	return r == 0 ? -EAGAIN : r;
}

/* ---- what follows ---- */

static void pause_item(struct item *it, unsigned first_ms, unsigned last_ms)
{
	it->pause_ms = it->pause_ms < first_ms      ? first_ms
		       : it->pause_ms < last_ms / 2 ? it->pause_ms * 2
						    : last_ms;
	it->not_before_ms = now_ms() + it->pause_ms;
}

static void turn_off_locked(struct sealing *q, int err)
{
	q->off = true;
	(void)snprintf(q->off_reason, sizeof(q->off_reason),
		       "%s: " SEALING_NEEDS, strerror(-err));
	drop_all_locked(q);
}

/* @r: 0 or 1: done. true: the item stays. */
static bool settle_locked(struct sealing *q, struct item *it, int r)
{
	enum treatment t = treat(r);
	char name[16];

	if (it->key.what == SEAL_LAYER && r > 0) {
		pause_item(it, SCAN_FIRST_MS, SCAN_LAST_MS);
		return true;
	}
	if (r >= 0)
		return false;
	(void)snprintf(q->last_error, sizeof(q->last_error),
		       "%s of layer %u: %s", name_of(it->key.what, name),
		       it->key.seq, strerror(-r));
	if (t == TREAT_DAMAGE ||
	    (t == TREAT_SOON && it->n_rejects >= REJECTS_MAX))
		t = TREAT_LATER; /* repaired in vain */
	switch (t) {
	case TREAT_SOON:
		pause_item(it, SOON_FIRST_MS, SOON_LAST_MS);
		return true;
	case TREAT_OFF:
		turn_off_locked(q, r);
		return false;
	case TREAT_NEVER: /* stays, so that no look asks for it again */
		it->not_before_ms = UINT64_MAX;
		return true;
	default:
		pause_item(it, sealing_later_ms, LATER_LAST_MS);
		return true;
	}
}

static void report(const struct item *it, int r, bool off)
{
	char name[16];

	if (r >= 0)
		return;
	if (off || treat(r) != TREAT_SOON)
		metrics_add(METRIC_SEALS, METRIC_SEAL_FAILED, 1);
	if (off)
		log_warn("nothing is sealed: err='%s'", strerror(-r));
	else if (treat(r) == TREAT_SOON)
		log_debug("not sealed yet: seq=%u file='%s' err='%s'",
			  it->key.seq, name_of(it->key.what, name),
			  strerror(-r));
	else
		log_warn("not sealed: seq=%u file='%s' err='%s'", it->key.seq,
			 name_of(it->key.what, name), strerror(-r));
}

static void finish(struct sealing *q, struct item *it, int r)
{
	bool was_off, off, keep;
	struct item copy;

	lock_take(&q->lock);
	was_off = q->off;
	keep = !atomic_load(&q->stop) && settle_locked(q, it, r) && !q->off;
	if (!keep && it->again && !q->off && r >= 0) {
		keep = true;
		it->not_before_ms = 0;
		it->pause_ms = 0;
	}
	it->running = it->again = false;
	off = q->off && !was_off;
	copy = *it;
	if (keep)
		list_push(&q->items, &it->node);
	else
		drop_locked(q, it);
	lock_drop(&q->lock);
	report(&copy, r, off);
	if (off)
		bodies_keep_cached(q->ls->o.bodies, false);
}

/* ---- the threads ---- */

static int run(struct sealing *q, struct item *it, struct layer *l)
{
	int r;

	if (layer_state(l) != LAYER_OPEN)
		return 0; /* broken: a new one takes its place */
	if (it->key.what == SEAL_LAYER)
		return layer_seal_scan(l, add_found, q) > 0;
	r = seal_file(q, l, it->key, it->cached);
	it->cached &= r < 0 && treat(r) == TREAT_SOON;
	if (r < 0 && treat(r) == TREAT_DAMAGE && it->n_rejects < REJECTS_MAX) {
		it->n_rejects++;
		r = reject(q, l, it->key, r);
	}
	return r;
}

/* The layer that a thread has open: the next item is most likely of the same. */
struct held {
	struct layer *l;
	bool was_closed;
};

static void let_go(struct held *h)
{
	layer_unlook(h->l, h->was_closed);
	h->l = NULL;
}

static void work(struct sealing *q, struct item *it, struct held *h)
{
	int r = 0;

	if (h->l && h->l->row.seq != it->key.seq)
		let_go(h);
	if (!h->l)
		h->l = layer_use(q->ls, it->key.seq, &h->was_closed);
	if (h->l)
		r = run(q, it, h->l);
	finish(q, it, r);
}

static void *seal_main(void *arg)
{
	struct sealing *q = arg;
	struct held h = { 0 };

	(void)pthread_setname_np(pthread_self(), "vs-seal");
	lock_take(&q->lock);
	while (!atomic_load(&q->stop)) {
		uint64_t until;
		struct item *it = due_locked(q, &until);

		if (!it && look_again_locked(q))
			continue;
		if (it) {
			it->running = true;
			it->again = false;
			list_remove(&it->node);
		} else if (!h.l) {
			if (until == UINT64_MAX)
				cond_wait(&q->wake, &q->lock);
			else
				(void)cond_wait_until(&q->wake, &q->lock,
						      until);
			continue;
		}
		lock_drop(&q->lock);
		if (it)
			work(q, it, &h);
		else
			let_go(&h);
		lock_take(&q->lock);
	}
	lock_drop(&q->lock);
	let_go(&h);
	return NULL;
}

/* ---- the interface ---- */

int sealing_new(struct layers *ls, struct sealing **ret)
{
	struct sealing *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	r = cond_init(&q->wake);
	if (r < 0) {
		free(q);
		return r;
	}
	q->ls = ls;
	q->sealer = ls->o.sealer;
	lock_init(&q->lock, RANK_LEAF);
	list_init(&q->items);
	q->off = !q->sealer || ls->o.seal_off;
	(void)snprintf(q->off_reason, sizeof(q->off_reason), "%s",
		       ls->o.seal_off ? ls->o.seal_off
		       : q->off       ? "there is no sealer"
				      : "");
	bodies_keep_cached(ls->o.bodies, !q->off);
	for (; r == 0 && !q->off && q->n_threads < SEALER_PARALLEL;
	     q->n_threads += r == 0)
		r = -pthread_create(&q->threads[q->n_threads], NULL, seal_main,
				    q);
	if (r < 0) {
		sealing_free(q);
		return r;
	}
	*ret = q;
	return 0;
}

void sealing_stop(struct sealing *q)
{
	if (!q)
		return;
	lock_take(&q->lock);
	atomic_store(&q->stop, true);
	cond_broadcast(&q->wake);
	lock_drop(&q->lock);
	for (unsigned i = 0; i < q->n_threads; i++)
		(void)pthread_join(q->threads[i], NULL);
	q->n_threads = 0;
}

void sealing_free(struct sealing *q)
{
	if (!q)
		return;
	sealing_stop(q);
	lock_take(&q->lock);
	drop_all_locked(q);
	lock_drop(&q->lock);
	cond_release(&q->wake);
	lock_release(&q->lock);
	free(q);
}

void sealing_why_off(struct sealing *q, char *buf, size_t size)
{
	lock_take(&q->lock);
	(void)snprintf(buf, size, "%s", q->off ? q->off_reason : "");
	lock_drop(&q->lock);
}

void sealing_json(struct sealing *q, struct buf *out)
{
	unsigned n_queued = 0, n_waiting = 0;
	struct item *it, *tmp;
	char error[256], reason[256];
	struct helper_status st = { 0 };
	uint64_t now = now_ms();

	if (q->sealer)
		sealer_get_status(q->sealer, &st);
	lock_take(&q->lock);
	htab_each (q->table, it, tmp) {
		if (it->key.what == SEAL_LAYER)
			continue;
		if (it->not_before_ms > now)
			n_waiting++;
		else
			n_queued++;
	}
	memcpy(error, q->last_error, sizeof(error));
	memcpy(reason, q->off_reason, sizeof(reason));
	(void)buf_addf(out,
		       "\"sealing\":{\"state\":\"%s\",\"files\":%" PRIu64
		       ",\"bytes\":%" PRIu64 ",\"bytes_read\":%" PRIu64
		       ",\"rejected\":%" PRIu64
		       ",\"queued\":%u,\"waiting\":%u,\"reason\":",
		       q->off ? "off" : "on", q->n_sealed, q->bytes_sealed,
		       q->bytes_read, q->n_rejected, n_queued, n_waiting);
	lock_drop(&q->lock);
	(void)buf_add_json(out, reason);
	(void)buf_adds(out, ",\"last_error\":");
	(void)buf_add_json(out, error);
	(void)buf_adds(out, ",\"helper\":");
	helper_status_json(&st, out);
	(void)buf_adds(out, "}");
}
