/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs to a sink. The first byte chooses: the rest is a whole blob, or the
 * text of a table that is wrapped into one. The digest is repaired, as a
 * hostile image has the right one. What comes out must be what a sink relies
 * on: units tile the blob, extents lie in their units in order, files are
 * covered.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/formats/estargz.h"
#include "tests/lib/esgz_blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 4096, JSON_MAX = 1 << 20 };

struct seen {
	uint64_t file_size[FILES], file_pos[FILES];
	uint32_t n_files, n_units, n_prefetch;
	uint64_t units_end, extent_end;
	struct unit unit;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static int on_entry(void *ctx, const struct entry *en, uint32_t *ret,
		    struct err *e)
{
	struct seen *s = ctx;

	must(en->path && strlen(en->path) == en->path_len);
	if (s->n_files == FILES)
		return err_set(e, ERR_NO_SPACE, "enough");
	s->file_size[s->n_files] = en->size;
	s->file_pos[s->n_files] = 0;
	*ret = s->n_files++;
	return 0;
}

static int on_unit(void *ctx, const struct unit *u, uint32_t *ret,
		   struct err *e unused_arg)
{
	struct seen *s = ctx;

	must(u->blob_off == s->units_end && u->clen > 0);
	must(u->clen <= ESTARGZ_UNIT_CLEN_MAX);
	must(u->ulen <= ESTARGZ_UNIT_ULEN_MAX);
	s->units_end += u->clen;
	s->unit = *u;
	s->extent_end = 0;
	*ret = s->n_units++;
	return 0;
}

static int on_extent(void *ctx, uint32_t entry, uint64_t file_off,
		     const struct extent *x, struct err *e unused_arg)
{
	struct seen *s = ctx;

	must(entry < s->n_files && x->unit == s->n_units - 1);
	must(x->len > 0 && x->len <= MAP_EXTENT_MAX);
	must(x->unit_off >= s->extent_end);
	s->extent_end = (uint64_t)x->unit_off + x->len;
	must(s->extent_end <= s->unit.ulen);
	must(file_off == s->file_pos[entry]);
	s->file_pos[entry] += x->len;
	must(s->file_pos[entry] <= s->file_size[entry]);
	return 0;
}

static int on_prefetch(void *ctx, uint64_t end, struct err *e unused_arg)
{
	struct seen *s = ctx;

	must(end > 0 && end < s->units_end && s->n_prefetch++ == 0);
	return 0;
}

static int run(struct buf *blob, const struct digest *toc, struct seen *s)
{
	static const struct sink sink = { on_entry, on_unit, on_extent,
					  on_prefetch };
	struct blob_reader rd = { esgz_read, blob, blob->len };
	struct layer_desc d = { .toc = *toc, .format = FORMAT_ESTARGZ };
	struct err e = ERR_INIT;
	int r = format_estargz.parse(&rd, &d, &sink, s, &e);

	must((r == 0) == (e.kind == ERR_NONE));
	must(strlen(e.msg) < sizeof(e.msg));
	return r;
}

/* What a manifest of this blob would say, when there is a table at all. */
static void repair_digest(const struct buf *b, struct digest *ret)
{
	static uint8_t tar[JSON_MAX];
	uint64_t off, size;
	z_stream z = { 0 };

	memset(ret, 1, sizeof(*ret));
	if (estargz_footer(b->p, b->len, b->len, &off, NULL) < 0 ||
	    inflateInit2(&z, MAX_WBITS + 16) != Z_OK)
		return;
	z.next_in = b->p + off;
	z.avail_in = (uInt)(b->len - off);
	z.next_out = tar;
	z.avail_out = sizeof(tar);
	(void)inflate(&z, Z_FINISH);
	(void)inflateEnd(&z);
	tar[136] = '\0';
	size = strtoull((char *)tar + 124, NULL, 8);
	if (z.total_out > 512 && size <= z.total_out - 512 &&
	    sha256_buf(tar + 512, size, ret) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct seen s;
	struct digest toc;

	if (size < 1 || size > JSON_MAX / 2)
		return 0;
	memset(&s, 0, sizeof(s));
	if (data[0] & 1) {
		struct buf b = { 0 };

		if (buf_add(&b, data + 1, size - 1) < 0)
			abort();
		repair_digest(&b, &toc);
		(void)run(&b, &toc, &s);
		buf_release(&b);
	} else {
		struct esgz_blob b;

		if (esgz_build(&b, data + 1, size - 1, 4096, 0) < 0)
			abort();
		if (run(&b.b, &b.toc, &s) == 0) {
			must(s.units_end == b.toc_off);
			for (uint32_t i = 0; i < s.n_files; i++)
				must(s.file_pos[i] == s.file_size[i]);
		}
		buf_release(&b.b);
	}
	return 0;
}
