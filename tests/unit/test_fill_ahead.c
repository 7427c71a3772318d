/* SPDX-License-Identifier: Apache-2.0 */
/* What a link's pace allows a reader's range to take along. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "snapshotter/fill_priv.h"

/* @n ranges of @len bytes over a link of @rate bytes a second. */
static void travel(struct link_pace *p, unsigned n, uint64_t wait_us,
		   uint64_t rate, size_t len)
{
	uint64_t t = 1000000;

	while (n--) {
		uint64_t end = t + wait_us + (uint64_t)len * 1000000 / rate;

		pace_note(p, t, t + wait_us, 0, end, len);
		t = end + 5000;
	}
}

static void ahead_is_small_before_anything_is_known(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	assert_int_equal(pace_ahead(&p, 0), AHEAD_MIN);
}

static void ahead_is_what_a_round_trip_is_worth(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	travel(&p, 20, 10000, 12500000, 100000);
	assert_in_range(pace_ahead(&p, 0), 115000, 145000);
}

static void ahead_is_bounded(void **state)
{
	struct link_pace slow = { 0 }, far = { 0 }, odd = { 0 };

	(void)state;
	travel(&slow, 20, 10000, 125000, 100000);
	assert_int_equal(pace_ahead(&slow, 0), AHEAD_MIN);
	travel(&far, 20, 200000, 125000000, 4 << 20);
	assert_int_equal(pace_ahead(&far, 0), AHEAD_MAX);
	pace_note(&odd, 5, 4, 0, 3, SIZE_MAX);
	assert_in_range(pace_ahead(&odd, 0), AHEAD_MIN, AHEAD_MAX);
	pace_note(&odd, 0, UINT64_MAX, 0, 0, 1 << 20);
	assert_in_range(pace_ahead(&odd, 0), AHEAD_MIN, AHEAD_MAX);
	odd = (struct link_pace){ UINT64_MAX, 1ull << 38 };
	assert_int_equal(pace_ahead(&odd, 0), AHEAD_MAX);
}

static void small_ranges_do_not_change_the_rate(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	travel(&p, 20, 10000, 12500000, 100000);
	travel(&p, 20, 10000, 100000, 1000);
	assert_in_range(pace_ahead(&p, 0), 115000, 145000);
}

/* Five ranges side by side see a fifth of the rate and wait for each other. */
static void one_undisturbed_range_in_some_is_enough(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	for (int i = 0; i < 10; i++) {
		travel(&p, 4, 30000, 2500000, 100000);
		travel(&p, 1, 10000, 12500000, 100000);
	}
	assert_in_range(pace_ahead(&p, 0), 110000, 145000);
}

static void ahead_is_small_where_many_ask(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	travel(&p, 20, 20000, 12500000, 100000);
	assert_int_equal(pace_ahead(&p, 0), pace_ahead(&p, 1));
	assert_in_range(pace_ahead(&p, 0), 230000, 290000);
	assert_in_range(pace_ahead(&p, 2), 115000, 145000);
	assert_int_equal(pace_ahead(&p, 5), AHEAD_MIN);
}

static void a_link_that_becomes_slow_is_noticed(void **state)
{
	struct link_pace p = { 0 };

	(void)state;
	travel(&p, 20, 40000, 12500000, 100000);
	assert_in_range(pace_ahead(&p, 0), 400000, AHEAD_MAX);
	travel(&p, 40, 40000, 1250000, 100000);
	assert_int_equal(pace_ahead(&p, 0), AHEAD_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ahead_is_small_before_anything_is_known),
		cmocka_unit_test(ahead_is_what_a_round_trip_is_worth),
		cmocka_unit_test(ahead_is_bounded),
		cmocka_unit_test(small_ranges_do_not_change_the_rate),
		cmocka_unit_test(one_undisturbed_range_in_some_is_enough),
		cmocka_unit_test(ahead_is_small_where_many_ask),
		cmocka_unit_test(a_link_that_becomes_slow_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
