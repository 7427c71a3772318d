/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and durable files; see fs.h. */
#include "fs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"

int mkdir_exact(int dirfd, const char *path, mode_t mode)
{
	struct stat st;

	if (mkdirat(dirfd, path, mode) < 0 && errno != EEXIST)
		return -errno;
	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if ((st.st_mode & 07777) != mode && fchmodat(dirfd, path, mode, 0) < 0)
		return -errno;
	return 0;
}

int open_dir(int dirfd, const char *path)
{
	int fd = openat(dirfd, path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int fsync_dir(int dirfd, const char *path)
{
	owned(fd) int fd = open_dir(dirfd, path);

	if (fd < 0)
		return fd;
	return fsync(fd) < 0 ? -errno : 0;
}

int mkdir_parents(const char *path, mode_t mode)
{
	char tmp[PATH_MAX];

	if (strlen(path) >= sizeof(tmp))
		return -ENAMETOOLONG;
	memcpy(tmp, path, strlen(path) + 1);
	for (char *p = tmp + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(tmp, mode) < 0 && errno != EEXIST)
			return -errno;
		*p = c;
		if (c == '\0')
			return 0;
	}
}

/* What is mounted at @name, or on another device than @dev, is not ours: also a
 * bind mount of our own file system, which the device would not show.
 * STATX_ATTR_MOUNT_ROOT: Linux 5.8. */
static int look(int dirfd, const char *name, const struct statx *top,
		struct statx *ret)
{
	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_TYPE, ret) < 0)
		return -errno;
	if (ret->stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return -EBUSY;
	if (top && (ret->stx_dev_major != top->stx_dev_major ||
		    ret->stx_dev_minor != top->stx_dev_minor))
		return -EBUSY;
	return 0;
}

static int remove_dir_contents(int parent, const char *name,
			       const struct statx *top);

/* @top: where it began; NULL: here */
static int remove_entry(int dirfd, const char *name, const struct statx *top)
{
	struct statx st;
	int r = look(dirfd, name, top, &st);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!S_ISDIR(st.stx_mode)) {
		if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
			return -errno;
		return 0;
	}
	r = remove_dir_contents(dirfd, name, top ? top : &st);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return r < 0 ? r : -errno;
	return r;
}

static int remove_dir_contents(int parent, const char *name,
			       const struct statx *top)
{
	owned(fd) int fd = open_dir(parent, name);
	owned(dir) DIR *d = NULL;
	struct dirent *de;
	int worst = 0;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	d = fdopendir(fd);
	if (!d)
		return -errno;
	(void)take_fd(&fd);
	while ((de = readdir(d))) {
		int r;

		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		r = remove_entry(dirfd(d), de->d_name, top);
		if (r < 0)
			worst = r;
	}
	return worst;
}

int remove_tree(int dirfd, const char *name)
{
	return remove_entry(dirfd, name, NULL);
}

int write_file_atomic(int dirfd, const char *name, const void *p, size_t len,
		      mode_t mode)
{
	char tmp[NAME_MAX + 1];
	int fd, r;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.tmp", name) >= sizeof(tmp))
		return -ENAMETOOLONG;
	fd = openat(dirfd, tmp,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    mode);
	if (fd < 0)
		return -errno;
	r = write_full(fd, p, len);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, tmp, 0);
		return r;
	}
	return fsync_dir(dirfd, ".");
}
