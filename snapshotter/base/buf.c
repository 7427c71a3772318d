/* SPDX-License-Identifier: Apache-2.0 */
/* Growing byte buffer; see buf.h. */
#include "buf.h"

#include <stdarg.h>
#include <string.h>

#include "utf8.h"

void buf_release(struct buf *b)
{
	free(b->p);
	memset(b, 0, sizeof(*b));
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need = b->len + more + 1, cap = b->cap ? b->cap : 64;
	uint8_t *p;

	if (need < more || b->failed)
		goto fail;
	if (need <= b->cap)
		return 0;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	p = realloc(b->p, cap);
	if (!p)
		goto fail;
	b->p = p;
	b->cap = cap;
	return 0;
fail:
	b->failed = true;
	return -ENOMEM;
}

int buf_add(struct buf *b, const void *p, size_t len)
{
	if (buf_reserve(b, len) < 0)
		return -ENOMEM;
	if (len)
		memcpy(b->p + b->len, p, len);
	b->len += len;
	b->p[b->len] = '\0';
	return 0;
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || buf_reserve(b, (size_t)n) < 0) {
		b->failed = true;
		return -ENOMEM;
	}
	va_start(ap, fmt);
	(void)vsnprintf((char *)b->p + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

int buf_add_json(struct buf *b, const char *s)
{
	const uint8_t *u = (const uint8_t *)s;

	(void)buf_add(b, "\"", 1);
	while (*u) {
		size_t n = utf8_len(u, strnlen(s, 4));

		if (n == 0) {
			(void)buf_adds(b, "\\ufffd");
			u++;
			continue;
		}
		if (*u == '"' || *u == '\\')
			(void)buf_addf(b, "\\%c", *u);
		else if (*u < 0x20)
			(void)buf_addf(b, "\\u%04x", *u);
		else
			(void)buf_add(b, u, n);
		u += n;
	}
	(void)buf_add(b, "\"", 1);
	return b->failed ? -ENOMEM : 0;
}
