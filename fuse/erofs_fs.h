/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The EROFS profile of a layer's index: the subset of the on-disk format that
 * snapshotter/index_write produces and fuse/index accepts. Frozen: a change
 * needs another EROFS_VOLUME and BUILDER_VERSION.
 *
 * Little endian, blocks of 4 KiB. A nid is the inode's byte offset / 32.
 *
 *	0      zeros
 *	1024   superblock (128), device slot (128), root inode (nid 40)
 *	...    more records in index order, at least 12 zeros, up to a block
 *	...    whole blocks of directories and plain symlinks, in the same order
 *
 * A record is an inode, its xattr area, and then (aligned to 8) the chunk
 * entries of a file, or the tail of a directory, or a symlink's target. A
 * record of at most 4096 bytes never crosses a block, a longer one starts one;
 * only the root's stays where it is, whatever xattrs it has.
 *
 * Index order: the root; then directory by directory, depth first, all
 * children of one in name order, and after them its subdirectories. An inode
 * with several names stands at the first of them.
 *
 * Source: Linux fs/erofs/erofs_fs.h (6.18) for the format.
 */
#ifndef FUSE_EROFS_FS_H
#define FUSE_EROFS_FS_H

#include <stddef.h>
#include <stdint.h>

#define EROFS_BLK 4096u
#define EROFS_BLK_BITS 12
#define EROFS_SLOT 32u
#define EROFS_SLOTS_PER_BLK (EROFS_BLK / EROFS_SLOT)
#define EROFS_NAME_MAX 255u
#define EROFS_SYMLINK_MAX 4095u

/* Superblock, at 1024. What is not named is zero. */
#define EROFS_SB_OFF 1024u
#define EROFS_SB_LEN 128u
#define EROFS_SB_MAGIC 0
#define EROFS_SB_CHECKSUM 4 /* crc32c of 1024..4095 with this field zero */
#define EROFS_SB_COMPAT 8
#define EROFS_SB_BLKBITS 12 /* u8 */
#define EROFS_SB_ROOT_NID 14 /* u16 */
#define EROFS_SB_INOS 16 /* u64 */
#define EROFS_SB_BLOCKS 36 /* u32 */
#define EROFS_SB_UUID 48
#define EROFS_SB_VOLUME 64
#define EROFS_SB_INCOMPAT 80
#define EROFS_SB_DEVICES 86 /* u16 */
#define EROFS_SB_DEV_SLOT 88 /* u16, in units of 128 bytes */

#define EROFS_MAGIC 0xe0f5e1e2u
#define EROFS_COMPAT 0x3u /* SB_CHKSUM, MTIME */
#define EROFS_INCOMPAT 0xcu /* CHUNKED_FILE, DEVICE_TABLE */
#define EROFS_VOLUME "vs-index-1" /* at most 15 bytes */
#define EROFS_VOLUME_LEN 16

/* Device slot, behind the superblock: the layer's contents. */
#define EROFS_DEV_OFF 1152u
#define EROFS_DEV_LEN 128u
#define EROFS_DEV_BLOCKS 64 /* u32 */
/*
 * Where the device begins in one flat address space: behind the index. Never
 * 0: kernels 6.12 to 7.3 would serve the index itself as file contents when
 * mounted without the device.
 */
#define EROFS_DEV_UNIADDR 68 /* u32 */

/* Inode, 64 bytes ("extended"). */
#define EROFS_INODE_LEN 64u
#define EROFS_I_FORMAT 0 /* u16: 1 | layout << 1 */
#define EROFS_I_XATTRS 2 /* u16: 0, or (area - 12) / 4 + 1 */
#define EROFS_I_MODE 4 /* u16 */
#define EROFS_I_NB 6 /* u16, zero: newer kernels take it for high bits */
#define EROFS_I_SIZE 8 /* u64 */
#define EROFS_I_U 16 /* chunk format | start block | rdev | 0 */
#define EROFS_I_INO 20 /* dense ordinal */
#define EROFS_I_UID 24
#define EROFS_I_GID 28
#define EROFS_I_MTIME 32 /* s64 */
#define EROFS_I_NSEC 40
#define EROFS_I_NLINK 44
#define EROFS_I_RESERVED 48 /* 16 zeros */

enum erofs_layout {
	EROFS_PLAIN = 0, /* whole blocks from u on; or no data */
	EROFS_INLINE = 2, /* whole blocks, and the tail in the record */
	EROFS_CHUNK = 4, /* chunk entries: regular files with contents */
};

/* Chunks: 4096 << bits bytes each, one entry for each. */
#define EROFS_CHUNK_INDEXES 0x20u
#define EROFS_CHUNK_BITS_MAX 28u
#define EROFS_CHUNK_LEN 8u /* u16 0, u16 device (1), u32 block */
#define EROFS_CHUNK_DEVICE 2
#define EROFS_CHUNK_BLOCK 4
/* Kernel 7.3 masks the end of a chunk to 32 bits. */
#define EROFS_DEV_BLOCKS_MAX 0xffffffffu

/* Directory entry; the names of a block follow its entries, without NUL. */
#define EROFS_DIRENT_LEN 12u
#define EROFS_DE_NID 0 /* u64 */
#define EROFS_DE_NAMEOFF 8 /* u16 */
#define EROFS_DE_TYPE 10 /* u8 */
#define EROFS_DE_RESERVED 11

enum erofs_ftype {
	EROFS_FT_REG = 1,
	EROFS_FT_DIR,
	EROFS_FT_CHR,
	EROFS_FT_BLK,
	EROFS_FT_FIFO,
	EROFS_FT_SOCK,
	EROFS_FT_LNK,
};

/* Xattr area: a header of 12 zeros, then entries padded to 4 bytes. */
#define EROFS_XATTR_HEADER 12u
#define EROFS_XATTR_ENTRY 4u /* u8 name_len, u8 index, u16 value_size */
#define EROFS_XATTR_AREA_MAX (EROFS_XATTR_HEADER + 4u * 65534u)

/* Names are stored without their prefix; those of ACLs are all prefix. */
static const struct erofs_xattr_prefix {
	const char *s;
	uint8_t len, index, whole;
} erofs_xattr_prefixes[] = {
	{ "user.", 5, 1, 0 },
	{ "system.posix_acl_access", 23, 2, 1 },
	{ "system.posix_acl_default", 24, 3, 1 },
	{ "trusted.", 8, 4, 0 },
	{ "security.", 9, 6, 0 },
};

static inline uint64_t erofs_round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) & ~(to - 1);
}

/* The smallest chunk that covers a file of @size > 0 bytes, as log2 of its
 * blocks; files above 1 TiB take several of the largest. */
static inline uint32_t erofs_chunk_bits(uint64_t size)
{
	uint64_t blocks = (size - 1) / EROFS_BLK + 1;
	uint32_t bits = 0;

	while (bits < EROFS_CHUNK_BITS_MAX && UINT64_C(1) << bits < blocks)
		bits++;
	return bits;
}

static inline uint64_t erofs_n_chunks(uint64_t size, uint32_t bits)
{
	return ((size - 1) >> (EROFS_BLK_BITS + bits)) + 1;
}

/* 0 for a mode without a type */
static inline uint8_t erofs_ftype_of(uint32_t mode)
{
	static const uint8_t t[16] = {
		[1] = EROFS_FT_FIFO,  [2] = EROFS_FT_CHR, [4] = EROFS_FT_DIR,
		[6] = EROFS_FT_BLK,   [8] = EROFS_FT_REG, [10] = EROFS_FT_LNK,
		[12] = EROFS_FT_SOCK,
	};

	return t[mode >> 12 & 15];
}

/*
 * crc32c, seed ~0, without the final inversion, as the superblock wants it.
 * Bit by bit: it runs over 3 KiB, once when writing and once when opening.
 */
static inline uint32_t erofs_crc32c(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
	}
	return crc;
}

/* Of block 0, with the field itself taken as zero. */
static inline uint32_t erofs_sb_checksum(const uint8_t *block)
{
	static const uint8_t zero[4];
	const uint8_t *sb = block + EROFS_SB_OFF;
	uint32_t crc = erofs_crc32c(~UINT32_C(0), sb, EROFS_SB_CHECKSUM);

	crc = erofs_crc32c(crc, zero, sizeof(zero));
	return erofs_crc32c(crc, sb + EROFS_SB_COMPAT,
			    EROFS_BLK - EROFS_SB_OFF - EROFS_SB_COMPAT);
}

#endif
