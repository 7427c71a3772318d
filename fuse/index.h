/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of a layer's index: an EROFS image of the profile described in
 * fuse/erofs_fs.h and nothing outside it. The bytes are treated as hostile:
 * every offset, type pair and size is checked, -EUCLEAN says "not our profile
 * or damaged". All reads go through the provider's callback, which checks them
 * against the layer's leaf log; never through a mapping.
 *
 * Source: Linux fs/erofs/erofs_fs.h, super.c, inode.c, dir.c, xattr.c (6.18).
 */
#ifndef FUSE_INDEX_H
#define FUSE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define INDEX_ROOT_NID 40

/* Reads exactly @len verified bytes; 0 or -errno. Any thread. */
struct index_io {
	int (*pread)(void *ctx, void *p, size_t len, uint64_t off);
	void *ctx;
	uint64_t size; /* bytes of the image */
};

struct index;

/* One inode, decoded. */
struct inode {
	uint32_t nid, ino; /* ino: dense ordinal 1..inos */
	uint32_t mode; /* st_mode with type */
	uint32_t uid, gid, nlink;
	uint64_t size;
	uint32_t rdev; /* as st_rdev with 32 bits: new_encode_dev() */
	int64_t mtime;
	uint32_t mtime_nsec;
	uint64_t
		addr; /* regular, size > 0: byte address in the layer's device */
	/* private to index.c */
	uint8_t layout;
	uint32_t xattr_len; /* bytes of the xattr area, 0: none; <= 256 KiB */
	uint32_t u;
};

struct dirent_pos {
	uint64_t nid;
	uint8_t dtype; /* DT_* */
	const char *name; /* not NUL-terminated; valid during the callback */
	size_t name_len;
	uint64_t next; /* opaque offset that continues behind this entry */
};

/* @io is copied. Reads and checks the superblock. */
int index_open(const struct index_io *io, struct index **ret) must_check;
void index_close(struct index *ix);

uint64_t index_n_inodes(const struct index *ix);
/* bytes of the one extra device: an upper bound for addr + size */
uint64_t index_device_size(const struct index *ix);

/* -ENOENT: no such slot; -EUCLEAN: damaged */
int index_inode(struct index *ix, uint32_t nid, struct inode *ret) must_check;

/* -ENOENT: no such name; -ENOTDIR */
int index_lookup(struct index *ix, const struct inode *dir, const char *name,
		 size_t len, uint32_t *ret_nid) must_check;

/*
 * Calls @fn for each entry from @off on ("." and ".." included) until it
 * returns non-zero, which is then returned. @off: 0 or a former `next`.
 */
int index_readdir(struct index *ix, const struct inode *dir, uint64_t off,
		  int (*fn)(void *ctx, const struct dirent_pos *d), void *ctx)
	must_check;

/* @buf gets size bytes and a NUL; @cap >= size + 1, else -ERANGE */
int index_readlink(struct index *ix, const struct inode *in, char *buf,
		   size_t cap) must_check;

/*
 * Full names with prefix. get: length, -ENODATA, -ERANGE; cap 0 asks only.
 * list: NUL-separated names, same rules.
 */
ssize_t index_getxattr(struct index *ix, const struct inode *in,
		       const char *name, void *buf, size_t cap) must_check;
ssize_t index_listxattr(struct index *ix, const struct inode *in, char *buf,
			size_t cap) must_check;

/* Resolves a path of plain components from the root, for tests and builders
 * of upper layers. Does not follow links. -ENOENT, -ENOTDIR. */
int index_walk(struct index *ix, const char *path, struct inode *ret)
	must_check;

#endif
