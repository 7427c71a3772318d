/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one thread that tells the kernel something unasked, and that keeps the
 * deadlines of parked reads.
 *
 * A notification takes locks of inodes in the kernel, behind which a request
 * may wait for a handler: sent from a handler it could wait for itself.
 */
#ifndef FUSE_NOTIFY_H
#define FUSE_NOTIFY_H

#include <stdint.h>

#include "base/cleanup.h"

struct fuse_session;
struct reads;
struct notifier;

/* Starts the thread. @se and @reads outlive it. */
int notifier_new(struct fuse_session *se, struct reads *reads,
		 struct notifier **ret) must_check;
/* Drops what is still queued. */
void notifier_free(struct notifier *n);

/*
 * notifier_forget_layer() - let the kernel drop a name in the root
 *
 * Never blocks. When memory runs out the name stays in the kernel's cache;
 * what is below answers ESTALE all the same.
 */
void notifier_forget_layer(struct notifier *n, uint32_t seq);

#endif
