/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that wait for a registry, a bounded number of them per host.
 *
 * They run in a pool that several hosts share. A host that keeps silent holds
 * as many threads as it may have and no more: what else is wanted of it waits
 * in a queue of its own, without a thread, and other hosts are served. Of many
 * that keep silent, each may have fewer than the one before.
 */
#ifndef SNAPSHOTTER_HOST_JOBS_H
#define SNAPSHOTTER_HOST_JOBS_H

#include "base/pool.h"

struct host_jobs;
struct host_queue;

/* Embedded in what is to be done; free to reuse as soon as run() is called. */
struct host_job {
	void (*run)(struct host_job *j);
	struct job job; /* private, like all that follows */
	struct host_jobs *owner;
	struct host_queue *queue;
};

/* @pool: borrowed, has up to @n_threads. @max_per_host: run at the same time,
 * and no more than a quarter of the threads that are free, but one */
int host_jobs_new(struct pool *pool, unsigned n_threads, unsigned max_per_host,
		  struct host_jobs **ret) must_check;
/* After pool_stop(), which runs all that was added. Accepts NULL. */
void host_jobs_free(struct host_jobs *hj);

/* @host: any name, shorter than 256 bytes. Never blocks; 0, -errno: it will
 * not run. */
int host_jobs_add(struct host_jobs *hj, const char *host, struct host_job *j)
	must_check;

#endif
