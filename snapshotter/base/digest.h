/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SHA-256 value, and its text form "sha256:<64 lower-case hex digits>".
 * Source: OCI image-spec descriptor.md, "Digests". No other algorithm and no
 * other spelling is accepted, so that a digest may stand in a path or URL.
 */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cleanup.h"

#define DIGEST_LEN 32
#define DIGEST_HEX_LEN (2 * DIGEST_LEN)
#define DIGEST_STR_LEN (7 + DIGEST_HEX_LEN) /* without the NUL */

struct digest {
	uint8_t b[DIGEST_LEN];
};

struct digest_str {
	char s[DIGEST_STR_LEN + 1];
};

/* 0, or -EINVAL unless the whole of @s is a digest */
int digest_parse(const char *s, struct digest *ret) must_check;

/* digest_str(&d).s lives to the end of the full expression */
struct digest_str digest_str(const struct digest *d);

static inline bool digest_equal(const struct digest *a, const struct digest *b)
{
	return !memcmp(a->b, b->b, DIGEST_LEN);
}

static inline bool digest_is_zero(const struct digest *d)
{
	static const struct digest zero;

	return digest_equal(d, &zero);
}

#endif
