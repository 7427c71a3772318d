/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse/index over damaged images: it must neither crash nor read outside the
 * image nor run on for ever. The checksum of block 0 is made right first, or
 * nothing behind it would ever be reached.
 */
#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/erofs_fs.h"
#include "fuse/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IMAGE_MAX (64u << 10)
#define READS_MAX 20000 /* a budget, so that a slow input shows as such */

struct image {
	uint8_t *p;
	size_t len;
	uint32_t n_reads;
};

static int image_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	struct image *im = ctx;

	if (off > im->len || len > im->len - off)
		abort(); /* the reader must have checked that */
	if (im->n_reads++ > READS_MAX)
		return -EIO;
	memcpy(p, im->p + off, len);
	return 0;
}

struct dir_ctx {
	struct index *ix;
	const struct inode *dir;
	uint64_t last;
	uint32_t n;
};

static int each_name(void *ctx, const struct dirent_pos *d)
{
	struct dir_ctx *c = ctx;
	char copy[EROFS_NAME_MAX];
	uint32_t nid;

	if (!d->name_len || d->name_len > sizeof(copy) || d->next <= c->last ||
	    memchr(d->name, '/', d->name_len) || d->dtype == DT_UNKNOWN)
		abort();
	c->last = d->next;
	memcpy(copy, d->name, d->name_len);
	if (c->n++ < 50)
		(void)!index_lookup(c->ix, c->dir, copy, d->name_len, &nid);
	return 0;
}

static void use_inode(struct index *ix, const struct inode *in)
{
	struct dir_ctx c = { .ix = ix, .dir = in };
	char buf[4096];

	if (S_ISREG(in->mode) && in->size &&
	    (in->addr > index_device_size(ix) ||
	     in->size > index_device_size(ix) - in->addr))
		abort();
	if (S_ISDIR(in->mode) && index_readdir(ix, in, 0, each_name, &c) == 0 &&
	    c.last)
		(void)!index_readdir(ix, in, c.last, each_name, &c);
	if (S_ISLNK(in->mode) &&
	    index_readlink(ix, in, buf, sizeof(buf)) == 0 &&
	    strlen(buf) != in->size)
		abort();
	(void)!index_listxattr(ix, in, buf, sizeof(buf));
	(void)!index_getxattr(ix, in, "user.a", buf, sizeof(buf));
	(void)!index_getxattr(ix, in, "system.posix_acl_access", buf, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image im = { .len = size - size % EROFS_BLK };
	struct index_io io = { image_pread, &im, im.len };
	struct index *ix;

	if (!im.len || im.len > IMAGE_MAX)
		return 0;
	im.p = malloc(im.len);
	if (!im.p)
		return 0;
	memcpy(im.p, data, im.len);
	put_le32(im.p + EROFS_SB_OFF + EROFS_SB_CHECKSUM,
		 erofs_sb_checksum(im.p));
	if (index_open(&io, &ix) == 0) {
		struct inode in;

		for (uint32_t nid = 0; nid < im.len / EROFS_SLOT; nid++)
			if (index_inode(ix, nid, &in) == 0)
				use_inode(ix, &in);
		(void)!index_walk(ix, "a/b/c", &in);
		index_close(ix);
	}
	free(im.p);
	return 0;
}
