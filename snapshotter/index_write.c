/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lays out and writes the EROFS image of a layer's index. First every inode
 * gets its place (index_place), then one pass writes the file front to back;
 * nothing is read back and nothing depends on time, addresses or hashing.
 *
 * What overlayfs, tar or an image format mean is the builder's business; what
 * may be in an index at all is fuse/erofs_fs.h's.
 */
#include "snapshotter/index_write.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/erofs_fs.h"
#include "verity/stream.h"

int index_xattr_add(struct buf *area, const char *name, const void *value,
		    size_t len)
{
	static const uint8_t zero[EROFS_XATTR_HEADER];
	const struct erofs_xattr_prefix *p = NULL;
	uint8_t head[EROFS_XATTR_ENTRY];
	size_t suffix, need;

	for (size_t i = 0; i < ARRAY_LEN(erofs_xattr_prefixes) && !p; i++) {
		const struct erofs_xattr_prefix *q = &erofs_xattr_prefixes[i];

		if (q->whole ? !strcmp(name, q->s)
			     : !strncmp(name, q->s, q->len))
			p = q;
	}
	if (!p)
		return -EOPNOTSUPP;
	suffix = strlen(name) - p->len;
	if ((suffix == 0) != p->whole || p->len + suffix > EROFS_NAME_MAX ||
	    len > UINT16_MAX)
		return -ERANGE;
	need = erofs_round_up(sizeof(head) + suffix + len, 4);
	if (!area->len && buf_add(area, zero, sizeof(zero)) < 0)
		return -ENOMEM;
	if (area->len + need > EROFS_XATTR_AREA_MAX)
		return -E2BIG;
	head[0] = (uint8_t)suffix;
	head[1] = p->index;
	put_le16(head + 2, (uint16_t)len);
	/* all or nothing: a torn entry would be written as if it were one */
	if (buf_reserve(area, need) < 0 ||
	    buf_add(area, head, sizeof(head)) < 0 ||
	    buf_add(area, name + p->len, suffix) < 0 ||
	    buf_add(area, value, len) < 0 ||
	    buf_add(area, zero, need - sizeof(head) - suffix - len) < 0)
		return -ENOMEM;
	return 0;
}

/* The entries of one directory in name order, with the dots in their place. */
struct dir_iter {
	const struct index_image *img;
	uint32_t dir, i;
	int dots; /* how many of "." and ".." are done */
};

struct dir_item {
	const char *s;
	uint32_t len, node;
};

static bool dir_next(struct dir_iter *it, struct dir_item *ret)
{
	const struct index_node *d = &it->img->nodes[it->dir];
	const struct index_name *n = NULL;

	if (it->i < d->dir.n)
		n = &it->img->names[d->dir.first + it->i];
	/* "-x" and "+" sort before "."; ".a" and "a" behind ".." */
	if (it->dots < 2) {
		const char *dot = it->dots ? ".." : ".";
		uint32_t len = it->dots ? 2 : 1;
		int c = n ? memcmp(n->s, dot, n->len < len ? n->len : len) : 1;

		if (c > 0 || (!c && n->len > len)) {
			*ret = (struct dir_item){ dot, len,
						  it->dots ? d->dir.parent
							   : it->dir };
			it->dots++;
			return true;
		}
	}
	if (!n)
		return false;
	*ret = (struct dir_item){ n->s, n->len, n->node };
	it->i++;
	return true;
}

/* Advances @it over the entries that fit one block: number and bytes. */
static uint32_t dir_fit(struct dir_iter *it, uint32_t *ret_used)
{
	uint32_t n = 0, used = 0;
	struct dir_item item;

	for (;;) {
		struct dir_iter before = *it;

		if (!dir_next(it, &item))
			break;
		if (used + EROFS_DIRENT_LEN + item.len > EROFS_BLK) {
			*it = before;
			break;
		}
		used += EROFS_DIRENT_LEN + item.len;
		n++;
	}
	*ret_used = used;
	return n;
}

/* Fills @block (zeroed here) with the next entries; bytes used, 0 at the end. */
static uint32_t dir_block(struct dir_iter *it, uint8_t *block)
{
	struct dir_iter start = *it;
	uint32_t used, n = dir_fit(it, &used);
	uint32_t name = n * EROFS_DIRENT_LEN;
	struct dir_item item;

	memset(block, 0, EROFS_BLK);
	for (uint32_t i = 0; i < n && dir_next(&start, &item); i++) {
		const struct index_node *v = &it->img->nodes[item.node];
		uint8_t *de = block + (size_t)i * EROFS_DIRENT_LEN;

		put_le64(de + EROFS_DE_NID, v->nid);
		put_le16(de + EROFS_DE_NAMEOFF, (uint16_t)name);
		de[EROFS_DE_TYPE] = erofs_ftype_of(v->mode);
		memcpy(block + name, item.s, item.len);
		name += item.len;
	}
	return used;
}

static uint64_t dir_size(const struct index_image *img, uint32_t dir)
{
	struct dir_iter it = { .img = img, .dir = dir };
	uint64_t blocks = 0;
	uint32_t used, last = 0;

	while (dir_fit(&it, &used)) {
		blocks++;
		last = used;
	}
	return (blocks - 1) * EROFS_BLK + last; /* the dots are always there */
}

static bool has_contents(const struct index_node *v)
{
	return S_ISREG(v->mode) && v->size;
}

static bool has_data(const struct index_node *v)
{
	return S_ISDIR(v->mode) || S_ISLNK(v->mode);
}

/* Bytes of the record; settles the layout. @room: for an inline tail, a block
 * or, for the root, what is left of block 0. */
static uint64_t record_size(struct index_node *v, uint64_t room)
{
	uint64_t len = EROFS_INODE_LEN + v->xattr_len, tail;

	v->layout = EROFS_PLAIN;
	if (has_contents(v)) {
		v->layout = EROFS_CHUNK;
		return erofs_round_up(len, EROFS_CHUNK_LEN) +
		       EROFS_CHUNK_LEN *
			       erofs_n_chunks(v->size,
					      erofs_chunk_bits(v->size));
	}
	tail = has_data(v) ? v->size % EROFS_BLK : 0;
	if (tail && len + tail <= room) {
		v->layout = EROFS_INLINE;
		len += tail;
	}
	return len;
}

static uint64_t whole_blocks(const struct index_node *v)
{
	if (!has_data(v))
		return 0;
	if (v->layout == EROFS_INLINE)
		return v->size / EROFS_BLK;
	return (v->size + EROFS_BLK - 1) / EROFS_BLK;
}

struct placer {
	struct index_image *img;
	uint32_t n_placed;
	uint64_t pos;
};

static int place(struct placer *p, uint32_t i, struct err *e)
{
	struct index_node *v = &p->img->nodes[i];
	bool root = p->n_placed == 0;
	uint64_t len;

	if (v->ino) /* another name of it came first */
		return 0;
	if (S_ISDIR(v->mode))
		v->size = dir_size(p->img, i);
	len = record_size(v, root ? EROFS_BLK - p->pos : EROFS_BLK);
	if (!root && p->pos % EROFS_BLK + len > EROFS_BLK)
		p->pos = erofs_round_up(p->pos, EROFS_BLK);
	if (p->pos / EROFS_SLOT > UINT32_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the index of the layer exceeds 128 GiB");
	v->nid = (uint32_t)(p->pos / EROFS_SLOT);
	p->pos = erofs_round_up(p->pos + len, EROFS_SLOT);
	p->img->order[p->n_placed++] = i;
	v->ino = p->n_placed;
	return 0;
}

/* Depth first; the stack holds directories only, each once. */
static int place_all(struct placer *p, uint32_t *stack, struct err *e)
{
	const struct index_image *img = p->img;
	uint32_t n = 0;

	if (place(p, 0, e) < 0)
		return -1;
	stack[n++] = 0;
	while (n) {
		const struct index_node *d = &img->nodes[stack[--n]];
		const struct index_name *names;

		if (!d->dir.n)
			continue;
		names = img->names + d->dir.first;
		for (uint32_t i = 0; i < d->dir.n; i++)
			if (place(p, names[i].node, e) < 0)
				return -1;
		for (uint32_t i = d->dir.n; i--;)
			if (S_ISDIR(img->nodes[names[i].node].mode))
				stack[n++] = names[i].node;
	}
	if (p->n_placed != img->n_nodes)
		return err_set(e, ERR_INTERNAL,
			       "%u of %u inodes of the index have no name",
			       img->n_nodes - p->n_placed, img->n_nodes);
	return 0;
}

int index_place(struct index_image *img, struct err *e)
{
	struct placer p = { .img = img, .pos = EROFS_DEV_OFF + EROFS_DEV_LEN };
	owned(mem) uint32_t *stack = calloc(img->n_nodes, sizeof(*stack));
	uint64_t blocks;

	img->order = calloc(img->n_nodes, sizeof(*img->order));
	if (!img->order || !stack)
		return err_sys(e, -ENOMEM, "cannot lay out the index");
	if (place_all(&p, stack, e) < 0)
		return -1;
	/* fsck.erofs 1.5 reads a header of xattrs behind each inode, and
	 * fails where the image ends with the inode */
	img->inode_bytes = p.pos + EROFS_XATTR_HEADER;
	blocks = erofs_round_up(img->inode_bytes, EROFS_BLK) / EROFS_BLK;
	for (uint32_t i = 0; i < img->n_nodes; i++) {
		struct index_node *v = &img->nodes[img->order[i]];
		uint64_t n = whole_blocks(v);

		if (blocks + n > UINT32_MAX / EROFS_SLOTS_PER_BLK)
			return err_set(
				e, ERR_UNSUPPORTED,
				"the index of the layer exceeds 128 GiB");
		v->block = n ? (uint32_t)blocks : 0;
		blocks += n;
	}
	if (img->device_size / EROFS_BLK > EROFS_DEV_BLOCKS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the files of the layer exceed 16 TiB");
	img->blocks = (uint32_t)blocks;
	return 0;
}

/* A file written front to back. The first error stays. */
struct out {
	int fd, r;
	size_t n;
	uint64_t pos; /* of p[0] in the file */
	uint8_t p[64 << 10];
};

static void out_flush(struct out *o)
{
	if (!o->r && !o->pos && o->n >= EROFS_BLK)
		put_le32(o->p + EROFS_SB_OFF + EROFS_SB_CHECKSUM,
			 erofs_sb_checksum(o->p));
	if (!o->r)
		o->r = stream_write(o->fd, o->p, o->n, o->pos, o->pos + o->n);
	o->pos += o->n;
	o->n = 0;
}

/* @p NULL: zeros */
static void out_put(struct out *o, const void *p, size_t len)
{
	const uint8_t *from = p;

	while (len && !o->r) {
		size_t n = sizeof(o->p) - o->n;

		if (n > len)
			n = len;
		if (from) {
			memcpy(o->p + o->n, from, n);
			from += n;
		} else {
			memset(o->p + o->n, 0, n);
		}
		o->n += n;
		len -= n;
		if (o->n == sizeof(o->p))
			out_flush(o);
	}
}

static void out_pad(struct out *o, uint64_t to)
{
	uint64_t at = o->pos + o->n;

	if (to > at)
		out_put(o, NULL, to - at);
}

static void put_superblock(struct out *o, const struct index_image *img)
{
	uint8_t sb[EROFS_SB_LEN] = { 0 }, dev[EROFS_DEV_LEN] = { 0 };

	put_le32(sb + EROFS_SB_MAGIC, EROFS_MAGIC);
	put_le32(sb + EROFS_SB_COMPAT, EROFS_COMPAT);
	sb[EROFS_SB_BLKBITS] = EROFS_BLK_BITS;
	put_le16(sb + EROFS_SB_ROOT_NID, (uint16_t)img->nodes[0].nid);
	put_le64(sb + EROFS_SB_INOS, img->n_nodes);
	put_le32(sb + EROFS_SB_BLOCKS, img->blocks);
	memcpy(sb + EROFS_SB_UUID, img->uuid, sizeof(img->uuid));
	memcpy(sb + EROFS_SB_VOLUME, EROFS_VOLUME, sizeof(EROFS_VOLUME));
	put_le32(sb + EROFS_SB_INCOMPAT, EROFS_INCOMPAT);
	put_le16(sb + EROFS_SB_DEVICES, 1);
	put_le16(sb + EROFS_SB_DEV_SLOT, EROFS_DEV_OFF / EROFS_DEV_LEN);
	put_le32(dev + EROFS_DEV_BLOCKS,
		 (uint32_t)(img->device_size / EROFS_BLK));
	put_le32(dev + EROFS_DEV_UNIADDR, img->blocks);
	out_pad(o, EROFS_SB_OFF);
	out_put(o, sb, sizeof(sb));
	out_put(o, dev, sizeof(dev));
}

static uint32_t inode_u(const struct index_node *v)
{
	if (v->layout == EROFS_CHUNK)
		return EROFS_CHUNK_INDEXES | erofs_chunk_bits(v->size);
	if (S_ISCHR(v->mode) || S_ISBLK(v->mode))
		return v->rdev;
	return v->block;
}

static void put_chunks(struct out *o, const struct index_node *v)
{
	uint32_t bits = erofs_chunk_bits(v->size);
	uint64_t n = erofs_n_chunks(v->size, bits);
	uint64_t block = v->file.addr / EROFS_BLK;

	out_pad(o, erofs_round_up(o->pos + o->n, EROFS_CHUNK_LEN));
	for (uint64_t i = 0; i < n; i++) {
		uint8_t c[EROFS_CHUNK_LEN] = { 0 };

		put_le16(c + EROFS_CHUNK_DEVICE, 1);
		put_le32(c + EROFS_CHUNK_BLOCK,
			 (uint32_t)(block + (i << bits)));
		out_put(o, c, sizeof(c));
	}
}

/* Either the whole blocks of a directory, or its inline tail. */
static void put_dir(struct out *o, const struct index_image *img, uint32_t i,
		    bool tail)
{
	struct dir_iter it = { .img = img, .dir = i };
	uint64_t whole = whole_blocks(&img->nodes[i]);
	uint8_t block[EROFS_BLK];
	uint32_t used;

	for (uint64_t k = 0; (used = dir_block(&it, block)); k++)
		if (tail == (k >= whole))
			out_put(o, block, tail ? used : sizeof(block));
}

static void put_record(struct out *o, const struct index_image *img, uint32_t i)
{
	const struct index_node *v = &img->nodes[i];
	uint8_t d[EROFS_INODE_LEN] = { 0 };

	put_le16(d + EROFS_I_FORMAT, (uint16_t)(1 | v->layout << 1));
	if (v->xattr_len)
		put_le16(d + EROFS_I_XATTRS,
			 (uint16_t)((v->xattr_len - EROFS_XATTR_HEADER) / 4 +
				    1));
	put_le16(d + EROFS_I_MODE, (uint16_t)v->mode);
	put_le64(d + EROFS_I_SIZE, v->size);
	put_le32(d + EROFS_I_U, inode_u(v));
	put_le32(d + EROFS_I_INO, v->ino);
	put_le32(d + EROFS_I_UID, v->uid);
	put_le32(d + EROFS_I_GID, v->gid);
	put_le64(d + EROFS_I_MTIME, (uint64_t)v->mtime);
	put_le32(d + EROFS_I_NSEC, v->mtime_nsec);
	put_le32(d + EROFS_I_NLINK, v->nlink);
	out_pad(o, (uint64_t)v->nid * EROFS_SLOT);
	out_put(o, d, sizeof(d));
	out_put(o, v->xattrs, v->xattr_len);
	if (v->layout == EROFS_CHUNK)
		put_chunks(o, v);
	else if (v->layout == EROFS_INLINE && S_ISLNK(v->mode))
		out_put(o, v->target, v->size);
	else if (v->layout == EROFS_INLINE)
		put_dir(o, img, i, true);
}

static int write_image(struct out *o, const struct index_image *img)
{
	put_superblock(o, img);
	for (uint32_t i = 0; i < img->n_nodes && !o->r; i++)
		put_record(o, img, img->order[i]);
	out_pad(o, erofs_round_up(img->inode_bytes, EROFS_BLK));
	for (uint32_t i = 0; i < img->n_nodes && !o->r; i++) {
		const struct index_node *v = &img->nodes[img->order[i]];

		if (!whole_blocks(v))
			continue;
		if (S_ISDIR(v->mode)) {
			put_dir(o, img, img->order[i], false);
		} else {
			out_put(o, v->target, v->size);
			out_pad(o, erofs_round_up(o->pos + o->n, EROFS_BLK));
		}
	}
	out_flush(o);
	if (!o->r && o->pos != (uint64_t)img->blocks * EROFS_BLK)
		return -EPROTO; /* placing and writing disagree */
	return o->r;
}

int index_write(const struct index_image *img, int dirfd, const char *name,
		struct err *e)
{
	owned(mem) struct out *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return err_sys(e, -ENOMEM, "cannot write the index");
	o->fd = openat(dirfd, name,
		       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (o->fd < 0)
		return err_sys(e, -errno, "cannot create index file '%s'",
			       name);
	r = write_image(o, img);
	if (close(o->fd) < 0 && !r)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, name, 0);
		return err_sys(e, r, "cannot write index file '%s'", name);
	}
	return 0;
}
