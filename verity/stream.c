/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that decides how image bytes pass through the page cache; see
 * stream.h. Bytes that a container reads are cached once, by the view's file
 * or by its own passthrough; what the daemon reads on the way must leave
 * nothing behind, and must not push applications' pages out.
 *
 * RWF_DONTCACHE does that (Linux 6.14; ext4, xfs), and leaves pages alone that
 * somebody else has cached. Elsewhere POSIX_FADV_DONTNEED on what was just read
 * is the nearest thing. The choice is remembered for the process: the state
 * directory is one file system, and one refused call a read would cost more
 * than it tells.
 */
#include "verity/stream.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "base/io.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80 /* linux/fs.h since 6.14 */
#endif

/* Of the pages written, only those of the last two windows stay. */
#define WRITE_WINDOW (8u << 20)

/* Below this, writing back at every call would make tiny disk writes. */
#define UNCACHED_WRITE_MIN (128u << 10)

enum mode {
	MODE_UNTRIED,
	MODE_DONTCACHE, /* has worked here */
	MODE_FADVISE, /* refused by the first file tried, or switched off */
};

static atomic_int mode = MODE_UNTRIED;
static uint64_t cached_max = STREAM_CACHED_MAX; /* constant once in use */

void stream_hint(int fd)
{
	/* Acts on mappings only (Linux 6.3 to 7.1: read(2) ignores it). */
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_NOREUSE);
}

void stream_drop(int fd)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void stream_set_cached_max(uint64_t size)
{
	cached_max = size;
}

uint64_t stream_cached_max(void)
{
	return cached_max;
}

void stream_disable_dontcache(void)
{
	atomic_store(&mode, MODE_FADVISE);
}

const char *stream_mode(void)
{
	return atomic_load(&mode) == MODE_FADVISE ? "fadvise" : "dontcache";
}

/* Old kernels say EOPNOTSUPP to a flag they do not know, as file systems do;
 * seccomp filters of old say ENOSYS. */
static bool is_refusal(int e)
{
	return e == EOPNOTSUPP || e == EINVAL || e == ENOSYS;
}

/* The first call decides for the process. Afterwards a refusal is a matter of
 * that file alone. */
static void note(bool worked)
{
	int untried = MODE_UNTRIED;

	(void)atomic_compare_exchange_strong(
		&mode, &untried, worked ? MODE_DONTCACHE : MODE_FADVISE);
}

/* How much was moved without caching; *done == len: all. Where it stops short
 * with 0 the caller goes on by ordinary means. */
static int move_uncached(int fd, void *p, size_t len, uint64_t off, bool write,
			 size_t *done)
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
			note(false);
			return 0;
		}
		if (n < 0)
			return -errno;
		if (n == 0)
			return write ? -EIO : -ENODATA;
		note(true);
		*done += (size_t)n;
	}
	return 0;
}

int stream_read(int fd, void *p, size_t len, uint64_t off)
{
	size_t done = 0;
	int r = 0;

	if (len == 0)
		return 0;
	if (atomic_load_explicit(&mode, memory_order_relaxed) != MODE_FADVISE)
		r = move_uncached(fd, p, len, off, false, &done);
	if (r < 0 || done == len)
		return r;
	r = pread_full(fd, (uint8_t *)p + done, len - done, off + done);
	/* Whole pages only: a neighbour's page may be wanted soon. */
	(void)posix_fadvise(fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
	return r;
}

int stream_read_part(int fd, void *p, size_t len, uint64_t off)
{
	return pread_full(fd, p, len, off);
}

/* Where a write enters a new window: starts the write-back of the one before
 * it, and drops the one before that. Failures show up in the owner's fdatasync;
 * what comes in another order is dropped by stream_drop() at the end. */
static void write_behind(int fd, uint64_t off, size_t len)
{
	uint64_t window = (off + len) / WRITE_WINDOW;
	off_t before = (off_t)(window * WRITE_WINDOW) - (off_t)WRITE_WINDOW;

	if (window == off / WRITE_WINDOW)
		return;
	(void)sync_file_range(fd, before, WRITE_WINDOW, SYNC_FILE_RANGE_WRITE);
	if (window < 2)
		return;
	before -= (off_t)WRITE_WINDOW;
	(void)sync_file_range(fd, before, WRITE_WINDOW,
			      SYNC_FILE_RANGE_WAIT_BEFORE |
				      SYNC_FILE_RANGE_WRITE |
				      SYNC_FILE_RANGE_WAIT_AFTER);
	(void)posix_fadvise(fd, before, WRITE_WINDOW, POSIX_FADV_DONTNEED);
}

int stream_write(int fd, const void *p, size_t len, uint64_t off,
		 uint64_t file_size)
{
	const uint8_t *b = p;
	size_t done = 0;
	int r = 0;

	if (file_size <= cached_max || len == 0)
		return pwrite_full(fd, p, len, off);
	if (len >= UNCACHED_WRITE_MIN &&
	    atomic_load_explicit(&mode, memory_order_relaxed) != MODE_FADVISE)
		/* Only read from, although the iovec is not const. */
		r = move_uncached(fd, (void *)(uintptr_t)b, len, off, true,
				  &done);
	if (r < 0 || done == len)
		return r;
	r = pwrite_full(fd, b + done, len - done, off + done);
	if (r == 0)
		write_behind(fd, off, len);
	return r;
}
