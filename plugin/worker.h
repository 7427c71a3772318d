/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: a bounded pool for calls that block on the disk. Results come back
 * to the loop thread.
 */
#ifndef PLUGIN_WORKER_H
#define PLUGIN_WORKER_H

#include "base/pool.h"
#include "plugin/loop.h"

struct workers;

/* Embedded in a call. */
struct work {
	void (*run)(struct work *w); /* on a worker thread */
	void (*done)(struct work *w); /* afterwards, on the loop thread */
	struct workers *workers; /* private */
	struct job job; /* private */
	struct loop_post post; /* private */
};

int workers_new(struct loop *l, unsigned n_max, struct workers **ret)
	must_check;
/* Runs what is queued; done() of those is still delivered if the loop runs. */
void workers_free(struct workers *w);
/* Loop thread. 0 or -errno (then neither run nor done is called). */
int work_submit(struct workers *ws, struct work *w) must_check;

#endif
