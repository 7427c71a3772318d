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
	return (size + LEAF_BLOCK - 1) / LEAF_BLOCK;
}

/* One leaf. @len <= LEAF_BLOCK; the rest counts as zeros. */
int leaf_hash(const void *p, size_t len, struct digest *ret) must_check;

/*
 * leaves_root() - the fs-verity file digest from the leaves
 *
 * @size: of the file in bytes; @leaves: leaves_count(@size) of them
 * 0 or -errno. CPU only, 1/128 of hashing the file.
 */
int leaves_root(const struct digest *leaves, uint64_t size, struct digest *ret)
	must_check;

#endif
