/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser and matcher of the filter language; see filter.h. A scanner makes
 * tokens exactly as containerd's does, quirks included: whether a run of
 * characters is a field or a value depends on an operator having been seen.
 * Input is foreign: every length is bounded by the text itself.
 */
#include "filter.h"

#include <ctype.h>
#include <regex.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "snapshotter/filter_scan.h"

#define REGEX_MAX 512 /* bytes; bounds regcomp()'s recursion as well */
#define REGEX_COPIES_MAX 4096 /* product over all repetitions */

enum op { OP_PRESENT, OP_EQUAL, OP_NOT_EQUAL, OP_MATCHES };

enum subject { SUBJ_NONE, SUBJ_NAME, SUBJ_PARENT, SUBJ_KIND, SUBJ_LABEL };

struct selector {
	enum subject subject;
	enum op op;
	char *label; /* key of SUBJ_LABEL */
	char *value;
	regex_t re;
	bool has_re;
};

/* One filter text: all of these must match. */
struct filter {
	struct selector *v;
	size_t n;
};

struct filters {
	struct filter *v;
	size_t n;
};

static void selector_release(struct selector *s)
{
	free(s->label);
	free(s->value);
	if (s->has_re)
		regfree(&s->re);
	*s = (struct selector){ 0 };
}

void filters_free(struct filters *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++) {
		for (size_t j = 0; j < f->v[i].n; j++)
			selector_release(&f->v[i].v[j]);
		free(f->v[i].v);
	}
	free(f->v);
	free(f);
}

/* ---- parser ---- */

static int bad_input(const struct scanner *sc, size_t pos, const char *what,
		     struct err *e)
{
	int near = 0;

	/* Whole characters only: the text goes into grpc-message. */
	while (near < 40 && sc->s[pos + (size_t)near])
		near++;
	while (near > 0 && (sc->s[pos + (size_t)near] & 0xc0) == 0x80)
		near--;
	return err_set(e, ERR_INVALID, "filter: %s at offset %zu: '%.*s'",
		       sc->error ? sc->error : what, pos, near, sc->s + pos);
}

static int no_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "filter");
}

static int unquote_token(const struct scanner *sc, const struct token *t,
			 bool alt_quotes, struct buf *out, struct err *e)
{
	int r;

	if (!alt_quotes && sc->s[t->pos] != '"')
		return bad_input(sc, t->pos, "this quote needs ~=", e);
	r = filter_unquote(sc->s + t->pos, t->len, out);
	if (r == -ENOMEM)
		return no_memory(e);
	if (r < 0)
		return bad_input(sc, t->pos, "bad quoted text", e);
	return 0;
}

static int parse_field(struct scanner *sc, struct buf *out, struct err *e)
{
	struct token t = filter_scan(sc);

	if (t.kind == TOKEN_QUOTED)
		return unquote_token(sc, &t, false, out, e);
	if (t.kind != TOKEN_FIELD)
		return bad_input(sc, t.pos, "expected field or quoted", e);
	if (buf_add(out, sc->s + t.pos, t.len) < 0)
		return no_memory(e);
	return 0;
}

static enum subject subject_of(const char *field)
{
	static const char *const names[] = {
		[SUBJ_NAME] = "name",
		[SUBJ_PARENT] = "parent",
		[SUBJ_KIND] = "kind",
		[SUBJ_LABEL] = "labels",
	};

	for (size_t i = SUBJ_NAME; i < ARRAY_LEN(names); i++)
		if (!strcmp(field, names[i]))
			return (enum subject)i;
	return SUBJ_NONE;
}

/* The first field is the subject, the rest, joined with dots, a label's key. */
static int parse_path(struct scanner *sc, struct selector *s, struct err *e)
{
	owned(buf) struct buf first = { 0 };
	owned(buf) struct buf rest = { 0 };
	bool more = false;

	if (buf_adds(&first, "") < 0)
		return no_memory(e);
	if (parse_field(sc, &first, e) < 0)
		return -1;
	while (filter_peek(sc) == '.') {
		(void)filter_scan(sc);
		if (more && buf_adds(&rest, ".") < 0)
			return no_memory(e);
		if (parse_field(sc, &rest, e) < 0)
			return -1;
		more = true;
	}
	s->subject = subject_of((const char *)first.p);
	if (s->subject != SUBJ_LABEL)
		return 0;
	s->label = strdup(rest.p ? (const char *)rest.p : "");
	return s->label ? 0 : no_memory(e);
}

static int parse_op(struct scanner *sc, enum op *ret, struct err *e)
{
	struct token t = filter_scan(sc);
	const char *p = sc->s + t.pos;

	if (t.kind != TOKEN_OPERATOR)
		return bad_input(sc, t.pos, "expected an operator (== != ~=)",
				 e);
	if (t.len == 2 && !memcmp(p, "==", 2))
		*ret = OP_EQUAL;
	else if (t.len == 2 && !memcmp(p, "!=", 2))
		*ret = OP_NOT_EQUAL;
	else if (t.len == 2 && !memcmp(p, "~=", 2))
		*ret = OP_MATCHES;
	else
		return bad_input(sc, t.pos, "unsupported operator", e);
	return 0;
}

static int parse_value(struct scanner *sc, struct selector *s, struct err *e)
{
	owned(buf) struct buf out = { 0 };
	struct token t = filter_scan(sc);

	if (buf_adds(&out, "") < 0)
		return no_memory(e);
	switch (t.kind) {
	case TOKEN_VALUE:
	case TOKEN_FIELD:
		if (buf_add(&out, sc->s + t.pos, t.len) < 0)
			return no_memory(e);
		break;
	case TOKEN_QUOTED:
		if (unquote_token(sc, &t, s->op == OP_MATCHES, &out, e) < 0)
			return -1;
		break;
	default:
		return bad_input(sc, t.pos, "expected value or quoted", e);
	}
	s->value = strdup((const char *)out.p);
	return s->value ? 0 : no_memory(e);
}

/* Copies that the repetition at *@p makes of what stands before it: "+" one
 * more, "{n,m}" the larger number. *@p moves to its last character. */
static unsigned long repetition(const char **p)
{
	unsigned long most = 1;

	if (**p == '+')
		return 2;
	while (**p && **p != '}') {
		if (isdigit((unsigned char)**p)) {
			char *end;
			unsigned long n = strtoul(*p, &end, 10);

			most = n > most ? n : most;
			*p = end;
		} else {
			(*p)++;
		}
	}
	if (!**p)
		(*p)--;
	return most;
}

/*
 * glibc's regcomp() expands "+" and "{n,m}" by copying, so that "a+++…" takes
 * 2^n nodes, and matches backreferences in exponential time: keep all of it
 * away. The product assumes that each repetition encloses all others. One
 * repetition right behind another is refused altogether, as Go does.
 */
static bool regex_is_tame(const char *p)
{
	unsigned long copies = 1;
	const char *last = NULL; /* character of a repetition */

	if (strlen(p) > REGEX_MAX)
		return false;
	for (; *p; p++) {
		if (strchr("*+?{", *p)) {
			if (last && last + 1 == p)
				return false;
			last = p;
		}
		if (p[0] == '\\' && p[1]) {
			p++;
			if (*p >= '1' && *p <= '9')
				return false;
		} else if (*p == '{' || *p == '+') {
			unsigned long n = repetition(&p);

			if (n > REGEX_COPIES_MAX / copies)
				return false;
			copies *= n;
			last = p;
		}
	}
	return true;
}

static int compile(struct selector *s, struct err *e)
{
	char why[80];
	int r;

	if (!regex_is_tame(s->value))
		return err_set(
			e, ERR_INVALID,
			"filter: expression with backreferences, too long or with too many repetitions: '%.60s'",
			s->value);
	r = regcomp(&s->re, s->value, REG_EXTENDED | REG_NOSUB);
	if (r) {
		(void)regerror(r, &s->re, why, sizeof(why));
		return err_set(e, ERR_INVALID, "filter: bad expression: %s",
			       why);
	}
	s->has_re = true;
	return 0;
}

static int parse_selector(struct scanner *sc, struct selector *s, struct err *e)
{
	int next;

	if (parse_path(sc, s, e) < 0)
		return -1;
	next = filter_peek(sc);
	if (next == ',' || next == SCAN_EOF)
		return 0; /* OP_PRESENT */
	if (parse_op(sc, &s->op, e) < 0 || parse_value(sc, s, e) < 0)
		return -1;
	return s->op == OP_MATCHES ? compile(s, e) : 0;
}

static int add_selector(struct scanner *sc, struct filter *f, struct err *e)
{
	struct selector *bigger;

	bigger = reallocarray(f->v, f->n + 1, sizeof(*bigger));
	if (!bigger)
		return no_memory(e);
	f->v = bigger;
	f->v[f->n] = (struct selector){ 0 };
	f->n++;
	return parse_selector(sc, &f->v[f->n - 1], e);
}

static int parse_one(const char *text, struct filter *f, struct err *e)
{
	struct scanner sc = { .s = text };

	if (!*text)
		return 0;
	if (!utf8_is_valid(text, strlen(text)))
		return err_set(e, ERR_INVALID, "filter: not UTF-8");
	for (;;) {
		int next;

		if (add_selector(&sc, f, e) < 0)
			return -1;
		next = filter_peek(&sc);
		if (next == SCAN_EOF)
			return 0;
		if (next != ',')
			return bad_input(&sc, sc.pos, "unexpected input", e);
		(void)filter_scan(&sc);
	}
}

int filters_parse(const char *const *texts, size_t n, struct filters **ret,
		  struct err *e)
{
	owned(filters) struct filters *f = calloc(1, sizeof(*f));

	if (!f)
		return no_memory(e);
	f->v = calloc(n ? n : 1, sizeof(*f->v));
	if (!f->v)
		return no_memory(e);
	for (size_t i = 0; i < n; i++) {
		f->n++;
		if (parse_one(texts[i], &f->v[i], e) < 0)
			return -1;
	}
	*ret = take_ptr(&f);
	return 0;
}

/* ---- matcher ---- */

static const char *kind_text(enum snap_kind k)
{
	switch (k) {
	case SNAP_KIND_ACTIVE:
		return "active";
	case SNAP_KIND_VIEW:
		return "view";
	case SNAP_KIND_COMMITTED:
		return "committed";
	default:
		return NULL;
	}
}

/* NULL: not present. A snapshot without parent has one, "". */
static const char *subject_value(const struct selector *s,
				 const struct snap *sp)
{
	switch (s->subject) {
	case SUBJ_NAME:
		return sp->name;
	case SUBJ_PARENT:
		return sp->parent;
	case SUBJ_KIND:
		return kind_text(sp->kind);
	case SUBJ_LABEL:
		return labels_get(&sp->labels, s->label);
	case SUBJ_NONE:
	default:
		return NULL;
	}
}

static bool selector_match(const struct selector *s, const struct snap *sp)
{
	const char *v = subject_value(s, sp);

	switch (s->op) {
	case OP_PRESENT:
		return v;
	case OP_EQUAL:
		return v && !strcmp(v, s->value);
	case OP_NOT_EQUAL:
		return strcmp(v ? v : "", s->value) != 0;
	case OP_MATCHES:
	default:
		return !regexec(&s->re, v ? v : "", 0, NULL, 0);
	}
}

static bool filter_match(const struct filter *f, const struct snap *sp)
{
	for (size_t i = 0; i < f->n; i++)
		if (!selector_match(&f->v[i], sp))
			return false;
	return true;
}

bool filters_match(const struct filters *f, const struct snap *sp)
{
	if (!f->n)
		return true;
	for (size_t i = 0; i < f->n; i++)
		if (filter_match(&f->v[i], sp))
			return true;
	return false;
}

const char *filters_ref(const struct filters *f)
{
	if (f->n != 1)
		return NULL;
	for (size_t i = 0; i < f->v[0].n; i++) {
		const struct selector *s = &f->v[0].v[i];

		if (s->subject == SUBJ_LABEL && s->op == OP_EQUAL &&
		    !strcmp(s->label, LABEL_REF))
			return s->value;
	}
	return NULL;
}
