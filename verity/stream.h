/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How image bytes go through the page cache: the one place that decides. All
 * that the project writes for a layer or reads of it goes through here, so that
 * none of it takes the place of what applications have there.
 *
 * Reads: preadv2(RWF_DONTCACHE) where the file system has it, else pread, and
 * FADV_DONTNEED behind it.
 * Writes: through the page cache for files up to stream_cached_max() (they are
 * sealed from there soon, and dropped then), else pwritev2(RWF_DONTCACHE), or
 * for small pieces and where that is missing sync_file_range and FADV_DONTNEED
 * one window behind.
 * Helper processes may map files: stream_map().
 *
 * Which of these a file system has is found out by the first call on a file of
 * it; see stream_get_fs(). All functions block on the disk and take no locks,
 * but for stream_get_fs(). Any thread.
 * Source: Linux mm/filemap.c (6.14+ FOP_DONTCACHE), mm/fadvise.c; measured, see
 * ARCHITECTURE.md "Page cache".
 */
#ifndef VERITY_STREAM_H
#define VERITY_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define STREAM_CACHED_MAX (64u << 20) /* unless stream_set_cached_max() */

/* Marks a freshly opened fd (POSIX_FADV_NOREUSE; failure does not matter). Acts
 * on mappings only: read(2) ignores it from Linux 6.3, where it came, to 7.1. */
void stream_hint(int fd);

/* Exactly @len bytes; 0, -ENODATA at end of file, -errno. */
int stream_read(int fd, void *p, size_t len, uint64_t off) must_check;

/*
 * stream_read_part() - the same for a few blocks of a file of many small things
 *
 * Through the page cache: the next read most likely wants the same block or one
 * that was read ahead with it, and would go to the disk again. The caller counts
 * with stream_count_part(), which drops the file every STREAM_PART_MAX bytes,
 * and drops it when it closes it.
 */
#define STREAM_PART_MAX (4u << 20)
int stream_read_part(int fd, void *p, size_t len, uint64_t off) must_check;
void stream_count_part(int fd, atomic_uint *count, size_t len);

/* @file_size: of the whole file as far as is known, decides the way. 0 or
 * -errno. */
int stream_write(int fd, const void *p, size_t len, uint64_t off,
		 uint64_t file_size) must_check;

/* At the end of a file with O_APPEND, through the page cache. @count: as above;
 * what has been written back by then is dropped. */
int stream_append(int fd, const void *p, size_t len, atomic_uint *count)
	must_check;

/* What the page cache has of the file, or of a part, and need not be written
 * any more. Pages that are mapped stay. */
void stream_drop(int fd);
void stream_drop_range(int fd, uint64_t off, uint64_t len);

/* Somebody is about to read [@off, @end) in order: have it read by then. Waits
 * for a place in the disk's queue, not for the bytes. */
void stream_readahead(int fd, uint64_t off, uint64_t end);

/* The kernel's own readahead has to do: twice as far as usual. */
void stream_sequential(int fd);

/*
 * stream_map() - show a file piece by piece, for helper processes
 *
 * A page that cannot be read is a SIGBUS, which the caller has to survive, or
 * not. What was in the page cache before stays there, and gains no recency;
 * what was not is dropped again.
 *
 * @fd: readable; @size: of the file, at most what it has
 * @fn: bytes [@off, @off + @len), valid during the call; non-zero ends it and
 *	is returned
 * 0 or -errno.
 */
#define STREAM_MAP_PIECE (2u << 20)
int stream_map(int fd, uint64_t size,
	       int (*fn)(void *ctx, const void *p, size_t len, uint64_t off),
	       void *ctx) must_check;

/* Files up to @size bytes are written through the page cache, since somebody is
 * going to read them from there soon. */
void stream_set_cached_max(uint64_t size);
uint64_t stream_cached_max(void);

/* ---- what each file system can ---- */

enum stream_way {
	STREAM_UNTRIED,
	STREAM_DONTCACHE, /* RWF_DONTCACHE */
	STREAM_FADVISE, /* through the page cache, and dropped behind */
	STREAM_PLAIN, /* through the page cache: switched off, for comparison */
};

/* --without dontcache or page-cache-hints: the best way that is used.
 * STREAM_FADVISE or STREAM_PLAIN; before any other call. */
void stream_limit(enum stream_way best);

/* Finds out for the file system of @fd, any readable file. */
enum stream_way stream_try(int fd);

/* "dontcache", "fadvise", "plain", "untried" */
const char *stream_way_name(enum stream_way way);

struct stream_fs {
	unsigned major, minor; /* st_dev of its files */
	enum stream_way way;
};

/* The file systems seen so far; how many. */
#define STREAM_FS_MAX 8
size_t stream_get_fs(struct stream_fs ret[STREAM_FS_MAX]);

#endif
