/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a table of contents to units and extents: one hostile table for each
 * rule, and what is special about landmarks and the blob's start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "snapshotter/formats/estargz.h"
#include "tests/lib/sink_log.h"

#define D1 \
	"\"sha256:1111111111111111111111111111111111111111111111111111111111111111\""

enum { PAYLOAD = 4096 };

static int parse_json(const char *json, struct sink_log *g, struct err *e)
{
	struct esgz_blob b;
	int r;

	assert_int_equal(esgz_build(&b, json, strlen(json), PAYLOAD, 1), 0);
	r = sink_parse_blob(&b.b, &b.toc, g, e);
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
	/* names that the tar has otherwise */
	{ REG("a/\xef\xbf\xbd"
	      "b",
	      0, "\"mode\":420"),
	  ERR_UNSUPPORTED, "entry 0 \"a/???b\": name has U+FFFD" },
	{ "{\"name\":\"l\",\"type\":\"symlink\",\"linkName\":\"\\ufffd\"}",
	  ERR_UNSUPPORTED, "entry 0 \"l\": linkName has U+FFFD" },
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_refuses_hostile_tables),
		cmocka_unit_test(parse_refuses_other_versions),
		cmocka_unit_test(landmarks_are_hidden_at_the_root_only),
		cmocka_unit_test(no_prefetch_landmark_wins),
		cmocka_unit_test(units_may_begin_at_the_blob_s_start),
		cmocka_unit_test(parse_passes_the_sink_s_error_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
