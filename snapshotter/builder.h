/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From parser events to the two files of a layer: index (EROFS) and map.
 * Refuses hostile trees with a message that names entry and reason; hides
 * markers and landmarks; turns whiteouts into what overlayfs wants.
 * The same events give the same bytes.
 */
#ifndef SNAPSHOTTER_BUILDER_H
#define SNAPSHOTTER_BUILDER_H

#include "snapshotter/formats/format.h"

#define BUILDER_VERSION 2 /* part of a layer's key: layouts change, keys too */

struct builder;

/* Attributes of a directory that the layer implies but does not name. */
struct implied_attr {
	uint32_t mode; /* 07777 */
	uint32_t uid, gid;
	int64_t mtime;
	uint32_t mtime_nsec;
	/* What an unpack copies, all but trusted.*: see index_xattr_add().
	 * Given empty by the builder. */
	struct buf *xattrs;
};

struct builder_opts {
	/*
	 * The parent chain's attributes of directory @path ("a/b", never the
	 * root). 0; -ENOENT: not a directory there (0755 root:root then);
	 * -EAGAIN: not known yet, the build fails with ERR_UNAVAILABLE;
	 * -ELOOP: a symbolic link there, which an unpack would follow: the
	 * build fails with ERR_UNSUPPORTED.
	 * NULL: as if it always said -ENOENT.
	 */
	int (*implied)(void *ctx, const char *path, struct implied_attr *ret);
	void *ctx;
	bool userxattr; /* user.overlay.* instead of trusted.overlay.* */
	uint8_t uuid[16];
};

struct builder_result {
	uint64_t n_inodes;
	uint64_t index_size;
	uint64_t payload; /* bytes of all files, each inode once */
	uint64_t usage; /* payload rounded up to 4 KiB per file + directories */
	uint32_t
		n_implied; /* directories whose attributes came from opts.implied */
	uint32_t n_bodies; /* records in the map; the pack is always one */
};

int builder_new(const struct builder_opts *o, struct builder **ret) must_check;
void builder_free(struct builder *b);

/* The sink to hand to format.parse, with the builder as ctx. */
extern const struct sink builder_sink;

/*
 * builder_write() - after a successful parse: new files "index" and "map" in
 * @dirfd (no fsync: vfile_create() does it with the leaf logs)
 *
 * May be called again after ERR_UNAVAILABLE (opts.implied said -EAGAIN) and
 * after ERR_NO_SPACE; takes no more events then. ERR_CORRUPT, ERR_UNSUPPORTED:
 * what only the whole tree shows, named by its entry. A failure leaves no file.
 *
 * In the map the extents of the pack come first, then those of the large
 * files, both in archive order: bit N of the pack is extent N.
 */
int builder_write(struct builder *b, int dirfd, struct builder_result *ret,
		  struct err *e) must_check;

#endif
