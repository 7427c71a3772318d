/* SPDX-License-Identifier: Apache-2.0 */
/* The filler and units that are larger than any range ought to be: an image may
 * have them, and must not get as much memory as it likes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define N_UNITS 3u
#define BODY_LEN (6u << 20)
#define SLOT (8ull << 20)
#define MULTI 1u

#include "snapshotter/fill_priv.h"
#include "tests/unit/fill_world.h"

static void huge_units_come_one_after_the_other(void **state)
{
	struct world *w = *state;
	struct probe p[N_UNITS] = { 0 };

	filler_start(w, 6, 30);
	net_hold(true);
	for (uint32_t i = 0; i < N_UNITS; i++)
		want(w, &p[i], i);
	wait_until(net_count() > 0, 2000);
	(void)usleep(600000);
	assert_int_equal(net_count(), 1);
	net_hold(false);
	for (uint32_t i = 0; i < N_UNITS; i++)
		assert_told(&p[i], ERR_NONE);
	assert_int_equal(n_landed(w, 0, N_UNITS), N_UNITS);
	for (uint32_t i = 0; i < N_UNITS; i++) {
		assert_int_equal(n_asked(w, i), 1);
		assert_true(bytes_of(w, i, i + 1) > RANGE_MAX);
	}
}

static unsigned n_huge(struct world *w)
{
	unsigned n;

	lock_take(&w->fl->lock);
	n = w->fl->n_huge;
	lock_drop(&w->fl->lock);
	return n;
}

/* ... also when the one before it does not even start. */
static void huge_units_leave_room_when_they_fail(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };

	filler_start(w, 6, 30);
	net_fault(NET_FAIL, ERR_DENIED, 1);
	want(w, &p, 0);
	assert_told(&p, ERR_DENIED);
	w->blob.len -= 1; /* the last unit is refused at once */
	want(w, &p, 2);
	assert_told(&p, ERR_INVALID);
	w->blob.len += 1;
	want(w, &q, 0);
	assert_told(&q, ERR_NONE);
	/* Readers are told before their range has ended. */
	wait_until(n_huge(w) == 0, 1000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(huge_units_come_one_after_the_other),
		T(huge_units_leave_room_when_they_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
