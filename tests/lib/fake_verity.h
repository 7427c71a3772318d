/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs-verity for kernels that lack it, as far as tests need it: a file with the
 * sticky bit is "sealed", and its digest is libfsverity's. Like the kernel it
 * refuses a file that somebody has open for writing. It protects nothing.
 */
#ifndef TESTS_LIB_FAKE_VERITY_H
#define TESTS_LIB_FAKE_VERITY_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <libfsverity.h>

#include "base/io.h"
#include "verity/helper.h"
#include "verity/kernel.h"
#include "verity/leaves.h"

struct fake_cursor {
	int fd;
	uint64_t off;
};

static inline int fake_read(void *ctx, void *buf, size_t len)
{
	struct fake_cursor *c = ctx;
	int r = pread_full(c->fd, buf, len, c->off);

	c->off += len;
	return r;
}

static inline int fake_digest(int fd, struct digest *ret)
{
	struct fake_cursor c = { .fd = fd };
	struct libfsverity_merkle_tree_params params = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.block_size = LEAF_BLOCK,
	};
	struct libfsverity_digest *d = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	params.file_size = (uint64_t)st.st_size;
	r = libfsverity_compute_digest(&c, fake_read, &params, &d);
	if (r == 0)
		memcpy(ret->b, d->digest, DIGEST_LEN);
	free(d);
	return r;
}

static inline bool fake_is_sealed(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_ISVTX);
}

/* A read lease is refused while there is a writer. */
static inline bool fake_has_writer(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
		return errno == EAGAIN;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}

static inline int fake_enable(int fd)
{
	struct digest d;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_mode & S_ISVTX)
		return -EEXIST;
	if (fake_has_writer(fd))
		return -ETXTBSY;
	r = fake_digest(fd, &d); /* the kernel would read it, too */
	if (r < 0)
		return r;
	return fchmod(fd, (st.st_mode & 07777) | S_ISVTX) < 0 ? -errno : 0;
}

static inline int fake_measure(int fd, struct digest *ret)
{
	return fake_is_sealed(fd) ? fake_digest(fd, ret) : -ENODATA;
}

static const struct kernel_ops fake_kernel = { .enable = fake_enable,
					       .measure = fake_measure };

/*
 * Helper processes are this program once more. To be called first in main():
 * there it becomes the helper, with this kernel, and does not return.
 */
static inline void fake_verity_main(int argc, char **argv)
{
	static const char option[] = "--helper=";

	kernel_set_ops(&fake_kernel);
	if (argc == 2 && !strncmp(argv[1], option, strlen(option)))
		exit(helper_main(argv[1] + strlen(option)));
}

#endif
