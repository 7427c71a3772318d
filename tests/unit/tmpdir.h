/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of its own for each test; cmocka runs the teardown also on failure.
 * Include after <cmocka.h>. */
#ifndef TESTS_UNIT_TMPDIR_H
#define TESTS_UNIT_TMPDIR_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

static inline int tmpdir_setup(void **state)
{
	char *dir = strdup("/tmp/vs-unit-XXXXXX");

	if (!dir || !mkdtemp(dir))
		return -1;
	*state = dir;
	return 0;
}

static inline int tmpdir_teardown(void **state)
{
	char *dir = *state;
	owned(fd) int tmp = open_dir(AT_FDCWD, "/tmp");
	int r = tmp < 0 ? tmp : remove_tree(tmp, strrchr(dir, '/') + 1);

	free(dir);
	return r;
}

/* A chain of @levels folders "d" in @path; deeper than any path can name. */
static inline int make_deep(int dirfd, const char *path, int levels)
{
	int fd = open_dir(dirfd, path);

	for (int i = 0; i < levels && fd >= 0; i++) {
		int next = mkdirat(fd, "d", 0755) < 0 ? -1 : open_dir(fd, "d");

		(void)close(fd);
		fd = next;
	}
	return fd < 0 ? -1 : close(fd);
}

#endif
