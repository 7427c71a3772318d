/* SPDX-License-Identifier: Apache-2.0 */
/* Thread pool; see pool.h. All state is guarded by p->lock. */
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "io.h"
#include "metrics.h"

#define STACK_BYTES (256 * 1024)

unsigned pool_idle_ms = 10000;

struct pool {
	struct lock lock;
	struct cond work, gone;
	struct list queue;
	unsigned n_min, n_max, n_threads, n_idle, n_queued;
	unsigned series; /* of METRIC_QUEUED_JOBS */
	bool stopping;
	char name[16];
};

/* With the lock held. */
static void count_queued(struct pool *p, int by)
{
	p->n_queued += (unsigned)by;
	metrics_move(METRIC_QUEUED_JOBS, p->series, by);
}

/* With the lock held: the next job, or NULL when the thread shall end. */
static struct job *next_job(struct pool *p)
{
	while (list_empty(&p->queue)) {
		int r = 0;

		if (p->stopping)
			return NULL;
		p->n_idle++;
		if (p->n_threads > p->n_min)
			r = cond_wait_until(&p->work, &p->lock,
					    now_ms() + pool_idle_ms);
		else
			cond_wait(&p->work, &p->lock);
		p->n_idle--;
		/* Others may have left while this one waited. */
		if (r == -ETIMEDOUT && list_empty(&p->queue) &&
		    p->n_threads > p->n_min)
			return NULL;
	}
	struct job *j = list_first(&p->queue, struct job, node);

	list_remove(&j->node);
	count_queued(p, -1);
	return j;
}

static void *thread_main(void *arg)
{
	struct pool *p = arg;
	struct job *j;

	(void)pthread_setname_np(pthread_self(), p->name);
	lock_take(&p->lock);
	while ((j = next_job(p))) {
		lock_drop(&p->lock);
		j->run(j);
		lock_take(&p->lock);
	}
	p->n_threads--;
	cond_broadcast(&p->gone);
	lock_drop(&p->lock);
	return NULL;
}

/* With the lock held. Signals are for the loop thread only. */
static int spawn(struct pool *p)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t t;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&t, &attr, thread_main, p);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	if (r == 0)
		p->n_threads++;
	return -r;
}

int pool_new(const char *name, unsigned n_min, unsigned n_max,
	     struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	(void)snprintf(p->name, sizeof(p->name), "vs-%s", name);
	p->series = metrics_series(METRIC_QUEUED_JOBS, name);
	lock_init(&p->lock, RANK_POOL);
	list_init(&p->queue);
	p->n_min = n_min;
	p->n_max = n_max;
	r = cond_init(&p->work);
	if (r < 0)
		goto undo_lock;
	r = cond_init(&p->gone);
	if (r < 0)
		goto undo_work;
	/* One thread from the start: later a failed spawn can be survived. */
	lock_take(&p->lock);
	r = spawn(p);
	lock_drop(&p->lock);
	if (r < 0)
		goto undo_gone;
	*ret = p;
	return 0;
undo_gone:
	cond_release(&p->gone);
undo_work:
	cond_release(&p->work);
undo_lock:
	lock_release(&p->lock);
	free(p);
	return r;
}

static int add(struct pool *p, struct job *j, bool urgent)
{
	int r = 0;

	lock_take(&p->lock);
	if (p->stopping) {
		r = -ECANCELED;
	} else {
		if (urgent)
			list_push_front(&p->queue, &j->node);
		else
			list_push(&p->queue, &j->node);
		count_queued(p, 1);
		cond_signal(&p->work);
		/* An idle thread may have been woken for an earlier job. A
		 * failed spawn only means waiting, unless nobody is there. */
		if (p->n_queued > p->n_idle && p->n_threads < p->n_max)
			r = spawn(p);
		if (r < 0 && p->n_threads == 0) {
			list_remove(&j->node);
			count_queued(p, -1);
		} else {
			r = 0;
		}
	}
	lock_drop(&p->lock);
	return r;
}

int pool_add(struct pool *p, struct job *j)
{
	return add(p, j, false);
}

int pool_add_urgent(struct pool *p, struct job *j)
{
	return add(p, j, true);
}

void pool_stop(struct pool *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	p->stopping = true;
	cond_broadcast(&p->work);
	while (p->n_threads)
		cond_wait(&p->gone, &p->lock);
	lock_drop(&p->lock);
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pool_stop(p);
	cond_release(&p->gone);
	cond_release(&p->work);
	lock_release(&p->lock);
	free(p);
}
