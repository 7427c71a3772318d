/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal; see hex.h. */
#include "hex.h"

void hex_encode(const void *p, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[b[i] >> 4];
		out[2 * i + 1] = digits[b[i] & 15];
	}
	out[2 * len] = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hex_decode(const char *s, void *out, size_t len)
{
	uint8_t *b = out;

	for (size_t i = 0; i < len; i++) {
		int hi = nibble(s[2 * i]);
		int lo = hi < 0 ? -1 : nibble(s[2 * i + 1]);

		if (lo < 0)
			return -EINVAL;
		b[i] = (uint8_t)(hi << 4 | lo);
	}
	return 0;
}
