/* SPDX-License-Identifier: Apache-2.0 */
/* Base64; see base64.h. */
#include "base64.h"

static int value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ssize_t base64_decode(const char *s, size_t len, void *ret)
{
	uint8_t *out = ret;
	size_t n = 0, pad = 0;

	if (len % 4 != 0)
		return -EINVAL;
	if (len > 0 && s[len - 1] == '=')
		pad = s[len - 2] == '=' ? 2 : 1;
	for (size_t i = 0; i < len; i += 4) {
		size_t skip = i + 4 == len ? pad : 0;
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++) {
			int x = k < 4 - skip ? value(s[i + k]) : 0;

			if (x < 0)
				return -EINVAL;
			v = v << 6 | (uint32_t)x;
		}
		/* Bits that no byte holds must be zero: one spelling only. */
		if (skip > 0 && v & ((1u << 8 * skip) - 1))
			return -EINVAL;
		for (size_t k = 0; k < 3 - skip; k++)
			out[n++] = (uint8_t)(v >> (16 - 8 * k));
	}
	return (ssize_t)n;
}
