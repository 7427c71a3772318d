/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanner of the filter language. Works on bytes: everything beyond ASCII is a
 * character of a value (containerd leaves out the few that are not graphic).
 */
#include "filter_scan.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

static bool is_field(int c)
{
	return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
	       (c >= 'a' && c <= 'z');
}

static bool is_space(int c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_value(int c)
{
	return c > ' ' && c != 0x7f && c != ',';
}

static bool is_operator(int c)
{
	return c == '=' || c == '!' || c == '~';
}

static int digit_value(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 16;
}

int filter_peek(const struct scanner *sc)
{
	unsigned char c = (unsigned char)sc->s[sc->pos];

	return c ? c : SCAN_EOF;
}

static int next(struct scanner *sc)
{
	int c = filter_peek(sc);

	if (c != SCAN_EOF)
		sc->pos++;
	return c;
}

static bool scan_digits(struct scanner *sc, int base, int n)
{
	for (; n > 0; n--)
		if (digit_value(next(sc)) >= base)
			return false;
	return true;
}

static bool scan_escape(struct scanner *sc, int quote)
{
	int c = next(sc);

	if (c == quote)
		return true;
	switch (c) {
	case 'a':
	case 'b':
	case 'f':
	case 'n':
	case 'r':
	case 't':
	case 'v':
	case '\\':
		return true;
	case '0' ... '7':
		return scan_digits(sc, 8, 2);
	case 'x':
		return scan_digits(sc, 16, 2);
	case 'u':
		return scan_digits(sc, 16, 4);
	case 'U':
		return scan_digits(sc, 16, 8);
	default:
		return false;
	}
}

static enum token_kind scan_quoted(struct scanner *sc, int quote)
{
	for (;;) {
		int c = next(sc);

		if (c == quote)
			return TOKEN_QUOTED;
		if (c == SCAN_EOF || c == '\n') {
			sc->error = "quoted literal not terminated";
			return TOKEN_ILLEGAL;
		}
		if (c == '\\' && !scan_escape(sc, quote)) {
			sc->error = "illegal escape sequence";
			return TOKEN_ILLEGAL;
		}
	}
}

static void skip_while(struct scanner *sc, bool (*is)(int c))
{
	while (is(filter_peek(sc)))
		sc->pos++;
}

static enum token_kind scan_from(struct scanner *sc, int c)
{
	if (c == SCAN_EOF)
		return TOKEN_EOF;
	if (c == '"' || c == '/' || c == '|')
		return scan_quoted(sc, c);
	if (c == ',' || c == '.') {
		sc->want_value = false;
		return TOKEN_SEPARATOR;
	}
	if (is_operator(c)) {
		skip_while(sc, is_operator);
		sc->want_value = true;
		return TOKEN_OPERATOR;
	}
	if (sc->want_value) {
		skip_while(sc, is_value);
		sc->want_value = false;
		return TOKEN_VALUE;
	}
	if (is_field(c)) {
		skip_while(sc, is_field);
		return TOKEN_FIELD;
	}
	return TOKEN_ILLEGAL;
}

struct token filter_scan(struct scanner *sc)
{
	struct token t;

	skip_while(sc, is_space);
	t.pos = sc->pos;
	t.kind = scan_from(sc, next(sc));
	t.len = sc->pos - t.pos;
	return t;
}

/* ---- quoted text ---- */

static int add_byte(struct buf *out, uint32_t v)
{
	uint8_t b = (uint8_t)v;

	return v == 0 || v > 255 ? -EINVAL : buf_add(out, &b, 1);
}

/* As Go's utf8.EncodeRune: what is no character becomes U+FFFD. */
static int add_char(struct buf *out, uint32_t v)
{
	uint8_t b[4];

	if (v == 0 || v > 0x10ffff)
		return -EINVAL;
	if (v >= 0xd800 && v <= 0xdfff)
		v = 0xfffd;
	return buf_add(out, b, utf8_encode(v, b));
}

/* @n digits at *@p, not beyond @end. */
static int take_digits(const char **p, const char *end, int base, int n,
		       uint32_t *ret)
{
	uint32_t v = 0;

	for (; n > 0; n--) {
		int d = *p < end ? digit_value((unsigned char)**p) : 16;

		if (d >= base)
			return -EINVAL;
		v = v * (uint32_t)base + (uint32_t)d; /* ≤ 8 hex digits */
		(*p)++;
	}
	*ret = v;
	return 0;
}

/* *@p stands behind the backslash. */
static int unquote_escape(const char **p, const char *end, char quote,
			  struct buf *out)
{
	static const char names[] = "abfnrtv\\";
	static const char values[] = "\a\b\f\n\r\t\v\\";
	const char *hit;
	uint32_t v;
	char c;

	if (*p == end)
		return -EINVAL;
	c = *(*p)++;
	hit = c ? strchr(names, c) : NULL;
	if (hit)
		return add_byte(out, (unsigned char)values[hit - names]);
	if (c == quote)
		return add_byte(out, (unsigned char)c);
	if (c >= '0' && c <= '7') {
		(*p)--;
		if (take_digits(p, end, 8, 3, &v) < 0)
			return -EINVAL;
		return add_byte(out, v);
	}
	if (c == 'x')
		return take_digits(p, end, 16, 2, &v) < 0 ? -EINVAL
							  : add_byte(out, v);
	if (c != 'u' && c != 'U')
		return -EINVAL;
	if (take_digits(p, end, 16, c == 'u' ? 4 : 8, &v) < 0)
		return -EINVAL;
	return add_char(out, v);
}

int filter_unquote(const char *s, size_t len, struct buf *out)
{
	const char *p, *end;
	char quote;

	if (len < 2 || s[0] != s[len - 1])
		return -EINVAL;
	quote = s[0];
	end = s + len - 1;
	for (p = s + 1; p < end;) {
		char c = *p++;
		int r;

		if (c == quote || c == '\n')
			return -EINVAL;
		r = c == '\\' ? unquote_escape(&p, end, quote, out)
			      : buf_add(out, &c, 1);
		if (r < 0)
			return r;
	}
	return 0;
}
