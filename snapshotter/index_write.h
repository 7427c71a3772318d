/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer of a layer's index: an EROFS image of the profile in fuse/erofs_fs.h,
 * from arrays that builder.c has sorted and checked. It judges nothing but what
 * the format cannot hold. The same arrays give the same bytes.
 */
#ifndef SNAPSHOTTER_INDEX_WRITE_H
#define SNAPSHOTTER_INDEX_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* One inode. */
struct index_node {
	uint64_t size; /* of a regular file or symlink; directories: placed */
	int64_t mtime;
	union {
		struct {
			uint64_t addr; /* in the device, multiple of 4 KiB */
			uint64_t covered; /* builder only: bytes with extents */
		} file; /* regular, size > 0 */
		struct {
			uint32_t parent; /* node; the root's is the root */
			uint32_t first, n; /* its entries in names[] */
		} dir;
		const char *target; /* symlink */
		uint32_t rdev; /* devices: see index_rdev() */
	};
	const uint8_t *xattrs; /* whole area, see index_xattr_add() */
	uint32_t xattr_len; /* 0: none */
	uint32_t mtime_nsec;
	uint32_t mode; /* with type */
	uint32_t uid, gid, nlink;
	uint32_t name; /* builder only: one of its names, while it builds */
	uint8_t flags; /* builder only */
	/* filled in by index_place() */
	uint8_t layout;
	uint32_t nid, ino;
	uint32_t block; /* directory or symlink: first whole block */
};

/* One entry of one directory; those of a directory are consecutive and in
 * unsigned byte order of their names. "." and ".." are not among them. */
struct index_name {
	const char *s;
	uint32_t hash; /* builder only */
	uint32_t dir, node;
	uint8_t len; /* 1..255 */
};

struct index_image {
	struct index_node *nodes; /* nodes[0] is the root */
	const struct index_name *names;
	uint32_t n_nodes, n_names;
	uint64_t device_size; /* bytes, multiple of 4 KiB */
	uint8_t uuid[16];
	uint32_t *order; /* nodes in index order; made by index_place() */
	uint64_t inode_bytes; /* end of the inode area; index_place() */
	uint32_t blocks; /* of the whole image; index_place() */
};

/* Major below 4096, minor below 2^20. */
static inline uint32_t index_rdev(uint32_t major, uint32_t minor)
{
	return (minor & 0xff) | major << 8 | (minor & ~0xffu) << 12;
}

/*
 * index_xattr_add() - append one attribute to an xattr area under construction
 * @area: empty at first
 *
 * -EOPNOTSUPP: a namespace outside the profile; -ERANGE: empty or longer than
 * 255 bytes, or a value above 65535; -E2BIG: the area is full; -ENOMEM.
 */
int index_xattr_add(struct buf *area, const char *name, const void *value,
		    size_t len) must_check;

/*
 * index_place() - number the inodes (nid, ino) and lay out the image
 *
 * Every node must be reachable from the root. Allocates img->order, which the
 * caller frees in any case. ERR_UNSUPPORTED: too large for the format.
 */
int index_place(struct index_image *img, struct err *e) must_check;

/*
 * index_write() - write the placed image as new file @name in @dirfd
 *
 * Streams through 64 KiB. Nothing is synced. On failure the file is gone
 * again. ERR_NO_SPACE, ERR_INTERNAL.
 */
int index_write(const struct index_image *img, int dirfd, const char *name,
		struct err *e) must_check;

#endif
