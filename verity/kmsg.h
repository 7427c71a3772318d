/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's log, for what it says of fs-verity: a bad block is an error to
 * whoever reads it, and nobody asks us. /dev/kmsg gives a record at a time; it
 * needs CAP_SYSLOG where kernel.dmesg_restrict is set.
 * Source: Linux Documentation/ABI/testing/dev-kmsg; fs/verity/verify.c.
 */
#ifndef VERITY_KMSG_H
#define VERITY_KMSG_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/*
 * kmsg_parse() - does this record tell of a bad block?
 *
 * @p: "PRIORITY,NUMBER,TIME,FLAGS[,...];TEXT\n"; need not end with a NUL
 * @ret_ino: inode number of the file; 0: of files whose lines were left out
 * 1: yes, and it is the kernel that says so; 0: no.
 */
int kmsg_parse(const char *p, size_t len, uint64_t *ret_ino) must_check;

/* Non-blocking, at the end of what is there. -EPERM: CAP_SYSLOG is missing. */
int kmsg_open(void) must_check;

struct kmsg;

/*
 * kmsg_watch() - a thread ("vs-kmsg") that tells of bad blocks
 *
 * @fd: of kmsg_open(), or another that gives a record at each read; consumed
 * @fn: that thread, no lock held
 * 0 or -errno.
 */
int kmsg_watch(int fd, void (*fn)(void *ctx, uint64_t ino), void *ctx,
	       struct kmsg **ret) must_check;
void kmsg_unwatch(struct kmsg *k); /* accepts NULL */

#endif
