/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "snapshotter/body.h"
#include "verity/sha256.h"

static const struct digest d1 = { { 0x11, 0x22 } };

static void ckey_end_gives_the_documented_encoding(void **state)
{
	/* 9 + NUL, le64 300000, le32 262144 + digest, le32 37856 + zeros */
	uint8_t text[10 + 8 + 36 + 36] = "vs-body-1";
	struct ckey_builder *k;
	struct digest want, got;

	(void)state;
	memcpy(text + 10, "\xe0\x93\x04\0\0\0\0", 8);
	memcpy(text + 18, "\0\0\x04", 4);
	memcpy(text + 22, d1.b, DIGEST_LEN);
	memcpy(text + 54, "\xe0\x93\0", 4);
	assert_int_equal(sha256_buf(text, sizeof(text), &want), 0);
	assert_int_equal(ckey_begin(300000, &k), 0);
	assert_int_equal(ckey_add(k, 262144, &d1), 0);
	assert_int_equal(ckey_add(k, 37856, NULL), 0);
	assert_int_equal(ckey_end(k, &got), 0);
	assert_memory_equal(got.b, want.b, DIGEST_LEN);
}

static void ckey_add_refuses_more_than_the_size(void **state)
{
	struct ckey_builder *k;

	(void)state;
	assert_int_equal(ckey_begin(100, &k), 0);
	assert_int_equal(ckey_add(k, 0, &d1), -EINVAL);
	assert_int_equal(ckey_add(k, 101, &d1), -EINVAL);
	assert_int_equal(ckey_add(k, 99, &d1), 0);
	assert_int_equal(ckey_add(k, 2, &d1), -EINVAL);
	ckey_free(k);
}

static void ckey_end_refuses_less_than_the_size(void **state)
{
	struct ckey_builder *k;
	struct digest d;

	(void)state;
	assert_int_equal(ckey_begin(100, &k), 0);
	assert_int_equal(ckey_add(k, 99, &d1), 0);
	assert_int_equal(ckey_end(k, &d), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ckey_end_gives_the_documented_encoding),
		cmocka_unit_test(ckey_add_refuses_more_than_the_size),
		cmocka_unit_test(ckey_end_refuses_less_than_the_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
