/* SPDX-License-Identifier: Apache-2.0 */
/* Which job of which host has a thread, and which ones wait; see host_jobs.h. */
#include "snapshotter/host_jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/htab.h"

#define HOST_MAX 256

/* There is one as long as jobs of the host run. */
struct host_queue {
	char host[HOST_MAX];
	unsigned n_running; /* or are in the pool's queue */
	struct list waiting; /* job.node */
	UT_hash_handle hh;
};

struct host_jobs {
	struct pool *pool;
	unsigned max_per_host, n_threads;
	struct lock lock;
	unsigned n_running; /* of all hosts, or in the pool's queue */
	struct host_queue *table;
};

int host_jobs_new(struct pool *pool, unsigned n_threads, unsigned max_per_host,
		  struct host_jobs **ret)
{
	struct host_jobs *hj = calloc(1, sizeof(*hj));

	if (!hj)
		return -ENOMEM;
	hj->pool = pool;
	hj->n_threads = n_threads;
	hj->max_per_host = max_per_host;
	lock_init(&hj->lock, RANK_HOST_JOBS);
	*ret = hj;
	return 0;
}

void host_jobs_free(struct host_jobs *hj)
{
	if (!hj)
		return;
	lock_release(&hj->lock);
	free(hj);
}

static int queue_get_locked(struct host_jobs *hj, const char *host,
			    struct host_queue **ret)
{
	size_t len = strlen(host);
	struct host_queue *q;

	if (len >= HOST_MAX)
		return -ENAMETOOLONG;
	HASH_FIND(hh, hj->table, host, (unsigned)len, q);
	if (!q) {
		q = calloc(1, sizeof(*q));
		if (!q)
			return -ENOMEM;
		memcpy(q->host, host, len);
		list_init(&q->waiting);
		HASH_ADD_KEYPTR(hh, hj->table, q->host, (unsigned)len, q);
		if (!HTAB_ADDED(q)) {
			free(q);
			return -ENOMEM;
		}
	}
	*ret = q;
	return 0;
}

static void queue_free_locked(struct host_jobs *hj, struct host_queue *q)
{
	HASH_DEL(hj->table, q);
	free(q);
}

/* A quarter of what is free: each silent host leaves most of it to others, so
 * that it takes very many of them to leave nothing. */
static bool may_run_locked(const struct host_jobs *hj,
			   const struct host_queue *q)
{
	unsigned left = hj->n_running < hj->n_threads
				? hj->n_threads - hj->n_running
				: 0;

	return q->n_running == 0 ||
	       (q->n_running < hj->max_per_host && q->n_running < left / 4);
}

static int start_locked(struct host_jobs *hj, struct host_queue *q,
			struct host_job *j)
{
	int r = pool_add(hj->pool, &j->job);

	if (r == 0) {
		q->n_running++;
		hj->n_running++;
	}
	return r;
}

/* A job has ended: those that wait take its place, behind the jobs of other
 * hosts. One that the pool, which stops, takes no more is to be run here. */
static struct host_job *job_ended(struct host_jobs *hj, struct host_queue *q)
{
	struct host_job *j = NULL;

	lock_take(&hj->lock);
	q->n_running--;
	hj->n_running--;
	while (!j && !list_empty(&q->waiting) && may_run_locked(hj, q)) {
		j = list_first(&q->waiting, struct host_job, job.node);
		list_remove(&j->job.node);
		if (start_locked(hj, q, j) == 0)
			j = NULL;
	}
	if (j) {
		q->n_running++;
		hj->n_running++;
	} else if (q->n_running == 0) {
		queue_free_locked(hj, q);
	}
	lock_drop(&hj->lock);
	return j;
}

static void run_job(struct job *job)
{
	struct host_job *j = container_of(job, struct host_job, job);
	struct host_jobs *hj = j->owner;
	struct host_queue *q = j->queue;

	while (j) {
		j->run(j);
		j = job_ended(hj, q);
	}
}

int host_jobs_add(struct host_jobs *hj, const char *host, struct host_job *j)
{
	struct host_queue *q;
	int r;

	j->owner = hj;
	j->job.run = run_job;
	list_init(&j->job.node);
	/* The pool is asked with the lock held: a refused job leaves no trace. */
	lock_take(&hj->lock);
	r = queue_get_locked(hj, host, &q);
	if (r == 0) {
		j->queue = q;
		if (may_run_locked(hj, q))
			r = start_locked(hj, q, j);
		else
			list_push(&q->waiting, &j->job.node);
		if (q->n_running == 0)
			queue_free_locked(hj, q);
	}
	lock_drop(&hj->lock);
	return r;
}
