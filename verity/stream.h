/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How image bytes go through the page cache: the one place that decides.
 *
 * Reads: preadv2(RWF_DONTCACHE) where the file system has it, else pread and
 * FADV_DONTNEED.
 * Writes: through the page cache for files up to STREAM_CACHED_MAX (they are
 * sealed soon and dropped then), else pwritev2(RWF_DONTCACHE), or for small
 * pieces and where that is missing sync_file_range and FADV_DONTNEED one window
 * behind.
 * Source: Linux mm/filemap.c (6.14+ FOP_DONTCACHE); measured, see
 * ARCHITECTURE.md "Page cache".
 */
#ifndef VERITY_STREAM_H
#define VERITY_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define STREAM_CACHED_MAX (64u << 20) /* unless stream_set_cached_max() */

/* Marks a freshly opened fd (POSIX_FADV_NOREUSE; failure does not matter). */
void stream_hint(int fd);

/* Exactly @len bytes; 0, -ENODATA at end of file, -errno. */
int stream_read(int fd, void *p, size_t len, uint64_t off) must_check;

/*
 * stream_read_part() - the same for a few blocks of a file of many small things
 *
 * Through the page cache: the next read most likely wants the same block or one
 * that was read ahead with it, and would go to the disk again. The caller counts
 * and calls stream_drop() every STREAM_PART_MAX bytes.
 */
#define STREAM_PART_MAX (4u << 20)
int stream_read_part(int fd, void *p, size_t len, uint64_t off) must_check;

/* @file_size: of the whole file, decides the way. 0 or -errno. */
int stream_write(int fd, const void *p, size_t len, uint64_t off,
		 uint64_t file_size) must_check;

/* The file is finished: drop what the writes left in the page cache. */
void stream_drop(int fd);

/* Files up to @size bytes are written through the page cache. Before any other
 * call. */
void stream_set_cached_max(uint64_t size);
uint64_t stream_cached_max(void);

/* --without dontcache; before any other call. */
void stream_disable_dontcache(void);
/* "dontcache" or "fadvise": what reads use so far, for status. The first read
 * or large write of the process decides. */
const char *stream_mode(void);

#endif
