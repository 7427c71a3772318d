/* SPDX-License-Identifier: Apache-2.0 */
#include "verity/stream.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/io.h"
#include "verity/kernel.h"
#include "verity/probe.h"

#define SIZE (4u << 20)
#define PAGE 4096u

/* A file on the disk's file system without a name, clean and uncached. */
static int make_file(const uint8_t *bytes, uint64_t size)
{
	int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, bytes, size, 0), 0);
	assert_int_equal(fsync(fd), 0);
	stream_drop(fd);
	return fd;
}

static uint8_t *make_bytes(void)
{
	uint8_t *p = malloc(SIZE);

	assert_non_null(p);
	for (uint32_t i = 0; i < SIZE; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 24);
	return p;
}

static unsigned n_cached_pages(int fd, uint64_t off, size_t len)
{
	unsigned char vec[SIZE / PAGE];
	unsigned n = 0;
	void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)off);

	assert_true(p != MAP_FAILED && len <= SIZE);
	assert_int_equal(mincore(p, len, vec), 0);
	assert_int_equal(munmap(p, len), 0);
	for (size_t i = 0; i < len / PAGE; i++)
		n += vec[i] & 1;
	return n;
}

static void read_everything(int fd, const uint8_t *want)
{
	owned(mem) uint8_t *p = calloc(1, SIZE);

	assert_non_null(p);
	for (uint32_t off = 0; off < SIZE; off += 1 << 20)
		assert_int_equal(stream_read(fd, p + off, 1 << 20, off), 0);
	assert_memory_equal(p, want, SIZE);
}

static void stream_read_leaves_little_in_the_page_cache(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, SIZE);

	(void)state;
	stream_hint(fd);
	read_everything(fd, bytes);
	assert_in_range(n_cached_pages(fd, 0, SIZE), 0, SIZE / PAGE / 16);
}

static void stream_read_tells_the_end_of_the_file(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, 10000);
	uint8_t p[200];

	(void)state;
	assert_int_equal(stream_read(fd, p, 100, 9900), 0);
	assert_memory_equal(p, bytes + 9900, 100);
	assert_int_equal(stream_read(fd, p, 101, 9900), -ENODATA);
	assert_int_equal(stream_read(fd, p, 1, 20000), -ENODATA);
	assert_int_equal(stream_read(fd, p, 0, 20000), 0);
	assert_int_equal(stream_read(-1, p, 1, 0), -EBADF);
}

/* A file system without RWF_DONTCACHE, met after one that has it. */
static void stream_read_falls_back_for_one_file(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int disk = make_file(bytes, SIZE);
	owned(fd) int mem = memfd_create("vs-test", MFD_CLOEXEC);
	const char *mode;

	(void)state;
	read_everything(disk, bytes);
	mode = stream_mode();
	assert_int_equal(pwrite_full(mem, bytes, SIZE, 0), 0);
	read_everything(mem, bytes);
	assert_string_equal(stream_mode(), mode);
}

static void stream_write_stores_at_its_offset(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(mem) uint8_t *p = calloc(1, SIZE);
	owned(fd) int fd = make_file(bytes, 0);
	uint64_t far = 100ull << 20;

	(void)state;
	assert_int_equal(stream_write(fd, bytes, SIZE, 77, SIZE + 77), 0);
	assert_int_equal(stream_write(fd, bytes, SIZE, far, far + SIZE), 0);
	assert_int_equal(pread_full(fd, p, SIZE, 77), 0);
	assert_memory_equal(p, bytes, SIZE);
	assert_int_equal(pread_full(fd, p, SIZE, far), 0);
	assert_memory_equal(p, bytes, SIZE);
}

static void stream_write_of_a_small_file_stays_cached(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, 0);

	(void)state;
	assert_int_equal(stream_write(fd, bytes, SIZE, 0, SIZE), 0);
	assert_int_equal(fdatasync(fd), 0);
	/* so that sealing need not read it again */
	assert_int_equal(n_cached_pages(fd, 0, SIZE), SIZE / PAGE);
	stream_drop(fd);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), 0);
}

static void stream_write_of_a_large_file_is_dropped(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, 0);
	uint64_t size = 80u << 20;
	unsigned n = 0;

	(void)state;
	for (uint64_t off = 0; off < size; off += SIZE)
		assert_int_equal(stream_write(fd, bytes, SIZE, off, size), 0);
	assert_int_equal(fdatasync(fd), 0);
	for (uint64_t off = 0; off < size; off += SIZE)
		n += n_cached_pages(fd, off, SIZE);
	/* by the fallback the last two windows stay */
	assert_in_range(n, 0, (20u << 20) / PAGE);
}

/* The whole group again as on a kernel without RWF_DONTCACHE. */
static void stream_disable_dontcache_changes_nothing_visible(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		stream_disable_dontcache();
		assert_string_equal(stream_mode(), "fadvise");
		stream_read_leaves_little_in_the_page_cache(state);
		stream_read_tells_the_end_of_the_file(state);
		stream_write_stores_at_its_offset(state);
		stream_write_of_a_large_file_is_dropped(state);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void probe_dir_leaves_nothing_behind(void **state)
{
	char path[] = "/var/tmp/vs-stream-XXXXXX";
	owned(fd) int dirfd = -1;
	struct probe p;
	int r;

	(void)state;
	assert_non_null(mkdtemp(path));
	dirfd = open_dir(AT_FDCWD, path);
	r = probe_dir(dirfd, &p);
	/* only an empty folder can be removed */
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(r, 0);
}

static void kernel_measure_tells_a_plain_file(void **state)
{
	owned(fd) int disk = make_file((const uint8_t *)"x", 1);
	owned(fd) int mem = memfd_create("vs-test", MFD_CLOEXEC);
	struct digest d;
	int r = kernel_measure(disk, &d);

	(void)state;
	assert_true(r == -ENODATA || r == -EOPNOTSUPP);
	assert_int_equal(kernel_measure(mem, &d), -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stream_read_leaves_little_in_the_page_cache),
		cmocka_unit_test(stream_read_tells_the_end_of_the_file),
		cmocka_unit_test(stream_read_falls_back_for_one_file),
		cmocka_unit_test(stream_write_stores_at_its_offset),
		cmocka_unit_test(stream_write_of_a_small_file_stays_cached),
		cmocka_unit_test(stream_write_of_a_large_file_is_dropped),
		cmocka_unit_test(
			stream_disable_dontcache_changes_nothing_visible),
		cmocka_unit_test(probe_dir_leaves_nothing_behind),
		cmocka_unit_test(kernel_measure_tells_a_plain_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
