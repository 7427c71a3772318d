/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks to units and extents; see estargz.h. Knows nothing of JSON or gzip.
 *
 * Where the reference derives a chunk's end by walking the table backwards, one
 * rule gives the same ranges for every blob that a writer makes, and refuses
 * the others: an offset either stays (innerOffset rises behind the last piece)
 * or rises.
 */
#include <inttypes.h>
#include <string.h>

#include "snapshotter/formats/estargz.h"

/* 258 bytes from two bits: the best that deflate can do (RFC 1951). */
#define DEFLATE_RATIO_MAX 1032u

struct pending {
	uint32_t entry; /* handle */
	uint64_t file_off;
	struct extent x;
};

enum landmark {
	LANDMARK_NONE, /* a file of the layer */
	LANDMARK_PREFETCH,
	LANDMARK_NO_PREFETCH,
	LANDMARK_TOC,
};

struct estargz_emit {
	const struct sink *s;
	void *ctx;
	uint64_t toc_off;

	/* the regular file whose chunks may follow */
	uint64_t file_size, file_pos;
	uint32_t file; /* handle */
	enum landmark file_mark; /* hidden when it is one */
	struct toc_label file_label;

	/* the unit that is open; label of the entry that began it */
	bool open;
	uint64_t unit_off;
	uint64_t inner_end; /* of the last piece, hidden ones included */
	uint32_t ulen;
	struct toc_label unit_label;
	struct pending *x;
	uint32_t n_x, cap_x;

	uint64_t prefetch; /* offset of the landmark, 0: none */
	bool no_prefetch;
};

int estargz_emit_new(const struct sink *s, void *ctx, uint64_t toc_off,
		     struct estargz_emit **ret)
{
	struct estargz_emit *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->s = s;
	m->ctx = ctx;
	m->toc_off = toc_off;
	*ret = m;
	return 0;
}

void estargz_emit_free(struct estargz_emit *m)
{
	if (!m)
		return;
	free(m->x);
	free(m);
}

/* ---- units ---- */

static int give_unit(struct estargz_emit *m, uint64_t off, uint64_t end,
		     uint32_t ulen, uint32_t *ret, struct err *e)
{
	struct unit u = { .blob_off = off,
			  .clen = (uint32_t)(end - off),
			  .ulen = ulen,
			  .codec = CODEC_GZIP_MEMBER };

	return m->s->unit(m->ctx, &u, ret, e);
}

static int check_clen(uint64_t off, uint64_t end, struct err *e)
{
	if (end - off <= ESTARGZ_UNIT_CLEN_MAX)
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "toc: %" PRIu64 " compressed bytes without an entry at "
		       "offset %" PRIu64,
		       end - off, off);
}

/* What is open ends at @end: a unit, or the bytes before the first. */
static int close_unit(struct estargz_emit *m, uint64_t end, struct err *e)
{
	uint64_t clen = end - m->unit_off; /* unit_off is 0 at first */
	uint32_t unit = 0;

	if (end == 0)
		return 0;
	if (check_clen(m->unit_off, end, e) < 0)
		return -1;
	if (m->inner_end > clen * DEFLATE_RATIO_MAX)
		return toc_err(e, ERR_CORRUPT, &m->unit_label,
			       "%" PRIu64 " compressed bytes cannot hold "
			       "%" PRIu64,
			       clen, m->inner_end);
	if (give_unit(m, m->unit_off, end, m->ulen, &unit, e) < 0)
		return -1;
	for (uint32_t i = 0; i < m->n_x; i++) {
		struct pending *p = &m->x[i];

		p->x.unit = unit;
		if (m->s->extent(m->ctx, p->entry, p->file_off, &p->x, e) < 0)
			return -1;
	}
	m->n_x = 0;
	return 0;
}

static int open_unit(struct estargz_emit *m, const struct toc_entry *t,
		     struct err *e)
{
	if (close_unit(m, t->offset, e) < 0)
		return -1;
	m->open = true;
	m->unit_off = t->offset;
	m->inner_end = 0;
	m->ulen = 0;
	m->unit_label = t->label;
	return 0;
}

static int keep_extent(struct estargz_emit *m, const struct toc_entry *t,
		       uint32_t len, struct err *e)
{
	if (m->n_x == ESTARGZ_UNIT_EXTENTS_MAX)
		return toc_err(e, ERR_UNSUPPORTED, &t->label,
			       "more than %u chunks at one offset",
			       ESTARGZ_UNIT_EXTENTS_MAX);
	if (m->n_x == m->cap_x) {
		uint32_t cap = m->cap_x ? m->cap_x * 2 : 16;
		struct pending *x = realloc(m->x, cap * sizeof(*x));

		if (!x)
			return err_sys(e, -ENOMEM, "toc: %s", t->label.s);
		m->x = x;
		m->cap_x = cap;
	}
	m->x[m->n_x++] = (struct pending){
		.entry = m->file,
		.file_off = m->file_pos,
		.x = { .len = len, .unit_off = t->inner, .digest = t->digest },
	};
	m->ulen = t->inner + len;
	return 0;
}

/* Into the open unit or a new one; @len bytes of the current file. */
static int place(struct estargz_emit *m, const struct toc_entry *t,
		 uint32_t len, struct err *e)
{
	bool same = m->open && t->offset == m->unit_off;

	/* At 0 lies a tar header: a payload there has one before it. */
	if (t->offset == 0 && t->inner == 0)
		return toc_err(e, ERR_CORRUPT, &t->label, "no offset");
	if (t->offset >= m->toc_off)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "offset %" PRIu64 " is not before the table of "
			       "contents",
			       t->offset);
	if (m->open && t->offset < m->unit_off)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "offset %" PRIu64 " lies before that of the "
			       "entry before it",
			       t->offset);
	if (same && t->inner < m->inner_end)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "overlaps the entry before it at offset "
			       "%" PRIu64,
			       t->offset);
	if ((uint64_t)t->inner + len > ESTARGZ_UNIT_ULEN_MAX)
		return toc_err(e, ERR_UNSUPPORTED, &t->label,
			       "innerOffset is above %u",
			       ESTARGZ_UNIT_ULEN_MAX);
	if (!same && open_unit(m, t, e) < 0)
		return -1;
	m->inner_end = (uint64_t)t->inner + len;
	return m->file_mark == LANDMARK_NONE ? keep_extent(m, t, len, e) : 0;
}

/* ---- chunks ---- */

static int chunk(struct estargz_emit *m, const struct toc_entry *t,
		 struct err *e)
{
	uint64_t left = m->file_size - m->file_pos;
	uint64_t len = t->chunk_len ? t->chunk_len : left;

	if (left == 0)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "a chunk that belongs to no file");
	if (t->chunk_off != m->file_pos)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "chunkOffset is %" PRIu64 ", not %" PRIu64,
			       t->chunk_off, m->file_pos);
	if (len > left)
		return toc_err(e, ERR_CORRUPT, &t->label,
			       "a chunk goes beyond the end of its file");
	if (len > MAP_EXTENT_MAX)
		return toc_err(e, ERR_UNSUPPORTED, &t->label,
			       "a chunk of more than %u bytes", MAP_EXTENT_MAX);
	if (!t->has_digest)
		return toc_err(e, ERR_UNSUPPORTED, &t->label,
			       "no chunkDigest: cannot be verified");
	if (place(m, t, (uint32_t)len, e) < 0)
		return -1;
	m->file_pos += len;
	return 0;
}

static int end_file(struct estargz_emit *m, struct err *e)
{
	if (m->file_pos == m->file_size)
		return 0;
	return toc_err(e, ERR_CORRUPT, &m->file_label,
		       "chunks cover %" PRIu64 " of %" PRIu64 " bytes",
		       m->file_pos, m->file_size);
}

/*
 * Regular files that the writer added to the root. @path is as the tar had it,
 * "./x" and "/x" are x; a ".." in front of a name is left to the builder, who
 * refuses it.
 */
static enum landmark landmark_of(const struct entry *en)
{
	const char *p = en->path, *end = en->path + en->path_len;

	if (en->type != ENTRY_REG)
		return LANDMARK_NONE;
	while (p < end && (*p == '/' || (*p == '.' && p[1] == '/')))
		p += *p == '/' ? 1 : 2;
	if (!strcmp(p, ".prefetch.landmark"))
		return LANDMARK_PREFETCH;
	if (!strcmp(p, ".no.prefetch.landmark"))
		return LANDMARK_NO_PREFETCH;
	return strcmp(p, ESTARGZ_TOC_NAME) ? LANDMARK_NONE : LANDMARK_TOC;
}

/*
 * What writers put in place of bytes that are not UTF-8, since JSON has none of
 * those: the name in the tar is another one, and an unpack knows it.
 */
static bool is_damaged(const char *s, size_t len)
{
	return s && memmem(s, len, "\xef\xbf\xbd", 3);
}

static int check_names(const struct toc_entry *t, struct err *e)
{
	const char *what = is_damaged(t->en.path, t->en.path_len) ? "name"
			   : is_damaged(t->en.link_target, t->en.link_len)
				   ? "linkName"
				   : NULL;

	if (!what)
		return 0;
	return toc_err(e, ERR_UNSUPPORTED, &t->label,
		       "%s has U+FFFD: in the tar, perhaps not UTF-8", what);
}

static int begin_file(struct estargz_emit *m, const struct toc_entry *t,
		      struct err *e)
{
	m->file_size = t->en.type == ENTRY_REG ? t->en.size : 0;
	m->file_pos = 0;
	m->file_label = t->label;
	m->file_mark = landmark_of(&t->en);
	if (check_names(t, e) < 0)
		return -1;
	if (m->file_mark == LANDMARK_NONE &&
	    m->s->entry(m->ctx, &t->en, &m->file, e) < 0)
		return -1;
	if (m->file_size > 0 && chunk(m, t, e) < 0)
		return -1;
	if (m->file_mark == LANDMARK_PREFETCH && m->file_size > 0)
		m->prefetch = t->offset;
	if (m->file_mark == LANDMARK_NO_PREFETCH)
		m->no_prefetch = true;
	return 0;
}

int estargz_emit_entry(struct estargz_emit *m, const struct toc_entry *t,
		       struct err *e)
{
	if (t->is_chunk)
		return chunk(m, t, e);
	if (end_file(m, e) < 0)
		return -1;
	return begin_file(m, t, e);
}

int estargz_emit_end(struct estargz_emit *m, struct err *e)
{
	if (end_file(m, e) < 0 || close_unit(m, m->toc_off, e) < 0)
		return -1;
	if (m->prefetch > 0 && !m->no_prefetch && m->s->prefetch)
		return m->s->prefetch(m->ctx, m->prefetch, e);
	return 0;
}
