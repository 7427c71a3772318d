/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the kernel copies requests to and replies from.
 *
 * It is anonymous, present and locked: a process killed while the kernel
 * copies from or to a page that is not there answers EIO to the application,
 * or swallows the request (seen with 6.18). Children do not get it, because
 * after a fork the next write would meet a copy-on-write fault.
 */
#ifndef FUSE_BUFFERS_H
#define FUSE_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* Rounded up to pages. Without the right to lock it is only present. */
int locked_alloc(size_t len, void **ret) must_check;
void locked_free(void *p, size_t len);

/* A small pool of equal buffers. Any thread. */
struct buffers;

int buffers_new(unsigned n, size_t len, struct buffers **ret) must_check;
void buffers_free(struct buffers *b); /* all are back */

/*
 * buffers_get() - wait for a buffer; never fails
 *
 * Who holds one may wait for the disk, never for the network nor for a second
 * buffer, so the wait is short.
 */
void *buffers_get(struct buffers *b);
void buffers_put(struct buffers *b, void *p);

size_t buffers_len(const struct buffers *b); /* of one */
uint64_t buffers_bytes(const struct buffers *b); /* of all */

#endif
