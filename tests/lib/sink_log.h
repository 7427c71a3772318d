/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sink that writes down what it gets, in the lines of mkestargz.py --dump;
 * for tests of parsers.
 */
#ifndef TESTS_SINK_LOG_H
#define TESTS_SINK_LOG_H

#include <inttypes.h>

#include "tests/lib/esgz_blob.h"

struct sink_log {
	struct buf entries, units, extents, last;
	uint32_t n_entries, n_units, n_prefetch, fail_after;
	struct unit unit[64];
	struct extent x[128];
	uint32_t n_x;
};

static inline void sink_log_release(struct sink_log *g)
{
	buf_release(&g->entries);
	buf_release(&g->units);
	buf_release(&g->extents);
	buf_release(&g->last);
}

static inline void sink_add_quoted(struct buf *b, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t c = (uint8_t)s[i];

		if (c >= 0x21 && c < 0x7f && c != '%')
			(void)buf_add(b, &c, 1);
		else
			(void)buf_addf(b, "%%%02x", c);
	}
	if (len == 0)
		(void)buf_adds(b, "-");
}

static inline bool sink_must_fail(struct sink_log *g, struct err *e)
{
	if (g->fail_after == 0 || --g->fail_after > 0)
		return false;
	(void)err_set(e, ERR_NO_SPACE, "sink is full");
	return true;
}

static inline int sink_on_entry(void *ctx, const struct entry *en,
				uint32_t *ret, struct err *e)
{
	static const char *const names[] = { "dir",      "reg",  "symlink",
					     "hardlink", "char", "block",
					     "fifo",     "sock" };
	struct sink_log *g = ctx;
	struct buf *b = &g->entries;

	if (sink_must_fail(g, e))
		return -1;
	*ret = g->n_entries++;
	(void)buf_addf(b,
		       "entry %u %s %o %" PRId64 " %" PRId64 " %" PRId64
		       " %" PRIu64 " %u:%u ",
		       *ret, names[en->type], en->mode, en->uid, en->gid,
		       en->mtime, en->size, en->dev_major, en->dev_minor);
	sink_add_quoted(b, en->path, en->path_len);
	(void)buf_adds(b, " ");
	sink_add_quoted(b, en->link_target, en->link_len);
	(void)buf_adds(b, "\n");
	for (size_t i = 0; i < en->n_xattrs; i++) {
		const struct entry_xattr *x = &en->xattrs[i];
		const uint8_t *v = x->value;

		(void)buf_adds(b, "xattr ");
		sink_add_quoted(b, x->name, strlen(x->name));
		(void)buf_adds(b, x->len ? " " : " -");
		for (size_t k = 0; k < x->len; k++)
			(void)buf_addf(b, "%02x", v[k]);
		(void)buf_adds(b, "\n");
	}
	return b->failed ? err_sys(e, -ENOMEM, "log") : 0;
}

static inline int sink_on_unit(void *ctx, const struct unit *u, uint32_t *ret,
			       struct err *e)
{
	struct sink_log *g = ctx;

	if (sink_must_fail(g, e))
		return -1;
	assert_int_equal(u->codec, CODEC_GZIP_MEMBER);
	assert_true(g->n_units < ARRAY_LEN(g->unit));
	g->unit[g->n_units] = *u;
	*ret = g->n_units++;
	return buf_addf(&g->units, "unit %u %" PRIu64 " %u %u\n", *ret,
			u->blob_off, u->clen, u->ulen);
}

static inline int sink_on_extent(void *ctx, uint32_t entry, uint64_t file_off,
				 const struct extent *x, struct err *e)
{
	struct sink_log *g = ctx;

	if (sink_must_fail(g, e))
		return -1;
	assert_true(entry < g->n_entries);
	assert_true(x->unit < g->n_units);
	assert_true(g->n_x < ARRAY_LEN(g->x));
	g->x[g->n_x++] = *x;
	return buf_addf(&g->extents, "extent %u %" PRIu64 " %u %u %u %s\n",
			entry, file_off, x->unit, x->unit_off, x->len,
			digest_str(&x->digest).s);
}

static inline int sink_on_prefetch(void *ctx, uint64_t end, struct err *e)
{
	struct sink_log *g = ctx;

	if (sink_must_fail(g, e))
		return -1;
	g->n_prefetch++;
	return buf_addf(&g->last, "prefetch %" PRIu64 "\n", end);
}

static const struct sink log_sink = { sink_on_entry, sink_on_unit,
				      sink_on_extent, sink_on_prefetch };

static inline int sink_parse_blob(struct buf *blob, const struct digest *toc,
				  struct sink_log *g, struct err *e)
{
	struct blob_reader rd = { .read = esgz_read,
				  .ctx = blob,
				  .size = blob->len };
	struct layer_desc d = { .toc = *toc, .format = FORMAT_ESTARGZ };

	return format_find(FORMAT_ESTARGZ)->parse(&rd, &d, &log_sink, g, e);
}

#endif
