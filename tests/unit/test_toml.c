/* SPDX-License-Identifier: Apache-2.0 */
/* base/toml: what is read, what is refused, and where it says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "base/toml.h"

static struct toml *must_parse(const char *text)
{
	struct err e = ERR_INIT;
	struct toml *t = NULL;

	if (toml_parse("f", text, strlen(text), &t, &e) < 0)
		fail_msg("%s", e.msg);
	return t;
}

static void refuse_len(const char *text, size_t len, const char *msg)
{
	struct err e = ERR_INIT;
	struct toml *t = NULL;

	if (toml_parse("f", text, len, &t, &e) == 0) {
		toml_free(t);
		fail_msg("accepted: %s", text);
	}
	assert_null(t);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_string_equal(e.msg, msg);
}

static void refuse(const char *text, const char *msg)
{
	refuse_len(text, strlen(text), msg);
}

static void expect_num(const char *text, int64_t want)
{
	owned(toml) struct toml *t = must_parse(text);
	const struct toml *v = toml_find(t, "n");

	assert_non_null(v);
	assert_int_equal(v->type, TOML_INT);
	assert_true(v->num == want);
}

static void expect_str(const char *text, const char *want)
{
	owned(toml) struct toml *t = must_parse(text);
	const struct toml *v = toml_find(t, "s");

	assert_non_null(v);
	assert_int_equal(v->type, TOML_STRING);
	assert_string_equal(v->str, want);
}

static void parse_accepts_empty_documents(void **state)
{
	static const char *const docs[] = { "", "\n", "# only\r\n", "  # x",
					    "\r\n\r\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(docs); i++) {
		owned(toml) struct toml *t = must_parse(docs[i]);

		assert_int_equal(t->kids.n, 0);
	}
}

static void parse_reads_integers_to_their_limits(void **state)
{
	(void)state;
	expect_num("n = 0", 0);
	expect_num("n = -0", 0);
	expect_num("n=+1_000", 1000);
	expect_num("n = 0xdead_BEEF", 0xdeadbeef);
	expect_num("n = 0o755", 0755);
	expect_num("n = 0b101", 5);
	expect_num("n = 9223372036854775807 # max", INT64_MAX);
	expect_num("n = -9223372036854775808", INT64_MIN);
	refuse("n = 9223372036854775808", "f:1: number out of range");
	refuse("\nn = -9223372036854775809", "f:2: number out of range");
	refuse("n = 0x8000000000000000", "f:1: number out of range");
	refuse("n = 1__0", "f:1: not a number");
	refuse("n = 1_", "f:1: not a number");
	refuse("n = -", "f:1: not a number");
	refuse("n = -0x1", "f:1: not a number");
	refuse("n = 12kB", "f:1: not a number");
	refuse("n = 012", "f:1: a number must not begin with 0");
	refuse("n = inf", "f:1: infinity and NaN are not supported");
	refuse("n = 2020-01-01", "f:1: dates and times are not supported");
}

static void expect_real(const char *text, double want)
{
	owned(toml) struct toml *t = must_parse(text);
	const struct toml *v = toml_find(t, "n");

	assert_non_null(v);
	assert_int_equal(v->type, TOML_FLOAT);
	assert_true(v->real == want);
}

static void parse_reads_floats(void **state)
{
	(void)state;
	expect_real("n = 0.02", 0.02);
	expect_real("n = -1_0.2_5 # x", -10.25);
	expect_real("n = 1e3", 1000);
	expect_real("n = +2.5E-1", 0.25);
	expect_real("n = 5e+2", 500);
	refuse("n = 1.", "f:1: not a number");
	refuse("n = .5", "f:1: not a value; strings want quotes");
	refuse("n = 1.e5", "f:1: not a number");
	refuse("n = 1e", "f:1: not a number");
	refuse("n = 1.5.2", "f:1: unexpected text at the end of the line");
	refuse("n = 1.5x", "f:1: not a number");
	refuse("n = 01.5", "f:1: a number must not begin with 0");
	refuse("n = 1e999", "f:1: number out of range");
	refuse("n = 0x1.8", "f:1: unexpected text at the end of the line");
}

static void parse_reads_arrays_of_tables(void **state)
{
	owned(toml) struct toml *t = must_parse("[[p.'a.b'.u]]\n"
						"x = 1\n"
						"[p.'a.b'.u.more]\n"
						"y = 2\n"
						"[p.'a.b']\n"
						"z = 3\n"
						"[[p.'a.b'.u]]\n"
						"x = 4\n"
						"[[p.'a.b'.u.more]]\n"
						"y = 5\n");
	const struct toml *u =
		toml_find(toml_find(toml_find(t, "p"), "a.b"), "u");
	const struct toml *one, *two;

	(void)state;
	assert_non_null(u);
	assert_int_equal(u->type, TOML_ARRAY);
	assert_int_equal(u->kids.n, 2);
	one = u->kids.first;
	two = one->next;
	assert_int_equal(one->line, 1);
	assert_int_equal(two->line, 7);
	assert_int_equal(toml_find(one, "x")->num, 1);
	assert_int_equal(toml_find(toml_find(one, "more"), "y")->num, 2);
	assert_int_equal(toml_find(two, "x")->num, 4);
	assert_int_equal(toml_find(two, "more")->type, TOML_ARRAY);

	refuse("[[a]", "f:1: expected ']]' behind a table's name");
	refuse("[[a] ]", "f:1: expected ']]' behind a table's name");
	refuse("[a]\n[[a]]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("[[a]]\n[a]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("a = []\n[[a]]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("a = [{}]\n[a.b]",
	       "f:2: key 'a' has a value that is no table (line 1)");
}

static void parse_reads_strings_and_escapes(void **state)
{
	(void)state;
	expect_str("s = \"\"", "");
	expect_str("s = ''", "");
	expect_str("s = 'C:\\x # no'", "C:\\x # no");
	expect_str("s = \"\\t\\\"\\\\\\b\\f\\r\\n\"", "\t\"\\\b\f\r\n");
	expect_str("s = \"\\u00e9\\U0001F600\\u20ac\"",
		   "\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac");
	refuse("s = \"abc", "f:1: string without closing \"");
	refuse("s = 'abc\n'", "f:1: string without closing '");
	refuse("s = \"\\x\"", "f:1: unknown escape in a string");
	refuse("s = \"\\", "f:1: unknown escape in a string");
	refuse("s = \"\\u12g4\"", "f:1: bad \\u escape in a string");
	refuse("s = \"\\u0000\"",
	       "f:1: escape U+0000 is not allowed in a string");
	refuse("s = \"\\ud800\"",
	       "f:1: escape U+D800 is not allowed in a string");
	refuse("s = \"\"\"a\"\"\"",
	       "f:1: multi-line strings are not supported");
	refuse("s = '''a'''", "f:1: multi-line strings are not supported");
}

/* The shape of containerd's hosts.toml, whose order of hosts matters. */
static void parse_keeps_the_order_of_tables(void **state)
{
	static const char text[] =
		"server = \"https://registry.example\"\n"
		"[host.\"https://mirror:5000\"]\n"
		"  capabilities = [\"pull\", \"resolve\"]\n"
		"  skip_verify = true\n"
		"  client = [[\"/c.cert\", \"/c.key\"], \"/both.pem\"]\n"
		"[host.\"https://mirror:5000\".header]\n"
		"  x-one = [\"a\",\n    'b', # why\n  ]\n"
		"[host.\"http://127.0.0.1:80\"]\n"
		"  override_path = false\n";
	owned(toml) struct toml *t = must_parse(text);
	const struct toml *hosts = toml_find(t, "host");
	const struct toml *h, *v;

	(void)state;
	assert_non_null(hosts);
	assert_int_equal(hosts->kids.n, 2);
	h = hosts->kids.first;
	assert_string_equal(h->key, "https://mirror:5000");
	assert_string_equal(h->next->key, "http://127.0.0.1:80");
	assert_int_equal(h->next->line, 10);
	v = toml_find(h, "client");
	assert_int_equal(v->kids.first->type, TOML_ARRAY);
	assert_string_equal(v->kids.first->kids.last->str, "/c.key");
	assert_string_equal(v->kids.last->str, "/both.pem");
	v = toml_find(toml_find(h, "header"), "x-one");
	assert_int_equal(v->kids.n, 2);
	assert_int_equal(v->kids.last->line, 8);
	assert_true(toml_find(h, "skip_verify")->flag);
	assert_false(toml_find(h->next, "override_path")->flag);
}

static void parse_reads_dotted_keys_and_inline_tables(void **state)
{
	owned(toml) struct toml *t =
		must_parse("a.\"b c\" . d = 1\na.\"b c\".e = 2\n"
			   "i = { x.y = true, x.z = [ { k = 'v' } ] }\n");
	const struct toml *v = toml_find(toml_find(t, "a"), "b c");

	(void)state;
	assert_int_equal(v->kids.n, 2);
	assert_int_equal(toml_find(v, "e")->num, 2);
	v = toml_find(toml_find(t, "i"), "x");
	assert_true(toml_find(v, "y")->flag);
	v = toml_find(toml_find(v, "z")->kids.first, "k");
	assert_string_equal(v->str, "v");
}

static void parse_refuses_a_second_definition(void **state)
{
	(void)state;
	refuse("a = 1\na = 2", "f:2: key 'a' is set twice (first in line 1)");
	refuse("[a]\n[a]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("a = 1\n[a]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("a = 1\n[a.b]",
	       "f:2: key 'a' has a value that is no table (line 1)");
	refuse("a = 1\na.b = 2",
	       "f:2: key 'a' has a value that is no table (line 1)");
	refuse("a.b = 1\n[a]", "f:2: 'a' is defined twice (first in line 1)");
	refuse("[a.b]\n[a]\nb.c = 1",
	       "f:3: table 'b' is complete since line 1");
	refuse("a = {}\na.b = 1", "f:2: table 'a' is complete since line 1");
	refuse("a = {}\n[a.b]", "f:2: table 'a' is complete since line 1");
	refuse("a = { b = 1, b = 2 }",
	       "f:1: key 'b' is set twice (first in line 1)");
}

static void parse_lets_a_header_follow_its_children(void **state)
{
	owned(toml) struct toml *t =
		must_parse("[a.b]\nx = 1\n[a]\ny = 2\n[a.c]\n");
	const struct toml *a = toml_find(t, "a");

	(void)state;
	assert_int_equal(a->kids.n, 3);
	assert_int_equal(toml_find(toml_find(a, "b"), "x")->num, 1);
	assert_int_equal(toml_find(a, "y")->num, 2);
}

static void parse_names_what_is_malformed(void **state)
{
	(void)state;
	refuse("[a", "f:1: expected ']' behind a table's name");
	refuse("[]", "f:1: a key is missing");
	refuse("[a.]", "f:1: a key is missing");
	refuse("= 1", "f:1: a key is missing");
	refuse("a", "f:1: expected '=' behind key 'a'");
	refuse("a =", "f:1: a value is missing");
	refuse("a = # none", "f:1: a value is missing");
	refuse("a = yes", "f:1: not a value; strings want quotes");
	refuse("a = truely", "f:1: not a value");
	refuse("a = 1 b = 2", "f:1: unexpected text at the end of the line");
	refuse("[a] x", "f:1: unexpected text at the end of the line");
	refuse("a = [1\n2]", "f:2: expected ',' or ']' in an array");
	refuse("a = [1,\n\n", "f:3: array without closing ] (line 1)");
	refuse("a = {b = 1", "f:1: expected ',' or '}' in a table");
	refuse("a = {b = 1,}", "f:1: a key is missing");
	refuse("a = {\n}", "f:1: a key is missing");
}

static void parse_refuses_foreign_bytes(void **state)
{
	(void)state;
	refuse("a = 1\n# \xff", "f:2: text is not UTF-8");
	refuse("# \xed\xa0\x80", "f:1: text is not UTF-8");
	refuse("# \xc0\xaf", "f:1: text is not UTF-8");
	refuse("# \xe2\x82", "f:1: text is not UTF-8");
	refuse("a = 1\r", "f:1: carriage return within a line");
	refuse("a = '\x1b[2J'", "f:1: control character 0x1b");
	refuse_len("a = 1\n\0", 7, "f:2: control character 0x00");
}

static void repeat(struct buf *b, const char *s, size_t n)
{
	while (n--)
		assert_int_equal(buf_adds(b, s), 0);
}

static void parse_bounds_depth_number_and_size(void **state)
{
	owned(buf) struct buf deep = { 0 }, path = { 0 }, many = { 0 },
			      big = { 0 };

	(void)state;
	repeat(&deep, "a = ", 1);
	repeat(&deep, "[", 10000);
	refuse((char *)deep.p, "f:1: nested deeper than 16 levels");
	repeat(&path, "a.", 10000);
	repeat(&path, "a = 1", 1);
	refuse((char *)path.p, "f:1: nested deeper than 16 levels");
	repeat(&many, "a = [", 1);
	repeat(&many, "1,", 20000);
	refuse((char *)many.p, "f:1: more than 16384 values");
	repeat(&big, "# sixteen bytes\n", TOML_SIZE_MAX / 16);
	toml_free(must_parse((char *)big.p));
	repeat(&big, "\n", 1);
	refuse((char *)big.p, "f: larger than 1048576 bytes");
}

static void parse_accepts_its_greatest_depth(void **state)
{
	owned(toml) struct toml *t =
		must_parse("a = [[[[[[[[[[[[[[[]]]]]]]]]]]]]]]");

	(void)state;
	assert_int_equal(toml_find(t, "a")->type, TOML_ARRAY);
	refuse("a = [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]",
	       "f:1: nested deeper than 16 levels");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_accepts_empty_documents),
		cmocka_unit_test(parse_reads_integers_to_their_limits),
		cmocka_unit_test(parse_reads_floats),
		cmocka_unit_test(parse_reads_arrays_of_tables),
		cmocka_unit_test(parse_reads_strings_and_escapes),
		cmocka_unit_test(parse_keeps_the_order_of_tables),
		cmocka_unit_test(parse_reads_dotted_keys_and_inline_tables),
		cmocka_unit_test(parse_refuses_a_second_definition),
		cmocka_unit_test(parse_lets_a_header_follow_its_children),
		cmocka_unit_test(parse_names_what_is_malformed),
		cmocka_unit_test(parse_refuses_foreign_bytes),
		cmocka_unit_test(parse_bounds_depth_number_and_size),
		cmocka_unit_test(parse_accepts_its_greatest_depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
