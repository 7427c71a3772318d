/* SPDX-License-Identifier: Apache-2.0 */
/* formats/tar.c: what Go's archive/tar reads, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "snapshotter/formats/tar.h"

/* ---- archives ---- */

struct header {
	const char *name, *link, *prefix;
	char type;
	uint64_t size;
	const char *magic; /* 8 bytes; NULL: ustar */
	/* raw fields instead of numbers; NULL: "0" */
	const char *raw_size, *raw_mtime, *raw_uid;
	size_t raw_len; /* of raw_mtime */
};

static void checksum(uint8_t *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	(void)snprintf((char *)h + 148, 8, "%06o", sum);
}

static void put(struct buf *b, const struct header *d)
{
	uint8_t h[512] = { 0 };
	size_t prefix = d->prefix ? strlen(d->prefix) : 0;

	memcpy(h, d->name, strnlen(d->name, 100));
	memcpy(h + 100, "0000755", 8);
	(void)snprintf((char *)h + 108, 8, "%s", d->raw_uid ? d->raw_uid : "0");
	memcpy(h + 116, "0000012", 8);
	(void)snprintf((char *)h + 124, 12, "%011llo",
		       (unsigned long long)d->size);
	if (d->raw_size)
		(void)snprintf((char *)h + 124, 12, "%s", d->raw_size);
	(void)snprintf((char *)h + 136, 12, "%011o", 1000);
	if (d->raw_mtime)
		memcpy(h + 136, d->raw_mtime, d->raw_len);
	h[156] = (uint8_t)d->type;
	if (d->link)
		memcpy(h + 157, d->link, strnlen(d->link, 100));
	memcpy(h + 257, d->magic ? d->magic : "ustar\00000", 8);
	memcpy(h + 329, "0000003", 8);
	memcpy(h + 337, "0000005", 8);
	if (d->prefix)
		memcpy(h + 345, d->prefix, prefix);
	checksum(h);
	assert_int_equal(buf_add(b, h, sizeof(h)), 0);
}

static void fill(struct buf *b, const void *p, size_t n)
{
	static const uint8_t zeros[1024];

	if (n)
		assert_int_equal(buf_add(b, p, n), 0);
	assert_int_equal(buf_add(b, zeros, -n % 512), 0);
}

static void file(struct buf *b, const char *name, const char *text)
{
	put(b, &(struct header){
		       .name = name, .type = '0', .size = strlen(text) });
	fill(b, text, strlen(text));
}

static void special(struct buf *b, char type, const char *text, size_t n)
{
	put(b, &(struct header){ .name = "././@X", .type = type, .size = n });
	fill(b, text, n);
}

static void pax(struct buf *b, const char *records)
{
	special(b, 'x', records, strlen(records));
}

/* The same with their lengths counted. */
static void pax_of(struct buf *b, const char *const *records, size_t n)
{
	owned(buf) struct buf text = { 0 };

	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(records[i]) + 2;

		len += len + 1 > 9 ? 2 : 1;
		(void)buf_addf(&text, "%zu %s\n", len, records[i]);
	}
	pax(b, (char *)text.p);
}

static void end(struct buf *b)
{
	static const uint8_t zeros[1024];

	assert_int_equal(buf_add(b, zeros, sizeof(zeros)), 0);
}

/* ---- what came out, as text ---- */

static int on_entry(void *ctx, const struct entry *en, struct err *e)
{
	struct buf *out = ctx;

	(void)e;
	assert_int_equal(en->path[en->path_len], '\0');
	assert_int_equal(en->link_target[en->link_len], '\0');
	(void)buf_addf(
		out, "%d %s>%s %o %lld:%lld %lld.%u %llu %u:%u", en->type,
		en->path, en->link_target, en->mode, (long long)en->uid,
		(long long)en->gid, (long long)en->mtime, en->mtime_nsec,
		(unsigned long long)en->size, en->dev_major, en->dev_minor);
	for (size_t i = 0; i < en->n_xattrs; i++) {
		(void)buf_addf(out, " %s=", en->xattrs[i].name);
		(void)buf_add(out, en->xattrs[i].value, en->xattrs[i].len);
	}
	(void)buf_adds(out, "\n");
	return 0;
}

struct seen {
	struct buf out;
	uint64_t next; /* of contents */
};

static int on_seen_entry(void *ctx, const struct entry *en, struct err *e)
{
	struct seen *s = ctx;

	s->next = 0;
	return on_entry(&s->out, en, e);
}

static int on_data(void *ctx, uint64_t off, size_t len, struct err *e)
{
	struct seen *s = ctx;

	(void)e;
	if (!s->next)
		(void)buf_addf(&s->out, "@%llu\n", (unsigned long long)off);
	else
		assert_int_equal(off, s->next);
	s->next = off + len;
	return 0;
}

static int parse(const struct buf *b, size_t piece, struct buf *out,
		 struct err *e)
{
	static const struct tar_ops ops = { on_seen_entry, on_data };
	struct seen s = { 0 };
	struct tar *t = NULL;
	int r = tar_new(&ops, &s, &t);

	assert_int_equal(r, 0);
	for (size_t at = 0; r == 0 && at < b->len; at += piece)
		r = tar_feed(t, b->p + at,
			     piece < b->len - at ? piece : b->len - at, e);
	if (r == 0)
		r = tar_finish(t, e);
	tar_free(t);
	buf_release(out);
	*out = s.out;
	return r;
}

/* However it is cut. */
static void assert_parsed(const struct buf *b, const char *want)
{
	static const size_t pieces[] = { 1, 7, 511, 512, 513, 1 << 20 };

	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		owned(buf) struct buf out = { 0 };
		struct err e = ERR_INIT;

		if (parse(b, pieces[i], &out, &e) < 0)
			fail_msg("%s", e.msg);
		assert_string_equal(out.p ? (char *)out.p : "", want);
	}
}

static void assert_refused(const struct buf *b, enum err_kind kind,
			   const char *why)
{
	for (size_t piece = 100; piece < 2000; piece += 900) {
		owned(buf) struct buf out = { 0 };
		struct err e = ERR_INIT;

		assert_int_equal(parse(b, piece, &out, &e), -1);
		if (!strstr(e.msg, why))
			fail_msg("'%s' is not '%s'", e.msg, why);
		assert_int_equal(e.kind, kind);
	}
}

/* ---- cases ---- */

static void tar_feed_reads_all_types(void **state)
{
	owned(buf) struct buf b = { 0 };
	static const char *const names[] = { "h", "s", "c", "b", "d/", "p" };

	(void)state;
	file(&b, "f", "contents");
	for (int i = 0; i < 6; i++) /* their sizes mean nothing */
		put(&b, &(struct header){ .name = names[i],
					  .type = (char)('1' + i),
					  .link = i < 2 ? "to" : NULL,
					  .size = 5000 });
	put(&b, &(struct header){ .name = "old/", .size = 700 });
	put(&b, &(struct header){
			.name = "name", .prefix = "pre/fix", .type = '0' });
	end(&b);
	file(&b, "behind the end", "never seen");
	assert_parsed(&b, "1 f> 755 0:10 1000.0 8 3:5\n@512\n"
			  "3 h>to 755 0:10 1000.0 0 3:5\n"
			  "2 s>to 755 0:10 1000.0 0 3:5\n"
			  "4 c> 755 0:10 1000.0 0 3:5\n"
			  "5 b> 755 0:10 1000.0 0 3:5\n"
			  "0 d/> 755 0:10 1000.0 0 3:5\n"
			  "6 p> 755 0:10 1000.0 0 3:5\n"
			  "0 old/> 755 0:10 1000.0 0 3:5\n"
			  "1 pre/fix/name> 755 0:10 1000.0 0 3:5\n");
}

static void tar_feed_applies_pax_to_the_next_entry(void **state)
{
	static const char *const records[] = {
		"path=long",
		"linkpath=l",
		"size=3",
		"uid=4000000000",
		"gid=-7",
		"mtime=-1.25",
		"SCHILY.xattr.a=one",
		"SCHILY.xattr.b=a=b",
		"SCHILY.xattr.a=two!",
		"SCHILY.xattr.c=",
		"uname=",
		"comment=any",
		"atime=5.000000001",
	};
	owned(buf) struct buf b = { 0 };

	(void)state;
	pax_of(&b, records, sizeof(records) / sizeof(*records));
	put(&b, &(struct header){ .name = "short", .type = '0', .size = 9999 });
	fill(&b, "abc", 3);
	file(&b, "next", "x");
	assert_parsed(&b, "1 long>l 755 4000000000:-7 -2.750000000 3 3:5"
			  " a=two! b=a=b c=\n@1536\n"
			  "1 next> 755 0:10 1000.0 1 3:5\n@2560\n");
}

static void tar_feed_reads_gnu(void **state)
{
	static const char gnu[] = "ustar  ";
	owned(buf) struct buf b = { 0 };

	(void)state;
	special(&b, 'L', "a/long/name\0junk", 16);
	special(&b, 'K', "the/target", 10);
	put(&b, &(struct header){ .name = "short",
				  .type = '2',
				  .link = "t",
				  .magic = gnu,
				  .raw_mtime = "\xff\xff\xff\xff\xff\xff\xff"
					       "\xff\xff\xff\xff\xfe",
				  .raw_len = 12 });
	/* The prefix of ustar is something else here. */
	put(&b, &(struct header){ .name = "n",
				  .type = '0',
				  .magic = gnu,
				  .raw_mtime = "\x80\0\0\0\0\0\0\1\0\0\0\2",
				  .raw_len = 12 });
	end(&b);
	assert_parsed(&b, "2 a/long/name>the/target 755 0:10 -2.0 0 3:5\n"
			  "1 n> 755 0:10 4294967298.0 0 3:5\n");
}

static void tar_feed_passes_over_global_headers(void **state)
{
	owned(buf) struct buf b = { 0 };

	(void)state;
	special(&b, 'g', "14 path=other\n", 14);
	file(&b, "own", "");
	assert_parsed(&b, "1 own> 755 0:10 1000.0 0 3:5\n");
}

static void tar_feed_refuses_what_readers_see_differently(void **state)
{
	owned(buf) struct buf b = { 0 };

	(void)state;
	put(&b, &(struct header){ .name = "s", .type = 'S' });
	assert_refused(&b, ERR_UNSUPPORTED, "a sparse file");
	b.len = 0;
	pax(&b, "22 GNU.sparse.major=1\n");
	file(&b, "f", "");
	assert_refused(&b, ERR_UNSUPPORTED, "a sparse file");
	b.len = 0;
	put(&b, &(struct header){ .name = "v", .type = 'V' });
	assert_refused(&b, ERR_UNSUPPORTED, "an unknown type");
	b.len = 0;
	pax(&b, "10 path=a\n");
	pax(&b, "10 path=b\n");
	assert_refused(&b, ERR_UNSUPPORTED, "repeated or mixed");
	b.len = 0;
	special(&b, 'L', "name", 4);
	special(&b, 'g', "10 path=a\n", 10);
	assert_refused(&b, ERR_UNSUPPORTED, "repeated or mixed");
	b.len = 0;
	put(&b, &(struct header){ .name = "x",
				  .type = 'x',
				  .size = TAR_SPECIAL_MAX + 1 });
	assert_refused(&b, ERR_UNSUPPORTED, "more than 1 MiB");
}

static void tar_feed_refuses_what_is_broken(void **state)
{
	static const char *const bad[] = {
		"8 path=a\n",
		"99 path=a\n",
		"10 path=a ",
		"-10 path=a\n",
		"10 patha\n",
		"5 =a\n",
		"+10 path=a\n",
		"10 size=x\n",
		"14 mtime=1.x\n",
		"13 mtime=.5\n",
		"28 size=9999999999999999999\n",
	};
	owned(buf) struct buf b = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		b.len = 0;
		pax(&b, bad[i]);
		file(&b, "f", "");
		assert_refused(&b, ERR_CORRUPT, "a PAX record");
	}
	b.len = 0;
	special(&b, 'x', "12 path=a\0b\n", 12);
	file(&b, "f", "");
	assert_refused(&b, ERR_CORRUPT, "a PAX record with a bad value");
	b.len = 0;
	file(&b, "f", "");
	b.p[0] ^= 1;
	assert_refused(&b, ERR_CORRUPT, "checksum");
	b.len = 0;
	put(&b, &(struct header){ .name = "f", .type = '0', .raw_uid = "9x" });
	assert_refused(&b, ERR_CORRUPT, "a number is malformed");
	b.len = 0;
	put(&b, &(struct header){ .name = "f",
				  .type = '0',
				  .raw_size = "\xff\xff\xff\xff\xff\xff\xff"
					      "\xff\xff\xff\xff" });
	b.p[135] = 0xff;
	checksum(b.p);
	assert_refused(&b, ERR_CORRUPT, "a negative size");
	b.len = 0;
	end(&b);
	b.len -= 512;
	file(&b, "f", "");
	assert_refused(&b, ERR_CORRUPT, "behind a single block of zeros");
}

static void tar_finish_wants_whole_entries(void **state)
{
	owned(buf) struct buf b = { 0 };

	(void)state;
	file(&b, "f", "abc");
	assert_parsed(&b, "1 f> 755 0:10 1000.0 3 3:5\n@512\n");
	for (size_t cut = 1; cut < 1024; cut += 100) {
		struct buf part = b;

		part.len -= cut;
		assert_refused(&part, ERR_CORRUPT, "ends inside an entry");
	}
	b.len = 0;
	pax(&b, "10 path=a\n");
	assert_refused(&b, ERR_CORRUPT, "ends inside an entry");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(tar_feed_reads_all_types),
		cmocka_unit_test(tar_feed_applies_pax_to_the_next_entry),
		cmocka_unit_test(tar_feed_reads_gnu),
		cmocka_unit_test(tar_feed_passes_over_global_headers),
		cmocka_unit_test(tar_feed_refuses_what_readers_see_differently),
		cmocka_unit_test(tar_feed_refuses_what_is_broken),
		cmocka_unit_test(tar_finish_wants_whole_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
