/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes at rest. A body is a file of exactly its size plus NAME.state (header,
 * extent bitmap, leaf log). An extent is served only if its bit is set and the
 * leaves of its blocks match what is read: torn writes are seen, and nothing
 * needs an fsync before COMPLETE. The rules that make this crash-proof are at
 * the head of body.c.
 *
 * Locks: a body's own lock (rank 40) is held over pread and pwrite of that
 * body and its state, and nothing else. Any thread except the loop.
 */
#ifndef SNAPSHOTTER_BODY_H
#define SNAPSHOTTER_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"

enum body_state { BODY_PARTIAL, BODY_COMPLETE, BODY_SEALED, BODY_BAD };

struct bodies; /* all bodies of a store */
struct body;

/* Where extent @bit lies in the body and what it must hash to. */
struct body_extent {
	uint64_t off;
	uint32_t len;
	bool hole;
	struct digest digest;
};

/* The owner's knowledge (a layer's map), passed to each call: a body shared by
 * two layers has the same extents in both. */
struct body_layout {
	int (*extent)(void *ctx, uint32_t bit, struct body_extent *ret);
	/* the bit of the extent that holds or follows byte @off */
	int (*find)(void *ctx, uint64_t off, uint32_t *ret_bit);
	void *ctx;
};

struct body_id {
	struct digest ckey; /* zero: a pack, named by @seq */
	uint32_t seq;
	uint64_t size; /* > 0 */
	uint32_t n_extents;
};

/* @rootfd: the store's root, borrowed. */
int bodies_new(int rootfd, struct bodies **ret) must_check;
void bodies_free(struct bodies *bs);

/*
 * body_open() - the one object for this body, created on disk when missing
 *
 * A reference; body_put() gives it back. fds are opened at need and closed
 * again when too many are open. -EUCLEAN: the files contradict @id.
 */
int body_open(struct bodies *bs, const struct body_id *id,
	      const struct body_layout *lay, struct body **ret) must_check;
void body_put(struct body *b);

/* Verified bytes of one whole extent; a landed one is left alone. 0, -ENOSPC,
 * -errno. */
int body_write(struct body *b, const struct body_layout *lay, uint32_t bit,
	       const void *p, size_t len) must_check;

/* 0; -EAGAIN: some extent of the range is absent (or has just proved
 * damaged: its bit is gone, fetch it again); -errno. */
int body_read(struct body *b, const struct body_layout *lay, uint64_t off,
	      void *p, size_t len) must_check;

bool body_has(struct body *b, uint32_t bit);
uint32_t body_n_landed(struct body *b);
enum body_state body_get_state(struct body *b);

/* All bits set: fdatasync body and state, mark COMPLETE. -EAGAIN: not all. */
int body_complete(struct body *b, const struct body_layout *lay) must_check;

/* The fs-verity digest that the finished body must have. COMPLETE only. */
int body_expected_digest(struct body *b, struct digest *ret) must_check;

/* Remove the files of a body nobody has open. -EBUSY: somebody has. */
int bodies_unlink(struct bodies *bs, const struct body_id *id) must_check;

/*
 * The content key of a large file, from its extents in file order (ckey.c has
 * the encoding). -EINVAL: the lengths do not add up to the size.
 */
struct ckey_builder;
int ckey_begin(uint64_t size, struct ckey_builder **ret) must_check;
int ckey_add(struct ckey_builder *k, uint32_t len, const struct digest *d)
	must_check; /* d == NULL: a hole */
int ckey_end(struct ckey_builder *k, struct digest *ret) must_check; /* frees */
void ckey_free(struct ckey_builder *k);

#endif
