/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing: what is complete becomes a verity file, in the background. A queue
 * and two threads ("vs-seal"); the work is done by the helper (verity/sealer.h),
 * the decisions are taken here: what to seal, whether the digest is right, and
 * what to do about each errno.
 *
 * Nothing of this is ever waited for: not by an RPC, not by a start.
 */
#ifndef SNAPSHOTTER_SEAL_H
#define SNAPSHOTTER_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"

struct body;
struct layers;
struct layer;
struct sealing;

/* What an operator can do where nothing is sealed. */
#define SEALING_NEEDS \
	"sealing needs a kernel with CONFIG_FS_VERITY and, on ext4, tune2fs -O verity DEVICE"

/* Uses the sealer of layers_opts. 0 or -errno. */
int sealing_new(struct layers *ls, struct sealing **ret) must_check;
/* Files that the helper is at are left to it. Layers may still be filled, and
 * say so here, until sealing_free(). Both accept NULL. */
void sealing_stop(struct sealing *q);
void sealing_free(struct sealing *q);

/* Until what failed, and may pass, is tried again for the first time; tests
 * shorten it. */
extern unsigned sealing_later_ms;

/* Body @i of the layer is complete, and just written. Any thread, no lock held;
 * never blocks. Asked twice is asked once. @q: may be NULL. */
void sealing_body(struct sealing *q, uint32_t seq, uint32_t i);
/* There may be something to seal in the layer: index, map, bodies. As above. */
void sealing_layer(struct sealing *q, uint32_t seq);

/* Why it is off, as an operator reads it; "": it is on. */
void sealing_why_off(struct sealing *q, char *buf, size_t size);
/* The member "sealing" of status. */
void sealing_json(struct sealing *q, struct buf *out);

/* layer_seal.c: what can be sealed of a layer. */
enum {
	SEAL_LAYER = UINT32_MAX,
	SEAL_INDEX = UINT32_MAX - 1,
	SEAL_MAP = UINT32_MAX - 2
};

/*
 * layer_seal_scan() - calls @fn for everything of an open layer to be sealed
 *
 * @what: SEAL_INDEX, SEAL_MAP or the number of a complete body. The number of
 * calls; a layer that is complete and had none is marked as sealed.
 */
unsigned layer_seal_scan(struct layer *l,
			 void (*fn)(void *ctx, uint32_t seq, uint32_t what),
			 void *ctx);

/* One thing to seal, while the helper is at it. */
struct seal_target {
	int fd;
	uint64_t size;
	struct digest want;
	struct body *body; /* NULL: index or map */
	unsigned generation;
};

/* 0; 1: there is nothing to do (any more); -errno. The fd is the caller's. */
int layer_seal_begin(struct layer *l, uint32_t what, struct seal_target *ret)
	must_check;
/* The kernel measures t->want. 0; -EAGAIN: begin anew; -errno. */
int layer_seal_end(struct seal_target *t) must_check;
/*
 * The file is not what it must be: it measures something else, or cannot be
 * read. 0: repaired, seal it again; 1: what is missing is being fetched, and
 * sealing_body() will be called; -errno.
 */
int layer_seal_reject(struct layer *l, uint32_t what) must_check;

#endif
