/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, and the clock. Blocking; no locks; any thread. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

/* All @len bytes at @off, or -errno; -ENODATA when the file ends before. */
int pread_full(int fd, void *p, size_t len, uint64_t off) must_check;
int pwrite_full(int fd, const void *p, size_t len, uint64_t off) must_check;
int write_full(int fd, const void *p, size_t len) must_check;

/*
 * read_file_at() - a small file as one NUL-terminated heap string
 * @max: -EFBIG above so many bytes
 * @ret_len: may be NULL
 */
int read_file_at(int dirfd, const char *path, size_t max, char **ret,
		 size_t *ret_len) must_check;

/* Monotonic clocks. */
uint64_t now_ms(void);
uint64_t now_ns(void);

/* Little endian, unaligned. */
static inline uint16_t get_le16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t get_le32(const void *p)
{
	const uint8_t *b = p;

	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
	       (uint32_t)b[3] << 24;
}

static inline uint64_t get_le64(const void *p)
{
	return get_le32(p) | (uint64_t)get_le32((const uint8_t *)p + 4) << 32;
}

static inline void put_le16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

static inline void put_le32(void *p, uint32_t v)
{
	uint8_t *b = p;

	for (int i = 0; i < 4; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

static inline void put_le64(void *p, uint64_t v)
{
	uint8_t *b = p;

	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> 8 * i);
}

#endif
