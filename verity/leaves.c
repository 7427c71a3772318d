/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaves and what is built on them: the upper levels of an fs-verity Merkle
 * tree and the descriptor whose hash is the file digest. Bit-identical to
 * libfsverity_compute_digest() (SHA-256, 4096-byte blocks, no salt).
 *
 * The tree is built from the bottom in one pass: each level collects the hashes
 * of the level below in one block; a full block is hashed into the level above.
 */
#include "verity/leaves.h"

#include "base/io.h"
#include "verity/sha256.h"

#define HASHES_PER_BLOCK (LEAF_BLOCK / DIGEST_LEN)
/* 2^52 leaves at most, 7 bits a level, and the block that holds the root. */
#define LEVELS_MAX 9

/* struct fsverity_descriptor of the kernel: 256 bytes, little endian */
#define DESC_LEN 256
#define DESC_VERSION 0
#define DESC_ALGORITHM 1
#define DESC_LOG_BLOCKSIZE 2
#define DESC_DATA_SIZE 8
#define DESC_ROOT_HASH 16
#define DESC_SHA256 1 /* FS_VERITY_HASH_ALG_SHA256 */

struct level {
	unsigned n; /* hashes in block */
	struct digest block[HASHES_PER_BLOCK];
};

struct leaf_tree {
	uint64_t size;
	uint64_t n_missing; /* leaves still to be added */
	struct level level[LEVELS_MAX];
};

int leaf_hash(const void *p, size_t len, struct digest *ret)
{
	uint8_t block[LEAF_BLOCK];

	if (len == LEAF_BLOCK)
		return sha256_buf(p, len, ret);
	if (len > LEAF_BLOCK)
		return -EINVAL;
	memcpy(block, p, len);
	memset(block + len, 0, sizeof(block) - len);
	return sha256_buf(block, sizeof(block), ret);
}

int leaves_hash(const void *p, size_t len, struct digest *ret)
{
	const uint8_t *b = p;

	while (len) {
		size_t n = len < LEAF_BLOCK ? len : LEAF_BLOCK;
		int r = leaf_hash(b, n, ret++);

		if (r < 0)
			return r;
		b += n;
		len -= n;
	}
	return 0;
}

int leaf_tree_new(uint64_t size, struct leaf_tree **ret)
{
	struct leaf_tree *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->size = size;
	t->n_missing = leaves_count(size);
	*ret = t;
	return 0;
}

void leaf_tree_free(struct leaf_tree *t)
{
	free(t);
}

/* Hashes the block of level @i, zero padded, and empties it. */
static int level_close(struct level *l, struct digest *ret)
{
	int r = leaf_hash(l->block, l->n * sizeof(l->block[0]), ret);

	l->n = 0;
	return r;
}

/* Adds one hash to level @i, and what overflows to the levels above. */
static int level_add(struct leaf_tree *t, unsigned i, const struct digest *d)
{
	struct digest carry = *d;

	for (; i < LEVELS_MAX; i++) {
		struct level *l = &t->level[i];
		struct digest up;
		int r;

		/* A full block is hashed only when one more hash comes: the
		 * topmost one must stay, it may be the root. */
		if (l->n < HASHES_PER_BLOCK) {
			l->block[l->n++] = carry;
			return 0;
		}
		r = level_close(l, &up);
		if (r < 0)
			return r;
		l->block[l->n++] = carry;
		carry = up;
	}
	return -EFBIG;
}

int leaf_tree_add(struct leaf_tree *t, const struct digest *leaves, size_t n)
{
	if (n > t->n_missing)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int r = level_add(t, 0, &leaves[i]);

		if (r < 0)
			return r;
	}
	t->n_missing -= n;
	return 0;
}

/* A file of one block has no tree: its only leaf is the root hash. An empty
 * file has neither, and zeros instead. */
static int tree_root(struct leaf_tree *t, struct digest *ret)
{
	if (t->size == 0) {
		memset(ret, 0, sizeof(*ret));
		return 0;
	}
	for (unsigned i = 0; i + 1 < LEVELS_MAX; i++) {
		struct level *l = &t->level[i];
		struct digest d;
		int r;

		if (l->n == 1 && t->level[i + 1].n == 0) {
			*ret = l->block[0];
			return 0;
		}
		r = level_close(l, &d);
		if (r == 0)
			r = level_add(t, i + 1, &d);
		if (r < 0)
			return r;
	}
	return -EFBIG;
}

int leaf_tree_end(struct leaf_tree *t, struct digest *ret)
{
	uint8_t desc[DESC_LEN] = { 0 };
	struct digest root;
	int r;

	if (t->n_missing)
		return -EINVAL;
	r = tree_root(t, &root);
	if (r < 0)
		return r;
	desc[DESC_VERSION] = 1;
	desc[DESC_ALGORITHM] = DESC_SHA256;
	desc[DESC_LOG_BLOCKSIZE] = 12;
	put_le64(desc + DESC_DATA_SIZE, t->size);
	memcpy(desc + DESC_ROOT_HASH, root.b, sizeof(root.b));
	return sha256_buf(desc, sizeof(desc), ret);
}

int leaves_root(const struct digest *leaves, uint64_t size, struct digest *ret)
{
	owned(leaf_tree) struct leaf_tree *t = NULL;
	int r = leaf_tree_new(size, &t);

	if (r == 0)
		r = leaf_tree_add(t, leaves, leaves_count(size));
	if (r == 0)
		r = leaf_tree_end(t, ret);
	return r;
}
