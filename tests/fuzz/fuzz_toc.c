/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of contents as text: scanner and entry parser. The first byte says how
 * the text is cut; the same text in one piece must give the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/formats/toc_entry.h"
#include "snapshotter/formats/toc_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	struct toc_parser *p;
	uint32_t n;
	uint64_t sum; /* of all that came out */
};

static void add(struct seen *s, uint64_t v)
{
	s->sum = (s->sum ^ v) * 0x100000001b3ull;
}

static void add_bytes(struct seen *s, const void *p, size_t len)
{
	const uint8_t *b = p;

	add(s, len);
	for (size_t i = 0; i < len; i++)
		add(s, b[i]);
}

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_entry(struct seen *s, const struct toc_entry *t)
{
	const struct entry *en = &t->en;

	must(strlen(t->label.s) < sizeof(t->label.s));
	must(t->offset <= 1ull << 60 && t->chunk_len <= TOC_FILE_MAX);
	add(s, t->offset);
	add(s, t->inner);
	if (t->is_chunk)
		return;
	must(en->path && strlen(en->path) == en->path_len);
	must(en->mode <= 07777 && en->size <= TOC_FILE_MAX);
	must(en->uid >= 0 && en->uid < UINT32_MAX);
	must(en->gid >= 0 && en->gid < UINT32_MAX);
	must(en->mtime_nsec < 1000000000 && en->n_xattrs <= TOC_XATTRS_MAX);
	must(en->type == ENTRY_REG || en->size == 0);
	add_bytes(s, en->path, en->path_len);
	add_bytes(s, en->link_target, en->link_len);
	for (size_t i = 0; i < en->n_xattrs; i++) {
		must(strstr(en->xattrs[i].name, ".overlay.") == NULL);
		must(strncmp(en->xattrs[i].name, "trusted.", 8) != 0);
		add_bytes(s, en->xattrs[i].value, en->xattrs[i].len);
	}
}

static int on_entry(void *ctx, const char *text, size_t len, struct err *e)
{
	struct seen *s = ctx;
	struct toc_entry t;
	int r = toc_parser_entry(s->p, text, len, s->n++, &t, e);

	add_bytes(s, text, len);
	if (r == 0)
		check_entry(s, &t);
	else
		must(e->kind == ERR_CORRUPT || e->kind == ERR_UNSUPPORTED);
	return 0; /* go on: the scanner is looked at, too */
}

static int on_member(void *ctx, const char *key, const char *text, size_t len,
		     struct err *e)
{
	struct seen *s = ctx;
	int r = toc_parser_version(s->p, text, len, e);

	add_bytes(s, key, strlen(key));
	add_bytes(s, text, len);
	add(s, (uint64_t)r);
	return 0;
}

static int run(const uint8_t *p, size_t len, size_t step, uint64_t *ret_sum)
{
	static const struct toc_scan_ops ops = { on_entry, on_member };
	struct seen s = { 0 };
	struct toc_scan *t = NULL;
	struct err e = ERR_INIT;
	int r = 0;

	if (toc_parser_new(&s.p) < 0 || toc_scan_new(&ops, &s, &t) < 0)
		abort();
	for (size_t at = 0; r == 0 && at < len; at += step)
		r = toc_scan_feed(t, p + at, len - at < step ? len - at : step,
				  &e);
	if (r == 0)
		r = toc_scan_finish(t, &e);
	toc_scan_free(t);
	toc_parser_free(s.p);
	*ret_sum = s.sum;
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t a, b;

	if (size < 1)
		return 0;
	if (run(data + 1, size - 1, data[0] % 64 + 1u, &a) !=
		    run(data + 1, size - 1, size, &b) ||
	    a != b)
		abort();
	return 0;
}
