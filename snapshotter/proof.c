/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of proofs and their verdicts; see proof.h. proof_run.c makes one
 * attempt, this decides what follows from it. Nothing but a verdict is
 * recorded: a proof that was interrupted hashes again from the disk.
 */
#include "snapshotter/proof.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/proof_run.h"

#define BACKOFF_FIRST_MS 2000u
#define BACKOFF_LAST_MS 600000u
#define LOOK_MS 500u /* bodies that are completed meanwhile share one look */

/* A layer that waits for its proof. */
struct item {
	struct list node;
	uint32_t seq;
	uint64_t not_before_ms;
	unsigned backoff_ms;
	char *host; /* registry of the image that the layer was made for */
	bool late; /* the last proof that needed this registry failed */
};

struct prover {
	struct layers *ls;
	struct lock lock; /* leaf; guards what follows */
	struct cond wake;
	struct list items;
	struct list waiters; /* struct proof_waiter.node */
	uint32_t running; /* seq, or NO_LAYER */
	uint64_t look_ms; /* when to look for complete layers; 0: never */
	atomic_bool stop;
	bool runs;
	pthread_t thread;
};

/* ---- waiters ---- */

int prover_wait(struct prover *p, uint32_t seq, struct proof_waiter *w)
{
	int r = 0;

	lock_take(&p->lock);
	w->seq = seq;
	if (atomic_load(&p->stop))
		r = -ECANCELED;
	else
		list_push(&p->waiters, &w->node);
	lock_drop(&p->lock);
	return r;
}

bool prover_cancel(struct prover *p, struct proof_waiter *w)
{
	bool mine;

	lock_take(&p->lock);
	mine = !list_empty(&w->node);
	list_remove(&w->node);
	lock_drop(&p->lock);
	return mine;
}

/* @seq: NO_LAYER: all */
static void tell(struct prover *p, uint32_t seq)
{
	struct list told, *i, *n;

	list_init(&told);
	lock_take(&p->lock);
	list_each_safe (i, n, &p->waiters) {
		struct proof_waiter *w =
			list_entry(i, struct proof_waiter, node);

		if (seq != NO_LAYER && w->seq != seq)
			continue;
		list_remove(&w->node);
		list_push(&told, &w->chosen);
	}
	lock_drop(&p->lock);
	while (!list_empty(&told)) {
		struct proof_waiter *w =
			list_first(&told, struct proof_waiter, chosen);

		list_remove(&w->chosen);
		w->done(w);
	}
}

/* ---- the queue ---- */

static struct item *find_locked(struct prover *p, uint32_t seq)
{
	struct list *i;

	list_each (i, &p->items) {
		struct item *it = list_entry(i, struct item, node);

		if (it->seq == seq)
			return it;
	}
	return NULL;
}

static bool host_is_late_locked(struct prover *p, const char *host)
{
	struct list *i;

	list_each (i, &p->items) {
		struct item *it = list_entry(i, struct item, node);

		if (!strcmp(it->host, host))
			return it->late;
	}
	return false;
}

static void mark_host_locked(struct prover *p, const char *host, bool late)
{
	struct list *i;

	list_each (i, &p->items) {
		struct item *it = list_entry(i, struct item, node);

		if (!strcmp(it->host, host))
			it->late = late;
	}
}

static void add(struct prover *p, uint32_t seq, const char *image)
{
	struct item *it = calloc(1, sizeof(*it));
	char *host = strndup(image, strcspn(image, "/"));

	lock_take(&p->lock);
	if (it && host && !atomic_load(&p->stop) && !find_locked(p, seq)) {
		it->seq = seq;
		it->late = host_is_late_locked(p, host);
		it->host = take_ptr(&host);
		list_init(&it->node);
		list_push(&p->items, &it->node);
		it = NULL;
		cond_signal(&p->wake);
	}
	lock_drop(&p->lock);
	free(host);
	free(it);
}

void prover_consider(struct prover *p, struct layer *l)
{
	bool wanted;

	if (!p || atomic_load(&l->proof) != PROOF_NONE ||
	    !atomic_load(&l->complete))
		return;
	lock_take(&p->ls->lock);
	wanted = l->claimed || l->proof_asked;
	lock_drop(&p->ls->lock);
	if (wanted)
		add(p, l->row.seq, l->row.image);
}

void prover_look(struct prover *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	if (!p->look_ms) {
		p->look_ms = now_ms() + LOOK_MS;
		cond_signal(&p->wake);
	}
	lock_drop(&p->lock);
}

const char *prover_state(struct prover *p, uint32_t seq)
{
	const struct item *it;
	const char *s;

	lock_take(&p->lock);
	it = find_locked(p, seq);
	s = p->running == seq       ? "running"
	    : !it                   ? ""
	    : it->not_before_ms > 0 ? "waiting"
				    : "queued";
	lock_drop(&p->lock);
	return s;
}

/* ---- for who waits ---- */

/* The links below are needed as long as the layer has no snapshot. */
static int ask_locked(struct layer *l, const struct layer_want *lw)
{
	size_t size = lw->n_below * sizeof(*lw->below);

	l->proof_asked = true;
	l->made_ms = now_ms(); /* not to be swept away meanwhile */
	if (l->proof_below || !lw->below_known)
		return 0;
	l->proof_below = malloc(size + 1);
	if (!l->proof_below)
		return -ENOMEM;
	if (size)
		memcpy(l->proof_below, lw->below, size);
	l->n_proof_below = lw->n_below;
	return 0;
}

int layers_prove(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct proof_waiter *w)
{
	struct layer *l = layer_get(ls, seq);
	int r;

	if (!l)
		return -ENOENT;
	lock_take(&ls->lock);
	r = ask_locked(l, lw);
	lock_drop(&ls->lock);
	if (r == 0 && w)
		r = prover_wait(ls->prover, seq, w);
	/* Asked behind that: who judges it in between tells us, too. */
	if (r == 0 && atomic_load(&l->proof) != PROOF_NONE &&
	    (!w || prover_cancel(ls->prover, w)))
		r = 1;
	if (r == 0 && l->fill) {
		fill_range(l->fill, 0, map_n_units(l->map), FILL_PREFETCH);
		layer_check_complete(l);
		prover_consider(ls->prover, l);
	}
	layer_put(l);
	return r;
}

bool layers_prove_cancel(struct layers *ls, struct proof_waiter *w)
{
	return prover_cancel(ls->prover, w);
}

/* ---- verdicts ---- */

static void drop_residue(struct layer *l)
{
	if (l->residue)
		residue_end(l->residue);
	if (unlinkat(l->dirfd, "residue", 0) < 0 && errno != ENOENT)
		log_warn("residue is left: seq=%u err='%s'", l->row.seq,
			 strerror(errno));
	(void)fault_point("residue_dropped");
}

/* Nobody reads from it any more: EIO from now on. */
static void condemn(struct layer *l, const char *why)
{
	(void)snprintf(l->proof_why, sizeof(l->proof_why), "%s", why);
	atomic_store(&l->condemned, true);
}

static int proven(struct layer *l, const struct attempt *a, struct err *e)
{
	char why[sizeof(l->proof_why)];
	struct claims c;

	if (store_set_proven(l->ls->o.store, l->row.seq, &a->diff_id, &c, e) <
	    0)
		return -1;
	if (c.n_false) {
		log_err("image claims what its layer is not: image='%s' layer=%s diff_id=%s claimed=%s found=%s",
			l->row.image, digest_str(&l->row.blob).s,
			digest_str(&a->diff_id).s, c.claimed, c.found);
		(void)snprintf(
			why, sizeof(why),
			"quarantined: the image claims chain id %.19s, its content has %.19s",
			c.claimed, c.found);
	}
	if (claims_all_false(&c))
		condemn(l, why);
	atomic_store(&l->proof, PROOF_PROVEN);
	metrics_add(METRIC_PROOFS, METRIC_PROVEN, 1);
	drop_residue(l);
	log_info(
		"layer proven: layer=%s seq=%u image='%s' diff_id=%s refetched=%llu",
		digest_str(&l->row.blob).s, l->row.seq, l->row.image,
		digest_str(&a->diff_id).s,
		(unsigned long long)atomic_load(&l->proof_refetched));
	return 0;
}

static int failed(struct layer *l, const struct attempt *a, struct err *e)
{
	char why[sizeof(l->proof_why)];

	if (store_set_proof(l->ls->o.store, l->row.seq, PROOF_FAILED, e) < 0)
		return -1;
	log_err("layer lies in its table of contents: image='%s' layer=%s toc=%s diff_id=%s why='%s'",
		l->row.image, digest_str(&l->row.blob).s,
		digest_str(&l->row.toc).s, digest_str(&a->diff_id).s,
		a->why.msg);
	(void)snprintf(why, sizeof(why), "quarantined: %.200s", a->why.msg);
	condemn(l, why);
	atomic_store(&l->proof, PROOF_FAILED);
	metrics_add(METRIC_PROOFS, METRIC_PROOF_LIE, 1);
	drop_residue(l);
	return 0;
}

/* 1: true, as far as these bytes tell; 0: not; -1 */
static int is_true(struct layer *l, const struct attempt *a, struct err *e)
{
	struct claims c;

	if (!a->sound)
		return 0;
	if (store_claims(l->ls->o.store, l->row.seq, &a->diff_id, &c, e) < 0)
		return -1;
	return c.n_false == 0;
}

static int from_disk(struct prover *p, struct layer *l, struct err *e)
{
	struct attempt a;
	bool may_fetch;
	int r;

	lock_take(&p->ls->lock);
	may_fetch = p->ls->o.background_fill || l->proof_asked;
	lock_drop(&p->ls->lock);
	if (proof_attempt(l, false, may_fetch, &p->stop, &a, e) < 0)
		return -1;
	r = is_true(l, &a, e);
	if (r > 0)
		return proven(l, &a, e) < 0 ? -1 : 1;
	if (r == 0)
		log_warn(
			"proof fails for now, the blob will be read again: layer=%s image='%s' diff_id=%s why='%s'",
			digest_str(&l->row.blob).s, l->row.image,
			digest_str(&a.diff_id).s,
			a.sound ? "not the diff id that the image claims"
				: a.why.msg);
	return r;
}

static int from_blob(struct prover *p, struct layer *l, struct err *e)
{
	struct attempt a;

	if (proof_attempt(l, true, true, &p->stop, &a, e) < 0)
		return -1;
	if (!a.same_blob)
		return err_set(e, ERR_UNAVAILABLE,
			       "%s gives other bytes than the layer's digest",
			       blob_host(l->blob));
	return a.sound ? proven(l, &a, e) : failed(l, &a, e);
}

static int judge(struct prover *p, struct layer *l, struct err *e)
{
	int r = 0;

	if (!atomic_load(&l->suspect))
		r = from_disk(p, l, e);
	if (r != 0)
		return r < 0 ? -1 : 0;
	/* What is on the disk is not asked again: it may be damaged. */
	atomic_store(&l->suspect, true);
	return from_blob(p, l, e);
}

/* ---- the thread ---- */

static void end_item(struct item *it)
{
	list_remove(&it->node);
	free(it->host);
	free(it);
}

/* The next open layer from @from on that is used and lacks bytes; a reference. */
static struct layer *next_incomplete(struct layers *ls, uint32_t from)
{
	struct layer *best = NULL, *l, *tmp;

	lock_take(&ls->lock);
	htab_each (ls->table, l, tmp)
		if (l->row.seq >= from && l->state == LAYER_OPEN &&
		    (l->claimed || l->proof_asked) &&
		    !atomic_load(&l->complete) &&
		    (!best || l->row.seq < best->row.seq))
			best = l;
	if (best)
		best->n_refs++;
	lock_drop(&ls->lock);
	return best;
}

static bool is_one_opening(struct layers *ls)
{
	struct layer *l, *tmp;
	bool r = false;

	lock_take(&ls->lock);
	htab_each (ls->table, l, tmp)
		r |= l->state == LAYER_OPENING;
	lock_drop(&ls->lock);
	return r;
}

/* Which layers a body has made complete that they share. */
static void look_around(struct prover *p)
{
	struct layer *l;
	uint32_t from = 0;

	/* It may have looked for the body before that was complete. */
	if (is_one_opening(p->ls))
		prover_look(p);
	while (!atomic_load(&p->stop) && (l = next_incomplete(p->ls, from))) {
		from = l->row.seq + 1;
		layer_check_complete(l);
		layer_put(l);
	}
}

/*
 * Of two that are due: a registry that has just failed may take half a minute to
 * fail again, so whoever does not need it goes first; then who failed less.
 */
static bool goes_first(const struct item *a, const struct item *b)
{
	if (a->late != b->late)
		return b->late;
	return a->backoff_ms < b->backoff_ms;
}

/* The item that is due; NULL, and when to ask again. */
static struct item *due_locked(struct prover *p, uint64_t *ret_until)
{
	uint64_t now = now_ms(), until = p->look_ms ? p->look_ms : UINT64_MAX;
	struct item *best = NULL;
	struct list *i;

	list_each (i, &p->items) {
		struct item *it = list_entry(i, struct item, node);

		if (it->not_before_ms > now)
			until = it->not_before_ms < until ? it->not_before_ms
							  : until;
		else if (!best || goes_first(it, best))
			best = it;
	}
	*ret_until = until;
	return best;
}

/* Waits for the next item; NULL: the end. */
static struct item *next_locked(struct prover *p)
{
	struct item *it;
	uint64_t until;

	while (!atomic_load(&p->stop)) {
		if (p->look_ms && p->look_ms <= now_ms()) {
			p->look_ms = 0;
			lock_drop(&p->lock);
			look_around(p);
			lock_take(&p->lock);
			continue;
		}
		it = due_locked(p, &until);
		if (it)
			return it;
		if (until == UINT64_MAX)
			cond_wait(&p->wake, &p->lock);
		else
			(void)cond_wait_until(&p->wake, &p->lock, until);
	}
	return NULL;
}

static void put_off(struct item *it, const struct layer *l, const struct err *e)
{
	it->backoff_ms = it->backoff_ms ? it->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (it->backoff_ms > BACKOFF_LAST_MS)
		it->backoff_ms = BACKOFF_LAST_MS;
	it->not_before_ms = now_ms() + it->backoff_ms;
	if (e->kind == ERR_CANCELLED)
		return;
	metrics_add(METRIC_PROOFS, METRIC_PROOF_PUT_OFF, 1);
	log_info("proof put off: layer=%s image='%s' err='%s'",
		 digest_str(&l->row.blob).s, l->row.image, e->msg);
}

/* Whether the item is done with. Opens the layer, and closes it if only it did. */
static bool run_item(struct prover *p, uint32_t seq, struct item *it)
{
	struct err e = ERR_INIT;
	bool was_closed = false, done = true;
	struct layer *l = layer_look(p->ls, seq, &was_closed);

	if (l && layer_state(l) != LAYER_OPEN) /* known to be complete */
		layer_put(layer_get(p->ls, seq));
	if (l && layer_state(l) == LAYER_OPEN &&
	    atomic_load(&l->proof) == PROOF_NONE) {
		done = judge(p, l, &e) == 0;
		if (!done)
			put_off(it, l, &e);
	}
	layer_unlook(l, was_closed);
	return done;
}

static void *prover_main(void *arg)
{
	struct prover *p = arg;
	struct sched_param sp = { 0 };
	struct item *it;

	(void)pthread_setname_np(pthread_self(), "vs-proof");
	(void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &sp);
	(void)setpriority(PRIO_PROCESS, 0, 10); /* on Linux: of this thread */
	lock_take(&p->lock);
	while ((it = next_locked(p))) {
		uint32_t seq = p->running = it->seq;
		bool done;

		lock_drop(&p->lock);
		done = run_item(p, seq, it);
		lock_take(&p->lock);
		p->running = NO_LAYER;
		mark_host_locked(p, it->host, !done);
		if (!done)
			continue;
		end_item(it);
		lock_drop(&p->lock);
		tell(p, seq);
		lock_take(&p->lock);
	}
	lock_drop(&p->lock);
	return NULL;
}

int prover_new(struct layers *ls, struct prover **ret)
{
	struct prover *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->ls = ls;
	p->running = NO_LAYER;
	lock_init(&p->lock, RANK_LEAF);
	list_init(&p->items);
	list_init(&p->waiters);
	r = cond_init(&p->wake);
	if (r == 0)
		r = -pthread_create(&p->thread, NULL, prover_main, p);
	p->runs = r == 0;
	if (r < 0) {
		prover_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void prover_stop(struct prover *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	atomic_store(&p->stop, true);
	cond_broadcast(&p->wake);
	lock_drop(&p->lock);
	if (p->runs)
		(void)pthread_join(p->thread, NULL);
	p->runs = false;
	tell(p, NO_LAYER);
}

void prover_free(struct prover *p)
{
	if (!p)
		return;
	prover_stop(p);
	while (!list_empty(&p->items))
		end_item(list_first(&p->items, struct item, node));
	cond_release(&p->wake);
	lock_release(&p->lock);
	free(p);
}
