/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests, indexes, configurations: what is understood, and what is refused
 * and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "snapshotter/image.h"

#define A \
	"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B \
	"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define TOC "containerd.io/snapshot/stargz/toc.digest"

static int parse(const char *json, struct image *im, struct err *e)
{
	size_t len = strlen(json);
	char *exact = malloc(len ? len : 1); /* no NUL behind it */
	int r;

	assert_non_null(exact);
	memcpy(exact, json, len);
	memset(e, 0, sizeof(*e));
	r = image_parse_manifest(exact, len, im, e);
	free(exact);
	return r;
}

static void image_parse_manifest_takes_layers_in_order(void **state)
{
	struct image im;
	struct err e;

	(void)state;
	assert_int_equal(
		parse("{\"schemaVersion\":2,\"config\":{\"digest\":\"" A "\"},"
		      "\"layers\":[{\"digest\":\"" A "\",\"size\":7,"
		      "\"annotations\":{\"" TOC "\":\"" B "\",\"x\":\"y\"}},"
		      "{\"size\":9223372036854775807,\"digest\":\"" B "\"}]}\n",
		      &im, &e),
		0);
	assert_int_equal(im.n_layers, 2);
	assert_int_equal(im.layers[0].blob.b[0], 0xaa);
	assert_int_equal(im.layers[0].toc.b[31], 0xbb);
	assert_int_equal(im.layers[0].size, 7);
	assert_int_equal(im.layers[1].blob.b[0], 0xbb);
	assert_true(digest_is_zero(&im.layers[1].toc));
	assert_true(im.layers[1].size == INT64_MAX);
	image_release(&im);
	assert_int_equal(im.n_layers, 0);
}

static void image_parse_manifest_takes_no_layers(void **state)
{
	struct image im;
	struct err e;

	(void)state;
	assert_int_equal(parse("{\"layers\":[]}", &im, &e), 0);
	assert_int_equal(im.n_layers, 0);
	image_release(&im);
}

static void image_parse_manifest_refuses(void **state)
{
	static const struct {
		const char *json, *why;
	} cases[] = {
		{ "", "not JSON" },
		{ "{", "not JSON" },
		{ "null", "not JSON" },
		{ "[]", "not JSON" },
		{ "{\"layers\":[]} {\"layers\":[]}", "not JSON" },
		{ "{\"layers\":[]}x", "not JSON" },
		{ "{\"layers\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}",
		  "not JSON" },
		{ "{}", "no layers" },
		{ "{\"layers\":{}}", "no layers" },
		{ "{\"layers\":null}", "no layers" },
		{ "{\"manifests\":[]}", "index" },
		/* both: what one reader takes for a manifest another takes for
		 * an index */
		{ "{\"layers\":[],\"manifests\":[]}", "index" },
		{ "{\"layers\":[],\"manifests\":null}", "index" },
		{ "{\"layers\":[1]}", "layer 0: layer is not an object" },
		{ "{\"layers\":[null]}", "layer 0: layer is not an object" },
		{ "{\"layers\":[{\"size\":1}]}", "digest" },
		{ "{\"layers\":[{\"digest\":5,\"size\":1}]}", "digest" },
		{ "{\"layers\":[{\"digest\":\"sha256:aa\",\"size\":1}]}",
		  "digest" },
		{ "{\"layers\":[{\"digest\":\"" A "a\",\"size\":1}]}",
		  "digest" },
		{ "{\"layers\":[{\"digest\":\"" A "\"}]}", "size" },
		{ "{\"layers\":[{\"digest\":\"" A "\",\"size\":-1}]}", "size" },
		{ "{\"layers\":[{\"digest\":\"" A "\",\"size\":1.5}]}",
		  "size" },
		{ "{\"layers\":[{\"digest\":\"" A "\",\"size\":\"1\"}]}",
		  "size" },
		{ "{\"layers\":[{\"digest\":\"" A "\",\"size\":1},"
		  "{\"digest\":\"" A "\",\"size\":1,\"annotations\":{\"" TOC
		  "\":\"x\"}}]}",
		  "layer 1: TOC digest" },
	};
	struct image im;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int r = parse(cases[i].json, &im, &e);

		if (r == 0 || !strstr(e.msg, cases[i].why))
			print_error("%s: %d '%s'\n", cases[i].json, r, e.msg);
		assert_int_equal(r, -1);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_non_null(strstr(e.msg, cases[i].why));
	}
}

static void image_parse_manifest_bounds_the_layers(void **state)
{
	struct image im;
	struct err e;

	(void)state;
	for (int n = IMAGE_LAYERS_MAX; n <= IMAGE_LAYERS_MAX + 1; n++) {
		owned(buf) struct buf b = { 0 };

		(void)buf_adds(&b, "{\"layers\":[");
		for (int i = 0; i < n; i++)
			(void)buf_addf(&b,
				       "%s{\"digest\":\"" A "\",\"size\":%d}",
				       i ? "," : "", i);
		assert_int_equal(buf_adds(&b, "]}"), 0);
		if (n > IMAGE_LAYERS_MAX) {
			assert_int_equal(parse((char *)b.p, &im, &e), -1);
			assert_non_null(strstr(e.msg, "513 layers"));
		} else {
			assert_int_equal(parse((char *)b.p, &im, &e), 0);
			assert_int_equal(im.n_layers, n);
			assert_int_equal(im.layers[n - 1].size, n - 1);
			image_release(&im);
		}
	}
}

/* Nobody asks for the message. */
static void image_parse_manifest_without_err(void **state)
{
	struct image im;

	(void)state;
	assert_int_equal(
		image_parse_manifest("{\"layers\":[1]}", 14, &im, NULL), -1);
}

/* A parser's answer to text without a NUL behind it. */
static char *exact(const char *json)
{
	size_t len = strlen(json);
	char *p = malloc(len ? len : 1);

	assert_non_null(p);
	memcpy(p, json, len);
	return p;
}

static void image_parse_manifest_finds_the_configuration(void **state)
{
	struct image im;
	struct err e;

	(void)state;
	assert_int_equal(parse("{\"config\":{\"digest\":\"" B "\"},"
			       "\"layers\":[]}",
			       &im, &e),
			 0);
	assert_int_equal(im.config.b[0], 0xbb);
	image_release(&im);
	assert_int_equal(parse("{\"config\":{\"digest\":\"sha512:0\"},"
			       "\"layers\":[]}",
			       &im, &e),
			 0);
	assert_true(digest_is_zero(&im.config));
	image_release(&im);
}

static void image_parse_index_takes_what_has_a_digest(void **state)
{
	static const char json[] =
		"{\"manifests\":[{\"digest\":\"" A "\",\"platform\":"
		"{\"os\":\"linux\",\"architecture\":\"arm\","
		"\"variant\":\"v7\"}},{\"digest\":\"sha512:00\"},"
		"7,{\"digest\":\"" B "\"},{\"digest\":\"" A "\",\"platform\":"
		"{\"os\":\"a name that is too long for a system\"}}]}";
	char *p = exact(json);
	struct err e = ERR_INIT;
	struct image_index ix;

	(void)state;
	assert_true(image_is_index(p, strlen(json)));
	assert_int_equal(image_parse_index(p, strlen(json), &ix, &e), 0);
	assert_int_equal(ix.n_entries, 3);
	assert_true(ix.entries[0].has_platform);
	assert_string_equal(ix.entries[0].platform.arch, "arm");
	assert_string_equal(ix.entries[0].platform.variant, "v7");
	assert_false(ix.entries[1].has_platform);
	assert_int_equal(ix.entries[1].digest.b[0], 0xbb);
	assert_string_equal(ix.entries[2].platform.os, "?");
	image_index_release(&ix);
	free(p);
}

static void image_parse_index_refuses(void **state)
{
	static const char *const bad[] = { "",
					   "[]",
					   "{}",
					   "{\"manifests\":7}",
					   "{\"manifests\":[],\"layers\":[]}",
					   "{\"manifests\":[]}x" };
	owned(buf) struct buf many = { 0 };
	struct image_index ix;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char *p = exact(bad[i]);
		struct err e = ERR_INIT;

		assert_int_equal(image_parse_index(p, strlen(bad[i]), &ix, &e),
				 -1);
		assert_int_equal(e.kind, ERR_INVALID);
		free(p);
	}
	(void)buf_adds(&many, "{\"manifests\":[{}");
	for (int i = 0; i < IMAGE_MANIFESTS_MAX; i++)
		(void)buf_adds(&many, ",{}");
	assert_int_equal(buf_adds(&many, "]}"), 0);
	assert_int_equal(image_parse_index((char *)many.p, many.len, &ix, NULL),
			 -1);
}

static void image_parse_config_takes_diff_ids(void **state)
{
	static const char json[] =
		"{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":"
		"{\"diff_ids\":[\"" A "\",\"" B "\"]}}";
	char *p = exact(json);
	struct image_config c;

	(void)state;
	assert_int_equal(image_parse_config(p, strlen(json), &c, NULL), 0);
	assert_int_equal(c.n_diff_ids, 2);
	assert_int_equal(c.diff_ids[0].b[0], 0xaa);
	assert_int_equal(c.diff_ids[1].b[0], 0xbb);
	assert_string_equal(c.platform.arch, "amd64");
	image_config_release(&c);
	free(p);
}

static void image_parse_config_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"{}",
		"{\"rootfs\":{}}",
		"{\"rootfs\":{\"diff_ids\":{}}}",
		"{\"rootfs\":{\"diff_ids\":[7]}}",
		"{\"rootfs\":{\"diff_ids\":[\"" A "\",\"md5:0\"]}}",
	};
	struct image_config c;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char *p = exact(bad[i]);
		struct err e = ERR_INIT;

		assert_int_equal(image_parse_config(p, strlen(bad[i]), &c, &e),
				 -1);
		assert_int_equal(e.kind, ERR_INVALID);
		free(p);
	}
}

/* As containerd's platforms.Only() chooses. */
static void image_platform_fits_as_the_machine_runs(void **state)
{
	static const struct {
		struct image_platform node, image;
		unsigned fits;
	} cases[] = {
		{ { "linux", "amd64", "" }, { "linux", "amd64", "" }, 1 },
		{ { "linux", "amd64", "" }, { "linux", "amd64", "v1" }, 1 },
		{ { "linux", "amd64", "" }, { "linux", "amd64", "v3" }, 0 },
		{ { "linux", "amd64", "" }, { "linux", "386", "" }, 0 },
		{ { "linux", "amd64", "" }, { "windows", "amd64", "" }, 0 },
		{ { "linux", "amd64", "" }, { "unknown", "unknown", "" }, 0 },
		{ { "linux", "arm64", "v8" }, { "linux", "arm64", "" }, 1 },
		{ { "linux", "arm64", "v8" }, { "linux", "arm64", "v8" }, 1 },
		{ { "linux", "arm", "v7" }, { "linux", "arm", "" }, 7 },
		{ { "linux", "arm", "v7" }, { "linux", "arm", "v6" }, 6 },
		{ { "linux", "arm", "v7" }, { "linux", "arm", "v8" }, 0 },
		{ { "linux", "arm", "v7" }, { "linux", "arm", "x" }, 0 },
	};
	struct image_platform here;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (image_platform_fits(&cases[i].node, &cases[i].image) !=
		    cases[i].fits)
			fail_msg("case %zu", i);
	image_platform_node(&here);
	assert_true(image_platform_fits(&here, &here) > 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_parse_manifest_takes_layers_in_order),
		cmocka_unit_test(image_parse_manifest_takes_no_layers),
		cmocka_unit_test(image_parse_manifest_refuses),
		cmocka_unit_test(image_parse_manifest_bounds_the_layers),
		cmocka_unit_test(image_parse_manifest_without_err),
		cmocka_unit_test(image_parse_manifest_finds_the_configuration),
		cmocka_unit_test(image_parse_index_takes_what_has_a_digest),
		cmocka_unit_test(image_parse_index_refuses),
		cmocka_unit_test(image_parse_config_takes_diff_ids),
		cmocka_unit_test(image_parse_config_refuses),
		cmocka_unit_test(image_platform_fits_as_the_machine_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
