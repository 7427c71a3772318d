/* SPDX-License-Identifier: Apache-2.0 */
#include "verity/vfile.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "verity/kernel.h"
#include "verity/leaves.h"
#include "verity/state.h"

#define SIZE 1000003u /* not a multiple of a block */

struct fixture {
	char path[32];
	const char *name; /* of the folder, in /tmp */
	int tmpfd, dirfd;
	uint8_t *bytes; /* what the file holds */
	struct digest digest;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd;

	if (!f)
		return -1;
	*state = f;
	(void)snprintf(f->path, sizeof(f->path), "/tmp/vs-vfile-XXXXXX");
	if (!mkdtemp(f->path))
		return -1;
	f->name = f->path + strlen("/tmp/");
	f->tmpfd = open_dir(AT_FDCWD, "/tmp");
	f->dirfd = open_dir(AT_FDCWD, f->path);
	f->bytes = malloc(SIZE);
	if (f->dirfd < 0 || !f->bytes)
		return -1;
	for (uint32_t i = 0; i < SIZE; i++)
		f->bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	fd = openat(f->dirfd, "index", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || pwrite_full(fd, f->bytes, SIZE, 0) < 0 || close(fd) < 0)
		return -1;
	return vfile_create(f->dirfd, "index", &f->digest);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r;

	if (!f)
		return 0;
	r = remove_tree(f->tmpfd, f->name);
	(void)close(f->dirfd);
	(void)close(f->tmpfd);
	free(f->bytes);
	free(f);
	return r;
}

static void poke(struct fixture *f, const char *name, uint64_t off, uint8_t v)
{
	owned(fd) int fd = openat(f->dirfd, name, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, &v, 1, off), 0);
}

static struct vfile *open_index(struct fixture *f)
{
	struct vfile *v;

	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v), 0);
	return v;
}

static void vfile_create_gives_the_verity_digest(void **state)
{
	struct fixture *f = *state;
	size_t n = leaves_count(SIZE);
	owned(mem) struct digest *leaves = malloc(n * sizeof(*leaves));
	struct digest d;

	assert_non_null(leaves);
	assert_int_equal(leaves_hash(f->bytes, SIZE, leaves), 0);
	assert_int_equal(leaves_root(leaves, SIZE, &d), 0);
	assert_memory_equal(d.b, f->digest.b, DIGEST_LEN);
	assert_int_equal(faccessat(f->dirfd, "index.state.tmp", F_OK, 0), -1);
}

/* The leaves that libfsverity gives are those of our own code, for every shape
 * of a tree: none, one level, two. */
static void vfile_create_writes_the_leaves(void **state)
{
	static const uint32_t sizes[] = { 1,      4095,   4096,   4097,
					  524288, 524289, 1000003 };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = leaves_count(sizes[i]);
		owned(mem) struct digest *want = calloc(n, sizeof(*want));
		owned(mem) struct digest *got = calloc(n, sizeof(*got));
		owned(fd) int fd =
			openat(f->dirfd, "index", O_WRONLY | O_CLOEXEC);
		owned(fd) int state_fd = -1;
		struct digest d;

		assert_int_equal(ftruncate(fd, sizes[i]), 0);
		assert_int_equal(pwrite_full(fd, f->bytes, sizes[i], 0), 0);
		assert_int_equal(vfile_create(f->dirfd, "index", &d), 0);
		state_fd =
			openat(f->dirfd, "index.state", O_RDONLY | O_CLOEXEC);
		assert_int_equal(leaves_hash(f->bytes, sizes[i], want), 0);
		assert_int_equal(state_read_leaves(state_fd, 0, 0, n, got), 0);
		assert_memory_equal(got, want, n * sizeof(*got));
	}
}

static struct digest measured;
static int measure_error;

static int fake_enable(int fd)
{
	(void)fd;
	return -EOPNOTSUPP;
}

static int fake_measure(int fd, struct digest *ret)
{
	(void)fd;
	*ret = measured;
	return measure_error;
}

static const struct kernel_ops fake_kernel = { .enable = fake_enable,
					       .measure = fake_measure };

static int teardown_kernel(void **state)
{
	kernel_set_ops(NULL);
	return teardown(state);
}

/* Then its leaves are not looked at: they may be gone. */
static void vfile_open_believes_the_kernel(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = NULL;
	char c;

	kernel_set_ops(&fake_kernel);
	measured = f->digest;
	measure_error = 0;
	assert_int_equal(unlinkat(f->dirfd, "index.state", 0), 0);
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v), 0);
	assert_true(vfile_is_sealed(v));
	assert_int_equal(vfile_pread(v, &c, 1, SIZE - 1), 0);
	assert_int_equal((uint8_t)c, f->bytes[SIZE - 1]);
	assert_int_equal(vfile_check(v), 0);
}

static void vfile_open_refuses_another_sealed_file(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = NULL;

	kernel_set_ops(&fake_kernel);
	measured = (struct digest){ { 1 } };
	measure_error = 0;
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -EUCLEAN);
	measure_error = -EBADMSG; /* SHA-512 */
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -EUCLEAN);
	measure_error = -ENODATA;
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v), 0);
	assert_false(vfile_is_sealed(v));
}

static void vfile_create_accepts_an_empty_file(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = NULL;
	struct digest d;
	char c;
	int fd = openat(f->dirfd, "map", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(vfile_create(f->dirfd, "map", &d), 0);
	assert_int_equal(vfile_open(f->dirfd, "map", &d, &v), 0);
	assert_true(vfile_size(v) == 0);
	assert_int_equal(vfile_pread(v, &c, 0, 0), 0);
	assert_int_equal(vfile_pread(v, &c, 1, 0), -EINVAL);
}

static void vfile_pread_gives_any_range(void **state)
{
	static const struct {
		uint32_t off, len;
	} ranges[] = {
		{ 0, 1 },        { 4095, 2 },      { 4096, 4096 },
		{ 0, SIZE },     { SIZE - 1, 1 },  { SIZE, 0 },
		{ 999424, 579 }, { 100, 100000 },  { 8192, 32768 },
		{ 8192, 32769 }, { 4096, 995907 }, { 123456, 65536 },
	};
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);
	owned(mem) uint8_t *p = malloc(SIZE);

	assert_true(vfile_size(v) == SIZE);
	for (int round = 0; round < 2; round++) { /* the second is cached */
		for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
			memset(p, 0xee, SIZE);
			assert_int_equal(
				vfile_pread(v, p, ranges[i].len, ranges[i].off),
				0);
			assert_memory_equal(p, f->bytes + ranges[i].off,
					    ranges[i].len);
		}
	}
}

static void vfile_pread_refuses_to_pass_the_end(void **state)
{
	owned(vfile) struct vfile *v = open_index(*state);
	uint8_t p[8];

	assert_int_equal(vfile_pread(v, p, 2, SIZE - 1), -EINVAL);
	assert_int_equal(vfile_pread(v, p, 1, SIZE), -EINVAL);
	assert_int_equal(vfile_pread(v, p, 8, UINT64_MAX - 3), -EINVAL);
	assert_int_equal(vfile_pread(v, p, SIZE_MAX, 8), -EINVAL);
}

static void vfile_pread_refuses_a_damaged_block(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);
	owned(mem) uint8_t *p = malloc(SIZE);

	poke(f, "index", 50000, (uint8_t)~f->bytes[50000]);
	assert_int_equal(vfile_pread(v, p, 1, 50000), -EUCLEAN);
	assert_int_equal(vfile_pread(v, p, 65536, 0), -EUCLEAN);
	assert_int_equal(vfile_pread(v, p, 4096, 0), 0);
	poke(f, "index", 50000, f->bytes[50000]);
	assert_int_equal(vfile_pread(v, p, 1, 50000), 0);
	assert_int_equal(p[0], f->bytes[50000]);
}

/* The last block, which no partial read would meet; and it is remembered. */
static void vfile_check_finds_damage_anywhere(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);

	assert_int_equal(vfile_check(v), 0);
	assert_false(vfile_is_damaged(v));
	poke(f, "index", SIZE - 1, (uint8_t)~f->bytes[SIZE - 1]);
	assert_int_equal(vfile_check(v), -EUCLEAN);
	assert_true(vfile_is_damaged(v));
}

static void vfile_pread_serves_a_cached_block_from_memory(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);
	uint8_t p[16];

	assert_int_equal(vfile_pread(v, p, 16, 4096), 0);
	poke(f, "index", 4100, (uint8_t)~f->bytes[4100]);
	assert_int_equal(vfile_pread(v, p, 16, 4096), 0);
	assert_memory_equal(p, f->bytes + 4096, 16);
}

/* What one opening has read must not vouch for another. */
static void vfile_open_again_shares_no_blocks(void **state)
{
	struct fixture *f = *state;
	uint8_t p[16];

	{
		owned(vfile) struct vfile *v = open_index(f);

		assert_int_equal(vfile_pread(v, p, 16, 4096), 0);
	}
	poke(f, "index", 4100, (uint8_t)~f->bytes[4100]);
	owned(vfile) struct vfile *v = open_index(f);

	assert_int_equal(vfile_pread(v, p, 16, 4096), -EUCLEAN);
}

static void vfile_pread_refuses_a_file_cut_after_open(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);
	owned(fd) int fd = openat(f->dirfd, "index", O_WRONLY | O_CLOEXEC);
	uint8_t p[16];

	assert_int_equal(ftruncate(fd, SIZE / 2), 0);
	assert_int_equal(vfile_pread(v, p, 16, SIZE - 16), -EUCLEAN);
}

static void vfile_open_refuses_what_differs(void **state)
{
	struct fixture *f = *state;
	struct digest other = f->digest;
	struct vfile *v = NULL;
	owned(fd) int fd = openat(f->dirfd, "index", O_WRONLY | O_CLOEXEC);

	other.b[31] ^= 1;
	assert_int_equal(vfile_open(f->dirfd, "index", &other, &v), -EUCLEAN);
	assert_int_equal(vfile_open(f->dirfd, "map", &other, &v), -ENOENT);
	assert_int_equal(ftruncate(fd, SIZE + 1), 0);
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -EUCLEAN);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	/* a leaf; then the header; then no state at all */
	poke(f, "index.state", state_leaves_off(0) + 77, 0x5a);
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -EUCLEAN);
	assert_int_equal(vfile_create(f->dirfd, "index", &other), 0);
	assert_memory_equal(other.b, f->digest.b, DIGEST_LEN);
	poke(f, "index.state", 20, 0x5a);
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -EUCLEAN);
	assert_int_equal(unlinkat(f->dirfd, "index.state", 0), 0);
	assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
			 -ENOENT);
	assert_null(v);
}

struct reader {
	struct fixture *f;
	struct vfile *v;
	uint32_t seed;
	int n_bad;
};

static void *read_often(void *arg)
{
	struct reader *r = arg;
	uint8_t p[6000];

	for (int i = 0; i < 3000; i++) {
		uint32_t len, off;

		r->seed = r->seed * 1664525u + 1013904223u;
		len = r->seed >> 8 & 0xfff;
		off = r->seed % (SIZE - sizeof(p));
		if (vfile_pread(r->v, p, len, off) < 0 ||
		    memcmp(p, r->f->bytes + off, len))
			r->n_bad++;
	}
	return NULL;
}

static void vfile_pread_serves_threads(void **state)
{
	struct fixture *f = *state;
	owned(vfile) struct vfile *v = open_index(f);
	struct reader r[3];
	pthread_t t[3];

	for (uint32_t i = 0; i < 3; i++) {
		r[i] = (struct reader){ f, v, i, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, read_often, &r[i]),
				 0);
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(r[i].n_bad, 0);
	}
}

static void drop_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)msg;
}

static void vfile_close_gives_back_what_was_cached(void **state)
{
	struct fixture *f = *state;
	size_t before = 0;

	/* A block each, as of the layers that come and go. */
	for (unsigned i = 0; i < 100; i++) {
		struct vfile *v = NULL;
		uint8_t byte;

		assert_int_equal(vfile_open(f->dirfd, "index", &f->digest, &v),
				 0);
		assert_int_equal(vfile_pread(v, &byte, 1, 4096 * i), 0);
		assert_int_equal(byte, f->bytes[4096 * i]);
		vfile_close(v);
		if (i == 9)
			before = mallinfo2().uordblks;
	}
	assert_in_range(mallinfo2().uordblks, 0, before + 16384);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(vfile_create_gives_the_verity_digest),
		T(vfile_create_accepts_an_empty_file),
		T(vfile_create_writes_the_leaves),
		cmocka_unit_test_setup_teardown(vfile_open_believes_the_kernel,
						setup, teardown_kernel),
		cmocka_unit_test_setup_teardown(
			vfile_open_refuses_another_sealed_file, setup,
			teardown_kernel),
		T(vfile_pread_gives_any_range),
		T(vfile_pread_refuses_to_pass_the_end),
		T(vfile_pread_refuses_a_damaged_block),
		T(vfile_check_finds_damage_anywhere),
		T(vfile_pread_serves_a_cached_block_from_memory),
		T(vfile_open_again_shares_no_blocks),
		T(vfile_pread_refuses_a_file_cut_after_open),
		T(vfile_open_refuses_what_differs),
		T(vfile_pread_serves_threads),
		T(vfile_close_gives_back_what_was_cached),
	};

	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
