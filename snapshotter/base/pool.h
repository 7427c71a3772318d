/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded pool of threads with a queue.
 *
 * Threads start when there is work for them and end after ten idle seconds;
 * at least @n_min stay. A job may block on what its pool is for (see the table
 * of threads in ARCHITECTURE.md), never on another job of the same pool.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "list.h"
#include "lock.h"

struct pool;

/* How long a thread waits for work before it ends; tests shorten it. */
extern unsigned pool_idle_ms;

/* Embedded in what is to be done; free to reuse as soon as run() is called. */
struct job {
	struct list node;
	void (*run)(struct job *j);
};

/* @name: at most 11 characters, shown by ps as "vs-NAME" */
int pool_new(const char *name, unsigned n_min, unsigned n_max,
	     struct pool **ret) must_check;

/*
 * Never blocks. The job will not run on -ECANCELED (after pool_stop()), nor,
 * in a pool with @n_min 0, on another -errno: no thread could be started.
 */
int pool_add(struct pool *p, struct job *j) must_check;
/* In front of the queue: work somebody is waiting for. */
int pool_add_urgent(struct pool *p, struct job *j) must_check;

/*
 * pool_stop() - refuse new jobs, run those queued, join all threads
 *
 * pool_free() stops first. Both accept NULL. Not from a job of the pool.
 */
void pool_stop(struct pool *p);
void pool_free(struct pool *p);

#endif
