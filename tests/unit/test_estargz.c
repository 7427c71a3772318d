/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eStargz from blob to sink: golden blobs against what another reader says of
 * them (tests/lib/samples/NAME.dump), and one hostile table for each rule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "snapshotter/formats/decode.h"
#include "snapshotter/formats/estargz.h"
#include "tests/lib/esgz_blob.h"

#define D1 \
	"\"sha256:1111111111111111111111111111111111111111111111111111111111111111\""

/* ---- a sink that writes down what it gets ---- */

struct sink_log {
	struct buf entries, units, extents, last;
	uint32_t n_entries, n_units, n_prefetch, fail_after;
	struct unit unit[64];
	struct extent x[128];
	uint32_t n_x;
};

static void sink_log_release(struct sink_log *g)
{
	buf_release(&g->entries);
	buf_release(&g->units);
	buf_release(&g->extents);
	buf_release(&g->last);
}

static void add_quoted(struct buf *b, const char *s, size_t len)
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

static bool must_fail(struct sink_log *g, struct err *e)
{
	if (g->fail_after == 0 || --g->fail_after > 0)
		return false;
	(void)err_set(e, ERR_NO_SPACE, "sink is full");
	return true;
}

static int on_entry(void *ctx, const struct entry *en, uint32_t *ret,
		    struct err *e)
{
	static const char *const names[] = { "dir",      "reg",  "symlink",
					     "hardlink", "char", "block",
					     "fifo",     "sock" };
	struct sink_log *g = ctx;
	struct buf *b = &g->entries;

	if (must_fail(g, e))
		return -1;
	*ret = g->n_entries++;
	(void)buf_addf(b,
		       "entry %u %s %o %" PRId64 " %" PRId64 " %" PRId64
		       " %" PRIu64 " %u:%u ",
		       *ret, names[en->type], en->mode, en->uid, en->gid,
		       en->mtime, en->size, en->dev_major, en->dev_minor);
	add_quoted(b, en->path, en->path_len);
	(void)buf_adds(b, " ");
	add_quoted(b, en->link_target, en->link_len);
	(void)buf_adds(b, "\n");
	for (size_t i = 0; i < en->n_xattrs; i++) {
		const struct entry_xattr *x = &en->xattrs[i];
		const uint8_t *v = x->value;

		(void)buf_adds(b, "xattr ");
		add_quoted(b, x->name, strlen(x->name));
		(void)buf_adds(b, x->len ? " " : " -");
		for (size_t k = 0; k < x->len; k++)
			(void)buf_addf(b, "%02x", v[k]);
		(void)buf_adds(b, "\n");
	}
	return b->failed ? err_sys(e, -ENOMEM, "log") : 0;
}

static int on_unit(void *ctx, const struct unit *u, uint32_t *ret,
		   struct err *e)
{
	struct sink_log *g = ctx;

	if (must_fail(g, e))
		return -1;
	assert_int_equal(u->codec, CODEC_GZIP_MEMBER);
	assert_true(g->n_units < ARRAY_LEN(g->unit));
	g->unit[g->n_units] = *u;
	*ret = g->n_units++;
	return buf_addf(&g->units, "unit %u %" PRIu64 " %u %u\n", *ret,
			u->blob_off, u->clen, u->ulen);
}

static int on_extent(void *ctx, uint32_t entry, uint64_t file_off,
		     const struct extent *x, struct err *e)
{
	struct sink_log *g = ctx;

	if (must_fail(g, e))
		return -1;
	assert_true(entry < g->n_entries);
	assert_true(x->unit < g->n_units);
	assert_true(g->n_x < ARRAY_LEN(g->x));
	g->x[g->n_x++] = *x;
	return buf_addf(&g->extents, "extent %u %" PRIu64 " %u %u %u %s\n",
			entry, file_off, x->unit, x->unit_off, x->len,
			digest_str(&x->digest).s);
}

static int on_prefetch(void *ctx, uint64_t end, struct err *e)
{
	struct sink_log *g = ctx;

	if (must_fail(g, e))
		return -1;
	g->n_prefetch++;
	return buf_addf(&g->last, "prefetch %" PRIu64 "\n", end);
}

static const struct sink log_sink = { on_entry, on_unit, on_extent,
				      on_prefetch };

static int parse_blob(struct buf *blob, const struct digest *toc,
		      struct sink_log *g, struct err *e)
{
	struct blob_reader rd = { .read = esgz_read,
				  .ctx = blob,
				  .size = blob->len };
	struct layer_desc d = { .toc = *toc, .format = FORMAT_ESTARGZ };

	return format_find(FORMAT_ESTARGZ)->parse(&rd, &d, &log_sink, g, e);
}

/* ---- golden blobs ---- */

static const char *const samples[] = { "kinds",       "minchunk",
				       "headless",    "empty",
				       "ctr-plain",   "ctr-minchunk",
				       "ctr-prefetch" };

/* SAMPLES=dir looks elsewhere, for blobs too large to keep here. */
static void load(const char *name, const char *suffix, struct buf *ret)
{
	const char *dir = getenv("SAMPLES");
	char path[256], *p = NULL;
	size_t len = 0;

	(void)snprintf(path, sizeof(path), "%s/%s%s",
		       dir ? dir : "tests/lib/samples", name, suffix);
	if (read_file_at(AT_FDCWD, path, 64 << 20, &p, &len) < 0)
		fail_msg("%s cannot be read (run in the top folder)", path);
	assert_int_equal(buf_add(ret, p, len), 0);
	free(p);
}

/* The table's digest, which a manifest would tell, by another road. */
static void toc_digest_of(const struct buf *blob, struct digest *ret)
{
	static uint8_t tar[1 << 20];
	uint64_t off = 0;
	struct err e = ERR_INIT;
	z_stream z = { 0 };
	unsigned long size;

	assert_int_equal(
		estargz_footer(blob->p, blob->len, blob->len, &off, &e), 0);
	assert_int_equal(inflateInit2(&z, MAX_WBITS + 16), Z_OK);
	z.next_in = blob->p + off;
	z.avail_in = (uInt)(blob->len - off);
	z.next_out = tar;
	z.avail_out = sizeof(tar);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(inflateEnd(&z), Z_OK);
	size = strtoul((char *)tar + 124, NULL, 8);
	assert_true(size < sizeof(tar) - 512);
	assert_int_equal(sha256_buf(tar + 512, size, ret), 0);
}

struct unit_check {
	const struct sink_log *g;
	uint32_t unit;
	struct buf out;
};

static int on_output(void *ctx, const void *p, size_t n)
{
	struct unit_check *c = ctx;

	return buf_add(&c->out, p, n);
}

static unsigned verify_unit(const struct buf *blob, struct decoder *d,
			    const struct sink_log *g, uint32_t i)
{
	const struct unit *u = &g->unit[i];
	struct unit_check c = { .g = g, .unit = i };
	unsigned n = 0;

	assert_int_equal(decoder_reset(d, u->codec), 0);
	assert_int_equal(
		decoder_feed(d, blob->p + u->blob_off, u->clen, on_output, &c),
		0);
	assert_int_equal(decoder_finish(d), 0);
	assert_true(c.out.len >= u->ulen);
	for (uint32_t k = 0; k < g->n_x; k++) {
		const struct extent *x = &g->x[k];
		struct digest got;

		if (x->unit != i)
			continue;
		assert_true((uint64_t)x->unit_off + x->len <= u->ulen);
		assert_int_equal(
			sha256_buf(c.out.p + x->unit_off, x->len, &got), 0);
		assert_true(digest_equal(&got, &x->digest));
		n++;
	}
	buf_release(&c.out);
	return n;
}

/* The same tables as the reference, units that tile the blob, and each chunk
 * has its digest when our decoder gives it. */
static void sample(const char *name)
{
	struct buf blob = { 0 }, want = { 0 };
	struct decoder *d = NULL;
	struct sink_log g = { 0 };
	struct err e = ERR_INIT;
	uint64_t end = 0, toc_off = 0;
	struct digest toc;
	unsigned n = 0;

	load(name, ".esgz", &blob);
	load(name, ".dump", &want);
	toc_digest_of(&blob, &toc);
	if (parse_blob(&blob, &toc, &g, &e) < 0)
		fail_msg("%s: %s", name, e.msg);
	(void)buf_add(&g.entries, g.units.p, g.units.len);
	(void)buf_add(&g.entries, g.extents.p, g.extents.len);
	(void)buf_add(&g.entries, g.last.p, g.last.len);
	assert_string_equal((char *)g.entries.p, (char *)want.p);

	assert_int_equal(decoder_new(CODEC_GZIP_MEMBER, &d), 0);
	for (uint32_t i = 0; i < g.n_units; i++) {
		assert_int_equal(g.unit[i].blob_off, end);
		end += g.unit[i].clen;
		n += verify_unit(&blob, d, &g, i);
	}
	assert_int_equal(
		estargz_footer(blob.p, blob.len, blob.len, &toc_off, &e), 0);
	assert_int_equal(end, toc_off);
	assert_int_equal(n, g.n_x);
	decoder_free(d);
	sink_log_release(&g);
	buf_release(&blob);
	buf_release(&want);
}

static void parse_agrees_with_the_reference(void **state unused_arg)
{
	const char *only = getenv("SAMPLE");

	for (size_t i = 0; !only && i < ARRAY_LEN(samples); i++)
		sample(samples[i]);
	if (only)
		sample(only);
}

/* ---- tables that must be refused ---- */

enum { PAYLOAD = 4096 };

static int parse_json(const char *json, struct sink_log *g, struct err *e)
{
	struct esgz_blob b;
	int r;

	assert_int_equal(esgz_build(&b, json, strlen(json), PAYLOAD, 1), 0);
	r = parse_blob(&b.b, &b.toc, g, e);
	buf_release(&b.b);
	return r;
}

static int parse_entries(const char *entries, struct sink_log *g, struct err *e)
{
	struct buf json = { 0 };
	int r;

	assert_int_equal(
		buf_addf(&json, "{\"version\":1,\"entries\":[%s]}", entries),
		0);
	r = parse_json((char *)json.p, g, e);
	buf_release(&json);
	return r;
}

#define REG(name, size, rest) \
	"{\"name\":\"" name "\",\"type\":\"reg\",\"size\":" #size "," rest "}"
#define AT(off) "\"chunkDigest\":" D1 ",\"offset\":" #off
#define IN(off, inner) AT(off) ",\"innerOffset\":" #inner
#define CHUNK(pos, rest) \
	"{\"name\":\"c\",\"type\":\"chunk\",\"chunkOffset\":" #pos "," rest "}"

static const struct hostile {
	const char *entries;
	enum err_kind kind;
	const char *reason;
} hostile[] = {
	/* where the contents are */
	{ REG("a", 5, "\"chunkDigest\":" D1), ERR_CORRUPT,
	  "entry 0 \"a\": no offset" },
	{ REG("a", 5, AT(4096)), ERR_CORRUPT, "not before the table" },
	{ REG("a", 5, AT(1152921504606846976)), ERR_CORRUPT,
	  "not before the table" },
	{ REG("a", 5, AT(-1)), ERR_CORRUPT, "offset is out of range" },
	{ REG("a", 5, AT(9223372036854775808)), ERR_CORRUPT,
	  "offset is out of range" },
	{ REG("a", 5, AT(200)) "," REG("b", 5, AT(100)), ERR_CORRUPT,
	  "entry 1 \"b\": offset 100 lies before" },
	{ REG("a", 5, AT(100)) "," REG("b", 5, AT(100)), ERR_CORRUPT,
	  "entry 1 \"b\": overlaps the entry before it at offset 100" },
	{ REG("a", 5, IN(100, 512)) "," REG("b", 9, IN(100, 512)), ERR_CORRUPT,
	  "overlaps" },
	{ REG("a", 5, IN(100, 512)) "," REG("b", 9, IN(100, 516)), ERR_CORRUPT,
	  "overlaps" },
	{ REG("a", 5, IN(100, 512)) "," REG("b", 9, IN(100, 0)), ERR_CORRUPT,
	  "overlaps" },
	{ REG("a", 5, IN(100, 4294967295)), ERR_UNSUPPORTED,
	  "innerOffset is above" },
	{ REG("a", 500000, AT(100)) "," REG("b", 5, AT(200)), ERR_CORRUPT,
	  "entry 0 \"a\": 100 compressed bytes cannot hold 500000" },
	{ REG("a", 60000000, AT(100)), ERR_CORRUPT,
	  "3996 compressed bytes cannot hold" },
	/* how chunks cover a file */
	{ REG("a", 9, AT(100) ",\"chunkSize\":5"), ERR_CORRUPT,
	  "entry 0 \"a\": chunks cover 5 of 9" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":5") "," REG("b", 5, AT(200)),
	  ERR_CORRUPT, "entry 0 \"a\": chunks cover 5 of 9" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":10"), ERR_CORRUPT,
	  "beyond the end of its file" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":5") "," CHUNK(6, AT(200)),
	  ERR_CORRUPT, "entry 1 \"c\": chunkOffset is 6, not 5" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":5") "," CHUNK(4, AT(200)),
	  ERR_CORRUPT, "chunkOffset is 4, not 5" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":5") "," CHUNK(
		  5, AT(200) ",\"chunkSize\":5"),
	  ERR_CORRUPT, "beyond the end of its file" },
	{ REG("a", 9, AT(100)) "," CHUNK(9, AT(200)), ERR_CORRUPT,
	  "belongs to no file" },
	{ CHUNK(0, AT(100)), ERR_CORRUPT, "belongs to no file" },
	{ "{\"name\":\"d\",\"type\":\"dir\"}," CHUNK(0, AT(100)), ERR_CORRUPT,
	  "belongs to no file" },
	{ REG("a", 0, AT(100)) "," CHUNK(0, AT(100)), ERR_CORRUPT,
	  "belongs to no file" },
	{ REG("a", 9, AT(100) ",\"chunkOffset\":1"), ERR_CORRUPT,
	  "chunkOffset is 1, not 0" },
	{ REG("a", 1099511627777, AT(100)), ERR_CORRUPT,
	  "size is out of range" },
	{ REG("a", -1, AT(100)), ERR_CORRUPT, "size is out of range" },
	{ REG("a", 67108865, AT(100)), ERR_UNSUPPORTED,
	  "a chunk of more than 67108864 bytes" },
	/* what proves them */
	{ REG("a", 5, "\"offset\":100"), ERR_UNSUPPORTED, "no chunkDigest" },
	{ REG("a", 9, AT(100) ",\"chunkSize\":5") "," CHUNK(5,
							    "\"offset\":200"),
	  ERR_UNSUPPORTED, "entry 1 \"c\": no chunkDigest" },
	{ REG("a", 5, "\"chunkDigest\":\"sha512:00\",\"offset\":100"),
	  ERR_CORRUPT, "no SHA-256 digest" },
	/* attributes: a sample, test_toc_entry has them all */
	{ REG("a", 0, "\"uid\":4294967295"), ERR_CORRUPT,
	  "uid is out of range" },
	{ "{\"name\":\"s\",\"type\":\"symlink\",\"linkName\":\"a\\u0000b\"}",
	  ERR_CORRUPT, "a NUL in a string" },
	{ "{\"name\":\"a\\u0000b\",\"type\":\"dir\"}", ERR_CORRUPT,
	  "a NUL in a string" },
	{ "{\"name\":\"s\",\"type\":\"hardlink\",\"linkName\":\"a\",\"size\":4}",
	  ERR_CORRUPT, "no regular file" },
	/* the text around them */
	{ "{\"name\":\"d\",\"type\":\"dir\"},", ERR_CORRUPT, "no object" },
	{ "{\"name\":\"d\",\"type\":\"dir\",\"x\":[[[[[[[[1]]]]]]]]}",
	  ERR_CORRUPT, "too deeply" },
};

static void parse_refuses_hostile_tables(void **state unused_arg)
{
	for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
		const struct hostile *h = &hostile[i];
		struct sink_log g = { 0 };
		struct err e = ERR_INIT;

		if (parse_entries(h->entries, &g, &e) == 0)
			fail_msg("passed: %s", h->entries);
		if (e.kind != h->kind || !strstr(e.msg, h->reason))
			fail_msg("%s: %s '%s', not '%s'", h->entries,
				 err_kind_name(e.kind), e.msg, h->reason);
		sink_log_release(&g);
	}
}

static void parse_refuses_other_versions(void **state unused_arg)
{
	static const char *const bad[] = {
		"{\"entries\":[]}", "{\"version\":2,\"entries\":[]}",
		"{\"entries\":[],\"version\":\"1\"}"
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sink_log g = { 0 };
		struct err e = ERR_INIT;

		assert_int_equal(parse_json(bad[i], &g, &e), -1);
		assert_int_equal(e.kind, ERR_UNSUPPORTED);
		assert_non_null(strstr(e.msg, "version"));
		sink_log_release(&g);
	}
}

/* ---- what is special ---- */

static void landmarks_are_hidden_at_the_root_only(void **state unused_arg)
{
	struct sink_log g = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(
		parse_entries(
			REG("./.prefetch.landmark", 1, AT(100)) "," REG(
				"a/.prefetch.landmark", 1,
				AT(200)) "," REG("/stargz.index.json", 1,
						 AT(300)) ","
							  "{\"name\":\".no.prefetch.landmark\",\"type\":\"dir\"}",
			&g, &e),
		0);
	assert_int_equal(g.n_entries, 2);
	assert_non_null(strstr((char *)g.entries.p, "a/.prefetch.landmark"));
	assert_non_null(strstr((char *)g.entries.p, "dir 0 "));
	assert_int_equal(g.n_x, 1);
	assert_string_equal((char *)g.last.p, "prefetch 100\n");
	/* their bytes are still part of the tiling, without needed output */
	assert_string_equal((char *)g.units.p, "unit 0 0 100 0\n"
					       "unit 1 100 100 0\n"
					       "unit 2 200 100 1\n"
					       "unit 3 300 3796 0\n");
	sink_log_release(&g);
}

static void no_prefetch_landmark_wins(void **state unused_arg)
{
	static const char *const tables[] = {
		REG(".prefetch.landmark", 1,
		    AT(100)) "," REG(".no.prefetch.landmark", 1, AT(200)),
		REG(".no.prefetch.landmark", 1,
		    AT(100)) "," REG(".prefetch.landmark", 1, AT(200)),
		/* no contents: its offset was never checked */
		REG(".prefetch.landmark", 0, "\"offset\":99999999"),
	};

	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		struct sink_log g = { 0 };
		struct err e = ERR_INIT;

		assert_int_equal(parse_entries(tables[i], &g, &e), 0);
		assert_int_equal(g.n_prefetch, 0);
		assert_int_equal(g.n_entries, 0);
		sink_log_release(&g);
	}
}

static void units_may_begin_at_the_blob_s_start(void **state unused_arg)
{
	struct sink_log g = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(
		parse_entries(REG("a", 5,
				  "\"chunkDigest\":" D1
				  ",\"innerOffset\":512") "," REG("b", 7,
								  IN(50, 100)),
			      &g, &e),
		0);
	assert_string_equal((char *)g.units.p, "unit 0 0 50 517\n"
					       "unit 1 50 4046 107\n");
	sink_log_release(&g);
}

static void parse_passes_the_sink_s_error_on(void **state unused_arg)
{
	/* entry, entry, unit, extent, unit, extent, prefetch */
	static const char table[] = REG("a", 5, AT(90)) "," REG(
		".prefetch.landmark", 1, AT(100)) "," REG("b", 5, AT(200));

	for (uint32_t n = 1; n < 20; n++) {
		struct sink_log g = { .fail_after = n };
		struct err e = ERR_INIT;
		int r = parse_entries(table, &g, &e);

		sink_log_release(&g);
		if (r == 0) {
			assert_true(n > 7);
			return;
		}
		assert_int_equal(e.kind, ERR_NO_SPACE);
		assert_string_equal(e.msg, "sink is full");
	}
	fail_msg("never passed");
}

/* ---- the blob around the table ---- */

static void footer_is_compared_byte_by_byte(void **state unused_arg)
{
	struct buf b = { 0 };
	struct err e = ERR_INIT;
	uint64_t off = 0;

	assert_int_equal(esgz_footer(&b, 0x1234), 0);
	assert_int_equal(b.len, ESTARGZ_FOOTER_LEN);
	assert_int_equal(estargz_footer(b.p, b.len, 0x10000, &off, &e), 0);
	assert_int_equal(off, 0x1234);
	for (size_t i = 0; i < b.len; i++) {
		uint8_t keep = b.p[i];

		for (unsigned x = 1; x < 256; x += x) {
			b.p[i] = keep ^ (uint8_t)x;
			if (i >= 16 && i < 32) /* a digit may be another */
				b.p[i] = 'A';
			assert_int_equal(
				estargz_footer(b.p, b.len, 0x10000, &off, &e),
				-1);
			assert_int_equal(e.kind, ERR_CORRUPT);
		}
		b.p[i] = keep;
	}
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(estargz_footer(b.p, n, n, &off, &e), -1);
	/* the table is not empty, and lies before the footer */
	assert_int_equal(estargz_footer(b.p, b.len, 0x1234 + 51, &off, &e), -1);
	assert_non_null(strstr(e.msg, "not inside the blob"));
	assert_int_equal(estargz_footer(b.p, b.len, 0x1235 + 51, &off, &e), 0);
	buf_release(&b);
}

static void footer_knows_its_relatives(void **state unused_arg)
{
	static const char legacy[] = "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x16\0"
				     "0000000000000010STARGZ"
				     "\x01\0\0\xff\xff\0\0\0\0\0\0\0";
	struct buf external = { 0 };
	struct err e = ERR_INIT;
	uint64_t off = 0;

	assert_int_equal(sizeof(legacy), 47);
	assert_int_equal(estargz_footer((const uint8_t *)legacy, sizeof(legacy),
					1000, &off, &e),
			 -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "without chunk digests"));

	load("ctr-external", ".refused", &external);
	assert_int_equal(estargz_footer(external.p, external.len, external.len,
					&off, &e),
			 -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "external table of contents"));
	buf_release(&external);
}

static const char table_ok[] =
	"{\"version\":1,\"entries\":[" REG("a", 5, AT(90)) "]}";

static void parse_wants_the_label_s_digest(void **state unused_arg)
{
	struct sink_log g = { 0 };
	struct err e = ERR_INIT;
	struct esgz_blob b;
	struct digest zero = { 0 };

	assert_int_equal(
		esgz_build(&b, table_ok, sizeof(table_ok) - 1, PAYLOAD, 9), 0);
	b.toc.b[31] ^= 1;
	assert_int_equal(parse_blob(&b.b, &b.toc, &g, &e), -1);
	assert_int_equal(e.kind, ERR_CORRUPT);
	assert_non_null(strstr(e.msg, "toc: digest is sha256:"));
	assert_non_null(strstr(e.msg, digest_str(&b.toc).s));
	assert_int_equal(parse_blob(&b.b, &zero, &g, &e), -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	/* nothing reached the sink */
	assert_int_equal(g.n_entries + g.n_units + g.n_x, 0);
	buf_release(&b.b);
	sink_log_release(&g);
}

/* No byte of the table or footer can change without being noticed. */
static void parse_notices_every_changed_byte(void **state unused_arg)
{
	struct esgz_blob b;

	assert_int_equal(
		esgz_build(&b, table_ok, sizeof(table_ok) - 1, PAYLOAD, 9), 0);
	for (size_t i = b.toc_off; i < b.b.len; i++) {
		struct sink_log g = { 0 };
		struct err e = ERR_INIT;

		/* gzip's time, level and system, which nobody uses */
		if (i >= b.toc_off + 4 && i < b.toc_off + 10)
			continue;
		b.b.p[i] ^= 0x10;
		if (parse_blob(&b.b, &b.toc, &g, &e) == 0)
			fail_msg("byte %zu of the table", i - b.toc_off);
		assert_int_equal(e.kind, ERR_CORRUPT);
		assert_int_equal(g.n_entries, 0);
		b.b.p[i] ^= 0x10;
		sink_log_release(&g);
	}
	buf_release(&b.b);
}

/* A blob whose table is @tar, in one member for each part. */
static int parse_tar(const struct buf *tar, size_t first, struct err *e)
{
	struct sink_log g = { 0 };
	struct buf b = { 0 };
	struct digest toc;
	int r;

	assert_int_equal(buf_add(&b, "payload", 7), 0);
	assert_int_equal(esgz_member(&b, tar->p, first, 6), 0);
	if (first < tar->len)
		assert_int_equal(
			esgz_member(&b, tar->p + first, tar->len - first, 6),
			0);
	assert_int_equal(esgz_footer(&b, 7), 0);
	assert_int_equal(sha256_buf(table_ok, sizeof(table_ok) - 1, &toc), 0);
	r = parse_blob(&b, &toc, &g, e);
	assert_int_equal(g.n_entries, 0);
	buf_release(&b);
	sink_log_release(&g);
	return r;
}

static void parse_wants_one_member_with_one_file(void **state unused_arg)
{
	struct buf tar = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(esgz_tar(&tar, table_ok, sizeof(table_ok) - 1), 0);
	assert_int_equal(parse_tar(&tar, 1024, &e), -1);
	assert_non_null(strstr(e.msg, "more than one gzip member"));
	assert_int_equal(parse_tar(&tar, tar.len - 512, &e), -1);
	assert_non_null(strstr(e.msg, "more than one gzip member"));

	tar.p[tar.len - 1] = 'x';
	assert_int_equal(parse_tar(&tar, tar.len, &e), -1);
	assert_non_null(strstr(e.msg, "something behind its end"));
	tar.p[tar.len - 1] = '\0';

	tar.len = 512 + sizeof(table_ok) - 2;
	assert_int_equal(parse_tar(&tar, tar.len, &e), -1);
	assert_non_null(strstr(e.msg, "ends too early"));
	tar.len = 100;
	assert_int_equal(parse_tar(&tar, tar.len, &e), -1);
	assert_non_null(strstr(e.msg, "ends too early"));
	buf_release(&tar);
}

static void parse_wants_the_right_tar_header(void **state unused_arg)
{
	static const struct {
		size_t at;
		const char *bytes;
		size_t len;
		const char *reason;
	} cases[] = {
		{ 0, "x", 1, "no file stargz.index.json" },
		{ 17, "x", 1, "no file stargz.index.json" },
		{ 156, "5", 1, "no file stargz.index.json" },
		{ 156, "x", 1, "no file stargz.index.json" },
		{ 345, "dir", 3, "no file stargz.index.json" },
		{ 124, "\x80\0\0\0\0\0\0\0\0\0\1\0", 12, "no size" },
		{ 124, "           ", 11, "no size" },
		{ 124, "00000000009", 11, "no size" },
		{ 124, "77777777777", 11, "of more than 536870912 bytes" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf tar = { 0 };
		struct err e = ERR_INIT;
		unsigned sum = 0;

		assert_int_equal(esgz_tar(&tar, table_ok, sizeof(table_ok) - 1),
				 0);
		memcpy(tar.p + cases[i].at, cases[i].bytes, cases[i].len);
		assert_int_equal(parse_tar(&tar, tar.len, &e), -1);
		assert_non_null(strstr(e.msg, "no tar header"));
		memset(tar.p + 148, ' ', 8);
		for (size_t k = 0; k < 512; k++)
			sum += tar.p[k];
		(void)snprintf((char *)tar.p + 148, 8, "%06o", sum);
		assert_int_equal(parse_tar(&tar, tar.len, &e), -1);
		if (!strstr(e.msg, cases[i].reason))
			fail_msg("case %zu: %s", i, e.msg);
		buf_release(&tar);
	}
}

/* ---- reading ---- */

struct counted {
	struct buf *blob;
	unsigned n_reads, fail_at;
	uint64_t lowest;
};

static int counted_read(void *ctx, uint64_t off, void *p, size_t len,
			struct err *e)
{
	struct counted *c = ctx;

	if (++c->n_reads == c->fail_at)
		return err_set(e, ERR_UNAVAILABLE, "registry is silent");
	if (off < c->lowest)
		c->lowest = off;
	return esgz_read(c->blob, off, p, len, e);
}

static int counted_parse(struct esgz_blob *b, struct counted *c,
			 uint64_t want_size, struct err *e)
{
	struct blob_reader rd = { .read = counted_read,
				  .ctx = c,
				  .size = b->b.len };
	struct layer_desc d = { .toc = b->toc, .size = want_size };
	struct sink_log g = { 0 };
	int r;

	c->blob = &b->b;
	c->lowest = UINT64_MAX;
	r = format_estargz.parse(&rd, &d, &log_sink, &g, e);
	sink_log_release(&g);
	return r;
}

static void parse_reads_at_most_twice(void **state unused_arg)
{
	enum { FILLER = 400000 };
	struct buf json = { 0 };
	struct err e = ERR_INIT;
	struct esgz_blob b;
	struct counted c = { 0 };

	/* small: one read, although the blob is large */
	assert_int_equal(
		esgz_build(&b, table_ok, sizeof(table_ok) - 1, 300000, 9), 0);
	assert_int_equal(counted_parse(&b, &c, b.b.len, &e), 0);
	assert_int_equal(c.n_reads, 1);
	buf_release(&b.b);

	/* a table above the first read: one more, and no payload */
	assert_int_equal(buf_adds(&json, "{\"version\":1,\"x\":\""), 0);
	for (unsigned i = 0; i < FILLER / 8; i++)
		assert_int_equal(buf_addf(&json, "%08x", i * 2654435761u), 0);
	assert_int_equal(buf_adds(&json, "\",\"entries\":[]}"), 0);
	assert_int_equal(esgz_build(&b, json.p, json.len, 1000, 9), 0);
	assert_true(b.b.len > 100000);
	c = (struct counted){ 0 };
	assert_int_equal(counted_parse(&b, &c, 0, &e), 0);
	assert_int_equal(c.n_reads, 2);
	assert_int_equal(c.lowest, 1000);
	for (unsigned n = 1; n <= 2; n++) {
		c = (struct counted){ .fail_at = n };
		assert_int_equal(counted_parse(&b, &c, 0, &e), -1);
		assert_int_equal(e.kind, ERR_UNAVAILABLE);
		assert_non_null(strstr(e.msg, "registry is silent"));
	}
	c = (struct counted){ 0 };
	assert_int_equal(counted_parse(&b, &c, b.b.len + 1, &e), -1);
	assert_int_equal(e.kind, ERR_CORRUPT);
	assert_int_equal(c.n_reads, 0);
	buf_release(&b.b);
	buf_release(&json);
}

static void parse_bounds_the_compressed_table(void **state unused_arg)
{
	struct esgz_blob b;
	struct err e = ERR_INIT;
	struct sink_log g = { 0 };

	assert_int_equal(esgz_build(&b, table_ok, sizeof(table_ok) - 1,
				    ESTARGZ_TOC_CLEN_MAX + 4096, 9),
			 0);
	b.b.len -= ESTARGZ_FOOTER_LEN;
	assert_int_equal(esgz_footer(&b.b, 1), 0);
	assert_int_equal(parse_blob(&b.b, &b.toc, &g, &e), -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "67108864 compressed bytes"));
	buf_release(&b.b);
}

/* ---- memory ---- */

enum { MANY = 100000, RSS_MAX_KIB = 64 << 10 };

/* Deflates in small steps, so that the parent stays small, too. */
struct stream {
	z_stream z;
	int fd;
	uint64_t len;
};

static void put(struct stream *s, const void *p, size_t len, int flush)
{
	static uint8_t out[64 << 10];

	s->z.next_in = (Bytef *)(uintptr_t)p;
	s->z.avail_in = (uInt)len;
	do {
		size_t n;

		s->z.next_out = out;
		s->z.avail_out = sizeof(out);
		assert_true(deflate(&s->z, flush) != Z_STREAM_ERROR);
		n = sizeof(out) - s->z.avail_out;
		assert_int_equal(write_full(s->fd, out, n), 0);
		s->len += n;
	} while (s->z.avail_out == 0);
}

static int format_many(char *line, size_t cap, unsigned i)
{
	uint32_t x = i * 2654435761u + 1;

	return snprintf(
		line, cap,
		"%s{\"name\":\"usr/share/doc/package-%u/examples/file-%08x\","
		"\"type\":\"reg\",\"size\":%u,\"modtime\":"
		"\"2023-11-14T22:13:20Z\",\"mode\":420,\"offset\":%u,"
		"\"digest\":\"sha256:%08x%08x%08x%08x%08x%08x%08x%08x\","
		"\"chunkDigest\":\"sha256:%08x%08x%08x%08x%08x%08x%08x%08x\"}",
		i ? ",\n" : "{\"version\":1,\"entries\":[", i % 977, x,
		1 + i % 200, 100 + i * 100, x, x * 3, x * 5, x * 7, x * 11,
		x * 13, x * 17, x * 19, x, x * 3, x * 5, x * 7, x * 11, x * 13,
		x * 17, x * 19);
}

static void make_many(int fd, uint64_t toc_off, struct digest *ret)
{
	static const uint8_t zeros[2048];
	struct stream s = { .fd = fd };
	struct sha256 *h = NULL;
	uint64_t size = 2;
	struct buf footer = { 0 };
	uint8_t header[512];
	char line[600];

	for (unsigned i = 0; i < MANY; i++)
		size += (uint64_t)format_many(line, sizeof(line), i);
	assert_true(size > 30 << 20);
	assert_int_equal(sha256_new(&h), 0);
	assert_int_equal(deflateInit2(&s.z, 1, Z_DEFLATED, MAX_WBITS + 16, 8,
				      Z_DEFAULT_STRATEGY),
			 Z_OK);
	assert_int_equal(lseek(fd, (off_t)toc_off, SEEK_SET), (off_t)toc_off);
	esgz_tar_header(header, ESTARGZ_TOC_NAME, size);
	put(&s, header, sizeof(header), Z_NO_FLUSH);
	for (unsigned i = 0; i < MANY; i++) {
		int n = format_many(line, sizeof(line), i);

		assert_int_equal(sha256_update(h, line, (size_t)n), 0);
		put(&s, line, (size_t)n, Z_NO_FLUSH);
	}
	assert_int_equal(sha256_update(h, "]}", 2), 0);
	put(&s, "]}", 2, Z_NO_FLUSH);
	put(&s, zeros, (512 - size % 512) % 512 + 1024, Z_FINISH);
	assert_int_equal(deflateEnd(&s.z), Z_OK);
	assert_int_equal(esgz_footer(&footer, toc_off), 0);
	assert_int_equal(write_full(fd, footer.p, footer.len), 0);
	assert_int_equal(sha256_end(h, ret), 0);
	buf_release(&footer);
	sha256_free(h);
}

static int fd_read(void *ctx, uint64_t off, void *p, size_t len, struct err *e)
{
	int r = pread_full(*(int *)ctx, p, len, off);

	return r < 0 ? err_sys(e, r, "read") : 0;
}

static int count_entry(void *ctx, const struct entry *en unused_arg,
		       uint32_t *ret, struct err *e unused_arg)
{
	*ret = (*(uint32_t *)ctx)++;
	return 0;
}

static int drop_unit(void *ctx unused_arg, const struct unit *u unused_arg,
		     uint32_t *ret, struct err *e unused_arg)
{
	*ret = 0;
	return 0;
}

static int drop_extent(void *ctx unused_arg, uint32_t entry unused_arg,
		       uint64_t off unused_arg,
		       const struct extent *x unused_arg,
		       struct err *e unused_arg)
{
	return 0;
}

/* Exit code of the child: 0 all well, 1 parse, 2 count, 3 memory. */
static int parse_many(int fd, uint64_t size, const struct digest *toc)
{
	static const struct sink drop = { count_entry, drop_unit, drop_extent,
					  NULL };
	struct blob_reader rd = { fd_read, &fd, size };
	struct layer_desc d = { .toc = *toc };
	struct err e = ERR_INIT;
	struct rusage ru;
	uint32_t n = 0;

	if (format_estargz.parse(&rd, &d, &drop, &n, &e) < 0) {
		print_error("%s\n", e.msg);
		return 1;
	}
	if (n != MANY || getrusage(RUSAGE_SELF, &ru) < 0)
		return 2;
	print_message("100,000 entries: %ld KiB\n", ru.ru_maxrss);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (ru.ru_maxrss > RSS_MAX_KIB)
		return 3;
#endif
	return 0;
}

static void parse_of_100000_entries_needs_little_memory(void **state unused_arg)
{
	enum { TOC_OFF = 100 * MANY + 4096 };
	char path[] = "/tmp/test_estargz.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC), status = -1;
	struct digest toc;
	off_t size;
	pid_t pid;

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	make_many(fd, TOC_OFF, &toc);
	size = lseek(fd, 0, SEEK_END);
	assert_true(size > TOC_OFF);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(parse_many(fd, (uint64_t)size, &toc));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(close(fd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_agrees_with_the_reference),
		cmocka_unit_test(parse_refuses_hostile_tables),
		cmocka_unit_test(parse_refuses_other_versions),
		cmocka_unit_test(landmarks_are_hidden_at_the_root_only),
		cmocka_unit_test(no_prefetch_landmark_wins),
		cmocka_unit_test(units_may_begin_at_the_blob_s_start),
		cmocka_unit_test(parse_passes_the_sink_s_error_on),
		cmocka_unit_test(footer_is_compared_byte_by_byte),
		cmocka_unit_test(footer_knows_its_relatives),
		cmocka_unit_test(parse_wants_the_label_s_digest),
		cmocka_unit_test(parse_notices_every_changed_byte),
		cmocka_unit_test(parse_wants_one_member_with_one_file),
		cmocka_unit_test(parse_wants_the_right_tar_header),
		cmocka_unit_test(parse_reads_at_most_twice),
		cmocka_unit_test(parse_bounds_the_compressed_table),
		cmocka_unit_test(parse_of_100000_entries_needs_little_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
