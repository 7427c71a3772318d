/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lazy, or ordinary mounts and the reason: what Prepare answers, in the order
 * of ARCHITECTURE.md "The life of a Prepare".
 *
 *  1. the ref is there already, or the layer gets ready within the budget:
 *     ERR_EXISTS, after the committed row is durable;
 *  2. anything else, every network and credential error included (containerd
 *     may have secrets that we lack): ordinary mounts; status keeps the reason;
 *     With proof = "before-run" a ready layer must be proven, too; when that
 *     takes longer, the answer is ERR_UNAVAILABLE with the progress;
 *  3. policy "require-lazy" turns 2 into an error that says why.
 *
 * With verity = "require", where nothing can be sealed, what would be lazy and is
 * not there yet gets ERR_PRECONDITION, which says what to do.
 */
#ifndef SNAPSHOTTER_DECIDE_H
#define SNAPSHOTTER_DECIDE_H

#include "snapshotter/layer.h"
#include "snapshotter/snapshotter.h"

struct decide_env {
	struct snapshotter *owner;
	enum policy policy;
	struct store *store;
	struct layers *layers;
	struct registry *registry;
	const char *off_reason; /* why nothing can be lazy; NULL: it can */
	bool prove_before_run;
	bool require_verity; /* nothing new is lazy where nothing is sealed */
};

/*
 * decide_prepare() - first half; see snapshotter_prepare() for ready and op
 * 0: answer with ordinary mounts. -1: answer *e. 1: *ret_op is pending.
 */
int decide_prepare(const struct decide_env *env, const struct prepare_req *rq,
		   void (*ready)(void *ctx), void *ctx,
		   struct prepare_op **ret_op, struct err *e) must_check;

/* Never blocks; any thread. */
void decide_expire(struct prepare_op *op);

/* Second half: 0 or -1 as above. *ret_rq points into @op, until decide_free. */
int decide_finish(struct prepare_op *op, const struct prepare_req **ret_rq,
		  struct err *e) must_check;
struct snapshotter *decide_owner(const struct prepare_op *op);
void decide_free(struct prepare_op *op);

#endif
