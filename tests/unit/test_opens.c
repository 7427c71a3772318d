/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/opens: slots, modes of inodes, backing ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fuse/opens.h"

#define RESEND_BIT (UINT64_C(1) << 63)

static struct opens *new_table(uint32_t n_slots)
{
	struct opens *t;

	assert_int_equal(opens_new(n_slots, &t), 0);
	return t;
}

static struct opens_stats stats(struct opens *t)
{
	struct opens_stats s;

	opens_stats(t, &s);
	return s;
}

/* A slot of a file that is always cached; 0: none is free. */
static uint32_t take(struct opens *t, uint64_t unique, uint64_t node)
{
	struct open_call c = { .unique = unique, .node = node };
	int r = opens_begin(t, &c, true);

	if (r < 0) {
		assert_int_equal(r, -ENFILE);
		return 0;
	}
	assert_int_equal(r, OPENS_ANSWER);
	assert_int_equal(c.mode, OPEN_CACHED);
	return c.slot;
}

static struct open_call call(uint64_t unique, uint64_t node)
{
	return (struct open_call){ .unique = unique, .node = node };
}

/* How many calls can be answered then. */
static unsigned decide(struct opens *t, struct open_call *c, int32_t backing,
		       uint64_t file)
{
	struct list ready, *p;
	unsigned n = 0;

	list_init(&ready);
	opens_decided(t, c, backing ? OPEN_PASSTHROUGH : OPEN_CACHED, backing,
		      file, &ready);
	list_each (p, &ready)
		n++;
	return n;
}

/* Opens @node as the first one. */
static struct open_call first(struct opens *t, uint64_t unique, uint64_t node,
			      int32_t backing)
{
	struct open_call c = call(unique, node);

	assert_int_equal(opens_begin(t, &c, false), OPENS_DECIDE);
	assert_int_equal(decide(t, &c, backing, 7), 1);
	assert_int_equal(c.backing, backing);
	return c;
}

static struct open_call join(struct opens *t, uint64_t unique, uint64_t node)
{
	struct open_call c = call(unique, node);

	assert_int_equal(opens_begin(t, &c, false), OPENS_ANSWER);
	return c;
}

static int32_t drop(struct opens *t, uint32_t slot, uint64_t node)
{
	assert_true(opens_releasing(t, slot, node));
	return opens_released(t, slot);
}

/* ---- slots ---- */

static void slot_is_used_again_only_after_the_reply(void **state)
{
	struct opens *t = new_table(3);
	uint32_t a, b;

	(void)state;
	a = take(t, 2, 100);
	b = take(t, 4, 100);
	assert_int_equal(a, 1);
	assert_int_equal(b, 2);
	assert_int_equal(take(t, 6, 100), 0); /* full */
	assert_true(opens_releasing(t, a, 100));
	assert_int_equal(take(t, 6, 100), 0);
	assert_int_equal(stats(t).n_open, 2);
	assert_int_equal(opens_released(t, a), 0);
	assert_int_equal(stats(t).n_open, 1);
	assert_int_equal(take(t, 6, 100), a);
	opens_free(t);
}

/* What a take-over brings: RELEASE twice, of others, of none. */
static void release_is_not_counted_twice(void **state)
{
	struct opens *t = new_table(16);
	uint32_t a = take(t, 2, 100);

	(void)state;
	assert_false(opens_releasing(t, a, 101));
	assert_false(opens_releasing(t, 0, 100));
	assert_false(opens_releasing(t, 5, 100));
	assert_false(opens_releasing(t, UINT64_MAX, 100));
	assert_true(opens_releasing(t, a, 100));
	assert_false(opens_releasing(t, a, 100));
	assert_int_equal(opens_released(t, a), 0);
	assert_false(opens_releasing(t, a, 100));
	assert_int_equal(stats(t).n_open, 0);
	opens_free(t);
}

static void every_slot_is_given_once(void **state)
{
	enum { N = 1000 };
	struct opens *t = new_table(N);
	uint8_t seen[N] = { 0 };

	(void)state;
	for (uint32_t i = 1; i < N; i++)
		assert_int_equal(take(t, i, 7), i);
	for (uint32_t i = 2; i < N; i += 3)
		assert_int_equal(drop(t, i, 7), 0);
	for (uint32_t i = 2; i < N; i += 3) {
		uint32_t s = take(t, i, 8);

		assert_in_range(s, 1, N - 1);
		assert_int_equal(s % 3, 2);
		assert_int_equal(seen[s]++, 0);
	}
	assert_int_equal(take(t, 1, 8), 0);
	opens_free(t);
}

/* A refused open leaves nothing behind, and the inode can still change over. */
static void full_table_refuses_and_forgets(void **state)
{
	struct opens *t = new_table(2);
	struct open_call c = call(4, 9);
	uint32_t a = take(t, 2, 8);

	(void)state;
	assert_int_equal(opens_begin(t, &c, false), -ENFILE);
	assert_int_equal(drop(t, a, 8), 0);
	c = first(t, 6, 9, 3);
	assert_int_equal(c.mode, OPEN_PASSTHROUGH);
	assert_int_equal(drop(t, c.slot, 9), 3);
	opens_backing_closed(t);
	opens_free(t);
}

/* ---- modes ---- */

static void inode_has_one_mode_and_one_backing_id(void **state)
{
	struct opens *t = new_table(16);
	struct open_call a = first(t, 2, 9, 5), b = join(t, 4, 9);

	(void)state;
	assert_int_equal(b.mode, OPEN_PASSTHROUGH);
	assert_int_equal(b.backing, 5);
	assert_int_equal(stats(t).n_backing, 1);
	assert_int_equal(stats(t).n_mode[OPEN_PASSTHROUGH], 2);
	assert_int_equal(drop(t, a.slot, 9), 0);
	/* one is left: whoever comes still joins */
	a = join(t, 6, 9);
	assert_int_equal(a.backing, 5);
	assert_int_equal(drop(t, b.slot, 9), 0);
	assert_int_equal(drop(t, a.slot, 9), 5);
	opens_backing_closed(t);
	assert_int_equal(stats(t).n_backing, 0);
	a = first(t, 8, 9, 6);
	assert_int_equal(drop(t, a.slot, 9), 6);
	opens_backing_closed(t);
	opens_free(t);
}

/* Also a RELEASE that is being answered counts: the reply may not be out. */
static void open_beside_the_last_release_joins(void **state)
{
	struct opens *t = new_table(16);
	struct open_call a = first(t, 2, 9, 5), b;

	(void)state;
	assert_true(opens_releasing(t, a.slot, 9));
	b = join(t, 4, 9);
	assert_int_equal(b.backing, 5);
	assert_int_equal(opens_released(t, a.slot), 0);
	assert_int_equal(drop(t, b.slot, 9), 5);
	opens_backing_closed(t);
	opens_free(t);
}

static void cached_inode_stays_so_until_it_is_closed(void **state)
{
	struct opens *t = new_table(16);
	struct open_call a = first(t, 2, 9, 0), b = join(t, 4, 9), c;

	(void)state;
	assert_int_equal(b.mode, OPEN_CACHED);
	assert_int_equal(drop(t, a.slot, 9), 0);
	b = join(t, 6, 9);
	assert_int_equal(b.mode, OPEN_CACHED);
	assert_false(b.stale);
	assert_int_equal(drop(t, b.slot, 9), 0);
	assert_int_equal(stats(t).n_mode[OPEN_CACHED], 1);
	assert_true(opens_releasing(t, 2, 9));
	assert_int_equal(opens_released(t, 2), 0);
	/* now it may change, and the kernel has pages of it */
	c = call(8, 9);
	assert_int_equal(opens_begin(t, &c, false), OPENS_DECIDE);
	assert_true(c.stale);
	assert_int_equal(decide(t, &c, 3, 7), 1);
	assert_int_equal(drop(t, c.slot, 9), 3);
	opens_backing_closed(t);
	c = call(10, 9);
	assert_int_equal(opens_begin(t, &c, false), OPENS_DECIDE);
	assert_false(c.stale);
	(void)decide(t, &c, 0, 0);
	opens_free(t);
}

/* Who comes while another one decides gets the same, from him. */
static void opens_wait_for_the_one_that_decides(void **state)
{
	struct opens *t = new_table(16);
	struct open_call a = call(2, 9), b = call(4, 9), c = call(6, 9);

	(void)state;
	assert_int_equal(opens_begin(t, &a, false), OPENS_DECIDE);
	assert_int_equal(opens_begin(t, &b, false), OPENS_WAIT);
	assert_int_equal(opens_begin(t, &c, false), OPENS_WAIT);
	assert_int_equal(stats(t).n_open, 0);
	assert_int_equal(decide(t, &a, 5, 7), 3);
	assert_int_equal(stats(t).n_open, 3);
	assert_int_equal(b.backing, 5);
	assert_int_equal(c.mode, OPEN_PASSTHROUGH);
	assert_int_equal(opens_slot(t, b.slot)->unique, 4);
	assert_int_equal(drop(t, a.slot, 9), 0);
	assert_int_equal(drop(t, b.slot, 9), 0);
	assert_int_equal(drop(t, c.slot, 9), 5);
	opens_backing_closed(t);
	opens_free(t);
}

static void healed_inode_keeps_its_old_backing_id(void **state)
{
	owned(mem) struct opens_inode *v = NULL;
	struct opens *t = new_table(16);
	struct open_call a = first(t, 2, 9, 5), b = first(t, 4, 10, 0), c;
	size_t n;

	(void)state;
	opens_heal(t, 9, 8); /* not this file */
	opens_heal(t, 10, 0); /* cached */
	opens_heal(t, 11, 7); /* not open */
	assert_int_equal(opens_inodes(t, OPEN_HEALED, &v, &n), 0);
	assert_int_equal(n, 0);
	free(take_ptr(&v));
	assert_int_equal(opens_inodes(t, OPEN_PASSTHROUGH, &v, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(v[0].node, 9);
	assert_int_equal(v[0].file, 7);
	opens_heal(t, 9, 7);
	assert_int_equal(opens_slot(t, a.slot)->mode, OPEN_HEALED);
	c = join(t, 6, 9);
	assert_int_equal(c.mode, OPEN_HEALED);
	assert_int_equal(c.backing, 5);
	assert_int_equal(stats(t).n_mode[OPEN_HEALED], 2);
	assert_int_equal(stats(t).n_mode[OPEN_PASSTHROUGH], 0);
	assert_int_equal(drop(t, a.slot, 9), 0);
	assert_int_equal(drop(t, c.slot, 9), 5);
	opens_backing_closed(t);
	assert_int_equal(drop(t, b.slot, 10), 0);
	assert_int_equal(stats(t).n_mode[OPEN_HEALED], 0);
	/* closed: the new file it is */
	c = first(t, 8, 9, 6);
	assert_int_equal(c.mode, OPEN_PASSTHROUGH);
	opens_free(t);
}

/* ---- take-over ---- */

/* An OPEN that a dead process has answered in the table, but perhaps not to
 * the kernel. */
static void resent_open_gets_the_same_answer(void **state)
{
	struct opens *t = new_table(16);
	struct open_call a = first(t, 2, 9, 5), b = first(t, 4, 10, 0);
	struct open_call c = call(2 | RESEND_BIT, 9);
	struct open_call d = call(4 | RESEND_BIT, 10);
	struct open_call e = call(6 | RESEND_BIT, 9);

	(void)state;
	assert_int_equal(opens_begin(t, &c, false), OPENS_ANSWER);
	assert_int_equal(c.slot, a.slot);
	assert_int_equal(c.backing, 5);
	assert_int_equal(c.mode, OPEN_PASSTHROUGH);
	assert_int_equal(opens_begin(t, &d, false), OPENS_ANSWER);
	assert_int_equal(d.slot, b.slot);
	assert_int_equal(stats(t).n_open, 2);
	/* never answered: a new slot, named without the bit */
	assert_int_equal(opens_begin(t, &e, false), OPENS_ANSWER);
	assert_int_not_equal(e.slot, a.slot);
	assert_int_equal(opens_slot(t, e.slot)->unique, 6);
	assert_int_equal(stats(t).n_open, 3);
	opens_free(t);
}

static void header_says_whose_table_it_is(void **state)
{
	struct opens *t = new_table(16);
	const struct opens_header *h = opens_header(t);

	(void)state;
	opens_identify(t, "0e0f", 0, 77);
	opens_note_seq(t, 4);
	opens_note_seq(t, 2);
	assert_true(h->magic == OPENS_MAGIC);
	assert_int_equal(h->version, OPENS_VERSION);
	assert_int_equal(h->n_slots, 16);
	assert_string_equal(h->store, "0e0f");
	assert_int_equal(h->dev_minor, 77);
	assert_int_equal(h->next_seq, 5);
	opens_free(t);
}

/* Every id that is not below is in a slot, or may be. */
static void low_mark_rises_with_the_ids(void **state)
{
	struct opens *t = new_table(16);
	const struct opens_header *h = opens_header(t);
	struct open_call a, b, c;
	int32_t id;

	(void)state;
	assert_int_equal(h->low_backing, 1);
	a = first(t, 2, 9, 1);
	assert_int_equal(drop(t, a.slot, 9), 1);
	assert_int_equal(h->low_backing, 1); /* not closed yet */
	opens_backing_closed(t);
	assert_int_equal(h->low_backing, 2);
	/* one that lives long holds it down */
	b = first(t, 4, 10, 2);
	for (id = 3; id < 6000; id++) {
		a = first(t, 6, 9, id);
		assert_int_equal(drop(t, a.slot, 9), id);
		opens_backing_closed(t);
		assert_int_equal(h->low_backing, 2);
	}
	/* and when the long-lived is another one, it follows */
	c = first(t, 8, 11, id++);
	assert_int_equal(drop(t, b.slot, 10), 2);
	opens_backing_closed(t);
	assert_int_equal(h->low_backing, c.backing);
	/* somebody has an id that we do not know yet */
	b = call(10, 12);
	assert_int_equal(opens_begin(t, &b, false), OPENS_DECIDE);
	assert_int_equal(drop(t, c.slot, 11), c.backing);
	opens_backing_closed(t);
	assert_int_equal(h->low_backing, c.backing);
	(void)decide(t, &b, id, 7);
	assert_int_equal(drop(t, b.slot, 12), id);
	opens_backing_closed(t);
	assert_int_equal(h->low_backing, id + 1);
	/* round they go */
	a = first(t, 12, 9, 1);
	assert_int_equal(h->low_backing, 1);
	opens_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slot_is_used_again_only_after_the_reply),
		cmocka_unit_test(release_is_not_counted_twice),
		cmocka_unit_test(every_slot_is_given_once),
		cmocka_unit_test(full_table_refuses_and_forgets),
		cmocka_unit_test(inode_has_one_mode_and_one_backing_id),
		cmocka_unit_test(open_beside_the_last_release_joins),
		cmocka_unit_test(cached_inode_stays_so_until_it_is_closed),
		cmocka_unit_test(opens_wait_for_the_one_that_decides),
		cmocka_unit_test(healed_inode_keeps_its_old_backing_id),
		cmocka_unit_test(resent_open_gets_the_same_answer),
		cmocka_unit_test(header_says_whose_table_it_is),
		cmocka_unit_test(low_mark_rises_with_the_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
