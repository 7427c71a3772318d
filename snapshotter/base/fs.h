/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories and durable files. All paths are relative to a directory fd
 * that we own; no function follows a symbolic link in the last component.
 * Blocking on disk. Inner tier: 0 or -errno.
 */
#ifndef BASE_FS_H
#define BASE_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cleanup.h"

/* Makes @path with exactly @mode (umask does not matter), or accepts a
 * directory that is there, whose mode is then set. */
int mkdir_exact(int dirfd, const char *path, mode_t mode) must_check;

/* Opens a directory: O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_RDONLY. */
int open_dir(int dirfd, const char *path) must_check;

/* fsync of a directory, by path relative to @dirfd ("." for itself). */
int fsync_dir(int dirfd, const char *path) must_check;

/* mkdir -p of an absolute path; new components get @mode. */
int mkdir_parents(const char *path, mode_t mode) must_check;

/*
 * remove_tree() - rm -rf of @name below @dirfd, staying on one file system
 *
 * Never follows links and never enters a mount point (-EBUSY, the rest is
 * removed). -ENOENT counts as done. @dirfd may be AT_FDCWD.
 */
int remove_tree(int dirfd, const char *name) must_check;

/* Replaces @name with @len bytes: temporary file, fsync, rename, fsync. */
int write_file_atomic(int dirfd, const char *name, const void *p, size_t len,
		      mode_t mode) must_check;

#endif
