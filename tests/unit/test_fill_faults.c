/* SPDX-License-Identifier: Apache-2.0 */
/* The filler when the network, the bytes or the disk are not good: what is
 * asked again, for how long, and that nothing of it sticks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "snapshotter/fill_priv.h"
#include "tests/unit/fill_world.h"

/* Of unit 9: the flags of its gzip header, contents, its checksum. */
static uint64_t place_in_9(struct world *w, int where)
{
	const struct unit *u = &w->units[9];
	const uint64_t places[] = { u->blob_off + 3, u->blob_off + 9000,
				    u->blob_off + u->clen - 6 };

	return places[where];
}

static void a_mismatch_is_fetched_again(void **state)
{
	struct world *w = *state;

	filler_start(w, 0, 10);
	for (int i = 0; i < 3; i++) {
		struct fill_stats st;
		struct probe p = { 0 };
		unsigned before = n_asked(w, 9);

		atomic_store(&w->n_landed[extent_of(9)], 0);
		net_fault(NET_TAMPER, place_in_9(w, i), 2);
		want(w, &p, 9);
		assert_told(&p, ERR_NONE);
		/* The checksum comes when the extent has landed already. */
		if (i < 2)
			assert_int_equal(n_asked(w, 9), before + 3);
		wait_until(n_asked(w, 9) >= before + 1, 1000);
		fill_stats(w->fill, &st);
		assert_true(i == 2 || st.bytes_refetched > 0);
		net_fault(NET_GOOD, 0, 0);
	}
}

static void a_lasting_mismatch_is_an_error_that_does_not_stick(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };
	struct fill_stats st;

	filler_start(w, 0, 10);
	net_fault(NET_TAMPER, place_in_9(w, 1), 1000);
	want(w, &p, 9);
	assert_told(&p, ERR_CORRUPT);
	assert_non_null(strstr(p.e.msg, "one.test"));
	assert_non_null(strstr(p.e.msg, "unit 9"));
	assert_int_equal(n_asked(w, 9), 3);
	wait_until((fill_stats(w->fill, &st), st.last_error.kind) ==
			   ERR_CORRUPT,
		   1000);
	(void)usleep(50000); /* the end of the transfer does not hide it */
	fill_stats(w->fill, &st);
	assert_int_equal(st.last_error.kind, ERR_CORRUPT);
	net_fault(NET_GOOD, 0, 0);
	want(w, &q, 9);
	assert_told(&q, ERR_NONE);
	assert_int_equal(n_asked(w, 9), 4);
	wait_until((fill_stats(w->fill, &st), st.last_error.kind) == ERR_NONE,
		   1000);
}

/* Units begin at members: a bad one spoils no other of its range. */
static void a_bad_unit_spoils_no_neighbour(void **state)
{
	struct world *w = *state;

	filler_start(w, 0, 10);
	net_fault(NET_TAMPER, place_in_9(w, 0), 1);
	fill_range(w->fill, 6, 14, FILL_PREFETCH);
	wait_until(n_landed(w, 6, 14) == 8, 3000);
	assert_int_equal(n_asked(w, 8), 1);
	assert_int_equal(n_asked(w, 9), 2);
	assert_int_equal(n_asked(w, 13), 1);
}

static void the_network_is_tried_again_until_it_works(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };

	filler_start(w, 0, 10);
	net_fault(NET_FAIL, ERR_UNAVAILABLE, 2);
	want(w, &p, 4);
	assert_told(&p, ERR_NONE);
	assert_int_equal(n_asked(w, 4), 3);
}

static void a_dead_network_ends_at_the_deadline(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };
	uint64_t began = now_ms();

	filler_start(w, 0, 1);
	net_fault(NET_FAIL, ERR_UNAVAILABLE, 1000);
	want(w, &p, 4);
	assert_told(&p, ERR_UNAVAILABLE);
	assert_in_range(p.at_ms - began, 950, 10000);
	net_fault(NET_GOOD, 0, 0);
	/* A new question is asked at once, whatever the back-off. */
	began = now_ms();
	want(w, &q, 4);
	assert_told(&q, ERR_NONE);
	assert_true(q.at_ms - began < 900);
}

static void a_silent_network_ends_at_the_deadline(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 };
	uint64_t began = now_ms();

	filler_start(w, 0, 1);
	net_hold(true);
	want(w, &p, 4);
	assert_told(&p, ERR_UNAVAILABLE);
	assert_in_range(p.at_ms - began, 950, 10000);
	net_hold(false);
	wait_until(n_landed(w, 4, 5), 1000);
}

/* When the one who waited gives up between two tries, the next reader begins
 * afresh: he does not inherit a transfer that was started for nobody. */
static void a_reader_who_gave_up_leaves_no_transfer_behind(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };
	unsigned before;

	filler_start(w, 2, 1);
	net_fault(NET_FAIL, ERR_UNAVAILABLE, 1000);
	want(w, &p, 4);
	assert_told(&p, ERR_UNAVAILABLE);
	before = net_count();
	net_fault(NET_STALL, 500, 1000);
	(void)usleep(1500000);
	assert_int_equal(net_count(), before);
	net_fault(NET_GOOD, 0, 0);
	want(w, &q, 4);
	assert_told(&q, ERR_NONE);
	assert_true(q.at_ms - p.at_ms < 2500);
}

static void a_refusal_is_told_at_once(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };

	filler_start(w, 0, 10);
	net_fault(NET_FAIL, ERR_DENIED, 1);
	want(w, &p, 4);
	assert_told(&p, ERR_DENIED);
	assert_int_equal(net_count(), 1);
	want(w, &q, 4);
	assert_told(&q, ERR_NONE);
}

/* What a broken answer has brought is kept. */
static void the_prefix_of_a_broken_answer_is_kept(void **state)
{
	static struct probe p[6];
	struct world *w = *state;

	filler_start(w, 1, 10);
	net_hold(true);
	want(w, &p[5], 0);
	wait_until(net_count() == 1, 1000);
	for (uint32_t i = 0; i < 5; i++)
		want(w, &p[i], 20 + i);
	net.fetches[0].running = false;
	net_fault(NET_GOOD, 0, 0);
	pthread_mutex_lock(&net.m);
	net_give(&net.fetches[0], net.fetches[0].len, UINT64_MAX);
	net.fault = NET_SHORT;
	net.fault_arg = bytes_of(w, 20, 22) + 500;
	net.fault_count = 1;
	net.hold = false;
	net_end(&net.fetches[0], ERR_NONE);
	pthread_mutex_unlock(&net.m);
	for (uint32_t i = 0; i < 5; i++)
		assert_told(&p[i], ERR_NONE);
	assert_int_equal(n_asked(w, 20), 1);
	assert_int_equal(n_asked(w, 21), 1);
	assert_int_equal(n_asked(w, 22), 2);
}

static void background_comes_back_to_what_failed(void **state)
{
	struct world *w = *state;

	filler_start(w, 3, 10);
	net_fault(NET_SHORT, bytes_of(w, 0, 2) + 500, 1);
	fill_range(w->fill, 0, N_UNITS, FILL_BACKGROUND);
	wait_until(n_landed(w, 0, N_UNITS) == N_UNITS, 8000);
	assert_int_equal(n_asked(w, 1), 1);
	assert_int_equal(n_asked(w, 2), 2);
}

/* A unit that is wrong again and again stops nobody behind it; later, when it
 * may have become right, it is asked for anew. */
static void background_comes_back_to_what_it_gave_up(void **state)
{
	struct world *w = *state;
	uint64_t pause;

	filler_start(w, 3, 10);
	net_fault(NET_TAMPER, bytes_of(w, 0, 2) + 9000, 3);
	fill_range(w->fill, 0, N_UNITS, FILL_BACKGROUND);
	wait_until(n_landed(w, 0, N_UNITS) == N_UNITS - 1, 8000);
	wait_until(n_asked(w, 2) == 3, 3000);
	(void)usleep(500000);
	lock_take(&w->fl->lock);
	assert_int_equal(w->fill->background.next, 2);
	pause = w->fill->background_not_before_ms - now_ms();
	w->fill->background_not_before_ms = 0;
	fill_poke_locked(w->fl);
	lock_drop(&w->fl->lock);
	assert_in_range(pause, REFUSED_PAUSE_MS / 2, REFUSED_PAUSE_MS);
	wait_until(n_landed(w, 0, N_UNITS) == N_UNITS, 3000);
	assert_int_equal(n_asked(w, 1), 1);
	assert_int_equal(n_asked(w, 3), 1);
}

static void a_full_disk_is_told_as_such(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };

	filler_start(w, 0, 10);
	atomic_store(&w->land_error, -ENOSPC);
	want(w, &p, 4);
	assert_told(&p, ERR_NO_SPACE);
	assert_int_equal(n_asked(w, 4), 1);
	atomic_store(&w->land_error, 0);
	want(w, &q, 4);
	assert_told(&q, ERR_NONE);
}

static int spill(void *ctx, uint32_t i, const struct extent *x, const void *p,
		 size_t len)
{
	struct world *w = ctx;

	assert_int_equal(len, w->extents[i].len);
	assert_memory_equal(p, w->plain[x->unit] + x->unit_off, len);
	atomic_fetch_add(&w->n_landed[i], 1);
	return 0;
}

/* Readers get theirs, and nothing is fetched that has no place. */
static void a_full_disk_serves_its_readers(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };
	struct fill_stats st;

	w->ops.spill = spill;
	filler_start(w, 3, 10);
	atomic_store(&w->land_error, -ENOSPC);
	fill_range(w->fill, 20, 22, FILL_PREFETCH);
	wait_until(net_count() == 1 && net_fetch(0).over, 1000);
	want(w, &p, 4);
	assert_told(&p, ERR_NONE);
	wait_until(
		(fill_stats(w->fill, &st), st.last_error.kind == ERR_NO_SPACE),
		1000);
	assert_int_equal(n_landed(w, 20, 22), 0);
	/* Only readers ask, until there may be room again. */
	fill_range(w->fill, 30, 32, FILL_PREFETCH);
	want_extent(w, &q, MULTI, MULTI + 1);
	assert_told(&q, ERR_NONE);
	(void)usleep(50000);
	assert_int_equal(n_asked(w, 30), 0);
	assert_int_equal(n_asked(w, 4), 1);
}

/* Not the registry's fault: it is neither blamed nor asked again. */
static void a_failing_disk_is_not_a_mismatch(void **state)
{
	static const int errors[] = { -EIO, -EUCLEAN, -EBADMSG };
	struct world *w = *state;

	filler_start(w, 0, 10);
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		struct probe p = { 0 };

		atomic_store(&w->land_error, errors[i]);
		want(w, &p, 4);
		assert_told(&p, ERR_INTERNAL);
		assert_int_equal(n_asked(w, 4), i + 1);
	}
}

static void a_damaged_map_is_told(void **state)
{
	struct world *w = *state;
	struct probe p = { 0 }, q = { 0 };

	filler_start(w, 0, 10);
	net_hold(true);
	want(w, &p, 4);
	wait_until(net_count() == 1, 1000);
	atomic_store(&w->map_error, -EUCLEAN);
	assert_int_equal(fill_want(w->fill, 8, 8, &q.w), -EUCLEAN);
	net_hold(false);
	/* its first extent had been looked up; the residue of the range fails */
	wait_until(atomic_load(&p.n_done), 3000);
	atomic_store(&w->map_error, 0);
	want(w, &q, 8);
	assert_told(&q, ERR_NONE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_mismatch_is_fetched_again),
		T(a_lasting_mismatch_is_an_error_that_does_not_stick),
		T(a_bad_unit_spoils_no_neighbour),
		T(the_network_is_tried_again_until_it_works),
		T(a_dead_network_ends_at_the_deadline),
		T(a_silent_network_ends_at_the_deadline),
		T(a_reader_who_gave_up_leaves_no_transfer_behind),
		T(a_refusal_is_told_at_once),
		T(the_prefix_of_a_broken_answer_is_kept),
		T(background_comes_back_to_what_failed),
		T(background_comes_back_to_what_it_gave_up),
		T(a_full_disk_is_told_as_such),
		T(a_full_disk_serves_its_readers),
		T(a_failing_disk_is_not_a_mismatch),
		T(a_damaged_map_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
