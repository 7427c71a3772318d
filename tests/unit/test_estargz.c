/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eStargz from blob to sink: golden blobs against what another reader says of
 * them (tests/lib/samples/NAME.dump), and everything around the table. The
 * rules for its entries are tried in test_estargz_emit.c and test_toc_entry.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "snapshotter/formats/decode.h"
#include "snapshotter/formats/estargz.h"
#include "tests/lib/sink_log.h"

enum { PAYLOAD = 4096 };

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
	if (sink_parse_blob(&blob, &toc, &g, &e) < 0)
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
	"{\"version\":1,\"entries\":[{\"name\":\"a\",\"type\":\"reg\","
	"\"size\":5,\"offset\":90,\"chunkDigest\":\"sha256:"
	"1111111111111111111111111111111111111111111111111111111111111111\"}]}";

static void parse_wants_the_label_s_digest(void **state unused_arg)
{
	struct sink_log g = { 0 };
	struct err e = ERR_INIT;
	struct esgz_blob b;
	struct digest zero = { 0 };

	assert_int_equal(
		esgz_build(&b, table_ok, sizeof(table_ok) - 1, PAYLOAD, 9), 0);
	b.toc.b[31] ^= 1;
	assert_int_equal(sink_parse_blob(&b.b, &b.toc, &g, &e), -1);
	assert_int_equal(e.kind, ERR_CORRUPT);
	assert_non_null(strstr(e.msg, "toc: digest is sha256:"));
	assert_non_null(strstr(e.msg, digest_str(&b.toc).s));
	assert_int_equal(sink_parse_blob(&b.b, &zero, &g, &e), -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	/* nothing reached the sink */
	assert_int_equal(g.n_entries + g.n_units + g.n_x, 0);
	buf_release(&b.b);
	sink_log_release(&g);
}

/*
 * No changed byte changes what comes out. (Some may be changed: gzip's time,
 * or the distance of a match in a run of equal bytes.)
 */
static void parse_notices_every_changed_byte(void **state unused_arg)
{
	struct sink_log want = { 0 };
	struct err e = ERR_INIT;
	struct esgz_blob b;
	unsigned n_same = 0;

	assert_int_equal(
		esgz_build(&b, table_ok, sizeof(table_ok) - 1, PAYLOAD, 9), 0);
	assert_int_equal(sink_parse_blob(&b.b, &b.toc, &want, &e), 0);
	for (size_t i = b.toc_off; i < b.b.len; i++) {
		struct sink_log g = { 0 };

		e = (struct err)ERR_INIT;
		b.b.p[i] ^= 0x10;
		if (sink_parse_blob(&b.b, &b.toc, &g, &e) == 0) {
			assert_string_equal((char *)g.entries.p,
					    (char *)want.entries.p);
			assert_string_equal((char *)g.extents.p,
					    (char *)want.extents.p);
			n_same++;
		} else {
			assert_int_equal(e.kind, ERR_CORRUPT);
			assert_int_equal(g.n_entries, 0);
		}
		b.b.p[i] ^= 0x10;
		sink_log_release(&g);
	}
	assert_true(n_same < 20);
	buf_release(&b.b);
	sink_log_release(&want);
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
	r = sink_parse_blob(&b, &toc, &g, e);
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
	assert_int_equal(sink_parse_blob(&b.b, &b.toc, &g, &e), -1);
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
