/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/labels: the set, and both label families. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "snapshotter/labels.h"

#define HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8"
#define D(x) "sha256:" HEX #x
#define CRI "containerd.io/snapshot/cri."
#define STARGZ "containerd.io/snapshot/remote/stargz."

static void put(struct labels *l, const char *k, const char *v)
{
	assert_int_equal(labels_set(l, k, v), 0);
}

static void assert_digest(const struct digest *d, const char *text)
{
	assert_string_equal(digest_str(d).s, text);
}

static void labels_set_sorts_replaces_and_removes(void **state)
{
	owned(labels) struct labels l = { 0 };

	(void)state;
	put(&l, "m", "1");
	put(&l, "z", "2");
	put(&l, "a", "3");
	put(&l, "m", "4");
	assert_int_equal(l.n, 3);
	assert_string_equal(l.v[0].key, "a");
	assert_string_equal(l.v[1].key, "m");
	assert_string_equal(l.v[2].key, "z");
	assert_string_equal(labels_get(&l, "m"), "4");
	put(&l, "m", "");
	put(&l, "nobody", NULL);
	assert_null(labels_get(&l, "m"));
	assert_int_equal(l.n, 2);
	assert_string_equal(labels_get(&l, "z"), "2");
}

static void labels_copy_replaces_and_leaves_the_source_alone(void **state)
{
	owned(labels) struct labels a = { 0 }, b = { 0 };

	(void)state;
	put(&a, "k", "v");
	put(&b, "old", "x");
	assert_int_equal(labels_copy(&a, &b), 0);
	put(&a, "k", "changed");
	assert_int_equal(b.n, 1);
	assert_string_equal(labels_get(&b, "k"), "v");
}

static void labels_parse_understands_the_cri_family(void **state)
{
	owned(labels) struct labels l = { 0 };
	struct layer_labels ll;
	struct err e = ERR_INIT;

	(void)state;
	put(&l, LABEL_REF, D(01));
	put(&l, CRI "image-ref", "reg.test:5000/a/b:tag");
	put(&l, CRI "manifest-digest", D(02));
	put(&l, CRI "layer-digest", D(03));
	put(&l, CRI "image-layers", D(03) "," D(04));
	put(&l, LABEL_TOC_DIGEST, D(05));
	put(&l, LABEL_DIFF_ID, D(06));
	assert_int_equal(labels_parse(&l, &ll, &e), 0);
	assert_string_equal(ll.ref, D(01));
	assert_digest(&ll.ref_digest, D(01));
	assert_string_equal(ll.image_ref, "reg.test:5000/a/b:tag");
	assert_digest(&ll.manifest, D(02));
	assert_digest(&ll.layer, D(03));
	assert_digest(&ll.toc, D(05));
	assert_digest(&ll.diff_id, D(06));
	assert_int_equal(ll.n_image_layers, 2);
	assert_digest(&ll.image_layers[1], D(04));
	assert_int_equal(ll.prefetch_size, 0);
}

static void labels_parse_understands_the_stargz_family(void **state)
{
	owned(labels) struct labels l = { 0 };
	struct layer_labels ll;
	struct err e = ERR_INIT;

	(void)state;
	put(&l, LABEL_REF, D(01));
	put(&l, STARGZ "reference", "localhost:5000/x");
	put(&l, STARGZ "digest", D(02));
	put(&l, STARGZ "layers", D(02) "," D(03) ",");
	put(&l, STARGZ "prefetch", "10485760");
	assert_int_equal(labels_parse(&l, &ll, &e), 0);
	assert_string_equal(ll.image_ref, "localhost:5000/x");
	assert_digest(&ll.layer, D(02));
	assert_int_equal(ll.n_image_layers, 2);
	assert_int_equal(ll.prefetch_size, 10485760);
	assert_true(digest_is_zero(&ll.manifest));

	/* A client that sends both: containerd's word counts. */
	put(&l, CRI "layer-digest", D(07));
	assert_int_equal(labels_parse(&l, &ll, &e), 0);
	assert_digest(&ll.layer, D(07));
}

static void labels_parse_of_an_ordinary_prepare_tells_nothing(void **state)
{
	struct labels none = { 0 };
	struct layer_labels ll;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(labels_parse(&none, &ll, &e), 0);
	assert_null(ll.ref);
	assert_null(ll.image_ref);
	assert_int_equal(ll.n_image_layers, 0);
}

static void labels_parse_names_the_malformed_label(void **state)
{
	static const char *const bad[][2] = {
		{ CRI "layer-digest", "sha512:00" },
		{ STARGZ "digest", "sha256:../../../etc/passwd" },
		{ CRI "manifest-digest", "x" },
		{ LABEL_TOC_DIGEST, D(0) },
		{ LABEL_DIFF_ID, "sha256:" },
		{ STARGZ "prefetch", "-1" },
		{ STARGZ "prefetch", "9223372036854775808" },
		{ STARGZ "prefetch", "1k" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		owned(labels) struct labels l = { 0 };
		struct layer_labels ll;
		struct err e = ERR_INIT;

		put(&l, bad[i][0], bad[i][1]);
		assert_int_equal(labels_parse(&l, &ll, &e), -1);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_non_null(strstr(e.msg, bad[i][0]));
	}
}

static void labels_parse_reads_a_cut_list_as_far_as_it_goes(void **state)
{
	owned(labels) struct labels l = { 0 };
	static char many[200 * (DIGEST_STR_LEN + 1) + 1];
	struct layer_labels ll;
	struct err e = ERR_INIT;

	(void)state;
	put(&l, CRI "image-layers", D(01) ",sha256:e3b0c");
	assert_int_equal(labels_parse(&l, &ll, &e), 0);
	assert_int_equal(ll.n_image_layers, 1);

	for (int i = 0; i < 200; i++)
		(void)snprintf(many + strlen(many), 80, "sha256:" HEX "%02x,",
			       i & 0xff);
	put(&l, CRI "image-layers", many);
	assert_int_equal(labels_parse(&l, &ll, &e), 0);
	assert_int_equal(ll.n_image_layers, LABEL_LAYERS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(labels_set_sorts_replaces_and_removes),
		cmocka_unit_test(
			labels_copy_replaces_and_leaves_the_source_alone),
		cmocka_unit_test(labels_parse_understands_the_cri_family),
		cmocka_unit_test(labels_parse_understands_the_stargz_family),
		cmocka_unit_test(
			labels_parse_of_an_ordinary_prepare_tells_nothing),
		cmocka_unit_test(labels_parse_names_the_malformed_label),
		cmocka_unit_test(
			labels_parse_reads_a_cut_list_as_far_as_it_goes),
	};

	return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
