/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/node: node ids, names of layers. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_id_never_meets_the_root),
		cmocka_unit_test(node_parse_seq_accepts_one_spelling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
