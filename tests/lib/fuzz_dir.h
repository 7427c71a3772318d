/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for a fuzzer whose subject needs files. */
#ifndef TESTS_LIB_FUZZ_DIR_H
#define TESTS_LIB_FUZZ_DIR_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_dir_path[256];

static void remove_fuzz_dir(void)
{
	(void)rmdir(fuzz_dir_path);
}

/* One folder for the whole process; each input takes its files away again.
 * libFuzzer ends without atexit(): run.sh removes TMPDIR. */
static int fuzz_dir(void)
{
	const char *tmp = getenv("TMPDIR");
	static int fd = -1;

	if (fd >= 0)
		return fd;
	(void)snprintf(fuzz_dir_path, sizeof(fuzz_dir_path),
		       "%s/vs-fuzz-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(fuzz_dir_path) || atexit(remove_fuzz_dir))
		abort();
	fd = open(fuzz_dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		abort();
	return fd;
}

#endif
