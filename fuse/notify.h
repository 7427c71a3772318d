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
#include "base/list.h"

struct fuse_session;
struct reads;
struct notifier;

/* Starts the thread. @se and @reads outlive it. */
int notifier_new(struct fuse_session *se, struct reads *reads,
		 struct notifier **ret) must_check;
/* Ends the thread and drops what is still queued; whoever asks for something
 * afterwards gets nothing. Handlers still run: the thread may wait for them. */
void notifier_stop(struct notifier *n);
void notifier_free(struct notifier *n); /* after notifier_stop(); or NULL */

/*
 * notifier_forget_layer() - let the kernel drop a name in the root
 *
 * Never blocks. When memory runs out the name stays in the kernel's cache;
 * what is below answers ESTALE all the same.
 */
void notifier_forget_layer(struct notifier *n, uint32_t seq);

/*
 * notifier_drop_pages() - let the kernel drop the pages that it has of a file
 *
 * Only for an inode that nobody has open: the kernel waits for its pages, and
 * one that a READ holds locked would keep this process from ending, until the
 * READ is answered. Never blocks. @d->done is called once, by the notifier's
 * thread, afterwards; or without it when the notifier ends first.
 */
struct notify_drop {
	uint64_t node;
	void (*done)(struct notify_drop *d);
	struct list list; /* private */
};
void notifier_drop_pages(struct notifier *n, struct notify_drop *d);

#endif
