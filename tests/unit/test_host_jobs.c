/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/host_jobs: a silent host keeps no other one waiting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "snapshotter/host_jobs.h"

#define PER_HOST 2u
#define N_THREADS 16u
#define N_JOBS 20

static atomic_bool answers; /* the silent host has come back */
static atomic_uint n_running, n_max, n_done;

struct work {
	struct host_job hj;
};

static void wait_for_silent(struct host_job *j)
{
	unsigned n = atomic_fetch_add(&n_running, 1) + 1;
	unsigned max = atomic_load(&n_max);

	(void)j;
	while (n > max && !atomic_compare_exchange_weak(&n_max, &max, n))
		;
	while (!atomic_load(&answers))
		(void)usleep(1000);
	atomic_fetch_sub(&n_running, 1);
	atomic_fetch_add(&n_done, 1);
}

static atomic_bool other_done;

static void do_other(struct host_job *j)
{
	(void)j;
	atomic_store(&other_done, true);
}

static bool becomes_true(atomic_bool *b)
{
	uint64_t end = now_ms() + 60000;

	while (!atomic_load(b) && now_ms() < end)
		(void)usleep(1000);
	return atomic_load(b);
}

static void reset(void)
{
	atomic_store(&answers, false);
	atomic_store(&other_done, false);
	atomic_store(&n_running, 0);
	atomic_store(&n_max, 0);
	atomic_store(&n_done, 0);
}

static void add_silent(struct host_jobs *hj, const char *host,
		       struct work w[N_JOBS])
{
	for (int i = 0; i < N_JOBS; i++) {
		w[i].hj.run = wait_for_silent;
		assert_int_equal(host_jobs_add(hj, host, &w[i].hj), 0);
	}
}

static void add_lets_another_host_pass_a_silent_one(void **state)
{
	struct work w[N_JOBS], other = { .hj.run = do_other };
	struct host_jobs *hj = NULL;
	struct pool *p = NULL;

	(void)state;
	reset();
	assert_int_equal(pool_new("test", 1, N_THREADS, &p), 0);
	assert_int_equal(host_jobs_new(p, N_THREADS, PER_HOST, &hj), 0);
	add_silent(hj, "silent.test", w);
	assert_int_equal(host_jobs_add(hj, "other.test", &other.hj), 0);
	assert_true(becomes_true(&other_done));
	assert_int_equal(atomic_load(&n_done), 0);
	atomic_store(&answers, true);
	pool_stop(p);
	assert_int_equal(atomic_load(&n_done), N_JOBS);
	assert_int_equal(atomic_load(&n_max), PER_HOST);
	host_jobs_free(hj);
	pool_free(p);
}

/* More of them than would have all threads, each with its whole share. */
static void add_lets_another_host_pass_many_silent_ones(void **state)
{
	static struct work w[N_THREADS / PER_HOST][N_JOBS];
	struct work other = { .hj.run = do_other };
	struct host_jobs *hj = NULL;
	struct pool *p = NULL;
	char host[32];

	(void)state;
	reset();
	assert_int_equal(pool_new("test", 1, N_THREADS, &p), 0);
	assert_int_equal(host_jobs_new(p, N_THREADS, PER_HOST, &hj), 0);
	for (size_t i = 0; i < ARRAY_LEN(w); i++) {
		(void)snprintf(host, sizeof(host), "silent%zu.test", i);
		add_silent(hj, host, w[i]);
	}
	assert_int_equal(host_jobs_add(hj, "other.test", &other.hj), 0);
	assert_true(becomes_true(&other_done));
	assert_int_equal(atomic_load(&n_done), 0);
	atomic_store(&answers, true);
	pool_stop(p);
	assert_int_equal(atomic_load(&n_done), ARRAY_LEN(w) * N_JOBS);
	host_jobs_free(hj);
	pool_free(p);
}

static void *answer_late(void *arg)
{
	(void)arg;
	(void)usleep(50000);
	atomic_store(&answers, true);
	return NULL;
}

/* The pool takes no more by the time the first ones end. */
static void jobs_that_wait_are_run_by_a_stopping_pool(void **state)
{
	struct work w[N_JOBS], late = { .hj.run = do_other };
	struct host_jobs *hj = NULL;
	struct pool *p = NULL;
	pthread_t t;

	(void)state;
	reset();
	assert_int_equal(pool_new("test", 1, PER_HOST, &p), 0);
	assert_int_equal(host_jobs_new(p, N_THREADS, PER_HOST, &hj), 0);
	add_silent(hj, "silent.test", w);
	assert_int_equal(pthread_create(&t, NULL, answer_late, NULL), 0);
	pool_stop(p);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(atomic_load(&n_done), N_JOBS);
	assert_int_equal(host_jobs_add(hj, "late.test", &late.hj), -ECANCELED);
	host_jobs_free(hj);
	pool_free(p);
}

static void add_refuses_a_host_that_is_too_long(void **state)
{
	struct work w = { .hj.run = do_other };
	struct host_jobs *hj = NULL;
	struct pool *p = NULL;
	char host[300];

	(void)state;
	reset();
	memset(host, 'h', sizeof(host) - 1);
	host[sizeof(host) - 1] = '\0';
	assert_int_equal(pool_new("test", 1, 1, &p), 0);
	assert_int_equal(host_jobs_new(p, N_THREADS, PER_HOST, &hj), 0);
	assert_int_equal(host_jobs_add(hj, host, &w.hj), -ENAMETOOLONG);
	pool_free(p);
	host_jobs_free(hj);
	assert_false(atomic_load(&other_done));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(add_lets_another_host_pass_a_silent_one),
		cmocka_unit_test(add_lets_another_host_pass_many_silent_ones),
		cmocka_unit_test(jobs_that_wait_are_run_by_a_stopping_pool),
		cmocka_unit_test(add_refuses_a_host_that_is_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
