/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.state: what lies beside a file that is checked on every read.
 *
 *	0     header: the first 512 bytes count, so that it is written in one
 *	      sector; the rest of 4 KiB is zero
 *	4096  extent bitmap (bodies only), in sectors of 508 bytes and a CRC-32C;
 *	      a sector of zeros counts as sound
 *	...   leaf log, 32 bytes a block (verity/leaves.h)
 *
 * Everything is little endian and allocated in full at creation, so that a
 * later write of a bit or leaf never meets a full disk. Blocking on disk; no
 * locks; the callers serialise.
 */
#ifndef VERITY_STATE_H
#define VERITY_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

#define STATE_SECTOR 512u
#define STATE_BITMAP_OFF 4096u
#define STATE_SECTOR_BYTES 508u /* of bitmap, in one sector */
#define STATE_SECTOR_BITS (8 * STATE_SECTOR_BYTES)
#define STATE_BOOT_LEN 36
#define STATE_SIZE_MAX (1ull << 48) /* of the file it stands for */

enum state_kind {
	STATE_VFILE = 1, /* an immutable file: no extents */
	STATE_PACK = 2, /* a body named by its layer */
	STATE_FILE = 3, /* a body named by its ckey */
};

/* STATE_PARTIAL is what is not known to be on stable storage. */
enum state_phase {
	STATE_PARTIAL = 0,
	STATE_COMPLETE = 1,
	STATE_SEALED = 2,
	STATE_BAD = 3,
};

struct state_header {
	enum state_kind kind;
	enum state_phase phase;
	uint64_t size; /* bytes of the file; <= STATE_SIZE_MAX */
	uint32_t n_extents; /* 0 for STATE_VFILE, else 1..size */
	struct digest ckey; /* zero unless STATE_FILE */
	char boot[STATE_BOOT_LEN + 1]; /* of the last writer; may be "" */
	/* The file was finished once: somebody may rely on its bytes, so it is
	 * replaced by another, never written. */
	bool frozen;
	struct digest seal; /* of STATE_SEALED, else zero */
};

static inline uint32_t state_n_bit_sectors(uint32_t n_extents)
{
	return n_extents / STATE_SECTOR_BITS +
	       (n_extents % STATE_SECTOR_BITS != 0);
}

static inline uint64_t state_leaves_off(uint32_t n_extents)
{
	return STATE_BITMAP_OFF +
	       (uint64_t)state_n_bit_sectors(n_extents) * STATE_SECTOR;
}

/* Bytes of the whole state file. */
uint64_t state_file_size(const struct state_header *h);

/* -EUCLEAN: not a state file, damaged, or a value out of its range */
int state_decode(const void *p, size_t len, struct state_header *ret)
	must_check;
void state_encode(const struct state_header *h, uint8_t out[STATE_SECTOR]);

/*
 * state_create() - a new state file under a temporary name
 *
 * Allocated in full, header written, bits and leaves zero; *ret_fd is open for
 * both directions. state_publish() gives it its name @name, or replaces what
 * has it. Neither syncs. -ENOSPC leaves nothing behind.
 */
int state_create(int dirfd, const char *name, const struct state_header *h,
		 int *ret_fd) must_check;
int state_publish(int dirfd, const char *name) must_check;
/* Removes @name and its temporary; -ENOENT counts as done. */
int state_unlink(int dirfd, const char *name);

int state_read_header(int fd, struct state_header *ret) must_check;
int state_write_header(int fd, const struct state_header *h) must_check;

/*
 * Bitmap sector @i: STATE_SECTOR_BYTES, bit n of the file in byte n / 8, lowest
 * first. Reading: -EUCLEAN when the checksum is wrong; @ret is what lies there
 * all the same, zeros behind the end of the file.
 */
int state_read_bits(int fd, uint32_t i, uint8_t ret[STATE_SECTOR_BYTES])
	must_check;
int state_write_bits(int fd, uint32_t i, const uint8_t bits[STATE_SECTOR_BYTES])
	must_check;

/* Leaves [first, first + n). A part behind the end of the file reads as zeros,
 * which match nothing. */
int state_read_leaves(int fd, uint32_t n_extents, uint64_t first, size_t n,
		      struct digest *ret) must_check;
int state_write_leaves(int fd, uint32_t n_extents, uint64_t first, size_t n,
		       const struct digest *leaves) must_check;

/*
 * state_boot_id() - which boot of the machine this is
 *
 * "" when it cannot be known; such a boot equals none, itself included
 * (state_same_boot). VS_BOOT_ID in the environment overrides it for tests.
 */
void state_boot_id(char ret[STATE_BOOT_LEN + 1]);
bool state_same_boot(const char *a, const char *b);

/* CRC-32C (Castagnoli), as in RFC 3720 appendix B.4 */
uint32_t crc32c(const void *p, size_t len);

#endif
