/* SPDX-License-Identifier: Apache-2.0 */
/* Probes for the state directory; see probe.h. */
#include "verity/probe.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include "base/digest.h"
#include "base/io.h"
#include "verity/kernel.h"
#include "verity/stream.h"

static const char name[] = ".probe";
static const char contents[] = "may this file be sealed?";

static int write_probe(int dirfd)
{
	int fd = openat(dirfd, name,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			0600);
	int r;

	if (fd < 0)
		return -errno;
	r = write_full(fd, contents, sizeof(contents));
	/* It must be closed: a writer makes FS_IOC_ENABLE_VERITY fail. */
	if (close(fd) < 0 && r == 0)
		r = -errno;
	return r;
}

static int try_verity(int fd)
{
	struct digest d;
	int r;

	/* ETXTBSY: a child that has not reached its exec holds our writer.
	 * The caller runs before any are started, so it is not retried. */
	r = kernel_enable(fd);
	return r < 0 ? r : kernel_measure(fd, &d);
}

int probe_dir(int dirfd, struct probe *ret)
{
	owned(fd) int fd = -1;
	int r;

	/* One that a killed process has left behind. */
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	r = write_probe(dirfd);
	if (r == 0) {
		fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			r = -errno;
	}
	if (r == 0) {
		ret->dontcache = stream_try(fd) == STREAM_DONTCACHE;
		ret->verity_error = try_verity(fd);
	}
	(void)unlinkat(dirfd, name, 0);
	return r;
}
