/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, strictly: RFC 3629. Nothing overlong, no surrogates, nothing above
 * U+10FFFF. The only code that knows it. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of the well-formed sequence that starts at @p, of which @left
 * bytes may be looked at; 0: there is none. A NUL has length 1. */
size_t utf8_len(const void *p, size_t left);

bool utf8_is_valid(const void *p, size_t len);

/* @c: at most 0x10ffff and no surrogate. Returns the length, 1..4. */
size_t utf8_encode(uint32_t c, uint8_t out[4]);

#endif
