/* SPDX-License-Identifier: Apache-2.0 */
/* What the three files of the index reader share; nobody else includes it. */
#ifndef FUSE_INDEX_PRIV_H
#define FUSE_INDEX_PRIV_H

#include "fuse/erofs_fs.h"
#include "fuse/index.h"

struct index {
	struct index_io io;
	uint64_t n_inodes;
	uint64_t device_size; /* bytes */
	uint32_t blocks;
};

/* Exactly @len bytes; -EUCLEAN when the range leaves the image. */
int index_pread(const struct index *ix, void *p, size_t len, uint64_t off)
	must_check;

static inline uint64_t index_inode_off(uint32_t nid)
{
	return (uint64_t)nid * EROFS_SLOT;
}

static inline bool index_nid_valid(const struct index *ix, uint64_t nid)
{
	return nid >= INDEX_ROOT_NID &&
	       nid < (uint64_t)ix->blocks * EROFS_SLOTS_PER_BLK;
}

#endif
