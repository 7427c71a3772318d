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
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

static enum stream_way way_of(int fd)
{
	struct stream_fs fs[STREAM_FS_MAX];
	size_t n = stream_get_fs(fs);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	for (size_t i = 0; i < n; i++)
		if (makedev(fs[i].major, fs[i].minor) == st.st_dev)
			return fs[i].way;
	return STREAM_UNTRIED;
}

/* tmpfs has no RWF_DONTCACHE: it is found out for each file system. */
static void stream_read_decides_for_each_file_system(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int disk = make_file(bytes, SIZE);
	owned(fd) int mem = memfd_create("vs-test", MFD_CLOEXEC);
	enum stream_way way;

	(void)state;
	read_everything(disk, bytes);
	way = way_of(disk);
	assert_int_not_equal(way, STREAM_UNTRIED);
	assert_int_equal(pwrite_full(mem, bytes, SIZE, 0), 0);
	read_everything(mem, bytes);
	assert_int_equal(way_of(disk), way);
	assert_int_equal(way_of(mem), STREAM_FADVISE);
	assert_int_equal(stream_try(disk), way);
	assert_int_equal(stream_try(mem), STREAM_FADVISE);
}

/* Folios of readahead are larger than what is read at a time, and FADV_DONTNEED
 * leaves those that stick out of its range. */
static void stream_read_of_odd_pieces_leaves_nothing(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(mem) uint8_t *p = malloc(SIZE);
	owned(fd) int fd = make_file(bytes, SIZE);
	const uint32_t piece = 9 * PAGE;

	(void)state;
	assert_non_null(p);
	for (uint32_t off = 0; off < SIZE; off += piece) {
		uint32_t len = SIZE - off < piece ? SIZE - off : piece;

		assert_int_equal(stream_read(fd, p + off, len, off), 0);
	}
	assert_memory_equal(p, bytes, SIZE);
	assert_in_range(n_cached_pages(fd, 0, SIZE), 0, SIZE / PAGE / 16);
}

static void stream_count_part_drops_now_and_then(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, SIZE);
	atomic_uint count = 0;
	uint8_t p[PAGE];

	(void)state;
	for (uint32_t off = 0; off < SIZE / 2; off += PAGE) {
		assert_int_equal(stream_read_part(fd, p, PAGE, off), 0);
		stream_count_part(fd, &count, PAGE);
	}
	assert_true(n_cached_pages(fd, 0, SIZE) >= SIZE / 2 / PAGE);
	stream_count_part(fd, &count, STREAM_PART_MAX);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), 0);
}

/* ---- mapping ---- */

struct seen {
	const uint8_t *bytes;
	uint64_t end;
	unsigned n;
	int stop_at; /* piece that returns 5; 0: none */
};

static int see(void *ctx, const void *p, size_t len, uint64_t off)
{
	struct seen *s = ctx;

	assert_int_equal(off, s->end);
	assert_memory_equal(p, s->bytes + off, len);
	s->end += len;
	return (int)++s->n == s->stop_at ? 5 : 0;
}

static void stream_map_shows_every_byte_once(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	uint64_t size = STREAM_MAP_PIECE + 12345;
	owned(fd) int fd = make_file(bytes, size);
	struct seen s = { .bytes = bytes };

	(void)state;
	assert_int_equal(stream_map(fd, size, see, &s), 0);
	assert_int_equal(s.end, size);
	assert_int_equal(s.n, 2);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), 0);
	s = (struct seen){ .bytes = bytes, .stop_at = 1 };
	assert_int_equal(stream_map(fd, size, see, &s), 5);
	assert_int_equal(s.n, 1);
	assert_int_equal(stream_map(fd, 0, see, NULL), 0);
	assert_int_equal(stream_map(-1, 1, see, NULL), -EBADF);
}

/* What somebody else has in the page cache is still there, and nothing more. */
static void stream_map_leaves_what_was_cached(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, SIZE);
	struct seen s = { .bytes = bytes };
	uint8_t p[PAGE];
	unsigned n;

	(void)state;
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	for (uint32_t off = 0; off < SIZE; off += 64 * PAGE)
		assert_int_equal(pread_full(fd, p, PAGE, off), 0);
	n = n_cached_pages(fd, 0, SIZE);
	assert_in_range(n, SIZE / PAGE / 64, SIZE / PAGE / 2);
	assert_int_equal(stream_map(fd, SIZE, see, &s), 0);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), n);
}

/* ---- writing ---- */

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
	/* however slow the disk: the last windows, dirty or not */
	for (uint64_t off = 0; off < size; off += SIZE)
		n += n_cached_pages(fd, off, SIZE);
	assert_in_range(n, 0, (20u << 20) / PAGE);
	assert_int_equal(fdatasync(fd), 0);
}

/* In a process of its own, since it holds for all calls. */
static void with_limit(enum stream_way limit, void (*test)(void **state))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		owned(fd) int fd = make_file((const uint8_t *)"x", 1);

		stream_limit(limit);
		assert_int_equal(stream_try(fd), limit);
		test(NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As on a kernel without RWF_DONTCACHE. */
static void stream_limit_changes_nothing_visible(void **state)
{
	static void (*const tests[])(void **state) = {
		stream_read_leaves_little_in_the_page_cache,
		stream_read_of_odd_pieces_leaves_nothing,
		stream_read_tells_the_end_of_the_file,
		stream_write_stores_at_its_offset,
		stream_write_of_a_large_file_is_dropped,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		with_limit(STREAM_FADVISE, tests[i]);
}

static void read_and_keep(void **state)
{
	owned(mem) uint8_t *bytes = make_bytes();
	owned(fd) int fd = make_file(bytes, SIZE);

	(void)state;
	stream_hint(fd);
	/* make_file() could not drop it either */
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), 0);
	read_everything(fd, bytes);
	assert_int_equal(n_cached_pages(fd, 0, SIZE), SIZE / PAGE);
}

/* What the other ways are compared with. */
static void stream_limit_plain_gives_no_hints(void **state)
{
	(void)state;
	with_limit(STREAM_PLAIN, read_and_keep);
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
		cmocka_unit_test(stream_read_decides_for_each_file_system),
		cmocka_unit_test(stream_read_of_odd_pieces_leaves_nothing),
		cmocka_unit_test(stream_count_part_drops_now_and_then),
		cmocka_unit_test(stream_map_shows_every_byte_once),
		cmocka_unit_test(stream_map_leaves_what_was_cached),
		cmocka_unit_test(stream_write_stores_at_its_offset),
		cmocka_unit_test(stream_write_of_a_small_file_stays_cached),
		cmocka_unit_test(stream_write_of_a_large_file_is_dropped),
		cmocka_unit_test(stream_limit_changes_nothing_visible),
		cmocka_unit_test(stream_limit_plain_gives_no_hints),
		cmocka_unit_test(probe_dir_leaves_nothing_behind),
		cmocka_unit_test(kernel_measure_tells_a_plain_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
