/* SPDX-License-Identifier: Apache-2.0 */
/* The fs-verity ioctls; see kernel.h. */
#include "verity/kernel.h"

#include <string.h>
#include <sys/ioctl.h>

#include <libfsverity.h>
#include <linux/fsverity.h>

#include "verity/leaves.h"

static int ioctl_enable(int fd)
{
	static const struct libfsverity_merkle_tree_params params = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.block_size = LEAF_BLOCK,
	};

	return libfsverity_enable(fd, &params);
}

static int ioctl_measure(int fd, struct digest *ret)
{
	union {
		struct fsverity_digest head;
		uint8_t room[sizeof(struct fsverity_digest) + 64];
	} u = { .head = { .digest_size = 64 } };

	if (ioctl(fd, FS_IOC_MEASURE_VERITY, &u.head) < 0)
		return -errno;
	if (u.head.digest_algorithm != FS_VERITY_HASH_ALG_SHA256 ||
	    u.head.digest_size != DIGEST_LEN)
		return -EBADMSG;
	memcpy(ret->b, u.room + sizeof(u.head), DIGEST_LEN);
	return 0;
}

static const struct kernel_ops ioctls = { .enable = ioctl_enable,
					  .measure = ioctl_measure };
static const struct kernel_ops *ops = &ioctls;

void kernel_set_ops(const struct kernel_ops *o)
{
	ops = o ? o : &ioctls;
}

/* ENOTTY: the file system has no such ioctl (tmpfs, FUSE). EOPNOTSUPP: it has,
 * but the kernel or this very file system is without the feature (ext4). */
static int unify(int r)
{
	return r == -ENOTTY ? -EOPNOTSUPP : r;
}

int kernel_measure(int fd, struct digest *ret)
{
	return unify(ops->measure(fd, ret));
}

int kernel_enable(int fd)
{
	int r = ops->enable(fd);

	return r == -EEXIST ? 0 : unify(r);
}
