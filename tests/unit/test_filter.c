/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshotter/filter: containerd's filter language. The table follows the
 * cases of containerd pkg/filters/filter_test.go, with our subjects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "snapshotter/filter.h"

#define N_SNAPS 6

static struct snap snaps[N_SNAPS];

static void define(int i, const char *name, const char *parent,
		   enum snap_kind kind, const char *key, const char *value)
{
	snaps[i].name = strdup(name);
	snaps[i].parent = strdup(parent);
	snaps[i].kind = kind;
	assert_non_null(snaps[i].name);
	assert_non_null(snaps[i].parent);
	if (key)
		assert_int_equal(labels_set(&snaps[i].labels, key, value), 0);
}

static int setup(void **state)
{
	(void)state;
	define(0, "foo", "", SNAP_KIND_COMMITTED, "foo", "true");
	define(1, "bar", "foo", SNAP_KIND_ACTIVE, NULL, NULL);
	define(2, "foo bar", "foo", SNAP_KIND_VIEW, "label with \\ and \".post",
	       "present");
	define(3, "ns/1/sha256:ab", "ns/2/x,y", SNAP_KIND_COMMITTED, LABEL_REF,
	       "sha256:00");
	define(4, "b\xc3\xa4r", "", SNAP_KIND_ACTIVE, "a.b", "omg_asdf.asdf-q");
	define(5, "zabc", "foo", SNAP_KIND_ACTIVE, "foo", "other");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < N_SNAPS; i++)
		snap_release(&snaps[i]);
	return 0;
}

/* The indices that match, as text: "0 3 ". */
static void matches(const char *const *texts, size_t n, char *out, size_t size)
{
	owned(filters) struct filters *f = NULL;
	struct err e = ERR_INIT;

	if (filters_parse(texts, n, &f, &e) < 0)
		fail_msg("'%s': %s", n ? texts[0] : "", e.msg);
	*out = '\0';
	for (int i = 0; i < N_SNAPS; i++)
		if (filters_match(f, &snaps[i]))
			(void)snprintf(out + strlen(out), size - strlen(out),
				       "%d ", i);
}

static void filters_match_as_containerd_does(void **state)
{
	static const struct {
		const char *text, *expect;
	} cases[] = {
		{ "", "0 1 2 3 4 5 " },
		{ "name", "0 1 2 3 4 5 " },
		{ "parent", "0 1 2 3 4 5 " }, /* "" is present, too */
		{ "nosuch", "" },
		{ "labels", "" },
		{ "labels.foo", "0 5 " },
		{ "labels.foo,kind==active", "5 " },
		{ "labels.foo==true", "0 " },
		{ "labels.foo!=true", "1 2 3 4 5 " },
		{ "name==bar", "1 " },
		{ "name!=bar", "0 2 3 4 5 " },
		{ "nosuch!=x", "0 1 2 3 4 5 " },
		{ "nosuch!=\"\"", "" },
		{ "name==\"foo bar\"", "2 " },
		{ "name == foo", "0 " },
		{ "name.what.ever==foo", "0 " },
		{ "kind==committed", "0 3 " },
		{ "kind==view", "2 " },
		{ "parent==\"\"", "0 4 " },
		{ "parent!=\"\"", "1 2 3 5 " },
		{ "labels.a.b==omg_asdf.asdf-q", "4 " },
		{ "labels.\"a.b\"==omg_asdf.asdf-q", "4 " },
		{ "labels.\"label with \\\\ and \\\"\".post==present", "2 " },
		{ "name~=^foo", "0 2 " },
		{ "name~=[abc]+,name!=bar", "2 3 4 5 " },
		{ "name~=/[abc]{3,4}/", "5 " },
		{ "name~=|^z|", "5 " },
		{ "name~=/[abc]{0,1}\"\\//", "" },
		{ "name==b\xc3\xa4r", "4 " },
		{ "name==\"b\\u00e4r\"", "4 " },
		{ "name==\"b\\xc3\\xa4r\"", "4 " },
		{ "name==\"\\142ar\"", "1 " },
		{ "labels.\"containerd.io/snapshot.ref\"==sha256:00,"
		  "parent==\"ns/2/x,y\"",
		  "3 " },
	};
	char got[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		matches(&cases[i].text, 1, got, sizeof(got));
		if (strcmp(got, cases[i].expect) != 0)
			fail_msg("'%s': got '%s', expected '%s'", cases[i].text,
				 got, cases[i].expect);
	}
}

static void filters_of_a_list_are_alternatives(void **state)
{
	static const char *const two[] = { "name==bar", "kind==view" };
	static const char *const all[] = { "name==bar", "" };
	char got[64];

	(void)state;
	matches(two, 2, got, sizeof(got));
	assert_string_equal(got, "1 2 ");
	matches(all, 2, got, sizeof(got));
	assert_string_equal(got, "0 1 2 3 4 5 ");
	matches(NULL, 0, got, sizeof(got));
	assert_string_equal(got, "0 1 2 3 4 5 ");
}

static void filters_parse_refuses_what_containerd_refuses(void **state)
{
	static const char *const bad[] = {
		"labels.|foo|==x",
		"labels.?\"x\"==y",
		"name==foo,",
		",name",
		"labels.",
		".name",
		"image~=,id?=?fbaq",
		"labels.ns/key==value",
		"name==/value",
		"name==\"x",
		"name==\"x\\q\"",
		"name==\"x\\u12\"",
		"name==\"\\400\"",
		"name==\"\\U00110000\"",
		"name==\"a\\000b\"",
		"name=x",
		"name===x",
		"name=~x",
		"name==x y",
		"name ,kind",
		"name==",
		"name==\"a\nb\"",
		"name==\xff\xfe",
		"name==\xc0\xaf",
		"name==\xed\xa0\x80",
		"name==\xe4\xb8",
		"name~=/[/",
		"name~=/(/",
		"name~=/(a)\\1/", /* as Go text already no escape */
		"\x01",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct filters *f = NULL;
		struct err e = ERR_INIT;

		if (filters_parse(&bad[i], 1, &f, &e) == 0)
			fail_msg("accepted '%s'", bad[i]);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_null(f);
	}
}

static void filters_parse_refuses_expensive_expressions(void **state)
{
	static char longest[600] = "name~=";
	static const char *const bad[] = {
		"name~=((a{255}){255}){255}",
		"name~=a{99999999999999999999}",
		"name~=(a)\\1",
		"name~=a++++++++++++++++++++++++++++++++++++++++++++",
		"name~=((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+",
		longest,
	};

	(void)state;
	memset(longest + 6, 'a', sizeof(longest) - 7);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct filters *f = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(filters_parse(&bad[i], 1, &f, &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
	}
}

static void filters_parse_error_says_where(void **state)
{
	static const char *const text = "name==foo,labels.?x";
	struct filters *f = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(filters_parse(&text, 1, &f, &e), -1);
	assert_string_equal(
		e.msg, "filter: expected field or quoted at offset 17: '?x'");
}

static void filters_ref_knows_the_query_of_containerd(void **state)
{
	static const struct {
		const char *texts[2];
		size_t n;
		const char *ref;
	} cases[] = {
		{ { "labels.\"containerd.io/snapshot.ref\"==R,parent==P" },
		  1,
		  "R" },
		{ { "labels.\"containerd.io/snapshot.ref\"!=R" }, 1, NULL },
		{ { "labels.\"containerd.io/snapshot.ref\"" }, 1, NULL },
		{ { "labels.other==R" }, 1, NULL },
		{ { "labels.\"containerd.io/snapshot.ref\"==R", "name" },
		  2,
		  NULL },
		{ { NULL }, 0, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(filters) struct filters *f = NULL;
		struct err e = ERR_INIT;
		const char *ref;

		assert_int_equal(
			filters_parse(cases[i].texts, cases[i].n, &f, &e), 0);
		ref = filters_ref(f);
		if (cases[i].ref)
			assert_string_equal(ref, cases[i].ref);
		else
			assert_null(ref);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_match_as_containerd_does),
		cmocka_unit_test(filters_of_a_list_are_alternatives),
		cmocka_unit_test(filters_parse_refuses_what_containerd_refuses),
		cmocka_unit_test(filters_parse_refuses_expensive_expressions),
		cmocka_unit_test(filters_parse_error_says_where),
		cmocka_unit_test(filters_ref_knows_the_query_of_containerd),
	};

	return cmocka_run_group_tests_name("filter", tests, setup, teardown);
}
