/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Superblock, inodes and symlinks of an index. Directories are read in
 * index_dir.c, extended attributes in index_xattr.c.
 *
 * Whatever an inode says is checked once, in index_inode(), against the size of
 * the image and of the device; the other functions rely on that, but never
 * read outside the image even if a caller hands them an inode made up.
 */
#include "fuse/index.h"

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/index_priv.h"

int index_pread(const struct index *ix, void *p, size_t len, uint64_t off)
{
	if (off > ix->io.size || len > ix->io.size - off)
		return -EUCLEAN;
	return ix->io.pread(ix->io.ctx, p, len, off);
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* Both slots byte for byte, except for what may differ between layers. */
static int check_superblock(struct index *ix, const uint8_t *block)
{
	uint8_t sb[EROFS_SB_LEN], want[EROFS_SB_LEN] = { 0 };
	uint8_t dev[EROFS_DEV_LEN];

	memcpy(sb, block + EROFS_SB_OFF, sizeof(sb));
	memcpy(dev, block + EROFS_DEV_OFF, sizeof(dev));
	if (get_le32(sb + EROFS_SB_MAGIC) != EROFS_MAGIC ||
	    get_le32(sb + EROFS_SB_CHECKSUM) != erofs_sb_checksum(block))
		return -EUCLEAN;

	ix->blocks = get_le32(sb + EROFS_SB_BLOCKS);
	ix->n_inodes = get_le64(sb + EROFS_SB_INOS);
	ix->device_size =
		(uint64_t)get_le32(dev + EROFS_DEV_BLOCKS) * EROFS_BLK;
	if ((uint64_t)ix->blocks * EROFS_BLK != ix->io.size ||
	    ix->blocks > UINT32_MAX / EROFS_SLOTS_PER_BLK || !ix->n_inodes ||
	    ix->n_inodes > (uint64_t)ix->blocks * EROFS_SLOTS_PER_BLK)
		return -EUCLEAN;

	put_le32(want + EROFS_SB_MAGIC, EROFS_MAGIC);
	memcpy(want + EROFS_SB_CHECKSUM, sb + EROFS_SB_CHECKSUM, 4);
	put_le32(want + EROFS_SB_COMPAT, EROFS_COMPAT);
	want[EROFS_SB_BLKBITS] = EROFS_BLK_BITS;
	put_le16(want + EROFS_SB_ROOT_NID, INDEX_ROOT_NID);
	put_le64(want + EROFS_SB_INOS, ix->n_inodes);
	put_le32(want + EROFS_SB_BLOCKS, ix->blocks);
	memcpy(want + EROFS_SB_UUID, sb + EROFS_SB_UUID, 16);
	memcpy(want + EROFS_SB_VOLUME, EROFS_VOLUME, sizeof(EROFS_VOLUME));
	put_le32(want + EROFS_SB_INCOMPAT, EROFS_INCOMPAT);
	put_le16(want + EROFS_SB_DEVICES, 1);
	put_le16(want + EROFS_SB_DEV_SLOT, EROFS_DEV_OFF / EROFS_DEV_LEN);
	if (memcmp(sb, want, sizeof(sb)) ||
	    get_le32(dev + EROFS_DEV_UNIADDR) != ix->blocks ||
	    !is_zero(dev, EROFS_DEV_BLOCKS) ||
	    !is_zero(dev + EROFS_DEV_UNIADDR + 4,
		     sizeof(dev) - EROFS_DEV_UNIADDR - 4))
		return -EUCLEAN;
	return 0;
}

int index_open(const struct index_io *io, struct index **ret)
{
	owned(mem) struct index *ix = calloc(1, sizeof(*ix));
	uint8_t block[EROFS_BLK];
	struct inode root;
	int r;

	if (!ix)
		return -ENOMEM;
	ix->io = *io;
	r = index_pread(ix, block, sizeof(block), 0);
	if (r < 0)
		return r;
	r = check_superblock(ix, block);
	if (r < 0)
		return r;
	r = index_inode(ix, INDEX_ROOT_NID, &root);
	if (r < 0)
		return r;
	if (!S_ISDIR(root.mode))
		return -EUCLEAN;
	*ret = take_ptr(&ix);
	return 0;
}

void index_close(struct index *ix)
{
	free(ix);
}

uint64_t index_n_inodes(const struct index *ix)
{
	return ix->n_inodes;
}

uint64_t index_device_size(const struct index *ix)
{
	return ix->device_size;
}

/* The part of the record that one read gets: as far as its block goes. */
struct record {
	uint8_t p[EROFS_INODE_LEN + 64];
	size_t len;
};

/* Fixed fields; what depends on the type is left to the functions below. */
static int decode_inode(const struct index *ix, const uint8_t *p,
			struct inode *in)
{
	uint32_t format = get_le16(p + EROFS_I_FORMAT);
	uint32_t xattrs = get_le16(p + EROFS_I_XATTRS);

	in->mode = get_le16(p + EROFS_I_MODE);
	in->size = get_le64(p + EROFS_I_SIZE);
	in->u = get_le32(p + EROFS_I_U);
	in->ino = get_le32(p + EROFS_I_INO);
	in->uid = get_le32(p + EROFS_I_UID);
	in->gid = get_le32(p + EROFS_I_GID);
	in->mtime = (int64_t)get_le64(p + EROFS_I_MTIME);
	in->mtime_nsec = get_le32(p + EROFS_I_NSEC);
	in->nlink = get_le32(p + EROFS_I_NLINK);
	in->layout = (uint8_t)(format >> 1);
	if (!(format & 1) || format >> 4 || get_le16(p + EROFS_I_NB) ||
	    in->mtime_nsec > 999999999 || !in->nlink || !in->ino ||
	    in->ino > ix->n_inodes || xattrs == 1 ||
	    !is_zero(p + EROFS_I_RESERVED, EROFS_INODE_LEN - EROFS_I_RESERVED))
		return -EUCLEAN;
	in->xattr_len =
		xattrs ? EROFS_XATTR_HEADER + 4 * (xattrs - 1) : UINT32_C(0);
	if (index_inode_off(in->nid) + EROFS_INODE_LEN + in->xattr_len >
	    ix->io.size)
		return -EUCLEAN;
	return 0;
}

/* All chunks must follow one another: a file is one range of the device. */
static int decode_file(const struct index *ix, const struct record *rec,
		       struct inode *in)
{
	uint64_t off = erofs_round_up(EROFS_INODE_LEN + in->xattr_len,
				      EROFS_CHUNK_LEN);
	uint8_t chunks[(EROFS_DEV_BLOCKS_MAX >> EROFS_CHUNK_BITS_MAX) + 1]
		      [EROFS_CHUNK_LEN];
	uint32_t bits = erofs_chunk_bits(in->size);
	uint64_t n = erofs_n_chunks(in->size, bits), start;
	int r;

	if (in->layout != EROFS_CHUNK || in->u != (EROFS_CHUNK_INDEXES | bits))
		return -EUCLEAN;
	if (n > ARRAY_LEN(chunks)) /* more than a device can hold */
		return -EUCLEAN;
	if (off + n * EROFS_CHUNK_LEN <= rec->len) {
		memcpy(chunks, rec->p + off, n * EROFS_CHUNK_LEN);
	} else {
		r = index_pread(ix, chunks, n * EROFS_CHUNK_LEN,
				index_inode_off(in->nid) + off);
		if (r < 0)
			return r;
	}
	start = get_le32(chunks[0] + EROFS_CHUNK_BLOCK);
	for (uint64_t i = 0; i < n; i++)
		if (get_le16(chunks[i]) ||
		    get_le16(chunks[i] + EROFS_CHUNK_DEVICE) != 1 ||
		    get_le32(chunks[i] + EROFS_CHUNK_BLOCK) !=
			    start + (i << bits))
			return -EUCLEAN;
	in->addr = start * EROFS_BLK;
	/* addr < 2^44 and size <= 2^44 here: no overflow */
	if (start + (n << bits) > EROFS_DEV_BLOCKS_MAX ||
	    in->addr + in->size > ix->device_size)
		return -EUCLEAN;
	return 0;
}

/* Whole blocks from u on, and for INLINE a tail inside the inode's block. */
static int check_data(const struct index *ix, const struct inode *in)
{
	uint64_t in_block = index_inode_off(in->nid) % EROFS_BLK;
	uint64_t whole = in->size / EROFS_BLK, tail = in->size % EROFS_BLK;

	if (in->layout == EROFS_INLINE) {
		if (!tail || in_block + EROFS_INODE_LEN + in->xattr_len + tail >
				     EROFS_BLK)
			return -EUCLEAN;
	} else if (in->layout == EROFS_PLAIN) {
		whole += !!tail;
	} else {
		return -EUCLEAN;
	}
	/* size / 4096 < 2^52 and u < 2^32 */
	if (!whole ? in->u != 0 : !in->u || in->u + whole > ix->blocks)
		return -EUCLEAN;
	return 0;
}

static int decode_by_type(const struct index *ix, const struct record *rec,
			  struct inode *in)
{
	switch (in->mode & S_IFMT) {
	case S_IFREG:
		if (in->size)
			return decode_file(ix, rec, in);
		return in->layout == EROFS_PLAIN && !in->u ? 0 : -EUCLEAN;
	case S_IFDIR:
		/* "." and ".." take 27 bytes */
		return in->size < 27 ? -EUCLEAN : check_data(ix, in);
	case S_IFLNK:
		if (!in->size || in->size > EROFS_SYMLINK_MAX)
			return -EUCLEAN;
		return check_data(ix, in);
	case S_IFCHR:
	case S_IFBLK:
		in->rdev = in->u;
		return in->layout == EROFS_PLAIN && !in->size ? 0 : -EUCLEAN;
	case S_IFIFO:
	case S_IFSOCK:
		return in->layout == EROFS_PLAIN && !in->size && !in->u
			       ? 0
			       : -EUCLEAN;
	default:
		return -EUCLEAN;
	}
}

int index_inode(struct index *ix, uint32_t nid, struct inode *ret)
{
	uint64_t in_block = index_inode_off(nid) % EROFS_BLK;
	struct inode in = { .nid = nid };
	struct record rec;
	int r;

	if (!index_nid_valid(ix, nid))
		return -ENOENT;
	if (in_block + EROFS_INODE_LEN > EROFS_BLK)
		return -EUCLEAN;
	rec.len = sizeof(rec.p);
	if (rec.len > EROFS_BLK - in_block)
		rec.len = EROFS_BLK - in_block;
	r = index_pread(ix, rec.p, rec.len, index_inode_off(nid));
	if (r < 0)
		return r;
	r = decode_inode(ix, rec.p, &in);
	if (r < 0)
		return r;
	r = decode_by_type(ix, &rec, &in);
	if (r < 0)
		return r;
	*ret = in;
	return 0;
}

int index_readlink(struct index *ix, const struct inode *in, char *buf,
		   size_t cap)
{
	uint64_t off = (uint64_t)in->u * EROFS_BLK;
	int r;

	if (!S_ISLNK(in->mode))
		return -EINVAL;
	if (cap <= in->size)
		return -ERANGE;
	if (in->layout == EROFS_INLINE)
		off = index_inode_off(in->nid) + EROFS_INODE_LEN +
		      in->xattr_len;
	r = index_pread(ix, buf, in->size, off);
	if (r < 0)
		return r;
	if (memchr(buf, '\0', in->size))
		return -EUCLEAN;
	buf[in->size] = '\0';
	return 0;
}

int index_walk(struct index *ix, const char *path, struct inode *ret)
{
	struct inode in;
	int r = index_inode(ix, INDEX_ROOT_NID, &in);

	while (r == 0) {
		size_t len;
		uint32_t nid;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (!len) {
			*ret = in;
			return 0;
		}
		r = index_lookup(ix, &in, path, len, &nid);
		if (r == 0)
			r = index_inode(ix, nid, &in);
		path += len;
	}
	return r;
}
