/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proofs: does a layer, once all of it is here, tell the truth? Its tar stream,
 * from local bytes, must (a) have the diff id that its rows claim, (b) describe
 * the very tree that its table of contents does, and (c) consist of whole gzip
 * members, the table up to the footer. A failure is taken for damage first: the
 * blob is read once more from start to end, and only one that has the layer's
 * digest and fails again is a lie. See "Proof" in ARCHITECTURE.md.
 *
 * One proof at a time, in a thread of its own that the scheduler puts last.
 */
#ifndef SNAPSHOTTER_PROOF_H
#define SNAPSHOTTER_PROOF_H

#include "snapshotter/layer_priv.h"

struct prover;

int prover_new(struct layers *ls, struct prover **ret) must_check;
/* Ends a running proof; it begins anew after the next start. Layers may still be
 * filled, and say so here, until prover_free(). Both accept NULL. */
void prover_stop(struct prover *p);
void prover_free(struct prover *p);

/* If the layer is used, complete, and not proven yet, have it proven. Any
 * thread, no lock held; never blocks. */
void prover_consider(struct prover *p, struct layer *l);

/* A body is complete that several layers may have: see, in a moment, which of
 * them are complete now, too. Any thread, no lock held; never blocks. */
void prover_look(struct prover *p);

/* "", "queued", "running", "waiting": for status */
const char *prover_state(struct prover *p, uint32_t seq);

/* Told when a layer is judged: see layers_prove(). */
int prover_wait(struct prover *p, uint32_t seq, struct proof_waiter *w)
	must_check;
bool prover_cancel(struct prover *p, struct proof_waiter *w);

#endif
