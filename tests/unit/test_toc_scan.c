/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner on texts cut anywhere: what it gives, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "snapshotter/formats/toc_scan.h"

struct got {
	struct buf b;
	unsigned n_entries, fail_at;
};

static int on_entry(void *ctx, const char *text, size_t len, struct err *e)
{
	struct got *g = ctx;

	assert_int_equal(strlen(text), len);
	assert_int_equal(buf_addf(&g->b, "E%s;", text), 0);
	if (++g->n_entries == g->fail_at)
		return err_set(e, ERR_NO_SPACE, "from the callback");
	return 0;
}

static int on_member(void *ctx, const char *key, const char *text, size_t len,
		     struct err *e unused_arg)
{
	struct got *g = ctx;

	assert_int_equal(strlen(text), len);
	assert_int_equal(buf_addf(&g->b, "M%s=%s;", key, text), 0);
	return 0;
}

static const struct toc_scan_ops ops = { on_entry, on_member };

static int scan(const char *text, size_t step, struct got *g, struct err *e)
{
	struct toc_scan *t = NULL;
	size_t len = strlen(text);
	int r = 0;

	assert_int_equal(toc_scan_new(&ops, g, &t), 0);
	for (size_t at = 0; r == 0 && at < len; at += step)
		r = toc_scan_feed(t, text + at,
				  len - at < step ? len - at : step, e);
	if (r == 0)
		r = toc_scan_finish(t, e);
	toc_scan_free(t);
	return r;
}

static void scan_gives_values_in_any_pieces(void **state unused_arg)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{\"entries\":[]}", "" },
		{ "{\"version\":1,\"entries\":[{}]}", "Mversion=1;E{};" },
		{ " {\n\t\"entries\" : [ {\"a\":1} ,\r\n{\"b\":2} ] , "
		  "\"version\" : 1 }\n ",
		  "E{\"a\":1};E{\"b\":2};Mversion=1;" },
		{ "{\"x\":{\"entries\":[{\"no\":1}]},\"entries\":[{\"a\":"
		  "\"}]\\\"{[\\\\\"}],\"y\":[[],{}],\"z\":\"]},{\"}",
		  "Mx={\"entries\":[{\"no\":1}]};E{\"a\":\"}]\\\"{[\\\\\"};"
		  "My=[[],{}];Mz=\"]},{\";" },
		{ "{\"n\":null,\"f\":-1.5e3,\"t\":true,\"entries\":[{\"d\":"
		  "[[[[[[[1]]]]]]]}],\"\":\"\"}",
		  "Mn=null;Mf=-1.5e3;Mt=true;E{\"d\":[[[[[[[1]]]]]]]};M=\"\";" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		for (size_t step = 1; step <= strlen(cases[i].text); step++) {
			struct err e = ERR_INIT;
			struct got g = { 0 };

			assert_int_equal(scan(cases[i].text, step, &g, &e), 0);
			assert_string_equal(g.b.p ? (char *)g.b.p : "",
					    cases[i].want);
			buf_release(&g.b);
		}
	}
}

static void scan_refuses_what_is_no_table(void **state unused_arg)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
		{ "", "ends too early" },
		{ "[]", "no object" },
		{ "\xef\xbb\xbf{\"entries\":[]}", "no object" },
		{ "{}", "no \"entries\"" },
		{ "{\"entries\":[]", "ends too early" },
		{ "{\"entries\":[{\"a\":1", "ends too early" },
		{ "{\"entries\":[{}]}x", "something behind the end" },
		{ "{\"entries\":[{}]}{}", "something behind the end" },
		{ "{\"entries\":{}}", "no list" },
		{ "{\"entries\":null}", "no list" },
		{ "{\"entries\":[],\"entries\":[]}", "twice" },
		{ "{\"entr\\u0069es\":[]}", "escapes" },
		{ "{\"entries\":[1]}", "no object" },
		{ "{\"entries\":[{},]}", "no object" },
		{ "{\"entries\":[,{}]}", "no object" },
		{ "{\"entries\":[{}{}]}", "no comma" },
		{ "{\"entries\":[[]]}", "no object" },
		{ "{\"entries\":[{}],}", "no key" },
		{ "{,\"entries\":[]}", "no key" },
		{ "{entries:[]}", "no key" },
		{ "{\"entries\" []}", "no colon" },
		{ "{\"a\":}", "no value" },
		{ "{\"a\":1 2}", "no comma" },
		{ "{\"entries\":[{\"a\":1]}", "do not match" },
		{ "{\"entries\":[{\"a\":[}]}", "do not match" },
		{ "{\"a\":1]", "no comma" },
		{ "{\"entries\":[{\"a\":\"\n\"}]}", "control character" },
		{ "{\"a\nb\":1}", "control character" },
		{ "{\"entries\":[{\"a\":[[[[[[[[1]]]]]]]]}]}", "too deeply" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		for (size_t step = 1; step < 64; step += 62) {
			struct err e = ERR_INIT;
			struct got g = { 0 };

			assert_int_equal(scan(cases[i].text, step, &g, &e), -1);
			assert_int_equal(e.kind, ERR_CORRUPT);
			if (!strstr(e.msg, cases[i].reason))
				fail_msg("'%s': '%s' lacks '%s'", cases[i].text,
					 e.msg, cases[i].reason);
			buf_release(&g.b);
		}
	}
}

static void scan_refuses_nul_bytes(void **state unused_arg)
{
	static const char text[] = "{\"a\":1\0,\"entries\":[{\0}]}";

	for (size_t from = 0; from < 2; from++) {
		struct err e = ERR_INIT;
		struct got g = { 0 };
		struct toc_scan *t = NULL;
		const char *head = "{\"entries\":[{";

		assert_int_equal(toc_scan_new(&ops, &g, &t), 0);
		if (from == 0)
			assert_int_equal(
				toc_scan_feed(t, text, sizeof(text), &e), -1);
		else
			assert_int_equal(toc_scan_feed(t, head, 14, &e), -1);
		assert_int_equal(e.kind, ERR_CORRUPT);
		toc_scan_free(t);
		buf_release(&g.b);
	}
}

static void scan_bounds_one_value(void **state unused_arg)
{
	static char block[64 << 10];
	struct err e = ERR_INIT;
	struct got g = { 0 };
	struct toc_scan *t = NULL;
	unsigned fed = 0;
	int r;

	memset(block, 'x', sizeof(block));
	assert_int_equal(toc_scan_new(&ops, &g, &t), 0);
	r = toc_scan_feed(t, "{\"entries\":[{\"name\":\"", 21, &e);
	for (; r == 0 && fed < 100; fed++)
		r = toc_scan_feed(t, block, sizeof(block), &e);
	assert_int_equal(r, -1);
	assert_int_equal(fed, TOC_VALUE_MAX / sizeof(block));
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.msg, "1048576 bytes"));
	/* and stays refused */
	assert_int_equal(toc_scan_feed(t, "\"}]}", 4, &e), -1);
	assert_int_equal(toc_scan_finish(t, &e), -1);
	toc_scan_free(t);
	buf_release(&g.b);
}

static void scan_bounds_the_number_of_entries(void **state unused_arg)
{
	enum { BATCH = 4096 };
	static char batch[3 * BATCH];
	struct err e = ERR_INIT;
	struct toc_scan *t = NULL;
	struct got g = { 0 };
	unsigned n = 0;
	int r;

	for (unsigned i = 0; i < BATCH; i++)
		memcpy(batch + 3 * i, "{},", 3);
	assert_int_equal(toc_scan_new(&ops, &g, &t), 0);
	r = toc_scan_feed(t, "{\"entries\":[", 12, &e);
	for (; r == 0 && n < 2 * TOC_ENTRIES_MAX; n += BATCH) {
		g.b.len = 0;
		r = toc_scan_feed(t, batch, sizeof(batch), &e);
	}
	assert_int_equal(r, -1);
	assert_int_equal(e.kind, ERR_UNSUPPORTED);
	assert_int_equal(g.n_entries, TOC_ENTRIES_MAX);
	toc_scan_free(t);
	buf_release(&g.b);
}

static void scan_passes_a_callback_s_error_on(void **state unused_arg)
{
	struct err e = ERR_INIT;
	struct got g = { .fail_at = 2 };

	assert_int_equal(scan("{\"entries\":[{},{},{}]}", 1000, &g, &e), -1);
	assert_int_equal(g.n_entries, 2);
	assert_int_equal(e.kind, ERR_NO_SPACE);
	assert_string_equal(e.msg, "from the callback");
	buf_release(&g.b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scan_gives_values_in_any_pieces),
		cmocka_unit_test(scan_refuses_what_is_no_table),
		cmocka_unit_test(scan_refuses_nul_bytes),
		cmocka_unit_test(scan_bounds_one_value),
		cmocka_unit_test(scan_bounds_the_number_of_entries),
		cmocka_unit_test(scan_passes_a_callback_s_error_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
