/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the ends of the values in a table of contents; see toc_scan.h. Owns the
 * buffer of the one value that is being collected, and nothing else. Never
 * looks inside a value further than strings and brackets demand.
 */
#include "snapshotter/formats/toc_scan.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define KEY_MAX 255u

enum state {
	AT_START, /* before the outer bracket */
	AT_KEY, /* behind it: a key, or its end */
	AT_NEXT_KEY, /* behind a comma */
	AT_COLON,
	AT_VALUE,
	AT_COMMA, /* behind a value of the outer object */
	AT_ENTRY, /* in the list: an entry, or its end */
	AT_NEXT_ENTRY,
	AT_ENTRY_COMMA,
	AT_END, /* only white space may follow */
	IN_VALUE, /* collecting */
};

enum what { WHAT_KEY, WHAT_MEMBER, WHAT_ENTRY };

struct toc_scan {
	const struct toc_scan_ops *ops;
	void *ctx;
	enum state state;
	enum what what; /* is being collected */
	struct buf buf;
	bool in_string, escaped, scalar;
	bool failed, seen_entries;
	unsigned depth;
	uint8_t braces; /* bit per depth: 1 is a brace, 0 a bracket */
	uint32_t n_entries;
	uint64_t pos; /* of the byte being looked at */
	char key[KEY_MAX + 1];
};

int toc_scan_new(const struct toc_scan_ops *ops, void *ctx,
		 struct toc_scan **ret)
{
	struct toc_scan *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = ops;
	t->ctx = ctx;
	*ret = t;
	return 0;
}

void toc_scan_free(struct toc_scan *t)
{
	if (!t)
		return;
	buf_release(&t->buf);
	free(t);
}

static int bad(const struct toc_scan *t, struct err *e, const char *reason)
{
	return err_set(e, ERR_CORRUPT, "toc: %s at byte %" PRIu64, reason,
		       t->pos);
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* ---- one value ---- */

static void begin(struct toc_scan *t, enum what what)
{
	t->state = IN_VALUE;
	t->what = what;
	t->buf.len = 0;
	t->depth = 0;
	t->in_string = t->escaped = t->scalar = false;
}

static int end_key(struct toc_scan *t, struct err *e)
{
	size_t len = t->buf.len - 2; /* without the quotes */

	/* An escaped key could spell "entries" twice; no writer has one. */
	if (len > KEY_MAX || memchr(t->buf.p, '\\', t->buf.len))
		return bad(t, e, "a key that is too long or has escapes");
	memcpy(t->key, t->buf.p + 1, len);
	t->key[len] = '\0';
	t->state = AT_COLON;
	return 0;
}

static int end_value(struct toc_scan *t, struct err *e)
{
	const char *text = (const char *)t->buf.p;

	switch (t->what) {
	case WHAT_KEY:
		return end_key(t, e);
	case WHAT_MEMBER:
		t->state = AT_COMMA;
		return t->ops->member(t->ctx, t->key, text, t->buf.len, e);
	case WHAT_ENTRY:
		break;
	}
	t->state = AT_ENTRY_COMMA;
	if (t->n_entries++ >= TOC_ENTRIES_MAX)
		return err_set(e, ERR_UNSUPPORTED, "toc: more than %u entries",
			       TOC_ENTRIES_MAX);
	return t->ops->entry(t->ctx, text, t->buf.len, e);
}

static int open_bracket(struct toc_scan *t, uint8_t c, struct err *e)
{
	uint8_t bit = (uint8_t)(1u << t->depth);

	if (t->depth >= TOC_DEPTH_MAX)
		return bad(t, e, "values nested too deeply");
	if (c == '{')
		t->braces |= bit;
	else
		t->braces &= (uint8_t)~bit;
	t->depth++;
	return 0;
}

static int close_bracket(struct toc_scan *t, uint8_t c, struct err *e)
{
	bool brace;

	if (t->depth == 0)
		return bad(t, e, "a bracket that was not opened");
	t->depth--;
	brace = t->braces >> t->depth & 1;
	if (brace != (c == '}'))
		return bad(t, e, "brackets that do not match");
	return 0;
}

static int string_byte(struct toc_scan *t, uint8_t c, bool *ret_last,
		       struct err *e)
{
	if (c < 0x20)
		return bad(t, e, "a control character in a string");
	if (t->escaped)
		t->escaped = false;
	else if (c == '\\')
		t->escaped = true;
	else if (c == '"') {
		t->in_string = false;
		*ret_last = t->depth == 0;
	}
	return 0;
}

/* Looks at one byte of a value that is not a bare word. */
static int value_byte(struct toc_scan *t, uint8_t c, bool *ret_last,
		      struct err *e)
{
	int r = 0;

	*ret_last = false;
	if (t->in_string)
		return string_byte(t, c, ret_last, e);
	switch (c) {
	case '"':
		t->in_string = true;
		break;
	case '{':
	case '[':
		r = open_bracket(t, c, e);
		break;
	case '}':
	case ']':
		r = close_bracket(t, c, e);
		*ret_last = t->depth == 0;
		break;
	case '\0':
		r = bad(t, e, "a NUL byte");
		break;
	default:
		break;
	}
	return r;
}

/* Collects from @p until the value or the input ends. */
static int collect(struct toc_scan *t, const uint8_t *p, size_t len,
		   size_t *ret_used, struct err *e)
{
	size_t n = 0;
	bool last = false;

	for (; n < len && !last; n++, t->pos++) {
		if (t->scalar &&
		    (is_space(p[n]) || strchr(",}]", p[n]) != NULL))
			break; /* this byte is no part of it */
		if (!t->scalar && value_byte(t, p[n], &last, e) < 0)
			return -1;
	}
	if (t->buf.len + n > TOC_VALUE_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "toc: a value of more than %u bytes at byte "
			       "%" PRIu64,
			       TOC_VALUE_MAX, t->pos);
	if (buf_add(&t->buf, p, n) < 0)
		return err_sys(e, -ENOMEM, "toc: value at byte %" PRIu64,
			       t->pos);
	*ret_used = n;
	if (!last && (!t->scalar || n == len))
		return 0;
	return end_value(t, e);
}

/* ---- between values: each looks at one byte that is not white space, and
 * sets *ret_again when that byte is the first of a value ---- */

static int at_value(struct toc_scan *t, uint8_t c, bool *ret_again,
		    struct err *e)
{
	if (!strcmp(t->key, "entries")) {
		if (c != '[' || t->seen_entries)
			return bad(t, e,
				   "\"entries\" is no list, or is there "
				   "twice,");
		t->seen_entries = true;
		t->state = AT_ENTRY;
		return 0;
	}
	if (c == ',' || c == '}' || c == ']' || c == ':')
		return bad(t, e, "no value");
	begin(t, WHAT_MEMBER);
	t->scalar = c != '"' && c != '{' && c != '[';
	*ret_again = true;
	return 0;
}

static int at_entry(struct toc_scan *t, uint8_t c, bool *ret_again,
		    struct err *e)
{
	if (c == ']' && t->state == AT_ENTRY) {
		t->state = AT_COMMA;
		return 0;
	}
	if (c != '{')
		return bad(t, e, "an entry that is no object");
	begin(t, WHAT_ENTRY);
	*ret_again = true;
	return 0;
}

static int at_key(struct toc_scan *t, uint8_t c, bool *ret_again, struct err *e)
{
	if (c == '}' && t->state == AT_KEY) {
		t->state = AT_END;
		return 0;
	}
	if (c != '"')
		return bad(t, e, "no key");
	begin(t, WHAT_KEY);
	*ret_again = true;
	return 0;
}

static int structural(struct toc_scan *t, uint8_t c, bool *ret_again,
		      struct err *e)
{
	switch (t->state) {
	case AT_START:
		t->state = AT_KEY;
		return c == '{' ? 0 : bad(t, e, "no object");
	case AT_KEY:
	case AT_NEXT_KEY:
		return at_key(t, c, ret_again, e);
	case AT_COLON:
		t->state = AT_VALUE;
		return c == ':' ? 0 : bad(t, e, "no colon");
	case AT_VALUE:
		return at_value(t, c, ret_again, e);
	case AT_COMMA:
		t->state = c == ',' ? AT_NEXT_KEY : AT_END;
		return c == ',' || c == '}' ? 0 : bad(t, e, "no comma");
	case AT_ENTRY:
	case AT_NEXT_ENTRY:
		return at_entry(t, c, ret_again, e);
	case AT_ENTRY_COMMA:
		t->state = c == ',' ? AT_NEXT_ENTRY : AT_COMMA;
		return c == ',' || c == ']' ? 0 : bad(t, e, "no comma");
	case AT_END:
	case IN_VALUE:
		break;
	}
	return bad(t, e, "something behind the end");
}

/* One byte outside values. The first byte of a value is not used up. */
static int between(struct toc_scan *t, uint8_t c, size_t *ret_used,
		   struct err *e)
{
	bool again = false;

	if (!is_space(c) && structural(t, c, &again, e) < 0)
		return -1;
	if (!again)
		t->pos++;
	*ret_used = again ? 0 : 1;
	return 0;
}

int toc_scan_feed(struct toc_scan *t, const void *p, size_t len, struct err *e)
{
	const uint8_t *b = p;

	while (len > 0) {
		size_t used = 0;
		int r;

		if (t->failed)
			return err_set(e, ERR_INTERNAL,
				       "toc: fed after a failure");
		if (t->state == IN_VALUE)
			r = collect(t, b, len, &used, e);
		else
			r = between(t, *b, &used, e);
		t->failed = r < 0;
		if (r < 0)
			return -1;
		b += used;
		len -= used;
	}
	return 0;
}

int toc_scan_finish(struct toc_scan *t, struct err *e)
{
	if (t->failed)
		return err_set(e, ERR_INTERNAL, "toc: ended after a failure");
	t->failed = true;
	if (t->state != AT_END)
		return bad(t, e, "ends too early");
	if (!t->seen_entries)
		return bad(t, e, "no \"entries\"");
	return 0;
}
