/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's side of fs-verity.
 * Source: Linux Documentation/filesystems/fsverity.rst, include/uapi/linux/
 * fsverity.h (5.4 and later).
 */
#ifndef VERITY_KERNEL_H
#define VERITY_KERNEL_H

#include "base/digest.h"

/*
 * kernel_measure() - the digest that the kernel enforces for @fd
 *
 * O(1). -ENODATA: not a verity file; -EOPNOTSUPP: the file system or kernel has
 * no fs-verity; -EBADMSG: sealed with another algorithm than SHA-256.
 */
int kernel_measure(int fd, struct digest *ret) must_check;

/*
 * kernel_enable() - make @fd's file a verity file (SHA-256, 4096, no salt)
 *
 * @fd: open read-only, nobody may have it open for writing (-ETXTBSY). 0 also
 * when it is one already. -EOPNOTSUPP as above. Blocks for as long as hashing
 * the file takes; only a fatal signal ends it early.
 */
int kernel_enable(int fd) must_check;

/*
 * What answers both, for tests on kernels without fs-verity: functions with the
 * errors of the ioctls. NULL puts the kernel back. Before other threads start.
 */
struct kernel_ops {
	int (*enable)(int fd);
	int (*measure)(int fd, struct digest *ret);
};
void kernel_set_ops(const struct kernel_ops *ops);

#endif
