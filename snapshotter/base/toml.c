/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TOML reader; see toml.h. One pass over text that check_text() has found to
 * be UTF-8 without NUL, so that '\0' can stand for the end. Every node hangs
 * in the tree from the moment it exists: on any error the root is freed, and
 * nothing else is to be cleaned up. Depth and number of nodes are bounded,
 * which bounds recursion and the linear search for duplicates.
 */
#include "toml.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "buf.h"
#include "utf8.h"

DEFINE_OWNED(str, char *, free)

struct parser {
	const char *name;
	const char *p, *end;
	unsigned line;
	unsigned n_values;
	struct toml *root;
	struct toml *section; /* where "key = value" lines go */
	struct err *e;
};

static int parse_value(struct parser *ps, struct toml *v);

printf_like(2, 3) static int fail(struct parser *ps, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(ps->e, ERR_INVALID, "%s:%u: %s", ps->name, ps->line,
		       text);
}

static int no_memory(struct parser *ps)
{
	return err_sys(ps->e, -ENOMEM, "%s:%u", ps->name, ps->line);
}

/* ---- characters ---- */

static char at(const struct parser *ps)
{
	return ps->p < ps->end ? *ps->p : '\0';
}

static bool eat(struct parser *ps, char c)
{
	if (at(ps) != c)
		return false;
	ps->p++;
	return true;
}

static bool eat_text(struct parser *ps, const char *s)
{
	size_t n = strlen(s);

	if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, s, n) != 0)
		return false;
	ps->p += n;
	return true;
}

static void skip_blanks(struct parser *ps)
{
	while (at(ps) == ' ' || at(ps) == '\t')
		ps->p++;
}

static void skip_comment(struct parser *ps)
{
	if (at(ps) == '#')
		while (ps->p < ps->end && at(ps) != '\n')
			ps->p++;
}

/* A line end, if there is one. check_text() allows CR only before LF. */
static bool eat_newline(struct parser *ps)
{
	(void)eat(ps, '\r');
	if (!eat(ps, '\n'))
		return false;
	ps->line++;
	return true;
}

/* Inside an array, lines and comments are blanks. */
static void skip_lines(struct parser *ps)
{
	do {
		skip_blanks(ps);
		skip_comment(ps);
	} while (eat_newline(ps));
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_bare(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

/* Value of a digit in any base up to 16, or 16. */
static unsigned digit_value(char c)
{
	if (is_digit(c))
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a') + 10;
	if (c >= 'A' && c <= 'F')
		return (unsigned)(c - 'A') + 10;
	return 16;
}

/* ---- nodes ---- */

void toml_free(struct toml *t)
{
	struct toml *kid, *next;

	if (!t)
		return;
	if (t->type == TOML_STRING)
		free(t->str);
	if (t->type == TOML_ARRAY || t->type == TOML_TABLE) {
		for (kid = t->kids.first; kid; kid = next) {
			next = kid->next;
			toml_free(kid);
		}
	}
	free(t->key);
	free(t);
}

static struct toml *find(const struct toml *table, const char *key)
{
	for (struct toml *k = table->kids.first; k; k = k->next)
		if (!strcmp(k->key, key))
			return k;
	return NULL;
}

const struct toml *toml_find(const struct toml *table, const char *key)
{
	return table->type == TOML_TABLE ? find(table, key) : NULL;
}

const char *toml_type_name(enum toml_type type)
{
	static const char *const names[] = {
		[TOML_STRING] = "a string",
		[TOML_INT] = "an integer",
		[TOML_BOOL] = "true or false",
		[TOML_ARRAY] = "an array",
		[TOML_TABLE] = "a table",
		[TOML_FLOAT] = "a number with a point",
	};

	return names[type];
}

/* Appends an empty node. Consumes @key (NULL in arrays). */
static struct toml *add(struct parser *ps, struct toml *parent, char *key,
			enum toml_type type)
{
	owned(str) char *k = key;
	struct toml *t;

	if (parent->depth >= TOML_DEPTH_MAX) {
		(void)fail(ps, "nested deeper than %d levels", TOML_DEPTH_MAX);
		return NULL;
	}
	if (++ps->n_values > TOML_VALUES_MAX) {
		(void)fail(ps, "more than %d values", TOML_VALUES_MAX);
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		(void)no_memory(ps);
		return NULL;
	}
	t->key = take_ptr(&k);
	t->type = type;
	t->line = ps->line;
	t->depth = parent->depth + 1;
	if (parent->kids.last)
		parent->kids.last->next = t;
	else
		parent->kids.first = t;
	parent->kids.last = t;
	parent->kids.n++;
	return t;
}

/* ---- strings ---- */

static int add_utf8(struct buf *b, uint32_t c)
{
	uint8_t u[4];

	return buf_add(b, u, utf8_encode(c, u));
}

/* The @n hexadecimal digits behind \u or \U. */
static int parse_unicode(struct parser *ps, unsigned n, struct buf *out)
{
	uint32_t c = 0;

	while (n--) {
		unsigned d = digit_value(at(ps));

		if (d == 16)
			return fail(ps, "bad \\u escape in a string");
		c = c << 4 | d;
		ps->p++;
	}
	if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return fail(ps, "escape U+%04X is not allowed in a string",
			    (unsigned)c);
	return add_utf8(out, c) < 0 ? no_memory(ps) : 0;
}

static int parse_escape(struct parser *ps, struct buf *out)
{
	static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
	char c = at(ps);
	const char *hit = c ? strchr(from, c) : NULL;

	if (c == 'u' || c == 'U') {
		ps->p++;
		return parse_unicode(ps, c == 'u' ? 4 : 8, out);
	}
	if (!hit)
		return fail(ps, "unknown escape in a string");
	ps->p++;
	return buf_add(out, &to[hit - from], 1) < 0 ? no_memory(ps) : 0;
}

/* A quoted string, of either kind; the opening quote is next. */
static int parse_string(struct parser *ps, char **ret)
{
	owned(buf) struct buf out = { 0 };
	char quote = *ps->p;

	if (eat_text(ps, "\"\"\"") || eat_text(ps, "'''"))
		return fail(ps, "multi-line strings are not supported");
	ps->p++;
	while (!eat(ps, quote)) {
		char c = at(ps);

		if (c == '\0' || c == '\n' || c == '\r')
			return fail(ps, "string without closing %c", quote);
		ps->p++;
		if (c == '\\' && quote == '"') {
			if (parse_escape(ps, &out) < 0)
				return -1;
		} else if (buf_add(&out, &c, 1) < 0) {
			return no_memory(ps);
		}
	}
	/* An empty buffer has no memory yet. */
	if (buf_add(&out, "", 0) < 0)
		return no_memory(ps);
	*ret = (char *)out.p;
	out.p = NULL;
	return 0;
}

/* ---- keys ---- */

static int parse_key(struct parser *ps, char **ret)
{
	const char *start;

	skip_blanks(ps);
	start = ps->p;
	if (at(ps) == '"' || at(ps) == '\'') {
		if (parse_string(ps, ret) < 0)
			return -1;
		skip_blanks(ps);
		return 0;
	}
	while (is_bare(at(ps)))
		ps->p++;
	if (ps->p == start)
		return fail(ps, "a key is missing");
	*ret = strndup(start, (size_t)(ps->p - start));
	if (!*ret)
		return no_memory(ps);
	skip_blanks(ps);
	return 0;
}

/* One step on the way to a value (@origin DOTTED) or header (IMPLICIT).
 * Consumes @key. */
static struct toml *descend(struct parser *ps, struct toml *t, char *key,
			    enum toml_origin origin)
{
	owned(str) char *k = key;
	struct toml *kid = find(t, k);

	if (!kid) {
		kid = add(ps, t, take_ptr(&k), TOML_TABLE);
		if (kid)
			kid->origin = origin;
		return kid;
	}
	/* A header below [[x]] belongs to the element that came last. */
	if (kid->type == TOML_ARRAY && kid->origin == TOML_HEADER &&
	    origin == TOML_IMPLICIT)
		return kid->kids.last;
	if (kid->type == TOML_TABLE && kid->origin != TOML_CLOSED &&
	    (origin == TOML_IMPLICIT || kid->origin == TOML_DOTTED))
		return kid;
	if (kid->type == TOML_TABLE)
		(void)fail(ps, "table '%s' is complete since line %u", k,
			   kid->line);
	else
		(void)fail(ps,
			   "key '%s' has a value that is no table (line %u)", k,
			   kid->line);
	return NULL;
}

/* "a.b.c": tables for a and b, and the last key. */
static int parse_path(struct parser *ps, struct toml *t,
		      enum toml_origin origin, struct toml **ret_table,
		      char **ret_key)
{
	owned(str) char *key = NULL;

	if (parse_key(ps, &key) < 0)
		return -1;
	while (eat(ps, '.')) {
		t = descend(ps, t, take_ptr(&key), origin);
		if (!t || parse_key(ps, &key) < 0)
			return -1;
	}
	*ret_table = t;
	*ret_key = take_ptr(&key);
	return 0;
}

static int parse_pair(struct parser *ps, struct toml *table)
{
	owned(str) char *key = NULL;
	struct toml *parent, *v;
	const struct toml *old;

	if (parse_path(ps, table, TOML_DOTTED, &parent, &key) < 0)
		return -1;
	if (!eat(ps, '='))
		return fail(ps, "expected '=' behind key '%s'", key);
	old = find(parent, key);
	if (old)
		return fail(ps, "key '%s' is set twice (first in line %u)", key,
			    old->line);
	v = add(ps, parent, take_ptr(&key), TOML_BOOL);
	if (!v)
		return -1;
	skip_blanks(ps);
	return parse_value(ps, v);
}

/* ---- values ---- */

/* Digits of one base, single underscores between them allowed. */
static int parse_digits(struct parser *ps, unsigned base, bool negative,
			int64_t *ret)
{
	uint64_t max = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
	uint64_t v = 0;

	do {
		unsigned d = digit_value(at(ps));

		if (d >= base)
			return fail(ps, "not a number");
		for (; d < base; d = digit_value(at(ps))) {
			if (v > (max - d) / base)
				return fail(ps, "number out of range");
			v = v * base + d;
			ps->p++;
		}
	} while (eat(ps, '_'));
	*ret = negative ? -(int64_t)(v - (v != 0)) - (v != 0) : (int64_t)v;
	return 0;
}

/* What follows the digits that begin at @start: ".5", "e-3", ".5e3". */
static int parse_float(struct parser *ps, const char *start, struct toml *v)
{
	char text[64];
	size_t n = 0;
	int64_t ignored;

	/* The same rules for digits as in integers, and none that begins or
	 * ends with the point. Each part may be as long as an integer. */
	if (eat(ps, '.') && parse_digits(ps, 10, false, &ignored) < 0)
		return -1;
	if (eat(ps, 'e') || eat(ps, 'E')) {
		if (!eat(ps, '-'))
			(void)eat(ps, '+');
		if (parse_digits(ps, 10, false, &ignored) < 0)
			return -1;
	}
	for (const char *p = start; p < ps->p; p++) {
		if (*p == '_')
			continue;
		if (n + 1 == sizeof(text))
			return fail(ps, "number too long");
		text[n++] = *p;
	}
	text[n] = '\0';
	v->type = TOML_FLOAT;
	v->real = strtod(text, NULL);
	return isfinite(v->real) ? 0 : fail(ps, "number out of range");
}

static int parse_number(struct parser *ps, struct toml *v)
{
	const char *start = ps->p;
	bool negative = at(ps) == '-', sign = negative || at(ps) == '+';
	unsigned base = 10;

	if (sign)
		ps->p++;
	if (!sign && eat_text(ps, "0x"))
		base = 16;
	else if (!sign && eat_text(ps, "0o"))
		base = 8;
	else if (!sign && eat_text(ps, "0b"))
		base = 2;
	else if (at(ps) == '0' && ps->end - ps->p > 1 && is_digit(ps->p[1]))
		return fail(ps, "a number must not begin with 0");
	if (parse_digits(ps, base, negative, &v->num) < 0)
		return -1;
	v->type = TOML_INT;
	if (base == 10 && (at(ps) == '.' || at(ps) == 'e' || at(ps) == 'E') &&
	    parse_float(ps, start, v) < 0)
		return -1;
	if (at(ps) == '-' || at(ps) == ':')
		return fail(ps, "dates and times are not supported");
	return is_bare(at(ps)) ? fail(ps, "not a number") : 0;
}

static int parse_array(struct parser *ps, struct toml *v)
{
	v->type = TOML_ARRAY;
	v->kids.first = v->kids.last = NULL;
	v->kids.n = 0;
	v->origin = TOML_CLOSED;
	for (;;) {
		struct toml *kid;

		skip_lines(ps);
		if (eat(ps, ']'))
			return 0;
		if (!at(ps))
			return fail(ps, "array without closing ] (line %u)",
				    v->line);
		kid = add(ps, v, NULL, TOML_BOOL);
		if (!kid || parse_value(ps, kid) < 0)
			return -1;
		skip_lines(ps);
		if (!eat(ps, ',') && at(ps) != ']')
			return fail(ps, "expected ',' or ']' in an array");
	}
}

static int parse_inline_table(struct parser *ps, struct toml *v)
{
	v->type = TOML_TABLE;
	v->kids.first = v->kids.last = NULL;
	v->kids.n = 0;
	skip_blanks(ps);
	if (!eat(ps, '}')) {
		do {
			if (parse_pair(ps, v) < 0)
				return -1;
			skip_blanks(ps);
		} while (eat(ps, ','));
		if (!eat(ps, '}'))
			return fail(ps, "expected ',' or '}' in a table");
	}
	/* Only now: dotted keys inside may still meet in one table. */
	v->origin = TOML_CLOSED;
	return 0;
}

/* @v comes as a boolean, which owns nothing, until its value is known. */
static int parse_value(struct parser *ps, struct toml *v)
{
	char c = at(ps);
	char *s = NULL;

	if (c == '"' || c == '\'') {
		if (parse_string(ps, &s) < 0)
			return -1;
		v->type = TOML_STRING;
		v->str = s;
		return 0;
	}
	if (eat(ps, '['))
		return parse_array(ps, v);
	if (eat(ps, '{'))
		return parse_inline_table(ps, v);
	if (eat_text(ps, "true")) {
		v->flag = true;
		return is_bare(at(ps)) ? fail(ps, "not a value") : 0;
	}
	if (eat_text(ps, "false"))
		return is_bare(at(ps)) ? fail(ps, "not a value") : 0;
	if (is_digit(c) || c == '+' || c == '-')
		return parse_number(ps, v);
	if (c == '\0' || c == '\n' || c == '\r' || c == '#')
		return fail(ps, "a value is missing");
	if (eat_text(ps, "inf") || eat_text(ps, "nan"))
		return fail(ps, "infinity and NaN are not supported");
	return fail(ps, "not a value; strings want quotes");
}

/* ---- document ---- */

/* "[[x]]": one more table at the end of the array x. */
static int add_element(struct parser *ps, struct toml *parent, char **key)
{
	struct toml *t = find(parent, *key);

	if (t && (t->type != TOML_ARRAY || t->origin != TOML_HEADER))
		return fail(ps, "'%s' is defined twice (first in line %u)",
			    *key, t->line);
	if (!t) {
		t = add(ps, parent, take_ptr(key), TOML_ARRAY);
		if (!t)
			return -1;
		t->origin = TOML_HEADER;
	}
	t = add(ps, t, NULL, TOML_TABLE);
	if (!t)
		return -1;
	t->origin = TOML_HEADER;
	ps->section = t;
	return 0;
}

static int parse_header(struct parser *ps)
{
	owned(str) char *key = NULL;
	struct toml *parent, *t;
	bool element = eat(ps, '[');

	if (parse_path(ps, ps->root, TOML_IMPLICIT, &parent, &key) < 0)
		return -1;
	if (!eat_text(ps, element ? "]]" : "]"))
		return fail(ps, "expected '%s' behind a table's name",
			    element ? "]]" : "]");
	if (element)
		return add_element(ps, parent, &key);
	t = find(parent, key);
	if (t && (t->type != TOML_TABLE || t->origin != TOML_IMPLICIT))
		return fail(ps, "'%s' is defined twice (first in line %u)", key,
			    t->line);
	if (!t)
		t = add(ps, parent, take_ptr(&key), TOML_TABLE);
	if (!t)
		return -1;
	t->origin = TOML_HEADER;
	t->line = ps->line;
	ps->section = t;
	return 0;
}

static int parse_line(struct parser *ps)
{
	int r = 0;

	skip_blanks(ps);
	if (eat(ps, '['))
		r = parse_header(ps);
	else if (at(ps) != '\0' && at(ps) != '\r' && at(ps) != '\n' &&
		 at(ps) != '#')
		r = parse_pair(ps, ps->section);
	if (r < 0)
		return -1;
	skip_blanks(ps);
	skip_comment(ps);
	if (ps->p < ps->end && !eat_newline(ps))
		return fail(ps, "unexpected text at the end of the line");
	return 0;
}

/* UTF-8 with no control characters but tab and line ends. */
static int check_text(struct parser *ps)
{
	const uint8_t *p = (const uint8_t *)ps->p;
	size_t left = (size_t)(ps->end - ps->p);

	while (left) {
		size_t n = utf8_len(p, left);

		if (n == 0)
			return fail(ps, "text is not UTF-8");
		if (*p == '\n')
			ps->line++;
		else if (*p == '\r' && (left < 2 || p[1] != '\n'))
			return fail(ps, "carriage return within a line");
		else if ((*p < ' ' && *p != '\t' && *p != '\r') || *p == 0x7f)
			return fail(ps, "control character 0x%02x", *p);
		p += n;
		left -= n;
	}
	ps->line = 1;
	return 0;
}

int toml_parse(const char *name, const char *text, size_t len,
	       struct toml **ret, struct err *e)
{
	owned(toml) struct toml *root = calloc(1, sizeof(*root));
	struct parser ps = {
		.name = name,
		.p = text,
		.end = text + len,
		.line = 1,
		.root = root,
		.section = root,
		.e = e,
	};

	if (!root)
		return no_memory(&ps);
	root->type = TOML_TABLE;
	root->origin = TOML_HEADER;
	root->line = 1;
	if (len > TOML_SIZE_MAX)
		return err_set(e, ERR_INVALID, "%s: larger than %u bytes", name,
			       TOML_SIZE_MAX);
	if (check_text(&ps) < 0)
		return -1;
	while (ps.p < ps.end)
		if (parse_line(&ps) < 0)
			return -1;
	*ret = take_ptr(&root);
	return 0;
}
