/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests and figures: streams a file in each of the ways that verity/stream
 * knows, and in those that it does not use, for comparison.
 *
 *	cachetool read WAY FILE        plain, noreuse (read(2) with that advice),
 *	                               fadvise, dontcache, mmap, mmap-noreuse, map
 *	                               (stream_map)
 *	cachetool write WAY FILE SIZE  plain, fadvise, dontcache; synced
 *	cachetool ways FILE            which way its file system has
 *
 * Prints seconds, CPU seconds and bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/io.h"
#include "verity/stream.h"

#define PIECE (1u << 20)
#define PAGE 4096u

static volatile uint64_t sum; /* so that nothing is optimised away */

static int touch(void *ctx, const void *p, size_t len, uint64_t off)
{
	const uint8_t *b = p;

	(void)ctx;
	(void)off;
	for (size_t i = 0; i < len; i += PAGE)
		sum += b[i];
	return 0;
}

static int read_through(int fd, uint64_t size)
{
	owned(mem) uint8_t *p = malloc(PIECE);
	int r = p ? 0 : -ENOMEM;

	for (uint64_t off = 0; r == 0 && off < size; off += PIECE)
		r = stream_read(
			fd, p,
			size - off < PIECE ? (size_t)(size - off) : PIECE, off);
	return r;
}

/* One mapping of all, as a program has it. */
static int map_all(int fd, uint64_t size)
{
	void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	(void)touch(NULL, p, size, 0);
	(void)munmap(p, size);
	return 0;
}

static const struct {
	const char *name;
	enum stream_way limit;
	bool noreuse, mmap, map;
} ways[] = {
	{ "plain", STREAM_PLAIN, false, false, false },
	{ "noreuse", STREAM_PLAIN, true, false, false },
	{ "fadvise", STREAM_FADVISE, false, false, false },
	{ "dontcache", STREAM_DONTCACHE, false, false, false },
	{ "mmap", STREAM_PLAIN, false, true, false },
	{ "mmap-noreuse", STREAM_PLAIN, true, true, false },
	{ "map", STREAM_DONTCACHE, false, false, true },
};

static int read_file(const char *way, int fd, uint64_t size)
{
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		if (strcmp(ways[i].name, way) != 0)
			continue;
		stream_limit(ways[i].limit);
		if (ways[i].noreuse &&
		    posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE) != 0)
			return -ENOTSUP;
		return ways[i].map    ? stream_map(fd, size, touch, NULL)
		       : ways[i].mmap ? map_all(fd, size)
				      : read_through(fd, size);
	}
	return -EINVAL;
}

static int write_file(const char *way, int fd, uint64_t size)
{
	owned(mem) uint8_t *p = calloc(1, PIECE);
	int r = p ? -EINVAL : -ENOMEM;

	for (size_t i = 0; p && i < ARRAY_LEN(ways); i++) {
		if (strcmp(ways[i].name, way) != 0)
			continue;
		stream_limit(ways[i].limit);
		stream_set_cached_max(0);
		r = 0;
	}
	for (uint64_t off = 0; r == 0 && off < size; off += PIECE) {
		put_le64(p, off); /* no two pieces are the same */
		r = stream_write(fd, p, PIECE, off, size);
	}
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	return r;
}

static double cpu_seconds(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
	bool writes = argc == 5 && !strcmp(argv[1], "write");
	const char *path = argc > 2 ? argv[argc == 3 ? 2 : 3] : "";
	owned(fd) int fd =
		open(path, writes ? O_RDWR | O_CREAT : O_RDONLY, 0600);
	uint64_t begin = now_ns(), size;
	double cpu = cpu_seconds();
	struct stat st;
	int r = -EINVAL;

	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		return 1;
	}
	size = (uint64_t)st.st_size;
	if (argc == 3 && !strcmp(argv[1], "ways")) {
		(void)puts(stream_way_name(stream_try(fd)));
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "read")) {
		r = read_file(argv[2], fd, size);
	} else if (writes) {
		size = strtoull(argv[4], NULL, 10) / PIECE * PIECE;
		r = write_file(argv[2], fd, size);
	}
	if (r < 0) {
		(void)fprintf(stderr, "cachetool: %s\n", strerror(-r));
		return 1;
	}
	(void)printf("%.3f %.3f %llu\n", (double)(now_ns() - begin) / 1e9,
		     cpu_seconds() - cpu, (unsigned long long)size);
	return 0;
}
