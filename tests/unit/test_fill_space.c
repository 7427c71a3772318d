/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that ranges hand on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "snapshotter/fill_priv.h"

static int setup(void **state)
{
	static struct filler fl;

	fl = (struct filler){ 0 };
	lock_init(&fl.lock, RANK_FILL);
	list_init(&fl.spaces);
	*state = &fl;
	return 0;
}

static int teardown(void **state)
{
	struct filler *fl = *state;

	spaces_trim_locked(fl, UINT64_MAX);
	lock_release(&fl->lock);
	return 0;
}

static struct range_space *get(struct filler *fl, size_t len)
{
	struct range_space *s = NULL;

	assert_int_equal(space_get(fl, len, &s), 0);
	assert_true(s->cap >= len);
	assert_non_null(s->hash);
	return s;
}

static void put(struct filler *fl, struct range_space *s)
{
	lock_take(&fl->lock);
	space_put_locked(fl, s);
	lock_drop(&fl->lock);
}

static void space_get_takes_what_was_put(void **state)
{
	struct filler *fl = *state;
	struct range_space *s = get(fl, 1000), *other = get(fl, 10);

	assert_ptr_not_equal(s, other);
	put(fl, other);
	put(fl, s);
	assert_int_equal(fl->n_spaces, 2);
	assert_ptr_equal(get(fl, 10), s);
	assert_int_equal(fl->n_spaces, 1);
	put(fl, s);
}

static void space_get_grows_a_small_one(void **state)
{
	struct filler *fl = *state;
	struct range_space *s = get(fl, 10);

	put(fl, s);
	assert_ptr_equal(get(fl, 100000), s);
	memset(s->buf, 1, 100000);
	assert_int_equal(space_want_extent(s, 5000), 0);
	memset(s->xbuf, 1, 5000);
	put(fl, s);
}

static void space_put_keeps_nothing_huge(void **state)
{
	struct filler *fl = *state;

	put(fl, get(fl, RANGE_MAX + 1));
	assert_int_equal(fl->n_spaces, 0);
	assert_true(list_empty(&fl->spaces));
}

static void space_put_keeps_a_bounded_number(void **state)
{
	struct filler *fl = *state;
	struct range_space *s[50];

	for (size_t i = 0; i < 50; i++)
		s[i] = get(fl, 10);
	for (size_t i = 0; i < 50; i++)
		put(fl, s[i]);
	assert_in_range(fl->n_spaces, 1, 16);
}

static void spaces_trim_waits_for_a_while(void **state)
{
	struct filler *fl = *state;
	uint64_t now;

	put(fl, get(fl, 10));
	now = now_ms();
	spaces_trim_locked(fl, now);
	assert_int_equal(fl->n_spaces, 1);
	spaces_trim_locked(fl, now + 60000);
	assert_int_equal(fl->n_spaces, 0);
	assert_true(list_empty(&fl->spaces));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(space_get_takes_what_was_put,
						setup, teardown),
		cmocka_unit_test_setup_teardown(space_get_grows_a_small_one,
						setup, teardown),
		cmocka_unit_test_setup_teardown(space_put_keeps_nothing_huge,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			space_put_keeps_a_bounded_number, setup, teardown),
		cmocka_unit_test_setup_teardown(spaces_trim_waits_for_a_while,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
