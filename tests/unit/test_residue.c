/* SPDX-License-Identifier: Apache-2.0 */
/* The residue file: what was added is there again, what is torn is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/io.h"
#include "snapshotter/residue.h"
#include "tests/unit/tmpdir.h"

#define N_UNITS 100u
#define OVERHEAD (16 + 32) /* header and digest of a record */

static int open_folder(void **state)
{
	int fd = open_dir(AT_FDCWD, *state);

	assert_true(fd >= 0);
	return fd;
}

static struct residue *reopen(int dirfd, struct residue *old)
{
	struct residue *r = NULL;

	residue_close(old);
	assert_int_equal(residue_open(dirfd, N_UNITS, &r), 0);
	return r;
}

static off_t size_of(int dirfd)
{
	struct stat st;

	assert_int_equal(fstatat(dirfd, "residue", &st, 0), 0);
	return st.st_size;
}

static void poke(int dirfd, off_t off, uint8_t mask)
{
	owned(fd) int fd = openat(dirfd, "residue", O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, off), 1);
	b ^= mask;
	assert_int_equal(pwrite(fd, &b, 1, off), 1);
}

static void cut(int dirfd, off_t size)
{
	owned(fd) int fd = openat(dirfd, "residue", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
}

static uint32_t n_found(struct residue *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_UNITS; i++)
		n += residue_has(r, i);
	return n;
}

/* Units 3, 7 and 1 with 512, 0 and 100 bytes. */
static struct residue *with_three(int dirfd)
{
	static const uint8_t bytes[512] = { 1, 2, 3 };
	struct residue *r = reopen(dirfd, NULL);

	assert_int_equal(residue_add(r, 3, bytes, 512), 0);
	assert_int_equal(residue_add(r, 7, NULL, 0), 0);
	assert_int_equal(residue_add(r, 1, bytes, 100), 0);
	assert_int_equal(size_of(dirfd), 612 + 3 * OVERHEAD);
	return r;
}

static void residue_open_finds_what_was_added(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = reopen(dirfd, with_three(dirfd));

	assert_int_equal(n_found(r), 3);
	for (uint32_t i = 0; i < N_UNITS + 2; i++)
		assert_int_equal(residue_has(r, i), i == 3 || i == 7 || i == 1);
	residue_close(r);
}

static void residue_add_leaves_a_known_unit_alone(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = with_three(dirfd);
	off_t before = size_of(dirfd);

	assert_int_equal(residue_add(r, 3, "other", 5), 0);
	assert_int_equal(size_of(dirfd), before);
	residue_close(r);
}

static void residue_add_refuses_what_no_layer_has(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = reopen(dirfd, NULL);

	assert_int_equal(residue_add(r, N_UNITS, "x", 1), -EINVAL);
	assert_int_equal(residue_add(r, 1, "x", SIZE_MAX), -EINVAL);
	assert_int_equal(size_of(dirfd), 0);
	residue_close(r);
}

/* Wherever the last record breaks off, it is gone and the others are not. */
static void residue_open_cuts_a_torn_record(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	off_t whole = 512 + 2 * OVERHEAD;

	for (off_t keep = 0; keep < 100 + OVERHEAD; keep += 7) {
		struct residue *r;

		(void)unlinkat(dirfd, "residue", 0);
		residue_close(with_three(dirfd));
		cut(dirfd, whole + keep);
		r = reopen(dirfd, NULL);
		assert_int_equal(n_found(r), 2);
		assert_false(residue_has(r, 1));
		assert_int_equal(size_of(dirfd), whole);
		/* and what comes then is found again */
		assert_int_equal(residue_add(r, 1, "y", 1), 0);
		r = reopen(dirfd, r);
		assert_int_equal(n_found(r), 3);
		residue_close(r);
	}
}

static void residue_open_cuts_from_a_changed_byte_on(void **state)
{
	static const off_t places[] = { 0, 4, 9, 14, 20, 16 + 512 + 3 };
	owned(fd) int dirfd = open_folder(state);

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		struct residue *r;

		(void)unlinkat(dirfd, "residue", 0);
		residue_close(with_three(dirfd));
		poke(dirfd, places[i], 0x80);
		r = reopen(dirfd, NULL);
		assert_int_equal(n_found(r), 0);
		assert_int_equal(size_of(dirfd), 0);
		residue_close(r);
	}
}

static void residue_open_ignores_a_record_twice(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	owned(mem) char *all = NULL;
	owned(fd) int fd = -1;
	struct residue *r;
	size_t len;

	residue_close(with_three(dirfd));
	assert_int_equal(read_file_at(dirfd, "residue", 1 << 20, &all, &len),
			 0);
	fd = openat(dirfd, "residue", O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write_full(fd, all, len), 0);
	r = reopen(dirfd, NULL);
	assert_int_equal(n_found(r), 3);
	assert_int_equal(size_of(dirfd), 2 * len);
	residue_close(r);
}

static void residue_open_cuts_a_unit_that_the_layer_lacks(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = NULL;

	residue_close(with_three(dirfd));
	assert_int_equal(residue_open(dirfd, 5, &r), 0);
	assert_int_equal(n_found(r), 1);
	assert_int_equal(size_of(dirfd), 512 + OVERHEAD);
	residue_close(r);
}

/* The disk fills up in the middle of a record: what would come behind it could
 * not be found again, so nothing does. */
static void residue_add_stops_after_a_torn_write(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = with_three(dirfd);
	struct rlimit old, small;
	off_t before = size_of(dirfd);

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = (rlim_t)before + 20;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(residue_add(r, 9, "0123456789", 10), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_false(residue_has(r, 9));
	assert_int_equal(size_of(dirfd), before + 20);
	assert_int_equal(residue_add(r, 10, "x", 1), -EIO);
	r = reopen(dirfd, r);
	assert_int_equal(n_found(r), 3);
	assert_int_equal(size_of(dirfd), before);
	assert_int_equal(residue_add(r, 10, "x", 1), 0);
	residue_close(r);
}

struct adder {
	struct residue *r;
	uint32_t first;
};

static void *add_many(void *arg)
{
	struct adder *a = arg;
	uint8_t bytes[3000];

	memset(bytes, (int)a->first, sizeof(bytes));
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(residue_add(a->r, a->first + i, bytes,
					     sizeof(bytes) - i * 17),
				 0);
	return NULL;
}

static void residue_add_from_two_threads_mixes_nothing(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	struct residue *r = reopen(dirfd, NULL);
	struct adder a = { r, 0 }, b = { r, 50 };
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, add_many, &a), 0);
	(void)add_many(&b);
	assert_int_equal(pthread_join(t, NULL), 0);
	r = reopen(dirfd, r);
	assert_int_equal(n_found(r), N_UNITS);
	residue_close(r);
}

static void residue_read_gives_what_was_added(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	owned(residue) struct residue *r = reopen(dirfd, with_three(dirfd));
	owned(residue_reader) struct residue_reader *rd = NULL;
	owned(buf) struct buf b = { 0 };

	assert_int_equal(residue_reader_new(r, &rd), 0);
	assert_int_equal(residue_read(rd, 3, &b), 1);
	assert_int_equal(b.len, 512);
	assert_int_equal(b.p[1], 2);
	assert_int_equal(residue_read(rd, 7, &b), 1);
	assert_int_equal(b.len, 0);
	assert_int_equal(residue_read(rd, 2, &b), 0);
	assert_int_equal(residue_read(rd, N_UNITS, &b), 0);
}

/* What went bad on the disk is absent, and may be added again. */
static void residue_read_forgets_a_damaged_record(void **state)
{
	owned(fd) int dirfd = open_folder(state);
	owned(residue) struct residue *r = with_three(dirfd);
	owned(residue_reader) struct residue_reader *rd = NULL, *again = NULL;
	owned(buf) struct buf b = { 0 };

	assert_int_equal(residue_reader_new(r, &rd), 0);
	poke(dirfd, 20, 1);
	assert_int_equal(residue_read(rd, 3, &b), 0);
	assert_false(residue_has(r, 3));
	assert_int_equal(residue_read(rd, 1, &b), 1);
	assert_int_equal(residue_add(r, 3, "new", 3), 0);
	assert_int_equal(residue_reader_new(r, &again), 0);
	assert_int_equal(residue_read(again, 3, &b), 1);
	assert_memory_equal(b.p, "new", 3);
	residue_end(r);
	assert_int_equal(residue_add(r, 4, "x", 1), -EIO);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(residue_open_finds_what_was_added),
		T(residue_add_leaves_a_known_unit_alone),
		T(residue_add_refuses_what_no_layer_has),
		T(residue_open_cuts_a_torn_record),
		T(residue_open_cuts_from_a_changed_byte_on),
		T(residue_open_ignores_a_record_twice),
		T(residue_open_cuts_a_unit_that_the_layer_lacks),
		T(residue_add_stops_after_a_torn_write),
		T(residue_read_gives_what_was_added),
		T(residue_read_forgets_a_damaged_record),
		T(residue_add_from_two_threads_mixes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
