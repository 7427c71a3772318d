/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks with ranks. A thread takes locks in rising rank only; a debug build
 * (-DLOCK_CHECK, on in every SAN= build) aborts on a violation, or when a lock
 * is held where none may be (lock_assert_none). The table of ranks is in
 * ARCHITECTURE.md.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "cleanup.h"

enum lock_rank {
	RANK_STORE = 10,
	RANK_LAYERS = 28, /* the registry of layers */
	RANK_LAYER = 30,
	RANK_FILL = 34,
	RANK_FETCH = 36,
	RANK_BODIES = 38, /* the table of open bodies */
	RANK_BODY = 40, /* the only rank that may be held over pread/pwrite */
	RANK_CACHE = 44, /* block caches */
	RANK_NODE = 50,
	RANK_HOST_JOBS = 58, /* what waits for a place in a pool */
	RANK_POOL = 60, /* queues of thread pools */
	RANK_LEAF = 80, /* counters and the like: nothing is taken below */
};

struct lock {
	pthread_mutex_t m;
	int rank;
};

void lock_init(struct lock *l, enum lock_rank rank);
void lock_release(struct lock *l); /* end of its life */
void lock_take(struct lock *l);
void lock_drop(struct lock *l);

/* Nothing but callbacks, replies and network calls wants this. */
void lock_assert_none(void);

/* Condition variables on CLOCK_MONOTONIC. */
struct cond {
	pthread_cond_t c;
};
int cond_init(struct cond *c) must_check;
void cond_release(struct cond *c);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);
void cond_wait(struct cond *c, struct lock *l);
/* 0, or -ETIMEDOUT at @deadline_ms on the clock of now_ms() */
int cond_wait_until(struct cond *c, struct lock *l, uint64_t deadline_ms);

#endif
