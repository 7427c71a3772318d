/* SPDX-License-Identifier: Apache-2.0 */
/* What a body does about damage on the disk, and after a power cut. */
#include "snapshotter/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "body_fixture.h"

static void body_open_lands_holes(void **state)
{
	static const uint32_t lens[] = { 5000, 1 << 20, 3000, 200000, 4096 };
	struct fixture *f = *state;

	make_layout(f, lens, 5, 1, 1u << 1 | 1u << 3);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), 2);
	expect_served(f, 1u << 1 | 1u << 3);
	write_bits(f, 1u << 0 | 1u << 2);
	expect_served(f, 0xf);
	reopen(f);
	expect_served(f, 0xf);
	/* and a damaged one is made good without a fetch */
	flip_data(f, f->x[1].off + 100000);
	flip_data(f, f->x[1].off + 1); /* in the block it shares */
	expect_served(f, 0xf);
	assert_int_equal(body_n_landed(f->b), 4);
}

static void damaged_data_is_fetched_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (uint32_t i = 0; i < PACK_N; i++) {
		flip_data(f, f->x[i].off + f->x[i].len / 2);
		expect_served(f, ALL & ~(1ull << i));
		assert_int_equal(body_n_landed(f->b), PACK_N - 1);
		reopen(f); /* the bit is gone from the disk, too */
		expect_served(f, ALL & ~(1ull << i));
		write_bits(f, ALL);
		expect_served(f, ALL);
	}
}

static void damaged_leaf_costs_nothing(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (uint64_t i = 0; i < leaves_count(f->id.size); i++)
		flip_leaf(f, i);
	expect_served(f, ALL);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	reopen(f);
	expect_served(f, ALL);
}

/* Bits that nothing stands behind; block 0 has a leaf that matches, though. */
static void damaged_bit_is_not_believed(void **state)
{
	struct fixture *f = *state;
	uint8_t ones[2] = { 0xff, 0xff };

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 1);
	close_body(f);
	poke(f, true, STATE_BITMAP_OFF, ones, 2);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	assert_int_equal(read_bit(f, 1), 0);
	reopen(f); /* it stays in doubt */
	expect_served(f, 1u << 1);
	assert_int_equal(body_n_landed(f->b), 1);
	reopen(f);
	expect_served(f, 1u << 1);
}

/* Bits that are lost with their checksum only cost another fetch. */
static void lost_bit_is_landed_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	poke_bits(f, 0xf0f);
	open_body(f);
	expect_served(f, 0xf0f);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void damaged_header_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	flip(f, true, 20);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, ALL);
	reopen(f);
	expect_served(f, ALL);
}

static void lost_data_file_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void lost_state_file_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack.state", 0), 0);
	open_body(f);
	expect_served(f, 0);
}

static void truncated_data_loses_only_its_end(void **state)
{
	struct fixture *f = *state;
	uint64_t kept = (1u << 5) - 1; /* extents before the cut */

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (int reopened = 0; reopened < 2; reopened++) {
		owned(fd) int fd = open_raw(f, false);

		assert_int_equal(ftruncate(fd, (off_t)f->x[5].off + 3), 0);
		if (reopened)
			reopen(f);
		expect_served(f, kept);
		write_bits(f, ALL);
		expect_served(f, ALL);
	}
}

static void truncated_state_loses_only_leaves(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (int reopened = 0; reopened < 2; reopened++) {
		owned(fd) int fd = open_raw(f, true);
		off_t end = (off_t)state_leaves_off(PACK_N) + 70;

		assert_int_equal(ftruncate(fd, end), 0);
		if (reopened)
			reopen(f);
		expect_served(f, ALL);
		assert_int_equal(body_n_landed(f->b), PACK_N);
	}
}

/* Rule 3: a new leaf must not vouch for an old neighbour's damage. */
static void body_write_does_not_bless_a_damaged_neighbour(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 0 | 1u << 2);
	flip_data(f, f->x[0].off + 7);
	write_bits(f, 1u << 1); /* same block as 0 and 2 */
	assert_false(body_has(f->b, 0));
	expect_served(f, 1u << 1 | 1u << 2);
	write_bits(f, 1u << 0);
	expect_served(f, 7);
}

/* Killed between data and leaf: the neighbour must not be lost. */
static void torn_write_keeps_the_neighbour(void **state)
{
	struct fixture *f = *state;
	uint8_t junk[700];

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 0);
	memset(junk, 0x77, sizeof(junk));
	poke(f, false, f->x[1].off, junk, sizeof(junk));
	expect_served(f, 1u << 0);
	write_bits(f, 1u << 1);
	expect_served(f, 3);
}

/* Rule 4. Data and leaf of a shared block are those of before the second
 * extent, the bit is newer: each matches the other, both are stale. */
static void power_cut_with_matching_stale_leaf_is_seen(void **state)
{
	struct fixture *f = *state;
	uint8_t data[LEAF_BLOCK], leaf[32];
	uint64_t leaf_off;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	leaf_off = state_leaves_off(PACK_N);
	open_body(f);
	write_bits(f, 1u << 0);
	peek(f, false, 0, data, sizeof(data));
	peek(f, true, leaf_off, leaf, sizeof(leaf));
	write_bits(f, 1u << 1 | 1u << 6);
	close_body(f);
	poke(f, false, 0, data, sizeof(data));
	poke(f, true, leaf_off, leaf, sizeof(leaf));
	assert_int_equal(setenv("VS_BOOT_ID", "boot-2", 1), 0);
	open_body(f);
	expect_served(f, 1u << 0 | 1u << 6);
	assert_int_equal(body_n_landed(f->b), 2);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

/* The same, and the first that happens is not a read. */
static void power_cut_is_seen_before_complete(void **state)
{
	struct fixture *f = *state;
	uint8_t data[LEAF_BLOCK], leaf[32];
	uint64_t leaf_off;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	leaf_off = state_leaves_off(PACK_N);
	open_body(f);
	write_bits(f, ALL & ~(1ull << 1));
	peek(f, false, 0, data, sizeof(data));
	peek(f, true, leaf_off, leaf, sizeof(leaf));
	write_bits(f, ALL);
	close_body(f);
	poke(f, false, 0, data, sizeof(data));
	poke(f, true, leaf_off, leaf, sizeof(leaf));
	assert_int_equal(setenv("VS_BOOT_ID", "boot-2", 1), 0);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	assert_int_equal(body_complete(f->b, &f->lay), -EAGAIN);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	write_bits(f, 1u << 1);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

/* Doubt survives a crash in the new boot, until all has been looked at. */
static void doubt_ends_when_everything_was_hashed(void **state)
{
	struct fixture *f = *state;
	struct state_header h;
	owned(fd) int fd = -1;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	open_body(f);
	write_bits(f, 0x0f);
	fd = open_raw(f, true);
	reboot(f, "boot-2");
	write_bits(f, 0x10);
	assert_int_equal(read_bit(f, 0), 0);
	reopen(f);
	assert_int_equal(state_read_header(fd, &h), 0);
	assert_string_equal(h.boot, "boot-1");
	expect_served(f, 0x1f);
	assert_int_equal(state_read_header(fd, &h), 0);
	assert_string_equal(h.boot, "boot-2");
}

static void damage_makes_a_complete_body_partial(void **state)
{
	struct fixture *f = *state;

	make_large(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	flip_data(f, f->x[1].off + 1000);
	expect_served(f, ALL & ~2ull);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

static void complete_body_is_not_doubted_after_a_reboot(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	reboot(f, "boot-2");
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	expect_served(f, ALL);
}

static void complete_header_without_all_bits_is_not_believed(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	close_body(f);
	poke_bits(f, 0xff7);
	open_body(f);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	expect_served(f, ALL & ~(1ull << 3));
}

/* Extents of one byte: the neighbours of a block are many. */
static void tiny_extents_share_a_block(void **state)
{
	struct fixture *f = *state;
	uint32_t lens[EXTENTS_MAX];

	for (uint32_t i = 0; i < EXTENTS_MAX; i++)
		lens[i] = 1;
	make_layout(f, lens, EXTENTS_MAX, 1, 0);
	open_body(f);
	for (uint32_t i = 0; i < EXTENTS_MAX; i += 2)
		assert_int_equal(write_bit(f, EXTENTS_MAX - 2 - i), 0);
	flip_data(f, 10);
	for (uint32_t i = 1; i < EXTENTS_MAX; i += 2)
		assert_int_equal(write_bit(f, i), 0);
	assert_false(body_has(f->b, 10));
	assert_int_equal(body_n_landed(f->b), EXTENTS_MAX - 1);
	assert_int_equal(write_bit(f, 10), 0);
	expect_served(f, ALL);
}

struct intruder {
	struct fixture *f;
	bool done;
};

/* Asked for the extent behind the one being read: its bit has been looked at,
 * its bytes have not. Now they are damaged, and a neighbour's read settles the
 * block: it gets a leaf that matches the damage. */
static int extent_with_intruder(void *ctx, uint32_t bit,
				struct body_extent *ret)
{
	struct intruder *i = ctx;

	if (bit == 1 && !i->done) {
		i->done = true;
		flip_data(i->f, i->f->x[0].off + 50);
		assert_int_equal(read_bit(i->f, 1), 0);
	}
	return get_extent(i->f, bit, ret);
}

static int find_with_intruder(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	struct intruder *i = ctx;

	return find_extent(i->f, off, ret_bit);
}

static void body_read_sees_a_bit_cleared_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct intruder i = { .f = f };
	struct body_layout lay = { .extent = extent_with_intruder,
				   .find = find_with_intruder,
				   .ctx = &i };
	uint8_t p[100];

	make_pack(f);
	open_body(f);
	write_bits(f, 3);
	assert_int_equal(body_read(f->b, &lay, 0, p, 100), -EAGAIN);
	assert_true(i.done);
	expect_served(f, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(body_open_lands_holes),
		T(damaged_data_is_fetched_again),
		T(damaged_leaf_costs_nothing),
		T(damaged_bit_is_not_believed),
		T(lost_bit_is_landed_again),
		T(damaged_header_means_beginning_again),
		T(lost_data_file_means_beginning_again),
		T(lost_state_file_means_beginning_again),
		T(truncated_data_loses_only_its_end),
		T(truncated_state_loses_only_leaves),
		T(body_write_does_not_bless_a_damaged_neighbour),
		T(torn_write_keeps_the_neighbour),
		T(power_cut_with_matching_stale_leaf_is_seen),
		T(power_cut_is_seen_before_complete),
		T(doubt_ends_when_everything_was_hashed),
		T(damage_makes_a_complete_body_partial),
		T(complete_body_is_not_doubted_after_a_reboot),
		T(complete_header_without_all_bits_is_not_believed),
		T(tiny_extents_share_a_block),
		T(body_read_sees_a_bit_cleared_meanwhile),
	};

	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
