/* SPDX-License-Identifier: Apache-2.0 */
/* The filler: who is told what, and what is asked of the network for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/fill_world.h"

/* ---- the good case ---- */

static void want_is_told_when_its_extent_has_landed(void **state)
{
	struct world *w = *state;
	struct fill_stats st;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	want(w, &p, 7);
	assert_told(&p, ERR_NONE);
	assert_int_equal(atomic_load(&w->n_landed[extent_of(7)]), 1);
	assert_true(net_fetch(0).urgent);
	wait_until((fill_stats(w->fill, &st), st.bytes_fetched) > 0, 1000);
	assert_int_equal(st.n_waiters, 0);
	assert_int_equal(st.last_error.kind, ERR_NONE);
}

static void want_of_a_landed_extent_asks_nobody(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	atomic_store(&w->n_landed[extent_of(3)], 1);
	want(w, &p, 3);
	assert_told(&p, ERR_NONE);
	assert_int_equal(net_count(), 0);
}

static void want_is_one_flight_for_all_who_wait(void **state)
{
	static struct probe p[20];
	struct world *w = *state;

	filler_start(w, 0, 10);
	net_hold(true);
	for (unsigned i = 0; i < ARRAY_LEN(p); i++)
		want(w, &p[i], 12);
	wait_until(net_count() == 1, 1000);
	/* those who come while it flies join it, too */
	for (unsigned i = 0; i < ARRAY_LEN(p); i++) {
		assert_true(fill_cancel(w->fill, &p[i].w));
		want(w, &p[i], 12);
	}
	net_hold(false);
	for (unsigned i = 0; i < ARRAY_LEN(p); i++)
		assert_told(&p[i], ERR_NONE);
	assert_int_equal(net_count(), 1);
}

static void wanted_neighbours_travel_in_one_range(void **state)
{
	static struct probe p[5];
	struct world *w = *state;

	filler_start(w, 1, 10);
	net_hold(true);
	want(w, &p[4], 0);
	wait_until(net_count() == 1, 1000);
	for (unsigned i = 0; i < 4; i++)
		want(w, &p[i], 10 + (i ^ 1)); /* 11, 10, 13, 12 */
	net_hold(false);
	for (unsigned i = 0; i < 5; i++)
		assert_told(&p[i], ERR_NONE);
	assert_int_equal(n_landed(w, 10, 14), 4);
	for (uint32_t u = 10; u < 14; u++)
		assert_int_equal(n_asked(w, u), 1);
	assert_true(net_count() <= 3);
}

static void a_reader_gets_a_small_neighbour_but_no_landed_one(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	want(w, &p, 20);
	assert_told(&p, ERR_NONE);
	/* 60 KB of 64: two units */
	assert_int_equal(net_fetch(0).len, bytes_of(w, 20, 22));
	wait_until(n_landed(w, 20, 22) == 2, 1000);
	want(w, &p, 19);
	assert_told(&p, ERR_NONE);
	assert_int_equal(net_fetch(1).len, bytes_of(w, 19, 20));
}

/* Each waiter is told as his own part lands, not at the end of the unit. */
static void an_extent_is_told_before_its_unit_ends(void **state)
{
	struct world *w = *state;
	struct probe p[3] = { { .e = ERR_INIT } };

	filler_start(w, 0, 10);
	net_fault(NET_STALL, 2 * HEAD + BODY_LEN / 3 + 200, 1);
	for (uint32_t i = 0; i < 3; i++)
		want_extent(w, &p[i], MULTI, MULTI + i);
	assert_told(&p[0], ERR_NONE);
	(void)usleep(20000);
	assert_int_equal(atomic_load(&p[1].n_done), 0);
	assert_int_equal(atomic_load(&p[2].n_done), 0);
	assert_int_equal(atomic_load(&w->n_residue[MULTI]), 0);
	fill_close(w->fill);
	assert_told(&p[1], ERR_CANCELLED);
	assert_told(&p[2], ERR_CANCELLED);
}

static void residue_comes_once_a_unit_is_whole(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	want_extent(w, &p, MULTI, MULTI + 2);
	assert_told(&p, ERR_NONE);
	wait_until(atomic_load(&w->n_residue[MULTI]), 1000);
	assert_int_equal(atomic_load(&w->n_landed[MULTI]), 1);
	assert_int_equal(atomic_load(&w->n_landed[MULTI + 1]), 1);
}

/* ---- order ---- */

static void prefetch_takes_its_range_at_once(void **state)
{
	struct world *w = *state;

	filler_start(w, 0, 10);
	atomic_store(&w->n_landed[extent_of(6)], 1);
	/* background, set at the same time, waits; prefetch does not */
	fill_range(w->fill, 0, N_UNITS, FILL_BACKGROUND);
	fill_range(w->fill, 4, 12, FILL_PREFETCH);
	wait_until(n_landed(w, 4, 12) == 8, 900);
	assert_int_equal(n_asked(w, 6), 0);
	assert_int_equal(n_landed(w, 12, N_UNITS), 0);
	assert_false(net_fetch(0).urgent);
}

/* A file that is read in order cancels neither what the image wishes for nor
 * what other readers will want; only a fifth stream takes a place. */
static void prefetch_keeps_several_ranges(void **state)
{
	struct world *w = *state;

	filler_start(w, 3, 10);
	net_hold(true);
	fill_range(w->fill, 39, 40, FILL_PREFETCH);
	wait_until(net_count() == 1, 1000); /* none but this may go now */
	fill_range(w->fill, 0, 6, FILL_PREFETCH);
	fill_range(w->fill, 0, 2, FILL_PREFETCH); /* the start of a file */
	fill_range(w->fill, 8, 10, FILL_PREFETCH);
	fill_range(w->fill, 12, 14, FILL_PREFETCH);
	fill_range(w->fill, 16, 18, FILL_PREFETCH);
	fill_range(w->fill, 20, 22, FILL_PREFETCH);
	fill_range(w->fill, 22, 24, FILL_PREFETCH); /* goes on */
	fill_range(w->fill, 28, 30, FILL_PREFETCH); /* in place of 8 */
	net_hold(false);
	wait_until(n_landed(w, 0, N_UNITS) == 17, 2000);
	(void)usleep(50000);
	assert_int_equal(n_landed(w, 0, 6), 6);
	assert_int_equal(n_landed(w, 8, 10), 0);
	assert_int_equal(n_landed(w, 12, 14), 2);
	assert_int_equal(n_landed(w, 16, 18), 2);
	assert_int_equal(n_landed(w, 20, 24), 4);
	assert_int_equal(n_landed(w, 28, 30), 2);
	assert_int_equal(n_landed(w, 0, N_UNITS), 17);
}

static void background_fills_all_when_nobody_reads(void **state)
{
	struct world *w = *state;
	uint64_t began = now_ms();

	filler_start(w, 0, 10);
	fill_range(w->fill, 0, UINT32_MAX, FILL_BACKGROUND);
	wait_until(net_count(), 3000);
	assert_true(now_ms() - began >= 900);
	wait_until(n_landed(w, 0, N_UNITS) == N_UNITS, 3000);
	for (uint32_t u = 0; u < N_UNITS; u++)
		assert_int_equal(n_asked(w, u), 1);
}

/* A reader ends the background's transfer; what it brought is not asked for
 * again, the rest is, once the reader has what he wants. */
static void background_gives_way_to_a_reader(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	uint64_t began;

	filler_start(w, 3, 10);
	net_fault(NET_STALL, bytes_of(w, 0, 3) + 100, 1);
	fill_range(w->fill, 0, 30, FILL_BACKGROUND);
	wait_until(n_landed(w, 0, 3) == 3, 3000);
	began = now_ms();
	want(w, &p, 35);
	assert_told(&p, ERR_NONE);
	assert_true(p.at_ms - began < 900);
	wait_until(net_fetch(0).over, 1000);
	assert_true(net_fetch(1).urgent);
	wait_until(n_landed(w, 0, 30) == 30, 5000);
	for (uint32_t u = 0; u < 3; u++)
		assert_int_equal(n_asked(w, u), 1);
	assert_true(now_ms() - began >= 900);
}

static void a_reader_joins_what_the_background_fetches(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 3, 10);
	net_hold(true);
	fill_range(w->fill, 0, 30, FILL_BACKGROUND);
	wait_until(net_count() == 1, 3000);
	want(w, &p, 2);
	(void)usleep(50000);
	net_hold(false);
	assert_told(&p, ERR_NONE);
	assert_int_equal(n_asked(w, 2), 1);
}

static void a_silent_registry_delays_no_other(void **state)
{
	struct world *w = *state;
	struct blob other = w->blob;
	struct probe p[10], q = { 0 };
	struct fill *f2;

	memset(p, 0, sizeof(p));
	(void)snprintf(other.host, sizeof(other.host), "two.test");
	filler_start(w, 2, 10);
	net.hold_host = "one.test";
	assert_int_equal(fill_new(w->fl, w->map, &other, &w->ops, &f2), 0);
	for (uint32_t i = 0; i < 10; i++)
		want(w, &p[i], i * 3);
	wait_until(net_count() == 2, 1000);
	q.w.done = probe_done;
	assert_int_equal(fill_want(f2, 31, extent_of(31), &q.w), 0);
	assert_told(&q, ERR_NONE);
	fill_free(f2);
	fill_close(w->fill);
	for (uint32_t i = 0; i < 10; i++)
		assert_told(&p[i], ERR_CANCELLED);
}

/* What can be had elsewhere leaves the queue of a registry that fails. */
static void who_has_another_source_leaves_a_failing_registry(void **state)
{
	struct world *w = *state;
	struct blob shared = w->blob;
	struct probe p[10], q = { 0 };
	struct filler_stats st;
	struct fill *f2;

	memset(p, 0, sizeof(p));
	shared.elsewhere = "two.test";
	filler_start(w, 2, 60);
	assert_int_equal(fill_new(w->fl, w->map, &shared, &w->ops, &f2), 0);
	net_hold(true);
	for (uint32_t i = 0; i < 10; i++)
		want(w, &p[i], i * 3);
	wait_until(net_count() == 2, 30000);
	q.w.done = probe_done;
	assert_int_equal(fill_want(f2, 31, extent_of(31), &q.w), 0);
	filler_stats(w->fl, &st);
	assert_int_equal(st.n_waiters, 11);
	assert_int_equal(n_asked(w, 31), 0);
	/* The first two fail, and all that follow are held back. */
	net_fail_host("one.test", 2, &shared);
	assert_told(&q, ERR_NONE);
	filler_stats(w->fl, &st);
	assert_int_equal(st.n_waiters, 10);
	fill_free(f2);
	fill_close(w->fill);
	for (uint32_t i = 0; i < 10; i++)
		assert_told(&p[i], ERR_CANCELLED);
}

static void want_is_refused_beyond_the_limit(void **state)
{
	static struct probe p[2049];
	struct world *w = *state;
	struct filler_stats st;

	filler_start(w, 0, 10);
	net_hold(true);
	for (unsigned i = 0; i < 2048; i++)
		want(w, &p[i], i % N_UNITS);
	assert_int_equal(fill_want(w->fill, 1, 1, &p[2048].w), -EBUSY);
	filler_stats(w->fl, &st);
	assert_int_equal(st.n_waiters, 2048);
	assert_int_equal(st.max_waiters, 2048);
	assert_int_equal(st.n_refused, 1);
	/* who does not wait is not counted */
	assert_int_equal(fill_want(w->fill, 1, 1, NULL), 0);
	net_hold(false);
	for (unsigned i = 0; i < 2048; i++)
		assert_told(&p[i], ERR_NONE);
	want(w, &p[2048], 1);
	assert_told(&p[2048], ERR_NONE);
}

static void want_refuses_a_unit_that_is_none(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	assert_int_equal(fill_want(w->fill, N_UNITS, 0, &p.w), -EINVAL);
}

/* ---- the end ---- */

static void cancel_takes_a_waiter_away(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };

	filler_start(w, 0, 10);
	net_hold(true);
	want(w, &p, 1);
	want(w, &q, 1);
	wait_until(net_count() == 1, 1000);
	assert_true(fill_cancel(w->fill, &p.w));
	assert_false(fill_cancel(w->fill, &p.w));
	net_hold(false);
	assert_told(&q, ERR_NONE);
	assert_false(fill_cancel(w->fill, &q.w));
	assert_int_equal(atomic_load(&p.n_done), 0);
}

static void close_tells_all_and_refuses_more(void **state)
{
	static struct probe p[N_UNITS];
	struct world *w = *state;

	filler_start(w, 2, 10);
	net_fault(NET_STALL, 5000, 1);
	net_hold(true);
	want(w, &p[0], 0);
	wait_until(net_count() == 1, 1000);
	for (uint32_t u = 1; u < N_UNITS; u++)
		want(w, &p[u], u);
	fill_range(w->fill, 0, N_UNITS, FILL_PREFETCH);
	wait_until(net_count() == 2, 1000);
	fill_close(w->fill);
	for (uint32_t u = 0; u < N_UNITS; u++)
		assert_told(&p[u], ERR_CANCELLED);
	assert_int_equal(fill_want(w->fill, 1, 1, &p[0].w), -ECANCELED);
	fill_close(w->fill);
}

static atomic_bool at_start;

static void slow_start(void)
{
	atomic_store(&at_start, true);
	(void)usleep(100000);
}

/* The range exists, its transfer not yet: it must not outlive the close. */
static void close_meets_a_range_that_is_just_starting(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	uint64_t began;

	filler_start(w, 2, 60);
	net_hold(true);
	atomic_store(&at_start, false);
	net.before_start = slow_start;
	want(w, &p, 1);
	wait_until(atomic_load(&at_start), 1000);
	began = now_ms();
	fill_close(w->fill);
	assert_true(now_ms() - began < 20000);
	assert_told(&p, ERR_CANCELLED);
}

/* Somebody is just being told that his time is over. */
static void close_waits_for_a_late_answer(void **state)
{
	struct world *w = *state;
	struct probe p = { .linger_ms = 300 };

	filler_start(w, 2, 1);
	net_hold(true);
	want(w, &p, 1);
	wait_until(atomic_load(&p.n_done), 3000);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	fill_close(w->fill);
	assert_true(atomic_load(&p.left));
}

static atomic_bool in_cancel;

static void slow_cancel(void)
{
	atomic_store(&in_cancel, true);
	(void)usleep(200000);
	atomic_store(&in_cancel, false);
}

/* The background of one layer is being cancelled for a reader of another, just
 * when the first is closed: its blob must not go before that call returns. */
static void close_waits_for_who_preempts_it(void **state)
{
	struct world *w = *state;
	struct blob other = { .p = w->blob.p, .len = w->blob.len, .n_refs = 1 };
	struct fill *g = NULL;
	struct probe p = { 0 };

	filler_start(w, 4, 10);
	memcpy(other.host, w->blob.host, sizeof(other.host));
	assert_int_equal(fill_new(w->fl, w->map, &other, &w->ops, &g), 0);
	net_hold(true);
	fill_range(w->fill, 0, N_UNITS, FILL_BACKGROUND);
	wait_until(net_count() > 0, 3000);
	atomic_store(&in_cancel, false);
	net.after_cancel = slow_cancel;
	p.w.done = probe_done;
	assert_int_equal(fill_want(g, 3, extent_of(3), &p.w), 0);
	wait_until(atomic_load(&in_cancel), 1000);
	fill_free(w->fill);
	w->fill = NULL;
	assert_false(atomic_load(&in_cancel));
	net.after_cancel = NULL;
	net_hold(false);
	assert_told(&p, ERR_NONE);
	fill_free(g);
	assert_int_equal(atomic_load(&other.n_refs), 1);
}

/* Somebody who waited for too long keeps the background from going on only as
 * long as he waits. */
static void background_goes_on_when_the_last_waiter_leaves(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 4, 60);
	net_hold(true);
	want(w, &p, 30);
	wait_until(net_count() == 1, 1000);
	fill_range(w->fill, 0, 10, FILL_BACKGROUND);
	(void)usleep(1500000);
	assert_int_equal(net_count(), 1);
	assert_true(fill_cancel(w->fill, &p.w));
	wait_until(net_count() > 1, 2000);
	net_hold(false);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(want_is_told_when_its_extent_has_landed),
		T(want_of_a_landed_extent_asks_nobody),
		T(want_is_one_flight_for_all_who_wait),
		T(wanted_neighbours_travel_in_one_range),
		T(a_reader_gets_a_small_neighbour_but_no_landed_one),
		T(an_extent_is_told_before_its_unit_ends),
		T(residue_comes_once_a_unit_is_whole),
		T(prefetch_takes_its_range_at_once),
		T(prefetch_keeps_several_ranges),
		T(background_fills_all_when_nobody_reads),
		T(background_gives_way_to_a_reader),
		T(a_reader_joins_what_the_background_fetches),
		T(a_silent_registry_delays_no_other),
		T(who_has_another_source_leaves_a_failing_registry),
		T(want_is_refused_beyond_the_limit),
		T(want_refuses_a_unit_that_is_none),
		T(cancel_takes_a_waiter_away),
		T(close_tells_all_and_refuses_more),
		T(close_meets_a_range_that_is_just_starting),
		T(close_waits_for_a_late_answer),
		T(close_waits_for_who_preempts_it),
		T(background_goes_on_when_the_last_waiter_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
