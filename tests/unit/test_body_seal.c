/* SPDX-License-Identifier: Apache-2.0 */
/* A complete body is sealed; what is damaged or foreign is replaced. The kernel
 * is that of tests/lib/fake_verity.h. */
#include "snapshotter/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "body_fixture.h"
#include "tests/lib/fake_verity.h"

static void complete(struct fixture *f)
{
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
}

/* What the sealer answers for the body as it is. */
static struct digest enable(struct fixture *f, struct body_seal *s)
{
	struct digest d;

	assert_int_equal(body_seal_begin(f->b, s), 0);
	assert_int_equal(kernel_enable(s->fd), 0);
	assert_int_equal(kernel_measure(s->fd, &d), 0);
	(void)close(s->fd);
	return d;
}

static void seal(struct fixture *f)
{
	struct body_seal s;
	struct digest d = enable(f, &s);

	assert_true(digest_equal(&d, &s.want));
	assert_int_equal(body_seal_end(f->b, &s), 0);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
}

static ino_t inode(struct fixture *f)
{
	owned(fd) int fd = open_raw(f, false);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static void body_seal_begin_wants_a_complete_body(void **state)
{
	struct fixture *f = *state;
	struct body_seal s;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_seal_begin(f->b, &s), -EAGAIN);
	write_bits(f, ALL);
	assert_int_equal(body_seal_begin(f->b, &s), -EAGAIN);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	seal(f);
	assert_int_equal(body_seal_begin(f->b, &s), -EALREADY);
}

/* The fake kernel refuses a file with a writer, as the kernel does. */
static void complete_body_has_no_writer(void **state)
{
	struct fixture *f = *state;
	struct body_seal s;
	struct digest d;

	make_large(f);
	complete(f);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(write_bit(f, 0), 0); /* has landed */
		expect_served(f, ALL);
		assert_int_equal(body_complete(f->b, &f->lay), 0);
	}
	d = enable(f, &s);
	assert_true(digest_equal(&d, &s.want));
}

static void sealed_body_stays_sealed(void **state)
{
	struct fixture *f = *state;

	make_large(f);
	complete(f);
	seal(f);
	expect_served(f, ALL);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
	expect_served(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
}

/* The kernel vouches for the bytes: nothing else of the state file counts. */
static void sealed_body_needs_no_leaves(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	complete(f);
	seal(f);
	close_body(f);
	for (uint64_t i = 0; i < leaves_count(f->id.size); i++)
		flip_leaf(f, i);
	poke_bits(f, 3);
	open_body(f);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	expect_served(f, ALL);
}

/* Replaces the file behind the body's back by @len bytes at @p. */
static void put_foreign(struct fixture *f, const void *p, size_t len,
			bool sealed)
{
	int fd;

	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
	fd = openat(f->rootfd, "layer/5/pack",
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, p, len, 0), 0);
	(void)close(fd);
	fd = openat(f->rootfd, "layer/5/pack", O_RDONLY | O_CLOEXEC);
	if (sealed)
		assert_int_equal(fake_enable(fd), 0);
	(void)close(fd);
}

static void unsealed_copy_is_checked_and_sealed_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	complete(f);
	seal(f);
	close_body(f);
	put_foreign(f, f->bytes, f->id.size, false);
	open_body(f);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	expect_served(f, ALL);
	seal(f);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
}

/* The same while the body is open: seen when its file is opened again. */
static void unsealed_copy_is_noticed_by_the_next_opening(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	complete(f);
	seal(f); /* which closes the file */
	put_foreign(f, f->bytes, f->id.size, false);
	expect_served(f, ALL);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	seal(f);
	expect_served(f, ALL);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
}

/* Whatever it is: shorter, longer, of others, sealed or not. Never served. */
static void foreign_file_is_replaced(void **state)
{
	struct fixture *f = *state;
	owned(mem) uint8_t *junk = NULL;
	size_t size;

	make_pack(f);
	size = f->id.size;
	junk = malloc(2 * size);
	assert_non_null(junk);
	memset(junk, 0x5a, 2 * size);
	for (int i = 0; i < 8; i++) {
		const size_t lens[] = { size, size / 2, 2 * size, 0 };
		ino_t foreign;

		if (!f->b)
			complete(f);
		seal(f);
		close_body(f);
		put_foreign(f, junk, lens[i / 2], i % 2);
		foreign = inode(f);
		open_body(f);
		assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
		expect_served(f, 0);
		assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
		write_bits(f, ALL);
		assert_int_equal(body_complete(f->b, &f->lay), 0);
		expect_served(f, ALL);
		assert_true(inode(f) != foreign);
	}
}

/* A file that was finished is never written to: who has it open, or mapped,
 * keeps exactly what it had. */
static void damage_is_repaired_in_another_file(void **state)
{
	struct fixture *f = *state;

	for (int sealed = 0; sealed < 2; sealed++) {
		owned(mem) uint8_t *before = NULL, *after = NULL;
		owned(fd) int old = -1;
		ino_t ino;

		if (f->b)
			close_body(f);
		(void)unlinkat(f->rootfd, "layer/5/pack.state", 0);
		make_pack(f);
		before = malloc(f->id.size);
		after = malloc(f->id.size);
		complete(f);
		if (sealed)
			seal(f);
		close_body(f);
		flip_data(f, f->x[3].off + 7);
		flip_data(f, f->x[9].off + 7);
		ino = inode(f);
		old = open_raw(f, false);
		assert_int_equal(pread_full(old, before, f->id.size, 0), 0);
		open_body(f);
		expect_served(f, ALL & ~(1ull << 3 | 1ull << 9));
		assert_true(inode(f) == ino); /* nothing to write yet */
		write_bits(f, ALL);
		expect_served(f, ALL);
		assert_true(inode(f) != ino);
		assert_int_equal(pread_full(old, after, f->id.size, 0), 0);
		assert_memory_equal(before, after, f->id.size);
		assert_int_equal(body_complete(f->b, &f->lay), 0);
		seal(f);
		reopen(f);
		expect_served(f, ALL);
		assert_int_equal(
			faccessat(f->rootfd, "layer/5/pack.tmp", F_OK, 0), -1);
	}
}

/* Sealed with the damage in it: the kernel's digest is the first to tell. */
static void body_reject_finds_what_is_bad(void **state)
{
	struct fixture *f = *state;
	struct body_seal s;
	struct digest d;
	ino_t ino;

	make_large(f);
	complete(f);
	ino = inode(f);
	flip_data(f, f->x[1].off + 1000);
	d = enable(f, &s);
	assert_false(digest_equal(&d, &s.want));
	assert_int_equal(body_reject(f->b, &f->lay), -EAGAIN);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	expect_served(f, ALL & ~2ull);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_true(inode(f) != ino);
	seal(f);
	expect_served(f, ALL);
}

/* Of the damage nothing is left to see, as when another file had been sealed:
 * it is another file that counts from then on. */
static void body_reject_replaces_in_any_case(void **state)
{
	struct fixture *f = *state;
	ino_t ino;

	make_pack(f);
	complete(f);
	ino = inode(f);
	assert_int_equal(body_reject(f->b, &f->lay), 0);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	assert_true(inode(f) != ino);
	expect_served(f, ALL);
	seal(f);
}

/* What was measured is not what is there any more. */
static void body_seal_end_refuses_what_was_repaired_meanwhile(void **state)
{
	struct fixture *f = *state;
	struct body_seal s;

	make_pack(f);
	complete(f);
	(void)enable(f, &s);
	flip_data(f, f->x[2].off);
	expect_served(f, ALL & ~(1ull << 2));
	assert_int_equal(body_seal_end(f->b, &s), -EAGAIN);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_seal_end(f->b, &s), -EAGAIN);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	seal(f);
}

static void damaged_hole_gets_another_file(void **state)
{
	static const uint32_t lens[] = { 5000, 1 << 20, 3000 };
	struct fixture *f = *state;
	ino_t ino;

	make_layout(f, lens, 3, 1, 1u << 1);
	complete(f);
	ino = inode(f);
	flip_data(f, f->x[1].off + 100000);
	expect_served(f, ALL);
	assert_true(inode(f) != ino);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	seal(f);
	expect_served(f, ALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(body_seal_begin_wants_a_complete_body),
		T(complete_body_has_no_writer),
		T(sealed_body_stays_sealed),
		T(sealed_body_needs_no_leaves),
		T(unsealed_copy_is_checked_and_sealed_again),
		T(unsealed_copy_is_noticed_by_the_next_opening),
		T(foreign_file_is_replaced),
		T(damage_is_repaired_in_another_file),
		T(body_reject_finds_what_is_bad),
		T(body_reject_replaces_in_any_case),
		T(body_seal_end_refuses_what_was_repaired_meanwhile),
		T(damaged_hole_gets_another_file),
	};

	kernel_set_ops(&fake_kernel);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
