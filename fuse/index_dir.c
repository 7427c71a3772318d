/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of an index: lookup and listing.
 *
 * The entries of a directory are sorted over all its blocks, so a lookup is a
 * binary search by blocks (first and last name), then inside one. No block is
 * read twice in a call; each is copied to the stack once and checked there.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/index_priv.h"

struct dir_block {
	uint8_t p[EROFS_BLK];
	uint32_t used; /* bytes */
	uint32_t n; /* entries */
	bool last; /* block of the directory */
};

struct dir_entry {
	uint64_t nid;
	const char *name;
	uint32_t len;
	uint8_t type; /* enum erofs_ftype */
};

static uint64_t n_blocks(const struct inode *dir)
{
	return dir->size / EROFS_BLK + !!(dir->size % EROFS_BLK);
}

static int load_block(const struct index *ix, const struct inode *dir,
		      uint64_t k, struct dir_block *b)
{
	uint64_t left = dir->size - k * EROFS_BLK;
	uint64_t off = (dir->u + k) * EROFS_BLK;
	uint32_t first;
	int r;

	b->last = left <= EROFS_BLK;
	b->used = b->last ? (uint32_t)left : EROFS_BLK;
	if (dir->layout == EROFS_INLINE && left < EROFS_BLK)
		off = index_inode_off(dir->nid) + EROFS_INODE_LEN +
		      dir->xattr_len;
	r = index_pread(ix, b->p, b->used, off);
	if (r < 0)
		return r;
	if (b->used <= EROFS_DIRENT_LEN)
		return -EUCLEAN;
	first = get_le16(b->p + EROFS_DE_NAMEOFF);
	if (!first || first % EROFS_DIRENT_LEN || first >= b->used)
		return -EUCLEAN;
	b->n = first / EROFS_DIRENT_LEN;
	return 0;
}

/* Entry @i < b->n; the name points into @b. */
static int get_entry(const struct index *ix, const struct dir_block *b,
		     uint32_t i, struct dir_entry *ret)
{
	const uint8_t *de = b->p + (size_t)i * EROFS_DIRENT_LEN;
	uint32_t start = get_le16(de + EROFS_DE_NAMEOFF), end = b->used;
	bool padded = i + 1 == b->n && !b->last;

	if (i + 1 < b->n)
		end = get_le16(de + EROFS_DIRENT_LEN + EROFS_DE_NAMEOFF);
	if (start < b->n * EROFS_DIRENT_LEN || start >= end || end > b->used)
		return -EUCLEAN;
	ret->nid = get_le64(de + EROFS_DE_NID);
	ret->type = de[EROFS_DE_TYPE];
	ret->name = (const char *)b->p + start;
	ret->len = end - start;
	if (padded) /* zeros fill the block behind its last name */
		ret->len = (uint32_t)strnlen(ret->name, ret->len);
	if (!ret->len || ret->len > EROFS_NAME_MAX ||
	    memchr(ret->name, '\0', ret->len) ||
	    memchr(ret->name, '/', ret->len) ||
	    !index_nid_valid(ix, ret->nid) || ret->type < EROFS_FT_REG ||
	    ret->type > EROFS_FT_LNK || de[EROFS_DE_RESERVED])
		return -EUCLEAN;
	return 0;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

/* 0 and *ret: found in @b; -ENOENT; < or > 0 in *ret_side: which way to go on */
static int search_block(const struct index *ix, const struct dir_block *b,
			const char *name, size_t len, struct dir_entry *ret,
			int *ret_side)
{
	uint32_t lo = 0, hi = b->n;
	int r, c = 0;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		/* the ends first: they tell whether this is the block */
		if (lo == 0 && hi == b->n)
			mid = 0;
		else if (lo == 1 && hi == b->n)
			mid = b->n - 1;
		r = get_entry(ix, b, mid, ret);
		if (r < 0)
			return r;
		c = compare(name, len, ret->name, ret->len);
		if (!c)
			return 0;
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	*ret_side = hi == 0 ? -1 : lo == b->n ? 1 : 0;
	return -ENOENT;
}

/* The entry says what type the inode has; they must agree. */
static int check_type(const struct index *ix, const struct dir_entry *de)
{
	uint8_t mode[2];
	int r = index_pread(ix, mode, sizeof(mode),
			    index_inode_off((uint32_t)de->nid) + EROFS_I_MODE);

	if (r < 0)
		return r;
	return erofs_ftype_of(get_le16(mode)) == de->type ? 0 : -EUCLEAN;
}

int index_lookup(struct index *ix, const struct inode *dir, const char *name,
		 size_t len, uint32_t *ret_nid)
{
	uint64_t lo = 0, hi = n_blocks(dir);
	struct dir_entry de;
	struct dir_block b;
	int r;

	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	if (!len)
		return -ENOENT;
	if (len > EROFS_NAME_MAX)
		return -ENAMETOOLONG;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int side = 0;

		r = load_block(ix, dir, mid, &b);
		if (r < 0)
			return r;
		r = search_block(ix, &b, name, len, &de, &side);
		if (r == 0)
			r = check_type(ix, &de);
		if (r == 0)
			*ret_nid = (uint32_t)de.nid;
		if (r != -ENOENT || !side)
			return r;
		if (side < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return -ENOENT;
}

/*
 * Offsets: block << 9 | number of the entry in it that comes next. A block
 * holds at most 315 entries. 0 is the start, and no `next` is 0.
 */
#define POS_BITS 9
#define POS_MASK ((1u << POS_BITS) - 1)
_Static_assert(EROFS_BLK / (EROFS_DIRENT_LEN + 1) <= POS_MASK, "POS_BITS");

static int list_block(const struct index *ix, const struct dir_block *b,
		      uint64_t k, uint32_t from,
		      int (*fn)(void *ctx, const struct dirent_pos *d),
		      void *ctx)
{
	static const uint8_t dtype[] = {
		[EROFS_FT_REG] = DT_REG,   [EROFS_FT_DIR] = DT_DIR,
		[EROFS_FT_CHR] = DT_CHR,   [EROFS_FT_BLK] = DT_BLK,
		[EROFS_FT_FIFO] = DT_FIFO, [EROFS_FT_SOCK] = DT_SOCK,
		[EROFS_FT_LNK] = DT_LNK,
	};
	struct dir_entry before = { 0 }, de;

	for (uint32_t i = from; i < b->n; i++) {
		struct dirent_pos d;
		int r = get_entry(ix, b, i, &de);

		if (r < 0)
			return r;
		if (before.name &&
		    compare(before.name, before.len, de.name, de.len) >= 0)
			return -EUCLEAN;
		before = de;
		d = (struct dirent_pos){
			.nid = de.nid,
			.dtype = dtype[de.type],
			.name = de.name,
			.name_len = de.len,
			.next = k << POS_BITS | (i + 1),
		};
		r = fn(ctx, &d);
		if (r)
			return r;
	}
	return 0;
}

int index_readdir(struct index *ix, const struct inode *dir, uint64_t off,
		  int (*fn)(void *ctx, const struct dirent_pos *d), void *ctx)
{
	uint64_t k = off >> POS_BITS, n = n_blocks(dir);
	uint32_t i = off & POS_MASK;
	struct dir_block b;

	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	for (; k < n; k++, i = 0) {
		int r = load_block(ix, dir, k, &b);

		if (r < 0)
			return r;
		r = list_block(ix, &b, k, i, fn, ctx);
		if (r)
			return r;
	}
	return 0;
}
