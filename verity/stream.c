/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that decides how image bytes pass through the page cache; see
 * stream.h. Bytes that a container reads are cached once, by the view's file
 * or by its own passthrough; what the daemon reads on the way must leave
 * nothing behind, and must not push applications' pages out.
 *
 * RWF_DONTCACHE does that (Linux 6.14; ext4, xfs), and leaves pages alone that
 * somebody else has cached. Elsewhere POSIX_FADV_DONTNEED behind what was read
 * is the nearest thing. The choice is remembered for each file system (st_dev),
 * since one refused call a read would cost more than it tells.
 */
#include "verity/stream.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "base/io.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* linux/fs.h since 6.14 */
#endif

/* Of the pages written, only those of the last two windows stay. */
#define WRITE_WINDOW (8u << 20)

/* Below this, writing back at every call would make tiny disk writes. */
#define UNCACHED_WRITE_MIN (128u << 10)

/* FADV_DONTNEED leaves a folio that is not within its range as a whole. One of
 * readahead has at most so many bytes, so the next read's range has it. */
#define FOLIO_MAX (2u << 20)

/* One readahead(2) is cut to what the disk takes at once, 128 KiB at least. */
#define READAHEAD_STEP (128u << 10)

static atomic_uint_fast64_t cached_max = STREAM_CACHED_MAX;
static enum stream_way best = STREAM_DONTCACHE; /* constant once in use */

/* ---- what each file system can ---- */

/* Only grows. Those that find no place are tried at each call. */
static struct known {
	atomic_uint_fast64_t dev; /* plus 1; 0: free */
	atomic_int way;
} known[STREAM_FS_MAX];

static struct known *know(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		uint_fast64_t dev = atomic_load(&known[i].dev);

		if (!dev && atomic_compare_exchange_strong(&known[i].dev, &dev,
							   st.st_dev + 1))
			return &known[i];
		if (dev == st.st_dev + 1)
			return &known[i];
	}
	return NULL;
}

static enum stream_way way_of(const struct known *k)
{
	enum stream_way way =
		k ? (enum stream_way)atomic_load(&k->way) : STREAM_UNTRIED;

	return best > STREAM_DONTCACHE && way < best ? best : way;
}

/* The first call decides. Afterwards a refusal is a matter of that file
 * alone. */
static void note(struct known *k, enum stream_way way)
{
	int untried = STREAM_UNTRIED;

	if (k)
		(void)atomic_compare_exchange_strong(&k->way, &untried, way);
}

/* Old kernels say EOPNOTSUPP to a flag they do not know, as file systems do;
 * seccomp filters of old say ENOSYS. */
static bool is_refusal(int e)
{
	return e == EOPNOTSUPP || e == EINVAL || e == ENOSYS;
}

enum stream_way stream_try(int fd)
{
	struct known *k = know(fd);
	char byte;
	struct iovec v = { &byte, 1 };

	/* The flag is judged before the offset: an empty file will do. */
	if (way_of(k) == STREAM_UNTRIED) {
		if (preadv2(fd, &v, 1, 0, RWF_DONTCACHE) >= 0)
			note(k, STREAM_DONTCACHE);
		else if (is_refusal(errno))
			note(k, STREAM_FADVISE);
	}
	return way_of(k);
}

void stream_limit(enum stream_way way)
{
	best = way;
}

const char *stream_way_name(enum stream_way way)
{
	static const char *const names[] = {
		[STREAM_UNTRIED] = "untried",
		[STREAM_DONTCACHE] = "dontcache",
		[STREAM_FADVISE] = "fadvise",
		[STREAM_PLAIN] = "plain",
	};

	return names[way];
}

size_t stream_get_fs(struct stream_fs ret[STREAM_FS_MAX])
{
	size_t n = 0;

	for (; n < ARRAY_LEN(known); n++) {
		uint_fast64_t dev = atomic_load(&known[n].dev);

		if (!dev)
			break;
		ret[n] = (struct stream_fs){ major(dev - 1), minor(dev - 1),
					     way_of(&known[n]) };
	}
	return n;
}

void stream_set_cached_max(uint64_t size)
{
	atomic_store(&cached_max, size);
}

uint64_t stream_cached_max(void)
{
	return atomic_load(&cached_max);
}

/* ---- hints ---- */

void stream_hint(int fd)
{
	if (best != STREAM_PLAIN)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE);
}

void stream_drop_range(int fd, uint64_t off, uint64_t len)
{
	if (best != STREAM_PLAIN)
		(void)posix_fadvise(fd, (off_t)off, (off_t)len,
				    POSIX_FADV_DONTNEED);
}

void stream_drop(int fd)
{
	stream_drop_range(fd, 0, 0);
}

void stream_readahead(int fd, uint64_t off, uint64_t end)
{
	for (; off < end; off += READAHEAD_STEP)
		(void)readahead(fd, (off_t)off,
				end - off < READAHEAD_STEP ? (size_t)(end - off)
							   : READAHEAD_STEP);
}

void stream_sequential(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/* ---- reading and writing ---- */

/* How much was moved without caching; *done == len: all. Where it stops short
 * with 0 the caller goes on by ordinary means. */
static int move_uncached(int fd, struct known *k, void *p, size_t len,
			 uint64_t off, bool write, size_t *done)
{
	uint8_t *b = p;

	*done = 0;
	while (*done < len) {
		struct iovec v = { b + *done, len - *done };
		off_t at = (off_t)(off + *done);
		ssize_t n = write ? pwritev2(fd, &v, 1, at, RWF_DONTCACHE)
				  : preadv2(fd, &v, 1, at, RWF_DONTCACHE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && is_refusal(errno)) {
			note(k, STREAM_FADVISE);
			return 0;
		}
		if (n < 0)
			return -errno;
		if (n == 0)
			return write ? -EIO : -ENODATA;
		note(k, STREAM_DONTCACHE);
		*done += (size_t)n;
	}
	return 0;
}

int stream_read(int fd, void *p, size_t len, uint64_t off)
{
	struct known *k;
	size_t done = 0;
	uint64_t behind;
	int r = 0;

	if (len == 0)
		return 0;
	k = know(fd);
	if (way_of(k) <= STREAM_DONTCACHE)
		r = move_uncached(fd, k, p, len, off, false, &done);
	if (r < 0 || done == len)
		return r;
	r = pread_full(fd, (uint8_t *)p + done, len - done, off + done);
	behind = off > FOLIO_MAX ? off - FOLIO_MAX : 0;
	stream_drop_range(fd, behind, off + len - behind);
	return r;
}

int stream_read_part(int fd, void *p, size_t len, uint64_t off)
{
	return pread_full(fd, p, len, off);
}

void stream_count_part(int fd, atomic_uint *count, size_t len)
{
	unsigned old = atomic_fetch_add(count, (unsigned)len);

	if ((old + (unsigned)len) / STREAM_PART_MAX != old / STREAM_PART_MAX)
		stream_drop(fd);
}

int stream_append(int fd, const void *p, size_t len, atomic_uint *count)
{
	int r = write_full(fd, p, len);

	stream_count_part(fd, count, len);
	return r;
}

/* Where a write enters a new window: starts the write-back of the one before
 * it, and drops the one before that. Failures show up in the owner's fdatasync;
 * what comes in another order is dropped by stream_drop() at the end. */
static void write_behind(int fd, uint64_t off, size_t len)
{
	uint64_t window = (off + len) / WRITE_WINDOW;
	off_t before = (off_t)(window * WRITE_WINDOW) - (off_t)WRITE_WINDOW;

	if (window == off / WRITE_WINDOW || best == STREAM_PLAIN)
		return;
	(void)sync_file_range(fd, before, WRITE_WINDOW, SYNC_FILE_RANGE_WRITE);
	if (window < 2)
		return;
	before -= (off_t)WRITE_WINDOW;
	(void)sync_file_range(fd, before, WRITE_WINDOW,
			      SYNC_FILE_RANGE_WAIT_BEFORE |
				      SYNC_FILE_RANGE_WRITE |
				      SYNC_FILE_RANGE_WAIT_AFTER);
	stream_drop_range(fd, (uint64_t)before, WRITE_WINDOW);
}

int stream_write(int fd, const void *p, size_t len, uint64_t off,
		 uint64_t file_size)
{
	const uint8_t *b = p;
	struct known *k;
	size_t done = 0;
	int r = 0;

	if (file_size <= stream_cached_max() || len == 0)
		return pwrite_full(fd, p, len, off);
	k = know(fd);
	if (len >= UNCACHED_WRITE_MIN && way_of(k) <= STREAM_DONTCACHE)
		/* Only read from, although the iovec is not const. */
		r = move_uncached(fd, k, (void *)(uintptr_t)b, len, off, true,
				  &done);
	if (r == 0 && done < len)
		r = pwrite_full(fd, b + done, len - done, off + done);
	/* Also of RWF_DONTCACHE, which starts to write and waits for nothing:
	 * whoever is faster than the disk fills memory with dirty pages. */
	if (r == 0)
		write_behind(fd, off, len);
	return r;
}
