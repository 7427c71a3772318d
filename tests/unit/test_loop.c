/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/loop and plugin/worker: posts, signals, results of workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "plugin/loop.h"
#include "plugin/worker.h"

#define N_THREADS 4
#define N_POSTS 500

struct counter {
	struct loop *loop;
	pthread_t loop_thread;
	unsigned n, n_wrong_thread;
};

struct message {
	struct loop_post post;
	struct counter *c;
};

struct poster {
	pthread_t thread;
	struct counter *c;
	struct message m[N_POSTS];
};

static struct loop *new_loop(void)
{
	struct err e = ERR_INIT;
	struct loop *l = NULL;

	assert_int_equal(loop_new(&l, &e), 0);
	return l;
}

static void count_message(struct loop_post *p)
{
	struct counter *c = container_of(p, struct message, post)->c;

	if (!pthread_equal(pthread_self(), c->loop_thread))
		c->n_wrong_thread++;
	if (++c->n == N_THREADS * N_POSTS)
		loop_quit(c->loop);
}

static void *post_all(void *arg)
{
	struct poster *p = arg;

	for (size_t i = 0; i < N_POSTS; i++) {
		p->m[i].c = p->c;
		p->m[i].post.fn = count_message;
		loop_post(p->c->loop, &p->m[i].post);
	}
	return NULL;
}

static void loop_post_delivers_each_once_on_the_loop_thread(void **state)
{
	static struct poster posters[N_THREADS];
	struct counter c = { .loop = new_loop(),
			     .loop_thread = pthread_self() };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < N_THREADS; i++) {
		posters[i].c = &c;
		assert_int_equal(pthread_create(&posters[i].thread, NULL,
						post_all, &posters[i]),
				 0);
	}
	assert_int_equal(loop_run(c.loop, &e), 0);
	for (size_t i = 0; i < N_THREADS; i++)
		(void)pthread_join(posters[i].thread, NULL);
	assert_int_equal(loop_turn(c.loop, 0), 0);
	assert_int_equal(c.n, N_THREADS * N_POSTS);
	assert_int_equal(c.n_wrong_thread, 0);
	assert_int_equal(loop_signal(c.loop), 0);
	loop_free(c.loop);
}

static void post_again(struct loop_post *p)
{
	struct message *m = container_of(p, struct message, post);

	if (++m->c->n == 10)
		loop_quit(m->c->loop);
	else
		loop_post(m->c->loop, p);
}

static void loop_post_may_be_reused_in_its_callback(void **state)
{
	struct counter c = { .loop = new_loop() };
	struct message m = { .c = &c, .post.fn = post_again };
	struct err e = ERR_INIT;

	(void)state;
	loop_post(c.loop, &m.post);
	assert_int_equal(loop_run(c.loop, &e), 0);
	assert_int_equal(c.n, 10);
	loop_free(c.loop);
}

static void loop_run_ends_at_sigterm_and_not_at_sighup(void **state)
{
	struct loop *l = new_loop();
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(kill(getpid(), SIGHUP), 0);
	assert_int_equal(loop_turn(l, 1000), 0);
	assert_int_equal(loop_signal(l), 0);
	assert_int_equal(kill(getpid(), SIGPIPE), 0);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	assert_int_equal(loop_run(l, &e), 0);
	assert_int_equal(loop_signal(l), SIGTERM);
	loop_free(l);
}

struct sum {
	struct work work;
	struct counter *c;
	pthread_t ran_on;
	int value;
};

static void sum_run(struct work *w)
{
	struct sum *s = container_of(w, struct sum, work);

	s->ran_on = pthread_self();
	s->value *= 2;
}

static void sum_done(struct work *w)
{
	struct sum *s = container_of(w, struct sum, work);

	assert_false(pthread_equal(s->ran_on, pthread_self()));
	s->c->n += (unsigned)s->value;
	if (--s->c->n_wrong_thread == 0) /* here: how many are left */
		loop_quit(s->c->loop);
}

static void work_submit_brings_results_back(void **state)
{
	struct counter c = { .loop = new_loop(), .n_wrong_thread = 100 };
	struct workers *ws = NULL;
	struct sum s[100] = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(workers_new(c.loop, 3, &ws), 0);
	for (int i = 0; i < 100; i++) {
		s[i].work.run = sum_run;
		s[i].work.done = sum_done;
		s[i].c = &c;
		s[i].value = i;
		assert_int_equal(work_submit(ws, &s[i].work), 0);
	}
	assert_int_equal(loop_run(c.loop, &e), 0);
	assert_int_equal(c.n, 9900);
	workers_free(ws);
	loop_free(c.loop);
}

static void workers_free_runs_what_is_queued(void **state)
{
	struct counter c = { .loop = new_loop(), .n_wrong_thread = 20 };
	struct workers *ws = NULL;
	struct sum s[20] = { 0 };

	(void)state;
	assert_int_equal(workers_new(c.loop, 1, &ws), 0);
	for (int i = 0; i < 20; i++) {
		s[i].work.run = sum_run;
		s[i].work.done = sum_done;
		s[i].c = &c;
		s[i].value = 1;
		assert_int_equal(work_submit(ws, &s[i].work), 0);
	}
	workers_free(ws);
	assert_int_equal(c.n, 0);
	assert_int_equal(loop_turn(c.loop, 1000), 0);
	assert_int_equal(c.n, 40);
	loop_free(c.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			loop_post_delivers_each_once_on_the_loop_thread),
		cmocka_unit_test(loop_post_may_be_reused_in_its_callback),
		cmocka_unit_test(loop_run_ends_at_sigterm_and_not_at_sighup),
		cmocka_unit_test(work_submit_brings_results_back),
		cmocka_unit_test(workers_free_runs_what_is_queued),
	};

	/* SIGTERM, which ends a test that hangs, is blocked by the loop. */
	(void)alarm(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
