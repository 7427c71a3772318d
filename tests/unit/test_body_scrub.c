/* SPDX-License-Identifier: Apache-2.0 */
/* Finished bodies that are read again: what has their name, their leaf logs, a
 * file that has gone. The kernel is that of tests/lib/fake_verity.h. */
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

static void seal(struct fixture *f)
{
	struct body_seal s;

	assert_int_equal(body_seal_begin(f->b, &s), 0);
	assert_int_equal(kernel_enable(s.fd), 0);
	(void)close(s.fd);
	assert_int_equal(body_seal_end(f->b, &s), 0);
}

/* What has the name has the wanted digest. */
static bool is_good(struct fixture *f, bool *leaves_bad)
{
	struct body_scrub s;
	struct digest d;

	assert_int_equal(body_scrub_begin(f->b, 0, &s), 0);
	assert_int_equal(s.size, f->id.size);
	assert_int_equal(fake_digest(s.fd, &d), 0);
	(void)close(s.fd);
	if (leaves_bad)
		*leaves_bad = s.leaves_bad;
	return digest_equal(&d, &s.want);
}

static void repair(struct fixture *f)
{
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
	assert_true(is_good(f, NULL));
}

static void body_scrub_begin_wants_a_finished_body(void **state)
{
	struct fixture *f = *state;
	struct body_scrub s;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_scrub_begin(f->b, 0, &s), -EAGAIN);
	write_bits(f, ALL);
	assert_int_equal(body_scrub_begin(f->b, 0, &s), -EAGAIN);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_true(is_good(f, NULL));
	seal(f);
	assert_true(is_good(f, NULL));
	assert_int_equal(body_scrub_begin(f->b, 1, &s), -EAGAIN);
}

/* Unsealed, the leaves are what the file must have; the map tells in the end. */
static void damaged_leaves_of_a_complete_body_are_renewed(void **state)
{
	struct fixture *f = *state;

	make_large(f);
	complete(f);
	flip_leaf(f, 5);
	assert_false(is_good(f, NULL));
	assert_int_equal(body_reject(f->b, &f->lay), 0);
	assert_true(is_good(f, NULL));
	expect_served(f, ALL);
}

static void damaged_leaves_of_a_sealed_body_are_renewed(void **state)
{
	struct fixture *f = *state;
	bool bad;

	make_large(f);
	complete(f);
	assert_int_equal(body_renew_leaves(f->b), -EAGAIN);
	seal(f);
	assert_true(is_good(f, &bad));
	assert_false(bad);
	flip_leaf(f, 0);
	flip_leaf(f, leaves_count(f->id.size) - 1);
	assert_true(is_good(f, &bad));
	assert_true(bad);
	assert_int_equal(body_renew_leaves(f->b), 0);
	assert_true(is_good(f, &bad));
	assert_false(bad);
	assert_int_equal(body_get_state(f->b), BODY_SEALED);
	/* They are what a repair keeps good blocks by. */
	flip_data(f, 100);
	assert_int_equal(body_reject(f->b, &f->lay), -EAGAIN);
	expect_served(f, ALL & ~1ull);
	repair(f);
}

/* The open file is good, and not what the next process will find. */
static void body_reject_looks_at_what_has_the_name(void **state)
{
	struct fixture *f = *state;
	owned(mem) uint8_t *junk = NULL;
	int fd;

	make_pack(f);
	junk = calloc(1, f->id.size);
	assert_non_null(junk);
	complete(f);
	expect_served(f, ALL);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
	fd = openat(f->rootfd, "layer/5/pack",
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(pwrite_full(fd, junk, f->id.size, 0), 0);
	(void)close(fd);
	assert_false(is_good(f, NULL));
	assert_int_equal(body_reject(f->b, &f->lay), -EAGAIN);
	expect_served(f, 0);
	repair(f);
}

static void body_whose_file_has_gone_is_fetched_again(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 4; i++) {
		struct body_scrub s;
		bool by_reader = i % 2;

		make_pack(f);
		if (!f->b)
			complete(f);
		if (i / 2)
			seal(f);
		assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
		if (by_reader) {
			/* no fd of the old one is open any more */
			reopen(f);
			expect_served(f, 0);
		} else {
			assert_int_equal(body_scrub_begin(f->b, 0, &s),
					 -EBADMSG);
			assert_int_equal(body_reject(f->b, &f->lay), -EAGAIN);
			assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
			expect_served(f, 0);
		}
		repair(f);
	}
}

/* Without a scrub, too: who reads when all fds were closed for want of others. */
static void reader_of_a_file_that_has_gone_waits_for_another(void **state)
{
	struct fixture *f = *state;
	struct body_scrub s;

	make_pack(f);
	complete(f);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
	expect_served(f, ALL); /* of the one that is open */
	assert_int_equal(body_scrub_begin(f->b, 0, &s), -EBADMSG);
	assert_int_equal(body_reject(f->b, &f->lay), -EAGAIN);
	expect_served(f, 0);
	repair(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(body_scrub_begin_wants_a_finished_body),
		T(damaged_leaves_of_a_complete_body_are_renewed),
		T(damaged_leaves_of_a_sealed_body_are_renewed),
		T(body_reject_looks_at_what_has_the_name),
		T(body_whose_file_has_gone_is_fetched_again),
		T(reader_of_a_file_that_has_gone_waits_for_another),
	};

	kernel_set_ops(&fake_kernel);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
