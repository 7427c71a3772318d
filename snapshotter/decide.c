/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decision behind Prepare; see decide.h. Owns the pending operations: each
 * waits for one layer job and for the caller's timer, whichever comes first.
 */
#include "snapshotter/decide.h"

#include <stdatomic.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/image.h"

struct prepare_op {
	struct decide_env env;
	struct prepare_req rq; /* strings are copies */
	char *sn, *key, *parent;
	struct labels labels;
	struct layer_want want;
	struct snap_link *below;
	char ref[DIGEST_STR_LEN + 1];

	void (*ready)(void *ctx);
	void *ctx;
	atomic_bool
		told; /* ready() has been called, or will be by one thread */

	struct layer_waiter waiter;
	struct proof_waiter prover;
	atomic_bool expire; /* asked for, perhaps between the two waits */
	/* written before told becomes true */
	bool have_row, expired;
	struct layer_row row;
	struct err err;
};

void decide_free(struct prepare_op *op)
{
	if (!op)
		return;
	free(op->sn);
	free(op->key);
	free(op->parent);
	free(op->below);
	labels_release(&op->labels);
	free(op);
}

struct snapshotter *decide_owner(const struct prepare_op *op)
{
	return op->env.owner;
}

/* What kind of failure it is that keeps a layer from being made. */
static enum metric_fallback metric_of(enum err_kind kind)
{
	switch (kind) {
	case ERR_UNAVAILABLE:
		return METRIC_FALLBACK_UNAVAILABLE;
	case ERR_DENIED:
		return METRIC_FALLBACK_DENIED;
	case ERR_CORRUPT:
		return METRIC_FALLBACK_CORRUPT;
	case ERR_INVALID:
	case ERR_UNSUPPORTED:
		return METRIC_FALLBACK_UNSUPPORTED;
	case ERR_NO_SPACE:
		return METRIC_FALLBACK_NO_SPACE;
	case ERR_PRECONDITION:
		return METRIC_FALLBACK_QUARANTINE;
	default:
		return METRIC_FALLBACK_INTERNAL;
	}
}

/* Ordinary mounts, unless the operator forbids them. */
static int fall_back(const struct decide_env *env, const struct layer_want *lw,
		     enum metric_fallback metric, const char *reason,
		     struct err *e)
{
	metrics_add(METRIC_FALLBACKS, metric, 1);
	if (!digest_is_zero(&lw->desc.blob))
		layers_note_fallback(env->layers, &lw->desc.blob, lw->image,
				     lw->desc.size, reason);
	/* Whoever cannot have it may ask again every few seconds. */
	log_limited(
		LOG_LEVEL_WARN, digest_str(&lw->desc.blob).s,
		"layer falls back to ordinary mounts: layer=%s image='%s' host=%s reason='%s'",
		digest_str(&lw->desc.blob).s, lw->image, lw->ref.host, reason);
	if (env->policy == POLICY_REQUIRE_LAZY)
		return err_set(
			e, ERR_UNAVAILABLE,
			"policy is require-lazy and the layer cannot be lazy: %s",
			reason);
	return 0;
}

/* verity = "require": 0, or -1 where nothing can be sealed. */
static int refuse_unsealed(const struct decide_env *env,
			   const struct layer_want *lw, struct err *e)
{
	char why[256];

	if (!env->require_verity)
		return 0;
	layers_why_unsealed(env->layers, why, sizeof(why));
	if (!*why)
		return 0;
	metrics_add(METRIC_FALLBACKS, METRIC_FALLBACK_CANNOT_SEAL, 1);
	layers_note_fallback(env->layers, &lw->desc.blob, lw->image,
			     lw->desc.size, why);
	return err_set(
		e, ERR_PRECONDITION,
		"verity is \"require\" and nothing can be sealed: %s; best is a file system of its own for the state directory",
		why);
}

/* The ref is taken: is it this layer, or one that has been proven? */
static int ref_is_taken(const struct decide_env *env, const struct snap *row,
			const struct layer_want *lw, struct err *e)
{
	struct layer_row layer;
	bool trusted = false;
	int r;

	if (row->seq != NO_LAYER) {
		r = store_get_layer(env->store, row->seq, &layer, e);
		if (r < 0 ||
		    store_snap_is_trusted(env->store, row->id, &trusted, e) < 0)
			return -1;
		if (r == 0 ||
		    (!trusted && (!digest_equal(&layer.blob, &lw->desc.blob) ||
				  !digest_equal(&layer.toc, &lw->desc.toc))))
			return fall_back(env, lw, METRIC_FALLBACK_REF_HELD,
					 "ref held by an unproven layer", e);
	}
	return err_set(e, ERR_EXISTS, "snapshot '%s' has this layer",
		       row->name);
}

/* The row's layer turns out to be no good: another one takes its place. The
 * repository of a sound one is noted by the way. */
static bool is_damaged(const struct decide_env *env,
		       const struct layer_want *lw, const struct snap *row)
{
	return lw && row->seq != NO_LAYER &&
	       layers_check(env->layers, lw, row->seq, NULL) == 0;
}

static bool must_wait_for_proof(const struct decide_env *env,
				const struct snap *row)
{
	bool trusted = false;

	return env->prove_before_run && row->seq != NO_LAYER &&
	       (store_snap_is_trusted(env->store, row->id, &trusted, NULL) <
			0 ||
		!trusted);
}

/* Labels -> what to ask for. 0: no lazy layer, *ret_reason says why (NULL: an
 * ordinary Prepare that nobody expects to be lazy). */
static int want_of_labels(const struct layer_labels *ll, struct layer_want *lw,
			  const char **ret_reason, struct err *e)
{
	*ret_reason = NULL;
	memset(lw, 0, sizeof(*lw));
	lw->desc.blob = ll->layer;
	lw->desc.toc = ll->toc;
	lw->desc.diff_id = ll->diff_id;
	lw->desc.format = FORMAT_ESTARGZ;
	(void)snprintf(lw->chain_id, sizeof(lw->chain_id), "%s", ll->ref);
	if (!ll->image_ref)
		return 0;
	if (strlen(ll->image_ref) >= sizeof(lw->image)) {
		*ret_reason = "image reference is too long";
		return 0;
	}
	(void)snprintf(lw->image, sizeof(lw->image), "%s", ll->image_ref);
	*ret_reason = "labels name no layer digest";
	if (digest_is_zero(&ll->layer))
		return 0;
	*ret_reason = "not an eStargz layer: no TOC digest in its annotations";
	if (digest_is_zero(&ll->toc))
		return 0;
	if (image_ref_parse(ll->image_ref, &lw->ref, e) < 0) {
		*ret_reason = e->msg;
		return 0;
	}
	return 1;
}

/* Of labels that ask for no lazy layer, though one could be expected. */
static enum metric_fallback metric_of_labels(const struct layer_labels *ll)
{
	return !digest_is_zero(&ll->layer) && digest_is_zero(&ll->toc)
		       ? METRIC_FALLBACK_NOT_ESTARGZ
		       : METRIC_FALLBACK_LABELS;
}

/* The sweeper may have taken the layer between the job's end and now. */
static int commit_failed(const struct decide_env *env,
			 const struct layer_want *lw,
			 const struct layer_row *row, const struct err *add,
			 struct err *e)
{
	struct layer_row now;
	struct err look = ERR_INIT;

	if (store_get_layer(env->store, row->seq, &now, &look) == 0)
		return fall_back(
			env, lw, METRIC_FALLBACK_RACE,
			"was removed as unused just now; the next pull can be lazy",
			e);
	*e = *add;
	return -1;
}

/* The row becomes durable, then containerd is told that it is there. */
static int commit_lazy(const struct decide_env *env,
		       const struct prepare_req *rq, const char *ref,
		       const struct layer_want *lw, const struct layer_row *row,
		       struct err *e)
{
	struct err add = ERR_INIT;
	int r = store_add_lazy(env->store, rq->sn, rq->parent, ref, rq->labels,
			       row->seq, row->usage, row->n_inodes, &add);

	if (r < 0 && add.kind == ERR_PRECONDITION)
		return fall_back(env, lw, METRIC_FALLBACK_REF_HELD, add.msg, e);
	if (r < 0 && add.kind != ERR_EXISTS)
		return commit_failed(env, lw, row, &add, e);
	(void)fault_point("lazy_row_committed");
	layers_used(env->layers, row->seq);
	return err_set(e, ERR_EXISTS, "layer %u is ready", row->seq);
}

/* ---- the pending operation ---- */

static void tell_once(struct prepare_op *op)
{
	if (!atomic_exchange(&op->told, true))
		op->ready(op->ctx);
}

static void proof_done(struct proof_waiter *w)
{
	tell_once(container_of(w, struct prepare_op, prover));
}

static void expire(struct prepare_op *op)
{
	op->expired = true;
	tell_once(op);
}

/* As layers_prove(); an op that is to expire expires. */
static int start_proof(struct prepare_op *op)
{
	int r = layers_prove(op->env.layers, &op->want, op->row.seq,
			     &op->prover);

	if (r == 0 && atomic_load(&op->expire) &&
	    layers_prove_cancel(op->env.layers, &op->prover))
		expire(op);
	return r;
}

static void layer_done(struct layer_waiter *w, const struct layer_row *row,
		       const struct err *e)
{
	struct prepare_op *op = container_of(w, struct prepare_op, waiter);

	if (row) {
		op->row = *row;
		op->have_row = true;
		/* What fails here fails in the second half, too. */
		if (op->env.prove_before_run && start_proof(op) == 0)
			return;
	} else {
		op->err = *e;
	}
	tell_once(op);
}

void decide_expire(struct prepare_op *op)
{
	atomic_store(&op->expire, true);
	/* Either this takes the waiter away, or somebody tells, or
	 * start_proof() sees that it is late. */
	if (layers_cancel(op->env.layers, &op->waiter) ||
	    layers_prove_cancel(op->env.layers, &op->prover))
		expire(op);
}

static int op_new(const struct decide_env *env, const struct prepare_req *rq,
		  const char *ref, struct prepare_op **ret)
{
	struct prepare_op *op = calloc(1, sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->env = *env;
	op->sn = strdup(rq->sn);
	op->key = strdup(rq->key);
	op->parent = strdup(rq->parent);
	(void)snprintf(op->ref, sizeof(op->ref), "%s", ref);
	if (!op->sn || !op->key || !op->parent ||
	    labels_copy(rq->labels, &op->labels) < 0) {
		decide_free(op);
		return -ENOMEM;
	}
	op->rq = (struct prepare_req){ .sn = op->sn,
				       .key = op->key,
				       .parent = op->parent,
				       .labels = &op->labels };
	op->waiter.done = layer_done;
	op->prover.done = proof_done;
	list_init(&op->prover.node);
	list_init(&op->prover.chosen);
	*ret = op;
	return 0;
}

static int proof_pending(const struct prepare_op *op, struct err *e)
{
	char progress[80];

	layers_progress(op->env.layers, op->row.seq, progress,
			sizeof(progress));
	return err_set(
		e, ERR_UNAVAILABLE,
		"layer %.19s is not proven yet (%s); proof is before-run: pull again",
		digest_str(&op->row.blob).s, progress);
}

/* The layer is ready and, where that is asked for, judged. */
static int finish_ready(struct prepare_op *op, struct err *e)
{
	int r;

	if (op->env.prove_before_run) {
		r = store_get_layer(op->env.store, op->row.seq, &op->row, e);
		if (r < 0)
			return -1;
		if (r == 1 && op->row.bad)
			return fall_back(&op->env, &op->want,
					 METRIC_FALLBACK_QUARANTINE,
					 "layer is in quarantine", e);
		if (r == 1 && op->row.proof != PROOF_PROVEN)
			return proof_pending(op, e);
	}
	return commit_lazy(&op->env, &op->rq, op->ref, &op->want, &op->row, e);
}

static int start(const struct decide_env *env, const struct prepare_req *rq,
		 const struct layer_labels *ll, const struct layer_want *lw,
		 void (*ready)(void *ctx), void *ctx,
		 struct prepare_op **ret_op, struct err *e)
{
	struct prepare_op *op = NULL;
	int r = op_new(env, rq, ll->ref, &op);

	if (r < 0)
		return err_sys(e, r, "prepare '%s'", rq->key);
	op->want = *lw;
	op->ready = ready;
	op->ctx = ctx;
	if (rq->parent[0] &&
	    store_chain(env->store, rq->sn, rq->parent, &op->below,
			&op->want.n_below, e) < 0) {
		decide_free(op);
		return -1;
	}
	op->want.below = op->below;
	op->want.below_known = true;
	r = layers_want(env->layers, &op->want, &op->waiter, &op->row, e);
	if (r == 1 && env->prove_before_run) {
		op->have_row = true;
		r = start_proof(op) == 0 ? 0 : 1;
	}
	if (r == 0) {
		*ret_op = op;
		return 1;
	}
	if (r == 1) {
		r = finish_ready(op, e);
	} else {
		struct err why = *e;

		r = fall_back(env, lw, metric_of(why.kind), why.msg, e);
	}
	decide_free(op);
	return r;
}

int decide_prepare(const struct decide_env *env, const struct prepare_req *rq,
		   void (*ready)(void *ctx), void *ctx,
		   struct prepare_op **ret_op, struct err *e)
{
	struct layer_labels ll;
	struct layer_want lw;
	struct err parse = ERR_INIT;
	struct snap row;
	const char *reason;
	int lazy, r;

	if (rq->view || env->policy == POLICY_NEVER_LAZY)
		return 0;
	if (labels_parse(rq->labels, &ll, &parse) < 0) {
		log_warn(
			"labels not understood, ordinary mounts: key='%s' err='%s'",
			rq->key, parse.msg);
		return 0;
	}
	if (!ll.ref)
		return 0;
	lazy = want_of_labels(&ll, &lw, &reason, &parse);
	r = store_find_ref(env->store, rq->sn, rq->parent, ll.ref, &row, e);
	if (r < 0)
		return -1;
	if (r == 1 && is_damaged(env, lazy ? &lw : NULL, &row)) {
		snap_release(&row);
	} else if (r == 1) {
		bool wait = lazy && must_wait_for_proof(env, &row);

		r = ref_is_taken(env, &row, &lw, e);
		snap_release(&row);
		if (!wait || r == 0 || e->kind != ERR_EXISTS)
			return r;
	}
	if (!lazy)
		return reason ? fall_back(env, &lw, metric_of_labels(&ll),
					  reason, e)
			      : 0;
	if (env->off_reason)
		return fall_back(env, &lw, METRIC_FALLBACK_NO_VIEW,
				 env->off_reason, e);
	if (refuse_unsealed(env, &lw, e) < 0)
		return -1;
	image_prepare_ahead(env->layers, env->registry, &ll, &lw);
	return start(env, rq, &ll, &lw, ready, ctx, ret_op, e);
}

int decide_finish(struct prepare_op *op, const struct prepare_req **ret_rq,
		  struct err *e)
{
	*ret_rq = &op->rq;
	if (op->have_row && !layer_row_fits(&op->row, &op->want))
		return fall_back(
			&op->env, &op->want, METRIC_FALLBACK_RACE,
			"was built above another parent just now; the next pull can be lazy",
			e);
	if (op->have_row)
		return finish_ready(op, e);
	if (op->expired)
		return fall_back(
			&op->env, &op->want, METRIC_FALLBACK_BUDGET,
			"not ready within the budget of a Prepare; the next pull can be lazy",
			e);
	return fall_back(&op->env, &op->want, metric_of(op->err.kind),
			 op->err.msg, e);
}
