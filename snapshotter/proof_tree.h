/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second half of a proof: the layer's tree, built once more from the
 * headers of its tar stream. The map tells where extents lie in the stream; the
 * tar tells which file each belongs to. Equal digests of index and map mean
 * that the table of contents told the same.
 */
#ifndef SNAPSHOTTER_PROOF_TREE_H
#define SNAPSHOTTER_PROOF_TREE_H

#include "snapshotter/builder.h"

struct proof_tree;

int proof_tree_new(const struct builder_opts *o, struct proof_tree **ret)
	must_check;
void proof_tree_free(struct proof_tree *t);

/*
 * proof_tree_unit() - the stream goes on with the output of @u
 * @x: its @n extents in order; borrowed until the next call
 *
 * Also once behind the last unit, with @u NULL, for what follows the map's.
 * Errors of these four: ERR_CORRUPT and ERR_UNSUPPORTED speak about the layer,
 * all others about us.
 */
int proof_tree_unit(struct proof_tree *t, const struct unit *u,
		    const struct extent *x, uint32_t n, struct err *e)
	must_check;
int proof_tree_feed(struct proof_tree *t, const void *p, size_t len,
		    struct err *e) must_check;
/* Writes index and map into @dirfd; @prefetch_end: the map's. */
int proof_tree_finish(struct proof_tree *t, uint64_t prefetch_end, int dirfd,
		      struct digest *ret_index, struct digest *ret_map,
		      struct err *e) must_check;

DEFINE_OWNED(proof_tree, struct proof_tree *, proof_tree_free)

#endif
