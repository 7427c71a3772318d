/* SPDX-License-Identifier: Apache-2.0 */
#include "verity/sha256.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* FIPS 180-2, appendix B */
static const char abc[] =
	"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
static const char million_a[] =
	"sha256:cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
static const char empty[] =
	"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

static void sha256_buf_gives_published_values(void **state)
{
	struct digest d;

	(void)state;
	assert_int_equal(sha256_buf("abc", 3, &d), 0);
	assert_string_equal(digest_str(&d).s, abc);
	assert_int_equal(sha256_buf("", 0, &d), 0);
	assert_string_equal(digest_str(&d).s, empty);
}

static void sha256_update_in_pieces_equals_one_piece(void **state)
{
	owned(sha256) struct sha256 *h = NULL;
	char a[1000];
	struct digest d;

	(void)state;
	memset(a, 'a', sizeof(a));
	assert_int_equal(sha256_new(&h), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(sha256_update(h, a, sizeof(a)), 0);
	assert_int_equal(sha256_end(h, &d), 0);
	assert_string_equal(digest_str(&d).s, million_a);
}

static void sha256_begin_forgets_what_was_added(void **state)
{
	owned(sha256) struct sha256 *h = NULL;
	struct digest d;

	(void)state;
	assert_int_equal(sha256_new(&h), 0);
	assert_int_equal(sha256_update(h, "junk", 4), 0);
	assert_int_equal(sha256_begin(h), 0);
	assert_int_equal(sha256_update(h, "abc", 3), 0);
	assert_int_equal(sha256_end(h, &d), 0);
	assert_string_equal(digest_str(&d).s, abc);
}

static void *hash_often(void *ret_bad)
{
	for (int i = 0; i < 2000; i++) {
		struct digest d;

		if (sha256_buf("abc", 3, &d) < 0 ||
		    strcmp(digest_str(&d).s, abc))
			++*(int *)ret_bad;
	}
	return NULL;
}

static void sha256_buf_keeps_threads_apart(void **state)
{
	pthread_t t[4];
	int bad[4] = { 0 };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&t[i], NULL, hash_often, &bad[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(bad[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_buf_gives_published_values),
		cmocka_unit_test(sha256_update_in_pieces_equals_one_piece),
		cmocka_unit_test(sha256_begin_forgets_what_was_added),
		cmocka_unit_test(sha256_buf_keeps_threads_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
