/* SPDX-License-Identifier: Apache-2.0 */
/* image_parse_manifest(): what is understood, and what is refused and why. */
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_parse_manifest_takes_layers_in_order),
		cmocka_unit_test(image_parse_manifest_takes_no_layers),
		cmocka_unit_test(image_parse_manifest_refuses),
		cmocka_unit_test(image_parse_manifest_bounds_the_layers),
		cmocka_unit_test(image_parse_manifest_without_err),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
