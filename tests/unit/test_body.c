/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshotter/body.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "body_fixture.h"

static void body_read_gives_what_was_written(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	expect_served(f, ALL);
	assert_int_equal(read_at(f, 0, f->id.size), 0);
	assert_int_equal(read_at(f, 4095, 2), 0);
	assert_int_equal(read_at(f, f->id.size - 1, 1), 0);
	assert_int_equal(read_at(f, f->id.size, 0), 0);
}

static void body_read_serves_any_part_of_a_large_file(void **state)
{
	struct fixture *f = *state;
	uint32_t x = 1;

	make_large(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(read_at(f, 0, f->id.size), 0);
	for (int i = 0; i < 200; i++) {
		uint64_t off, len;

		x = x * 1664525u + 1013904223u;
		off = x % f->id.size;
		len = (x >> 7) % (f->id.size - off + 1);
		assert_int_equal(read_at(f, off, len), 0);
	}
}

static void body_read_wants_every_extent_of_the_range(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, 1u << 2 | 1u << 5);
	expect_served(f, 1u << 2 | 1u << 5);
	/* one byte into the next extent */
	assert_int_equal(read_at(f, f->x[5].off, f->x[5].len + 1), -EAGAIN);
	assert_int_equal(body_n_landed(f->b), 2);
	assert_true(body_has(f->b, 5));
	assert_false(body_has(f->b, 6));
	assert_false(body_has(f->b, UINT32_MAX));
}

static void body_read_refuses_to_pass_the_end(void **state)
{
	struct fixture *f = *state;
	uint8_t p[8];

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_read(f->b, &f->lay, f->id.size - 1, p, 2),
			 -EINVAL);
	assert_int_equal(body_read(f->b, &f->lay, UINT64_MAX - 3, p, 8),
			 -EINVAL);
}

static void body_write_refuses_another_length(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_write(f->b, &f->lay, 2, f->bytes, 4999), -EINVAL);
	assert_int_equal(body_write(f->b, &f->lay, 2, f->bytes, 5001), -EINVAL);
	assert_int_equal(body_write(f->b, &f->lay, PACK_N, f->bytes, 5001),
			 -EINVAL);
	assert_int_equal(body_n_landed(f->b), 0);
}

static void body_write_of_a_landed_extent_changes_nothing(void **state)
{
	struct fixture *f = *state;
	uint8_t junk[5000] = { 1 };

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_write(f->b, &f->lay, 2, junk, 5000), 0);
	expect_served(f, ALL);
}

static void body_open_finds_what_had_landed(void **state)
{
	struct fixture *f = *state;
	uint64_t bits = 1u << 0 | 1u << 3 | 1u << 7 | 1u << 11;

	make_pack(f);
	open_body(f);
	write_bits(f, bits);
	reopen(f);
	assert_int_equal(body_n_landed(f->b), 4);
	expect_served(f, bits);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void body_open_gives_the_same_object(void **state)
{
	struct fixture *f = *state;
	struct body_id other;
	struct body *again;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &again), 0);
	assert_ptr_equal(again, f->b);
	body_put(again);
	other = f->id;
	other.size++;
	assert_int_equal(body_open(f->bs, &other, &f->lay, &again), -EUCLEAN);
}

static void body_open_refuses_impossible_ids(void **state)
{
	struct fixture *f = *state;
	struct body_id id;
	struct body *b;

	make_pack(f);
	open_body(f);
	id = f->id;
	id.size = 0;
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id.size = STATE_SIZE_MAX + 1;
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id.size = 11; /* fewer bytes than extents */
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id = f->id;
	id.seq = 6; /* no such layer folder */
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -ENOENT);
}

static void body_open_refuses_the_state_of_another(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	close_body(f);
	f->id.n_extents--;
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), -EUCLEAN);
}

static void body_complete_waits_for_the_last_extent(void **state)
{
	struct fixture *f = *state;
	struct digest d;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL & ~(1ull << 4));
	assert_int_equal(body_complete(f->b, &f->lay), -EAGAIN);
	assert_int_equal(body_expected_digest(f->b, &d), -EINVAL);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	expect_served(f, ALL);
}

static void body_expected_digest_is_that_of_the_bytes(void **state)
{
	struct fixture *f = *state;
	struct digest want, got, *leaves;
	size_t n;

	make_large(f);
	n = leaves_count(f->id.size);
	leaves = malloc(n * sizeof(*leaves));
	assert_non_null(leaves);
	assert_int_equal(leaves_hash(f->bytes, f->id.size, leaves), 0);
	assert_int_equal(leaves_root(leaves, f->id.size, &want), 0);
	free(leaves);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_expected_digest(f->b, &got), 0);
	assert_memory_equal(want.b, got.b, DIGEST_LEN);
}

static void body_write_survives_a_full_disk(void **state)
{
	static const uint32_t lens[] = { 200000, 200000, 1000000, 1000 };
	struct fixture *f = *state;
	owned(mem) char *fill = calloc(1, 1 << 20);
	owned(fd) int fd = -1;
	ssize_t n;

	/* of our own, so that a killed test leaves no mount behind */
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("vs-test", f->path, "tmpfs", 0, "size=2m"), 0);
	f->mounted = true;
	(void)close(f->rootfd);
	f->rootfd = open_dir(AT_FDCWD, f->path);
	assert_int_equal(mkdir_exact(f->rootfd, "layer", 0700), 0);
	assert_int_equal(mkdir_exact(f->rootfd, "layer/5", 0700), 0);
	make_layout(f, lens, 4, 1, 0);
	open_body(f);
	write_bits(f, 1);
	fd = openat(f->rootfd, "fill", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	n = write(fd, fill, 1 << 20);
	assert_true(n > 0);
	assert_int_equal(write_bit(f, 1), 0);
	assert_int_equal(write_bit(f, 2), -ENOSPC);
	assert_false(body_has(f->b, 2));
	expect_served(f, 3);
	assert_int_equal(ftruncate(fd, 0), 0);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

static void bodies_unlink_removes_files_and_folder(void **state)
{
	struct fixture *f = *state;
	char fanout[16];

	make_large(f);
	(void)snprintf(fanout, sizeof(fanout), "body/%02x", f->id.ckey.b[0]);
	open_body(f);
	write_bits(f, 3);
	assert_int_equal(faccessat(f->rootfd, fanout, F_OK, 0), 0);
	assert_int_equal(bodies_unlink(f->bs, &f->id), -EBUSY);
	body_put(f->b);
	f->b = NULL;
	assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
	assert_int_equal(faccessat(f->rootfd, fanout, F_OK, 0), -1);
	assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
	expect_served(f, 0);
}

/* More open bodies than may keep their fds. */
static void many_bodies_take_turns_with_fds(void **state)
{
	static const uint32_t lens[] = { 5000, 3000 };
	struct fixture *f = *state;
	struct body *many[1100];
	int last;

	make_layout(f, lens, 2, 1, 0);
	f->id.seq = 0;
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++) {
		put_le32(f->id.ckey.b, i + 1);
		f->id.ckey.b[0] = 1; /* one folder */
		put_le32(f->id.ckey.b + 4, i + 1);
		assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
		many[i] = f->b;
		write_bits(f, 1);
	}
	last = openat(f->rootfd, ".", O_RDONLY | O_CLOEXEC);
	assert_in_range(last, 0, 1024 * 3 + 50);
	(void)close(last);
	for (uint32_t i = 0; i < ARRAY_LEN(many); i += 50) {
		f->b = many[i];
		write_bits(f, 2);
		assert_int_equal(read_at(f, 0, 8000), 0);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++)
		body_put(many[i]);
	f->b = NULL;
}

struct big_pack {
	uint32_t n;
	unsigned n_calls;
};

#define BIG_LEN 1500u
#define BIG_STEP 1536u

static int big_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	struct big_pack *p = ctx;

	p->n_calls++;
	*ret = (struct body_extent){ .off = (uint64_t)bit * BIG_STEP,
				     .len = BIG_LEN };
	return 0;
}

static int big_find(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	(void)ctx;
	*ret_bit = (uint32_t)(off / BIG_STEP + (off % BIG_STEP >= BIG_LEN));
	return 0;
}

/* 50,000 small files: nothing may be quadratic. Counted, not timed. */
static void pack_of_50000_files_needs_few_looks_at_the_layout(void **state)
{
	struct fixture *f = *state;
	struct big_pack pack = { .n = 50000 };
	uint8_t p[BIG_LEN];

	f->id = (struct body_id){ .seq = 5,
				  .size = 49999ull * BIG_STEP + BIG_LEN,
				  .n_extents = 50000 };
	f->lay = (struct body_layout){ .extent = big_extent,
				       .find = big_find,
				       .ctx = &pack,
				       .no_holes = true };
	open_body(f);
	assert_int_equal(pack.n_calls, 0);
	for (uint32_t i = 0; i < pack.n; i++) {
		memset(p, (int)(i % 251), sizeof(p));
		assert_int_equal(body_write(f->b, &f->lay, i, p, BIG_LEN), 0);
	}
	assert_in_range(pack.n_calls, pack.n, 6 * pack.n);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	for (uint32_t i = 0; i < pack.n; i += 97) {
		assert_int_equal(body_read(f->b, &f->lay,
					   (uint64_t)i * BIG_STEP, p, BIG_LEN),
				 0);
		assert_int_equal(p[BIG_LEN - 1], (int)(i % 251));
	}
	reopen(f);
	assert_int_equal(body_n_landed(f->b), pack.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(body_read_gives_what_was_written),
		T(body_read_serves_any_part_of_a_large_file),
		T(body_read_wants_every_extent_of_the_range),
		T(body_read_refuses_to_pass_the_end),
		T(body_write_refuses_another_length),
		T(body_write_of_a_landed_extent_changes_nothing),
		T(body_open_finds_what_had_landed),
		T(body_open_gives_the_same_object),
		T(body_open_refuses_impossible_ids),
		T(body_open_refuses_the_state_of_another),
		T(body_complete_waits_for_the_last_extent),
		T(body_expected_digest_is_that_of_the_bytes),
		T(bodies_unlink_removes_files_and_folder),
		T(many_bodies_take_turns_with_fds),
		T(pack_of_50000_files_needs_few_looks_at_the_layout),
		T(body_write_survives_a_full_disk), /* unshares: the last */
	};

	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
