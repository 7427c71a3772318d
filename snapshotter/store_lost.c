/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a missing or empty state.db a first start, or the loss of the database?
 * Beside a new database everything in the folders would be an orphan, the
 * files of containers among them, so the folders are asked before one is made.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/hex.h"
#include "snapshotter/store_priv.h"

static bool is_number(const char *s)
{
	return *s && s[strspn(s, "0123456789")] == '\0';
}

/* body/@fan holds anything that trash_orphans() could take for a body. */
static int fan_has_body(int bodyfd, const char *fan)
{
	int fd = open_dir(bodyfd, fan);
	owned(dir) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int r = fd < 0 ? fd : -ENOMEM;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return r == -ENOTDIR || r == -ELOOP ? 0 : r;
	}
	while ((de = readdir(d)))
		if (strlen(de->d_name) >= DIGEST_HEX_LEN)
			return 1;
	return 0;
}

static int is_content(int dirfd, const char *dir, const char *name)
{
	uint8_t byte;

	if (strcmp(dir, "body") != 0)
		return is_number(name);
	if (strlen(name) != 2 || hex_decode(name, &byte, 1) < 0)
		return 0;
	return fan_has_body(dirfd, name);
}

/* 0: nothing in ROOT/@dir; 1: @path names what is. */
static int find_content(int rootfd, const char *dir, char *path, size_t size)
{
	int fd = open_dir(rootfd, dir), r = 0;
	owned(dir) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return fd == -ENOENT ? 0 : fd < 0 ? fd : -ENOMEM;
	}
	while (r == 0 && (de = readdir(d))) {
		r = is_content(dirfd(d), dir, de->d_name);
		if (r > 0)
			(void)snprintf(path, size, "%s/%s", dir, de->d_name);
	}
	return r;
}

int store_check_lost(const char *root, const char *file, struct err *e)
{
	static const char *const dirs[] = { "s", "layer", "body" };
	owned(fd) int rootfd = open_dir(AT_FDCWD, root);
	char path[16 + NAME_MAX];
	int r = 0;

	if (rootfd < 0)
		return err_sys(e, rootfd, "state directory '%s'", root);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(dirs); i++)
		r = find_content(rootfd, dirs[i], path, sizeof(path));
	if (r < 0)
		return err_sys(e, r, "state directory '%s'", root);
	if (r == 0)
		return 0;
	return err_set(
		e, ERR_PRECONDITION,
		"state database '%s' is missing or empty, but what it described is here ('%s'): put back a copy; to start empty, move the whole directory away, or remove s, layer and body in it",
		file, path);
}
