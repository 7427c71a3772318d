/* SPDX-License-Identifier: Apache-2.0 */
/* What had no room on the disk: found by its digest, bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "snapshotter/spill.h"

static struct digest name_of(unsigned i)
{
	struct digest d = { 0 };

	d.b[0] = (uint8_t)i;
	d.b[1] = (uint8_t)(i >> 8);
	return d;
}

static void spill_gives_what_it_got(void **state)
{
	struct digest a = name_of(1), b = name_of(2);
	struct spill *s;
	char p[16];

	(void)state;
	assert_int_equal(spill_new(&s), 0);
	assert_true(spill_is_empty(s));
	assert_false(spill_has(s, &a));
	assert_int_equal(spill_read(s, &a, 0, p, 1), -EAGAIN);
	assert_int_equal(spill_put(s, &a, "0123456789", 10), 0);
	assert_int_equal(spill_put(s, &a, "0123456789", 10), 0);
	assert_false(spill_is_empty(s));
	assert_true(spill_has(s, &a));
	assert_false(spill_has(s, &b));
	assert_int_equal(spill_read(s, &b, 0, p, 1), -EAGAIN);
	assert_int_equal(spill_read(s, &a, 3, p, 4), 0);
	assert_memory_equal(p, "3456", 4);
	assert_int_equal(spill_read(s, &a, 0, p, 10), 0);
	assert_int_equal(spill_read(s, &a, 10, p, 0), 0);
	assert_int_equal(spill_read(s, &a, 7, p, 4), -EAGAIN);
	assert_int_equal(spill_read(s, &a, 11, p, 0), -EAGAIN);
	spill_free(s);
	spill_free(NULL);
}

static void spill_keeps_no_more_than_its_bound(void **state)
{
	const size_t len = 1 << 20;
	const unsigned max = SPILL_MAX / (1 << 20);
	uint8_t *p = calloc(1, SPILL_MAX + 1);
	struct digest d = name_of(999);
	struct spill *s;

	(void)state;
	assert_non_null(p);
	assert_int_equal(spill_new(&s), 0);
	for (unsigned i = 0; i < max + 3; i++) {
		d = name_of(i);
		assert_int_equal(spill_put(s, &d, p, len), 0);
	}
	for (unsigned i = 0; i < max + 3; i++) {
		d = name_of(i);
		assert_int_equal(spill_has(s, &d), i >= 3);
	}
	d = name_of(500);
	assert_int_equal(spill_put(s, &d, p, SPILL_MAX), 0);
	assert_true(spill_has(s, &d));
	d = name_of(max + 2);
	assert_false(spill_has(s, &d));
	/* A single extent may be larger than that: alone, until the next. */
	assert_int_equal(spill_put(s, &d, p, SPILL_MAX + 1), 0);
	assert_true(spill_has(s, &d));
	d = name_of(500);
	assert_false(spill_has(s, &d));
	assert_int_equal(spill_put(s, &d, p, 1), 0);
	assert_true(spill_has(s, &d));
	d = name_of(max + 2);
	assert_false(spill_has(s, &d));
	spill_free(s);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spill_gives_what_it_got),
		cmocka_unit_test(spill_keeps_no_more_than_its_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
