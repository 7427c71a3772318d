/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer. Zero-initialised is empty. After a failed append the
 * buffer is unchanged and .failed stays set, so that a chain of appends needs
 * one check at its end. Not thread safe.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

struct buf {
	uint8_t *p; /* always has a NUL behind len when not NULL */
	size_t len, cap;
	bool failed;
};

void buf_release(struct buf *b);
int buf_reserve(struct buf *b, size_t more); /* 0 or -ENOMEM */
int buf_add(struct buf *b, const void *p, size_t len);
int buf_adds(struct buf *b, const char *s);
printf_like(2, 3) int buf_addf(struct buf *b, const char *fmt, ...);
/* As a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. */
int buf_add_json(struct buf *b, const char *s);

static inline __attribute__((unused)) void owned_buf(struct buf *b)
{
	buf_release(b);
}

#endif
