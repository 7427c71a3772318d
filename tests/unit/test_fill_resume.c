/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that end before their range does: what came is not asked for again,
 * a unit needs no answer that brings it whole, and what no source has is told
 * soon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define N_UNITS 2u
#define BODY_LEN (6u << 20)
#define SLOT (8ull << 20)
#define MULTI 1u

#include "snapshotter/fill_priv.h"
#include "tests/unit/fill_world.h"

/* Every transfer began where the one before it had ended. */
static void assert_no_byte_twice(uint64_t each)
{
	for (unsigned i = 1; i < net_count(); i++)
		assert_int_equal(net_fetch(i).off, net_fetch(i - 1).off + each);
}

static void a_unit_goes_on_where_its_answer_broke_off(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	struct fill_stats st;

	filler_start(w, 0, 60);
	net_fault(NET_SHORT, 900000, 4);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
	assert_int_equal(net_count(), 5);
	assert_no_byte_twice(900000);
	wait_until((fill_stats(w->fill, &st), st.bytes_fetched) ==
			   bytes_of(w, 0, 1),
		   1000);
	assert_int_equal(st.bytes_fetched, bytes_of(w, 0, 1));
}

/* Over a link that brings too little for anybody's patience. */
static void a_slow_unit_comes_without_anybody_waiting(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 1);
	net_fault(NET_SHORT, 400000, 1000);
	want(w, &p, 0);
	assert_told(&p, ERR_UNAVAILABLE);
	wait_until(n_landed(w, 0, 1) == 1, 10000);
	assert_no_byte_twice(400000);
}

static void background_goes_on_within_a_unit(void **state)
{
	struct world *w = *state;

	filler_start(w, 3, 60);
	net_fault(NET_SHORT, 2000000, 3);
	fill_range(w->fill, 0, 1, FILL_BACKGROUND);
	wait_until(n_landed(w, 0, 1) == 1, 10000);
	assert_int_equal(net_count(), 4);
	assert_no_byte_twice(2000000);
	assert_false(net_fetch(3).urgent);
}

/* A reader takes over what the background has of it. */
static void a_reader_goes_on_with_what_the_background_has(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 3, 60);
	net_fault(NET_SHORT, 2000000, 1);
	fill_range(w->fill, 0, 1, FILL_BACKGROUND);
	wait_until(net_count() == 1 && net_fetch(0).over, 10000);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
	assert_int_equal(n_asked(w, 0), 2);
	assert_no_byte_twice(2000000);
}

static void what_is_never_answered_is_halved(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	unsigned i;

	filler_start(w, 0, 60);
	net_fault(NET_TOO_MUCH, 1 << 20, 1000);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
	for (i = 1; net_fetch(i).len > 1 << 20; i++)
		assert_true(net_fetch(i).len <= net_fetch(i - 1).len / 2);
	/* what has been answered is not tried larger at once */
	for (; i < net_count(); i++)
		assert_true(net_fetch(i).len <= 1 << 20);
	assert_int_equal(n_landed(w, 0, 1), 1);
}

static void halving_has_an_end(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 3);
	net_fault(NET_TOO_MUCH, RANGE_MIN - 1, 1000);
	want(w, &p, 0);
	assert_told(&p, ERR_UNAVAILABLE);
	assert_int_equal(net_fetch(net_count() - 1).len, RANGE_MIN);
	/* The registry was silent altogether; it is to be trusted again. */
	net_fault(NET_GOOD, 0, 0);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
	assert_true(net_fetch(net_count() - 1).len > RANGE_MIN);
}

static void sizes_are_tried_again_after_a_while(void **state)
{
	struct link_size s = { .max = RANGE_MAX };
	const uint64_t t = 1000000;

	(void)state;
	assert_int_equal(size_of_transfer(&s, 99u << 20), 99u << 20);
	assert_true(size_note_silent(&s, 99u << 20, t));
	assert_int_equal(s.max, RANGE_MAX / 2);
	/* one that was under way with it */
	assert_true(size_note_silent(&s, RANGE_MAX, t + 1));
	assert_int_equal(s.max, RANGE_MAX / 2);
	assert_int_equal(size_of_transfer(&s, 99u << 20), RANGE_MAX / 2);
	assert_int_equal(size_of_transfer(&s, 1000), 1000);
	size_note_good(&s, t + 1000);
	assert_int_equal(s.max, RANGE_MAX / 2);
	size_note_good(&s, t + 60000);
	assert_int_equal(s.max, RANGE_MAX);
	for (int i = 0; i < 9; i++)
		(void)size_note_silent(&s, s.max, t);
	assert_int_equal(s.max, RANGE_MIN);
	assert_false(size_note_silent(&s, RANGE_MIN, t));
}

/* Bad bytes are bounded however many transfers bring them. */
static void a_mismatch_in_parts_is_told(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 60);
	lock_take(&w->fl->lock);
	w->fill->host->size.max = 2u << 20;
	w->fill->host->size.grow_at_ms = UINT64_MAX;
	lock_drop(&w->fl->lock);
	net_fault(NET_TAMPER, 3, 1000); /* the flags of the gzip header */
	want(w, &p, 0);
	assert_told(&p, ERR_CORRUPT);
	assert_int_equal(net_count(), 3);
	assert_int_equal(net.n_blamed, 3);
	net_fault(NET_GOOD, 0, 0);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
}

static void what_no_source_has_is_told_soon(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	unsigned before;

	filler_start(w, 0, 600);
	net_fault(NET_NO_BLOB, 0, 1000);
	want(w, &p, 0);
	assert_told(&p, ERR_DENIED);
	before = net_count();
	assert_true(before > 1); /* it might have been a mistake */
	want(w, &p, 0);
	assert_told(&p, ERR_DENIED);
	assert_int_equal(net_count(), before + 1);
	net_fault(NET_NO_BLOB, 0, 1);
	want(w, &p, 0);
	assert_told(&p, ERR_DENIED);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
	/* that is forgotten: one such answer more is a mistake again */
	atomic_store(&w->n_landed[0], 0);
	wait_until(!fill_is_fetching(w->fill, 0), 1000);
	net_fault(NET_NO_BLOB, 0, 1);
	want(w, &p, 0);
	assert_told(&p, ERR_NONE);
}

static void close_frees_what_was_kept(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 3, 60);
	net_fault(NET_SHORT, 2000, 1000);
	want(w, &p, 0);
	wait_until(net_count() > 2, 1000);
	net_hold(true); /* one may be under way */
	fill_close(w->fill);
	assert_told(&p, ERR_CANCELLED);
	lock_take(&w->fl->lock);
	assert_int_equal(w->fl->half_bytes, 0);
	assert_int_equal(w->fl->n_huge, 0);
	lock_drop(&w->fl->lock);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_unit_goes_on_where_its_answer_broke_off),
		T(a_slow_unit_comes_without_anybody_waiting),
		T(background_goes_on_within_a_unit),
		T(a_reader_goes_on_with_what_the_background_has),
		T(what_is_never_answered_is_halved),
		T(halving_has_an_end),
		cmocka_unit_test(sizes_are_tried_again_after_a_while),
		T(a_mismatch_in_parts_is_told),
		T(what_no_source_has_is_told_soon),
		T(close_frees_what_was_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
