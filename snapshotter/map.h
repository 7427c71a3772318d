/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of a layer: which compressed range holds which piece of which file.
 *
 * A *unit* is a compressed range [blob_off, blob_off + clen) of the layer blob,
 * one or more whole gzip members, fetched at once and inflated from its start.
 * An *extent* is a piece of one file inside a unit, with the digest that proves
 * it. A *file* lies in a *body* (the layer's pack, or a file of its own when
 * MAP_LARGE bytes or larger). Immutable, little endian, versioned; written by
 * snapshotter/builder, read record by record through verity/vfile: nothing of
 * it needs to stay in memory.
 *
 * Who checks what. Opening reads the header alone (a thousand layers start in
 * no time): counts, offsets and the file's size must fit. Each record is
 * checked when it is read, so that no caller is led outside the map or the
 * device. How records relate (extents cover files, units are disjoint, ...) is
 * checked once, by map_check() behind the builder; from then on the file's
 * digest keeps them as they were.
 *
 * On disk (all offsets in the header, records of fixed size):
 *	header 128 | units | extents | unit_extents (u32) | files | bodies
 * files is indexed by ordinal - 1 (fuse/index.h); an inode without contents
 * has a zero record. unit_extents lists extent numbers ordered by (unit,
 * unit_off). The extents of one file are consecutive, in file order; those of
 * the pack come first, in the order of the pack, so that an extent of the pack
 * has its own number as bit. Units cover the blob from 0 to the table of
 * contents without gap; some hold no extent.
 */
#ifndef SNAPSHOTTER_MAP_H
#define SNAPSHOTTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

#define MAP_LARGE (128u << 10) /* bytes; files from here on have own bodies */
#define MAP_PACK_ALIGN 512u /* start of each file in the pack */
#define MAP_EXTENT_MAX (64u << 20) /* bytes of one extent */

enum codec { CODEC_NONE, CODEC_GZIP_MEMBER, CODEC_ZSTD_FRAME, CODEC_GZIP_SPAN };

struct unit {
	uint64_t blob_off;
	uint32_t clen; /* compressed bytes */
	uint32_t ulen; /* bytes of output needed: end of its last extent */
	uint8_t codec; /* enum codec */
	/* unit_extents[first_x .. first_x + n_x); none, and ulen 0, for bytes
	 * that only a pass over the whole layer needs */
	uint32_t first_x, n_x;
};

#define UNIT_HOLE UINT32_MAX /* extent of zeros: nothing to fetch */

struct extent {
	uint64_t addr; /* in the layer's virtual device */
	uint32_t len; /* > 0 */
	uint32_t unit; /* or UNIT_HOLE */
	uint32_t unit_off; /* into the unit's output */
	uint32_t ino; /* ordinal of the file it belongs to */
	struct digest digest; /* SHA-256 of the uncompressed bytes */
};

struct map_file {
	uint64_t addr, size;
	uint64_t body_off; /* of the file inside its body */
	uint32_t body; /* number of the body; 0 is the pack */
	uint32_t nid;
	uint32_t first_bit; /* of its first extent within the body */
	uint32_t first_extent, n_extents;
};

struct map_body {
	struct digest ckey; /* zero for the pack */
	uint64_t size; /* 0: the layer has no such body (empty pack) */
	uint32_t n_extents;
	uint32_t first_ino; /* ordinal of one file in it (large bodies) */
};

struct map;
struct vfile;

/*
 * map_open() - check the header
 *
 * Consumes @v in any case. ERR_CORRUPT with what is wrong.
 */
int map_open(struct vfile *v, struct map **ret, struct err *e) must_check;
void map_close(struct map *m);

/* The same for bytes from elsewhere: @pread as in struct index_io, @close may
 * be NULL. Copied; consumes ctx in any case. */
struct map_io {
	int (*pread)(void *ctx, void *p, size_t len, uint64_t off);
	void (*close)(void *ctx);
	void *ctx;
	uint64_t size;
};
int map_open_io(const struct map_io *io, struct map **ret, struct err *e)
	must_check;

/* Every record, and how they relate. ERR_CORRUPT names the record. Memory: a
 * bit per extent. */
int map_check(struct map *m, struct err *e) must_check;

uint32_t map_n_units(const struct map *m);
uint32_t map_n_extents(const struct map *m);
uint32_t map_n_files(const struct map *m); /* = number of inodes */
uint32_t map_n_bodies(const struct map *m);
uint64_t map_payload(const struct map *m); /* sum of all extents' len */
uint64_t map_device_size(const struct map *m);
/* compressed bytes [0, prefetch_end) are wanted early; 0: none */
uint64_t map_prefetch_end(const struct map *m);

/* One record each; 0, -EINVAL (number too large), -EUCLEAN (a value that no
 * map has), -errno of the read. Any thread. */
int map_unit(struct map *m, uint32_t i, struct unit *ret) must_check;
int map_extent(struct map *m, uint32_t i, struct extent *ret) must_check;
int map_unit_extent(struct map *m, uint32_t i, uint32_t *ret) must_check;
/* -ENODATA: an inode without contents */
int map_file(struct map *m, uint32_t ino, struct map_file *ret) must_check;
int map_body(struct map *m, uint32_t i, struct map_body *ret) must_check;

/* The extent of @f that holds byte @off of the file. Binary search. -EINVAL:
 * beyond the end; -EUCLEAN: not covered. */
int map_find_extent(struct map *m, const struct map_file *f, uint64_t off,
		    uint32_t *ret_i, struct extent *ret) must_check;

/* Writer side, used by builder.c only: arrays in the order above. */
struct map_image {
	struct unit *units;
	struct extent *extents;
	uint32_t *unit_extents;
	struct map_file *files;
	struct map_body *bodies;
	uint32_t n_units, n_extents, n_files, n_bodies;
	uint64_t device_size, prefetch_end;
};

/*
 * map_write() - the file @name in @dirfd, mode 0600, not synced
 *
 * unit_extents has as many numbers as the units' n_x sum up to. -EINVAL when
 * that, or the first_x, do not fit. The caller runs map_check() on the result.
 */
int map_write(int dirfd, const char *name, const struct map_image *img)
	must_check;

#endif
