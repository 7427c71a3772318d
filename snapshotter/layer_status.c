/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What status says of each layer: how much of it is here, who waits, and why
 * others are not served lazily. Reads the layers one by one; takes no lock
 * while it calls back.
 */
#include <string.h>

#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/proof.h"
#include "snapshotter/scrub.h"
#include "snapshotter/seal.h"

void layers_note_fallback(struct layers *ls, const struct digest *blob,
			  const char *image, uint64_t size, const char *reason)
{
	struct fallback *f;
	unsigned i;

	lock_take(&ls->lock);
	if (!ls->fallbacks)
		ls->fallbacks = calloc(FALLBACKS_MAX, sizeof(*f));
	if (!ls->fallbacks) {
		lock_drop(&ls->lock);
		return;
	}
	for (i = 0; i < ls->n_fallbacks; i++)
		if (digest_equal(&ls->fallbacks[i].blob, blob))
			break;
	if (i == ls->n_fallbacks) {
		i = ls->next_fallback++ % FALLBACKS_MAX;
		if (ls->n_fallbacks < FALLBACKS_MAX)
			ls->n_fallbacks++;
	}
	f = &ls->fallbacks[i];
	f->blob = *blob;
	f->size = size;
	(void)snprintf(f->image, sizeof(f->image), "%s", image);
	(void)snprintf(f->reason, sizeof(f->reason), "%s", reason);
	lock_drop(&ls->lock);
}

void layers_clear_fallback(struct layers *ls, const struct digest *blob)
{
	lock_take(&ls->lock);
	for (unsigned i = 0; i < ls->n_fallbacks; i++)
		if (digest_equal(&ls->fallbacks[i].blob, blob))
			memset(&ls->fallbacks[i], 0, sizeof(*ls->fallbacks));
	lock_drop(&ls->lock);
}

/* Bytes of file contents that are here; shared bodies count in each layer. */
static uint64_t local_bytes(struct layer *l)
{
	uint64_t sum = 0;

	if (atomic_load(&l->complete))
		return l->row.payload;
	for (uint32_t i = 0; i < l->n_bodies; i++)
		sum += layer_body_local(l, i);
	return sum < l->row.payload ? sum : l->row.payload;
}

static const char *proof_text(struct layer *l)
{
	const char *s;

	switch (atomic_load(&l->proof)) {
	case PROOF_PROVEN:
		return "proven";
	case PROOF_FAILED:
		return "failed";
	default:
		s = prover_state(l->ls->prover, l->row.seq);
		return *s ? s : "none";
	}
}

/* NULL: it is not, as far as anybody knows. */
static const char *why_bad(struct layer *l, enum layer_open_state state)
{
	bool condemned = atomic_load(&l->condemned);

	if (state == LAYER_BROKEN ||
	    (!condemned &&
	     (atomic_load(&l->damage_recorded) || layer_is_damaged(l))))
		return "index or map are damaged or missing: remove the image and pull it again, then recreate the containers that use it";
	if (!condemned)
		return NULL;
	return l->proof_why[0]
		       ? l->proof_why
		       : "quarantined: its content is not what the image claims";
}

/* All of it is; by whom is it verified? */
static const char *here(struct layer *l)
{
	return atomic_load(&l->sealed) ? "sealed" : "complete";
}

static void one_status(struct layer *l,
		       void (*fn)(void *ctx, const struct layer_status *st),
		       void *ctx)
{
	struct layer_status st = {
		.digest = l->row.blob,
		.image = l->row.image,
		.state = "lazy",
		.reason = "",
		.bytes_total = l->row.payload,
		.seq = l->row.seq,
		.waiting_for = "",
		.proven = atomic_load(&l->proof) == PROOF_PROVEN,
		.proof = proof_text(l),
		.bytes_refetched = atomic_load(&l->proof_refetched)
	};
	enum layer_open_state state;
	struct fill_stats fs = { 0 };
	const char *why;

	lock_take(&l->ls->lock);
	st.n_repos = l->n_repos;
	lock_drop(&l->ls->lock);
	state = layer_state(l);
	if (state == LAYER_CLOSED && atomic_load(&l->complete)) {
		st.state = here(l);
		st.bytes_local = l->row.payload;
	}
	if (state == LAYER_OPEN) {
		/* Bodies are shared: another layer may have filled them. */
		if (!atomic_load(&l->complete))
			layer_check_complete(l);
		fill_stats(l->fill, &fs);
		st.bytes_local = local_bytes(l);
		st.bytes_fetched = fs.bytes_fetched;
		if (atomic_load(&l->complete))
			st.state = here(l);
		else if (fs.last_error.kind != ERR_NONE)
			st.reason = fs.last_error.msg;
		st.waiting = atomic_load(&l->n_waiting);
		if (st.waiting)
			st.waiting_for = blob_host(l->blob);
	}
	why = why_bad(l, state);
	if (why) {
		st.state = "bad";
		st.reason = why;
	}
	fn(ctx, &st);
}

void layers_why_unsealed(struct layers *ls, char *buf, size_t size)
{
	sealing_why_off(ls->sealing, buf, size);
}

uint64_t layers_scrub(struct layers *ls, uint32_t seq)
{
	return scrubbing_ask(ls->scrubbing, seq);
}

void layers_scrub_json(struct layers *ls, struct buf *out)
{
	scrubbing_json(ls->scrubbing, out);
}

void layers_sealing_json(struct layers *ls, struct buf *out)
{
	sealing_json(ls->sealing, out);
}

void layers_progress(struct layers *ls, uint32_t seq, char *buf, size_t size)
{
	struct layer *l = layer_get(ls, seq);

	*buf = '\0';
	if (l && l->fill)
		(void)snprintf(buf, size, "%llu of %llu bytes are here",
			       (unsigned long long)local_bytes(l),
			       (unsigned long long)l->row.payload);
	layer_put(l);
}

void layers_status(struct layers *ls,
		   void (*fn)(void *ctx, const struct layer_status *st),
		   void *ctx)
{
	owned(mem) struct fallback *copy = NULL;
	owned(mem) uint32_t *seqs = NULL;
	size_t n_seqs = 0;
	unsigned n = 0;

	if (layers_seqs(ls, &seqs, &n_seqs) < 0)
		log_warn("out of memory: status without layers");
	for (size_t i = 0; i < n_seqs; i++) {
		bool was_closed = false;
		struct layer *l = layer_look(ls, seqs[i], &was_closed);

		if (l)
			one_status(l, fn, ctx);
		layer_unlook(l, was_closed);
	}
	lock_take(&ls->lock);
	if (ls->n_fallbacks)
		copy = calloc(ls->n_fallbacks, sizeof(*copy));
	if (copy) {
		n = ls->n_fallbacks;
		memcpy(copy, ls->fallbacks, n * sizeof(*copy));
	}
	lock_drop(&ls->lock);
	for (unsigned i = 0; i < n; i++) {
		struct layer_status st = { .digest = copy[i].blob,
					   .image = copy[i].image,
					   .state = "fallback",
					   .reason = copy[i].reason,
					   .bytes_total = copy[i].size,
					   .seq = NO_LAYER,
					   .waiting_for = "",
					   .proof = "none" };

		if (!digest_is_zero(&copy[i].blob))
			fn(ctx, &st);
	}
}
