/* SPDX-License-Identifier: Apache-2.0 */
#include "verity/leaves.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <libfsverity.h>

#include "verity/sha256.h"

static uint8_t *random_bytes(size_t len)
{
	uint8_t *p = malloc(len ? len : 1);
	uint32_t x = 2463534242u;

	assert_non_null(p);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		p[i] = (uint8_t)x;
	}
	return p;
}

struct cursor {
	const uint8_t *p;
};

static int read_cursor(void *c, void *buf, size_t len)
{
	struct cursor *cursor = c;

	memcpy(buf, cursor->p, len);
	cursor->p += len;
	return 0;
}

static void compare_with_libfsverity(size_t size)
{
	owned(mem) uint8_t *p = random_bytes(size);
	size_t n = leaves_count(size);
	owned(mem) struct digest *leaves = malloc((n + 1) * sizeof(*leaves));
	struct libfsverity_merkle_tree_params params = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.file_size = size,
		.block_size = LEAF_BLOCK,
	};
	struct libfsverity_digest *want = NULL;
	struct cursor c = { p };
	struct digest got;

	assert_non_null(leaves);
	assert_int_equal(leaves_hash(p, size, leaves), 0);
	assert_int_equal(leaves_root(leaves, size, &got), 0);
	assert_int_equal(
		libfsverity_compute_digest(&c, read_cursor, &params, &want), 0);
	assert_int_equal(want->digest_size, DIGEST_LEN);
	assert_memory_equal(got.b, want->digest, DIGEST_LEN);
	free(want);
}

static void leaves_root_equals_libfsverity(void **state)
{
	static const size_t sizes[] = {
		0,      1,      100,     4095,    4096,
		4097,   8192,   520192,  524287,  524288, /* 128 blocks */
		524289, 528384, 1 << 20, 5000000, 5 << 20,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		compare_with_libfsverity(sizes[i]);
}

/* All sizes that are one byte off a border of a block or level, and others. */
static void leaves_root_equals_libfsverity_at_all_borders(void **state)
{
	const size_t level = 128 * LEAF_BLOCK;
	uint32_t x = 88172645;

	(void)state;
	for (size_t blocks = 1; blocks <= 5; blocks++)
		for (size_t d = 0; d < 3; d++)
			compare_with_libfsverity(blocks * LEAF_BLOCK + d - 1);
	for (size_t k = 1; k <= 4; k++)
		for (size_t d = 0; d < 5; d++)
			compare_with_libfsverity(k * level +
						 (d == 0   ? -(size_t)LEAF_BLOCK
						  : d == 4 ? LEAF_BLOCK
							   : d - 2));
	for (int i = 0; i < 40; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		compare_with_libfsverity(x % (2 * level));
	}
	/* two full levels, and what begins a third */
	compare_with_libfsverity(128 * level);
	compare_with_libfsverity(128 * level + LEAF_BLOCK);
}

static void leaf_hash_pads_with_zeros(void **state)
{
	uint8_t block[LEAF_BLOCK] = "short";
	struct digest padded, plain;

	(void)state;
	assert_int_equal(leaf_hash("short", 5, &padded), 0);
	assert_int_equal(sha256_buf(block, sizeof(block), &plain), 0);
	assert_memory_equal(padded.b, plain.b, DIGEST_LEN);
}

static void leaf_hash_refuses_more_than_a_block(void **state)
{
	uint8_t p[LEAF_BLOCK + 1] = { 0 };
	struct digest d;

	(void)state;
	assert_int_equal(leaf_hash(p, sizeof(p), &d), -EINVAL);
}

static void leaf_tree_end_wants_all_leaves(void **state)
{
	owned(leaf_tree) struct leaf_tree *t = NULL;
	struct digest leaf = { { 1 } }, d;

	(void)state;
	assert_int_equal(leaf_tree_new(2 * LEAF_BLOCK, &t), 0);
	assert_int_equal(leaf_tree_add(t, &leaf, 1), 0);
	assert_int_equal(leaf_tree_end(t, &d), -EINVAL);
	assert_int_equal(leaf_tree_add(t, &leaf, 1), 0);
	assert_int_equal(leaf_tree_add(t, &leaf, 1), -EINVAL);
	assert_int_equal(leaf_tree_end(t, &d), 0);
}

static void leaves_count_does_not_overflow(void **state)
{
	(void)state;
	assert_true(leaves_count(UINT64_MAX) == 1ull << 52);
	assert_true(leaves_count(0) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_root_equals_libfsverity),
		cmocka_unit_test(leaves_root_equals_libfsverity_at_all_borders),
		cmocka_unit_test(leaf_hash_pads_with_zeros),
		cmocka_unit_test(leaf_hash_refuses_more_than_a_block),
		cmocka_unit_test(leaf_tree_end_wants_all_leaves),
		cmocka_unit_test(leaves_count_does_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
