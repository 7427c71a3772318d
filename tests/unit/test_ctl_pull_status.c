/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/ctl_pull_status: which layers are an image's, what they add up to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plugin/ctl_pull_status.h"
#include "plugin/ctl_text.h"

#define IMG "\"image\":\"r.example:5000/a/b:v1\","
#define HALF IMG "\"state\":\"lazy\",\"bytes_total\":100,\"bytes_local\":40,"
#define DONE                                                                  \
	IMG "\"state\":\"complete\",\"bytes_total\":100,\"bytes_local\":100," \
	    "\"reason\":\"\","
#define ORDINARY \
	IMG "\"state\":\"fallback\",\"bytes_total\":7,\"reason\":\"no table\""

static struct pull_sum sum(const char *layers, const char *image)
{
	owned(mem) char *text = NULL;
	owned(json) struct json_object *doc = NULL;
	struct pull_sum ps = { 0 };
	struct err e = ERR_INIT;

	assert_true(asprintf(&text, "{\"layers\":[%s]}", layers) > 0);
	doc = json_tokener_parse(text);
	assert_non_null(doc);
	if (pull_sum_up(doc, image, &ps, &e) < 0)
		fail_msg("%s", e.msg);
	return ps;
}

static struct pull_sum sum_b(const char *layers)
{
	return sum(layers, "r.example:5000/a/b:v1");
}

static void sum_finds_an_image_by_any_spelling(void **state)
{
	static const char hub[] =
		"{\"image\":\"docker.io/library/alpine:latest\","
		"\"state\":\"complete\",\"bytes_total\":1}";
	static const char pinned[] =
		"{\"image\":\"r.example/a@sha256:"
		"0000000000000000000000000000000000000000000000000000000000000001"
		"\",\"state\":\"complete\"}";

	(void)state;
	assert_int_equal(sum(hub, "alpine").n_layers, 1);
	assert_int_equal(sum(hub, "library/alpine:latest").n_layers, 1);
	assert_int_equal(sum(hub, "docker.io/alpine").n_layers, 1);
	assert_int_equal(sum(hub, "alpine:3").n_layers, 0);
	assert_int_equal(sum(hub, "r.example/library/alpine").n_layers, 0);
	assert_int_equal(sum(pinned, "r.example/a").n_layers, 0);
	assert_int_equal(
		sum(pinned,
		    "r.example/a@sha256:"
		    "0000000000000000000000000000000000000000000000000000000000000001")
			.n_layers,
		1);
	assert_int_equal(sum("", "alpine").state, PULL_UNKNOWN);
}

static void sum_finds_layers_that_others_brought(void **state)
{
	/* app stands on mid and base, other on base alone; numbers that do not
	 * exist, and a circle, do no harm. */
	static const char text[] =
		"{\"layers\":["
		"{\"image\":\"r.example/base:1\",\"state\":\"lazy\",\"seq\":1},"
		"{\"image\":\"r.example/mid:1\",\"state\":\"complete\",\"seq\":2},"
		"{\"image\":\"r.example/app:1\",\"state\":\"complete\",\"seq\":3},"
		"{\"image\":\"r.example/other:1\",\"state\":\"bad\",\"seq\":4}],"
		"\"below\":[[2,1],[3,2],[4,1],[3,9],[9,4],[1,3],[1],7]}";
	owned(json) struct json_object *doc = json_tokener_parse(text);
	struct pull_sum ps = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(doc);
	assert_int_equal(pull_sum_up(doc, "r.example/app:1", &ps, &e), 0);
	assert_int_equal(ps.n_layers, 3);
	assert_int_equal(ps.state, PULL_FETCHING);
	assert_int_equal(pull_sum_up(doc, "r.example/other:1", &ps, &e), 0);
	assert_int_equal(ps.state, PULL_BAD);
	assert_int_equal(pull_sum_up(doc, "r.example/none:1", &ps, &e), 0);
	assert_int_equal(ps.n_layers, 0);
}

static void sum_refuses_what_is_no_reference(void **state)
{
	owned(json) struct json_object *doc =
		json_tokener_parse("{\"layers\":[]}");
	owned(json) struct json_object *none = json_tokener_parse("{}");
	struct pull_sum ps;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(pull_sum_up(doc, "A b", &ps, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_int_equal(pull_sum_up(none, "alpine", &ps, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
}

static void sum_adds_layers_and_leaves_others(void **state)
{
	struct pull_sum ps =
		sum_b("{" HALF "\"waiting\":2,\"reason\":\"no route\"},"
		      "{" DONE "\"proven\":true},{" ORDINARY "},"
		      "{\"image\":\"r.example:5000/a/b:v2\",\"state\":\"bad\","
		      "\"reason\":\"other\",\"bytes_total\":1000}");

	(void)state;
	assert_int_equal(ps.state, PULL_FETCHING);
	assert_int_equal(ps.n_layers, 3);
	assert_int_equal(ps.n_complete, 1);
	assert_int_equal(ps.n_proven, 1);
	assert_int_equal(ps.n_fallback, 1);
	assert_int_equal(ps.bytes_total, 200);
	assert_int_equal(ps.bytes_local, 140);
	assert_int_equal(ps.n_waiting, 2);
	assert_string_equal(ps.reason, "no route");
}

static void sum_judges_by_the_worst(void **state)
{
	(void)state;
	assert_int_equal(sum_b("{" DONE "\"proven\":false}").state,
			 PULL_COMPLETE);
	assert_int_equal(sum_b("{" DONE "\"proven\":true}").state, PULL_PROVEN);
	assert_int_equal(
		sum_b("{" DONE "\"proven\":true},{" DONE "\"proven\":false}")
			.state,
		PULL_COMPLETE);
	assert_int_equal(
		sum_b("{" DONE "\"proven\":true},{" ORDINARY "}").state,
		PULL_PROVEN);
	assert_int_equal(sum_b("{" ORDINARY "}").state, PULL_FALLBACK);
	for (int i = 0; i < 2; i++) {
		struct pull_sum ps = sum_b(
			i ? "{" IMG
			    "\"state\":\"bad\",\"reason\":\"a lie\x1b\"},"
			    "{" HALF "\"reason\":\"slow\"}"
			  : "{" HALF "\"reason\":\"slow\"},{" IMG
			    "\"state\":\"bad\",\"reason\":\"a lie\x1b\"}");

		assert_int_equal(ps.state, PULL_BAD);
		assert_string_equal(ps.reason, "a lie?");
	}
}

static void expect_bar(unsigned width, const char *want)
{
	struct pull_sum ps = { .state = PULL_FETCHING,
			       .n_layers = 3,
			       .n_complete = 1,
			       .bytes_total = 1000,
			       .bytes_local = 999 };
	char text[200];

	pull_bar(&ps, 2048, width, text, sizeof(text));
	assert_string_equal(text, want);
	assert_true(strlen(text) <= width);
}

static void bar_fits_its_terminal(void **state)
{
	struct pull_sum done = { .state = PULL_COMPLETE };
	char text[200];

	(void)state;
	expect_bar(68, "[#########.] fetching 99%, 999 B of 1000 B, 2.0 KiB/s, "
		       "1 of 3 layers");
	expect_bar(60, "fetching 99%, 999 B of 1000 B, 2.0 KiB/s, "
		       "1 of 3 layers");
	expect_bar(12, "fetching 99%");
	expect_bar(0, "");
	pull_bar(&done, 0, 199, text, sizeof(text));
	assert_memory_equal(text,
			    "[########################################] "
			    "complete 100%",
			    56);
}

static void bar_of_nothing_is_empty(void **state)
{
	struct pull_sum ps = { .state = PULL_FETCHING };
	char text[200];

	(void)state;
	/* Layers without contents, and more local than total. */
	pull_bar(&ps, 0, 199, text, sizeof(text));
	assert_non_null(strstr(text, "fetching 0%, 0 B of 0 B"));
	ps.bytes_total = 10;
	ps.bytes_local = UINT64_MAX;
	pull_bar(&ps, UINT64_MAX, 199, text, sizeof(text));
	assert_non_null(strstr(text, "fetching 99%"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum_finds_an_image_by_any_spelling),
		cmocka_unit_test(sum_finds_layers_that_others_brought),
		cmocka_unit_test(sum_refuses_what_is_no_reference),
		cmocka_unit_test(sum_adds_layers_and_leaves_others),
		cmocka_unit_test(sum_judges_by_the_worst),
		cmocka_unit_test(bar_fits_its_terminal),
		cmocka_unit_test(bar_of_nothing_is_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
