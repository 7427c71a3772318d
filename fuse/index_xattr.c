/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes of an index: an area behind the inode, up to 256 KiB, in
 * which entries follow one another. It is walked through a window of one block.
 */
#include <string.h>

#include "base/io.h"
#include "fuse/index_priv.h"

/* A walk over the area of one inode. */
struct xattr_iter {
	const struct index *ix;
	uint64_t pos, end; /* next entry; end of the area; in the image */
	uint64_t win_off; /* what win[] holds */
	uint32_t win_len;
	uint8_t win[EROFS_BLK];
};

struct xattr_entry {
	const struct erofs_xattr_prefix *prefix;
	uint32_t suffix_len, value_len;
	uint64_t value_off;
	char suffix[EROFS_NAME_MAX];
};

/* The bytes must lie inside the area. */
static int area_read(struct xattr_iter *it, uint64_t off, void *p, uint32_t len)
{
	uint64_t end = it->win_off + it->win_len;
	uint8_t *to = p;

	if (off > it->end || len > it->end - off)
		return -EUCLEAN;
	while (len) {
		uint32_t n;
		int r;

		if (off < it->win_off || off >= end) {
			it->win_off = off - off % EROFS_BLK;
			it->win_len = EROFS_BLK;
			r = index_pread(it->ix, it->win, it->win_len,
					it->win_off);
			if (r < 0) {
				it->win_len = 0;
				return r;
			}
			end = it->win_off + it->win_len;
		}
		n = end - off < len ? (uint32_t)(end - off) : len;
		memcpy(to, it->win + (off - it->win_off), n);
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

static int iter_init(struct xattr_iter *it, const struct index *ix,
		     const struct inode *in)
{
	uint64_t off = index_inode_off(in->nid) + EROFS_INODE_LEN;
	uint8_t head[EROFS_XATTR_HEADER], zero[EROFS_XATTR_HEADER] = { 0 };
	int r;

	it->ix = ix;
	it->win_off = 0;
	it->win_len = 0;
	it->pos = off;
	it->end = off + in->xattr_len;
	if (!in->xattr_len)
		return 0;
	r = area_read(it, off, head, sizeof(head));
	if (r < 0)
		return r;
	if (memcmp(head, zero, sizeof(head)))
		return -EUCLEAN;
	it->pos += sizeof(head);
	return 0;
}

/* 1 and *ret: an entry; 0: the end; -errno */
static int iter_next(struct xattr_iter *it, struct xattr_entry *ret)
{
	uint8_t head[EROFS_XATTR_ENTRY];
	int r;

	if (it->pos == it->end)
		return 0;
	r = area_read(it, it->pos, head, sizeof(head));
	if (r < 0)
		return r;
	ret->suffix_len = head[0];
	ret->value_len = get_le16(head + 2);
	ret->value_off = it->pos + sizeof(head) + ret->suffix_len;
	ret->prefix = NULL;
	for (size_t i = 0; i < ARRAY_LEN(erofs_xattr_prefixes); i++)
		if (erofs_xattr_prefixes[i].index == head[1])
			ret->prefix = &erofs_xattr_prefixes[i];
	if (!ret->prefix || (ret->suffix_len == 0) != ret->prefix->whole ||
	    ret->value_off + ret->value_len > it->end)
		return -EUCLEAN;
	r = area_read(it, it->pos + sizeof(head), ret->suffix, ret->suffix_len);
	if (r < 0)
		return r;
	if (memchr(ret->suffix, '\0', ret->suffix_len))
		return -EUCLEAN;
	/* the end is a multiple of 4 from the start: never passed by rounding */
	it->pos += erofs_round_up(
		sizeof(head) + ret->suffix_len + ret->value_len, 4);
	return 1;
}

static bool has_name(const struct xattr_entry *x, const char *name)
{
	size_t len = strlen(name);

	return len == x->prefix->len + (size_t)x->suffix_len &&
	       !memcmp(name, x->prefix->s, x->prefix->len) &&
	       !memcmp(name + x->prefix->len, x->suffix, x->suffix_len);
}

ssize_t index_getxattr(struct index *ix, const struct inode *in,
		       const char *name, void *buf, size_t cap)
{
	struct xattr_iter it;
	struct xattr_entry x;
	int r = iter_init(&it, ix, in);

	if (r < 0)
		return r;
	do {
		r = iter_next(&it, &x);
	} while (r > 0 && !has_name(&x, name));
	if (r <= 0)
		return r < 0 ? r : -ENODATA;
	if (!cap)
		return (ssize_t)x.value_len;
	if (x.value_len > cap)
		return -ERANGE;
	r = area_read(&it, x.value_off, buf, x.value_len);
	return r < 0 ? r : (ssize_t)x.value_len;
}

ssize_t index_listxattr(struct index *ix, const struct inode *in, char *buf,
			size_t cap)
{
	struct xattr_iter it;
	struct xattr_entry x;
	size_t len = 0;
	int r = iter_init(&it, ix, in);

	if (r < 0)
		return r;
	while ((r = iter_next(&it, &x)) > 0) {
		size_t n = x.prefix->len + (size_t)x.suffix_len + 1;

		if (cap) {
			if (n > cap - len)
				return -ERANGE;
			memcpy(buf + len, x.prefix->s, x.prefix->len);
			memcpy(buf + len + x.prefix->len, x.suffix,
			       x.suffix_len);
			buf[len + n - 1] = '\0';
		}
		len += n;
	}
	return r < 0 ? r : (ssize_t)len;
}
