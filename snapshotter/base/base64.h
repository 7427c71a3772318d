/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 with the standard alphabet, RFC 4648 section 4; decoding only. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cleanup.h"

/*
 * base64_decode() - strictly: padded, no white space, no stray bits at the end
 *
 * @out: room for @len / 4 * 3 bytes; may be @s itself
 * Returns the number of bytes, or -EINVAL.
 */
ssize_t base64_decode(const char *s, size_t len, void *out) must_check;

#endif
