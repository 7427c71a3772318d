/* SPDX-License-Identifier: Apache-2.0 */
/* Lower-case hexadecimal; the only two functions that know it. */
#ifndef BASE_HEX_H
#define BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

/* @out: 2 * @len characters and a NUL */
void hex_encode(const void *p, size_t len, char *out);

/* Exactly 2 * @len characters of [0-9a-f] from @s; -EINVAL otherwise. */
int hex_decode(const char *s, void *out, size_t len) must_check;

#endif
