/* SPDX-License-Identifier: Apache-2.0 */
/* The fs-verity ioctls; see kernel.h. */
#include "verity/kernel.h"

#include <sys/ioctl.h>

#include <linux/fsverity.h>

#include "verity/leaves.h"

/* ENOTTY: the file system has no such ioctl (tmpfs, FUSE). EOPNOTSUPP: it has,
 * but the kernel or this very file system is without the feature (ext4). */
static int error_of_ioctl(void)
{
	return errno == ENOTTY ? -EOPNOTSUPP : -errno;
}

int kernel_measure(int fd, struct digest *ret)
{
	union {
		struct fsverity_digest head;
		uint8_t room[sizeof(struct fsverity_digest) + 64];
	} u = { .head = { .digest_size = 64 } };

	if (ioctl(fd, FS_IOC_MEASURE_VERITY, &u.head) < 0)
		return error_of_ioctl();
	if (u.head.digest_algorithm != FS_VERITY_HASH_ALG_SHA256 ||
	    u.head.digest_size != DIGEST_LEN)
		return -EBADMSG;
	memcpy(ret->b, u.room + sizeof(u.head), DIGEST_LEN);
	return 0;
}

int kernel_enable(int fd)
{
	struct fsverity_enable_arg arg = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.block_size = LEAF_BLOCK,
	};

	if (ioctl(fd, FS_IOC_ENABLE_VERITY, &arg) < 0 && errno != EEXIST)
		return error_of_ioctl();
	return 0;
}
