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
	unsigned max_per_host;
	struct lock lock;
	struct host_queue *table;
};

int host_jobs_new(struct pool *pool, unsigned max_per_host,
		  struct host_jobs **ret)
{
	struct host_jobs *hj = calloc(1, sizeof(*hj));

	if (!hj)
		return -ENOMEM;
	hj->pool = pool;
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

/* The place of a job that has ended: the next one that waits takes it. */
static struct host_job *next_job(struct host_jobs *hj, struct host_queue *q)
{
	struct host_job *j = NULL;

	lock_take(&hj->lock);
	if (!list_empty(&q->waiting)) {
		j = list_first(&q->waiting, struct host_job, job.node);
		list_remove(&j->job.node);
	} else if (--q->n_running == 0) {
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

	do {
		j->run(j);
		j = next_job(hj, q);
		/* Behind the jobs of other hosts; at once when the pool stops
		 * and takes no more. */
	} while (j && pool_add(hj->pool, &j->job) < 0);
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
		if (q->n_running >= hj->max_per_host) {
			list_push(&q->waiting, &j->job.node);
		} else {
			r = pool_add(hj->pool, &j->job);
			if (r == 0)
				q->n_running++;
			else if (q->n_running == 0)
				queue_free_locked(hj, q);
		}
	}
	lock_drop(&hj->lock);
	return r;
}
