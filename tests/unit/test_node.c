/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/node: node ids, names of layers, the open table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fuse/node.h"

static void node_id_never_meets_the_root(void **state)
{
	(void)state;
	assert_true(node_id(0, 40) == (UINT64_C(1) << 32 | 40));
	assert_false(node_is_root(node_id(0, 1)));
	assert_int_equal(node_seq(node_id(4294967294u, 7)), 4294967294u);
	assert_int_equal(node_nid(node_id(9, UINT32_MAX)), UINT32_MAX);
}

static void node_parse_seq_accepts_one_spelling(void **state)
{
	static const char *const bad[] = {
		"",
		"00",
		"01",
		"-1",
		"+1",
		" 1",
		"1 ",
		"0x1",
		"1a",
		"4294967295",
		"4294967296",
		"18446744073709551617",
		"9999999999999999999999",
		".",
		"lost+found",
	};
	uint32_t seq = 77;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(node_parse_seq(bad[i], &seq), -ENOENT);
	assert_int_equal(seq, 77);
	assert_int_equal(node_parse_seq("0", &seq), 0);
	assert_int_equal(seq, 0);
	assert_int_equal(node_parse_seq("4294967294", &seq), 0);
	assert_int_equal(seq, 4294967294u);
}

static void open_table_reuses_a_slot_only_after_the_reply(void **state)
{
	struct open_table *t;
	uint32_t a, b;

	(void)state;
	assert_int_equal(open_table_new(3, &t), 0);
	a = open_table_take(t, 2, 100);
	b = open_table_take(t, 4, 100);
	assert_int_equal(a, 1);
	assert_int_equal(b, 2);
	assert_int_equal(open_table_take(t, 6, 100), 0); /* full */
	assert_true(open_table_releasing(t, a, 100));
	assert_int_equal(open_table_take(t, 6, 100), 0);
	assert_int_equal(open_table_n_open(t), 2);
	open_table_released(t, a);
	assert_int_equal(open_table_n_open(t), 1);
	assert_int_equal(open_table_take(t, 6, 100), a);
	open_table_free(t);
}

/* What a take-over brings: RELEASE twice, of others, of none. */
static void open_table_counts_no_release_twice(void **state)
{
	struct open_table *t;
	uint32_t a;

	(void)state;
	assert_int_equal(open_table_new(16, &t), 0);
	a = open_table_take(t, 2, 100);
	assert_false(open_table_releasing(t, a, 101));
	assert_false(open_table_releasing(t, 0, 100));
	assert_false(open_table_releasing(t, 5, 100));
	assert_false(open_table_releasing(t, UINT64_MAX, 100));
	assert_true(open_table_releasing(t, a, 100));
	assert_false(open_table_releasing(t, a, 100));
	open_table_released(t, a);
	assert_false(open_table_releasing(t, a, 100));
	assert_int_equal(open_table_n_open(t), 0);
	open_table_free(t);
}

static void open_table_gives_every_slot_once(void **state)
{
	enum { N = 1000 };
	struct open_table *t;
	uint8_t seen[N] = { 0 };

	(void)state;
	assert_int_equal(open_table_new(N, &t), 0);
	for (uint32_t i = 1; i < N; i++)
		assert_int_equal(open_table_take(t, i, 7), i);
	for (uint32_t i = 2; i < N; i += 3) {
		assert_true(open_table_releasing(t, i, 7));
		open_table_released(t, i);
	}
	for (uint32_t i = 2; i < N; i += 3) {
		uint32_t s = open_table_take(t, i, 8);

		assert_in_range(s, 1, N - 1);
		assert_int_equal(s % 3, 2);
		assert_int_equal(seen[s]++, 0);
	}
	assert_int_equal(open_table_take(t, 1, 8), 0);
	open_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_id_never_meets_the_root),
		cmocka_unit_test(node_parse_seq_accepts_one_spelling),
		cmocka_unit_test(open_table_reuses_a_slot_only_after_the_reply),
		cmocka_unit_test(open_table_counts_no_release_twice),
		cmocka_unit_test(open_table_gives_every_slot_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
