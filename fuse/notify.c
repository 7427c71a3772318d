/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notifier thread; see notify.h. It sleeps until a name is queued or the
 * next deadline of a parked read.
 */
#include "fuse/notify.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/io.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "fuse/node.h"
#include "fuse/ops.h"
#include "fuse/read.h"

struct gone_layer {
	struct list node;
	uint32_t seq;
};

struct notifier {
	struct fuse_session *se;
	struct reads *reads;
	pthread_t thread;
	struct lock lock; /* guards what follows */
	struct cond wake;
	struct list gone, drops;
	bool stopping;
};

static void tell(struct notifier *n, uint32_t seq)
{
	char name[12];
	int len = snprintf(name, sizeof(name), "%" PRIu32, seq), r;

	r = fuse_lowlevel_notify_inval_entry(n->se, NODE_ROOT, name,
					     (size_t)len);
	/* -ENOENT: the kernel did not hold it */
	log_debug("layer dropped from the kernel's cache: seq=%s r=%d", name,
		  r);
}

static void drop_pages(struct notifier *n, struct notify_drop *d)
{
	int r = fuse_lowlevel_notify_inval_inode(n->se, d->node, 0, 0);

	log_debug("pages dropped: node=%" PRIx64 " r=%d", d->node, r);
	d->done(d);
}

static void *notifier_main(void *arg)
{
	struct notifier *n = arg;
	uint64_t next = now_ms();

	(void)pthread_setname_np(pthread_self(), "vs-notify");
	lock_take(&n->lock);
	while (!n->stopping) {
		if (!list_empty(&n->gone)) {
			struct gone_layer *g =
				list_first(&n->gone, struct gone_layer, node);

			list_remove(&g->node);
			lock_drop(&n->lock);
			tell(n, g->seq);
			free(g);
			lock_take(&n->lock);
		} else if (!list_empty(&n->drops)) {
			struct notify_drop *d =
				list_first(&n->drops, struct notify_drop, list);

			list_remove(&d->list);
			lock_drop(&n->lock);
			drop_pages(n, d);
			lock_take(&n->lock);
		} else if (cond_wait_until(&n->wake, &n->lock, next) < 0) {
			lock_drop(&n->lock);
			next = reads_expire(n->reads);
			lock_take(&n->lock);
		}
	}
	lock_drop(&n->lock);
	return NULL;
}

int notifier_new(struct fuse_session *se, struct reads *reads,
		 struct notifier **ret)
{
	struct notifier *n = calloc(1, sizeof(*n));
	sigset_t all, old;
	int r;

	if (!n)
		return -ENOMEM;
	r = cond_init(&n->wake);
	if (r < 0)
		goto undo_alloc;
	lock_init(&n->lock, RANK_LEAF);
	list_init(&n->gone);
	list_init(&n->drops);
	n->se = se;
	n->reads = reads;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&n->thread, NULL, notifier_main, n);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		goto undo_cond;
	*ret = n;
	return 0;
undo_cond:
	cond_release(&n->wake);
	lock_release(&n->lock);
undo_alloc:
	free(n);
	return r;
}

void notifier_stop(struct notifier *n)
{
	struct list drops, *p, *next;

	list_init(&drops);
	lock_take(&n->lock);
	n->stopping = true;
	cond_signal(&n->wake);
	lock_drop(&n->lock);
	(void)pthread_join(n->thread, NULL);
	lock_take(&n->lock);
	list_splice(&drops, &n->drops);
	lock_drop(&n->lock);
	list_each_safe (p, next, &drops) {
		struct notify_drop *d = list_entry(p, struct notify_drop, list);

		d->done(d);
	}
}

void notifier_free(struct notifier *n)
{
	struct list *p, *next;

	if (!n)
		return;
	list_each_safe (p, next, &n->gone)
		free(list_entry(p, struct gone_layer, node));
	cond_release(&n->wake);
	lock_release(&n->lock);
	free(n);
}

void notifier_forget_layer(struct notifier *n, uint32_t seq)
{
	struct gone_layer *g = malloc(sizeof(*g));

	if (!g)
		return;
	g->seq = seq;
	lock_take(&n->lock);
	list_push(&n->gone, &g->node);
	cond_signal(&n->wake);
	lock_drop(&n->lock);
}

void notifier_drop_pages(struct notifier *n, struct notify_drop *d)
{
	bool stopping;

	lock_take(&n->lock);
	stopping = n->stopping;
	if (!stopping) {
		list_push(&n->drops, &d->list);
		cond_signal(&n->wake);
	}
	lock_drop(&n->lock);
	if (stopping)
		d->done(d);
}
