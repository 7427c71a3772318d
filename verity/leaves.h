/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leaf log: SHA-256 of every 4 KiB block of a file, the last one padded
 * with zeros. It is the bottom level of the fs-verity Merkle tree (SHA-256,
 * 4096, no salt), so the digest that the kernel will measure follows from it
 * without reading the file again.
 * Source: Linux Documentation/filesystems/fsverity.rst; fs/verity/.
 */
#ifndef VERITY_LEAVES_H
#define VERITY_LEAVES_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

#define LEAF_BLOCK 4096u

static inline uint64_t leaves_count(uint64_t size)
{
	return size / LEAF_BLOCK + (size % LEAF_BLOCK != 0);
}

/* One leaf. @len <= LEAF_BLOCK; the rest counts as zeros. */
int leaf_hash(const void *p, size_t len, struct digest *ret) must_check;

/* The leaves of @len bytes that begin at a block: leaves_count(@len) of them.
 * On failure @ret may be written in part. */
int leaves_hash(const void *p, size_t len, struct digest *ret) must_check;

/*
 * leaves_root() - the fs-verity file digest from the leaves
 *
 * @size: of the file in bytes; @leaves: leaves_count(@size) of them
 * 0 or -errno. CPU only, 1/128 of hashing the file.
 */
int leaves_root(const struct digest *leaves, uint64_t size, struct digest *ret)
	must_check;

/*
 * The same piece by piece, in 36 KiB of memory whatever the size. Not thread
 * safe. leaf_tree_end(): -EINVAL unless exactly leaves_count(@size) leaves were
 * added; the tree can only be freed afterwards.
 */
struct leaf_tree;

int leaf_tree_new(uint64_t size, struct leaf_tree **ret) must_check;
int leaf_tree_add(struct leaf_tree *t, const struct digest *leaves, size_t n)
	must_check;
int leaf_tree_end(struct leaf_tree *t, struct digest *ret) must_check;
void leaf_tree_free(struct leaf_tree *t);

DEFINE_OWNED(leaf_tree, struct leaf_tree *, leaf_tree_free)

#endif
