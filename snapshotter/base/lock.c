/* SPDX-License-Identifier: Apache-2.0 */
/* Ranked locks; see lock.h. The check costs nothing unless built in. */
#include "lock.h"

#ifdef LOCK_CHECK
#define HELD_MAX 16
static __thread int held[HELD_MAX];
static __thread int n_held;

static void check_take(const struct lock *l)
{
	if (n_held && held[n_held - 1] >= l->rank) {
		fprintf(stderr, "lock order: rank %d taken below rank %d\n",
			l->rank, held[n_held - 1]);
		abort();
	}
	if (n_held == HELD_MAX)
		abort();
	held[n_held++] = l->rank;
}

static void check_drop(const struct lock *l)
{
	int i = n_held;

	while (i > 0 && held[i - 1] != l->rank)
		i--;
	if (i == 0)
		abort();
	for (; i < n_held; i++)
		held[i - 1] = held[i];
	n_held--;
}
#else
static void check_take(const struct lock *l)
{
	(void)l;
}

static void check_drop(const struct lock *l)
{
	(void)l;
}
#endif

void lock_init(struct lock *l, enum lock_rank rank)
{
	/* Cannot fail with default attributes on Linux. */
	(void)pthread_mutex_init(&l->m, NULL);
	l->rank = rank;
}

void lock_release(struct lock *l)
{
	(void)pthread_mutex_destroy(&l->m);
}

void lock_take(struct lock *l)
{
	check_take(l);
	(void)pthread_mutex_lock(&l->m);
}

void lock_drop(struct lock *l)
{
	check_drop(l);
	(void)pthread_mutex_unlock(&l->m);
}

void lock_assert_none(void)
{
#ifdef LOCK_CHECK
	if (n_held) {
		fprintf(stderr, "lock held where none may be: rank %d\n",
			held[n_held - 1]);
		abort();
	}
#endif
}

int cond_init(struct cond *c)
{
	pthread_condattr_t a;
	int r = pthread_condattr_init(&a);

	if (r)
		return -r;
	(void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	r = pthread_cond_init(&c->c, &a);
	(void)pthread_condattr_destroy(&a);
	return -r;
}

void cond_release(struct cond *c)
{
	(void)pthread_cond_destroy(&c->c);
}

void cond_signal(struct cond *c)
{
	(void)pthread_cond_signal(&c->c);
}

void cond_broadcast(struct cond *c)
{
	(void)pthread_cond_broadcast(&c->c);
}

void cond_wait(struct cond *c, struct lock *l)
{
	(void)pthread_cond_wait(&c->c, &l->m);
}

int cond_wait_until(struct cond *c, struct lock *l, uint64_t deadline_ms)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ms / 1000),
		.tv_nsec = (long)(deadline_ms % 1000) * 1000000,
	};

	return -pthread_cond_timedwait(&c->c, &l->m, &ts);
}
