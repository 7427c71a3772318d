/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and writers of one body at once; run under TSan, too. */
#include "snapshotter/body.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "body_fixture.h"
#include "tests/lib/fake_verity.h"

struct worker {
	struct fixture *f;
	uint32_t first_bit; /* writes every second extent from here */
	atomic_int *n_bad;
	atomic_bool *stop;
	struct body **bodies; /* of use_many() */
};

static void *write_every_second(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = w->first_bit; i < w->f->id.n_extents; i += 2) {
		if (write_bit(w->f, i) != 0)
			atomic_fetch_add(w->n_bad, 1);
		(void)sched_yield();
	}
	return NULL;
}

static void *read_until_stopped(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	uint8_t p[5000];

	while (!atomic_load(w->stop)) {
		for (uint32_t i = 0; i < f->id.n_extents; i++) {
			bool has = body_has(f->b, i);
			int r = body_read(f->b, &f->lay, f->x[i].off, p,
					  f->x[i].len);

			/* nothing is lost, nothing wrong is served */
			if ((r != 0 && (has || r != -EAGAIN)) ||
			    (r == 0 &&
			     memcmp(p, f->bytes + f->x[i].off, f->x[i].len)))
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

/* Neighbours of one block are written by two threads while two others read. */
static void threads_share_blocks_without_loss(void **state)
{
	struct fixture *f = *state;
	uint32_t lens[EXTENTS_MAX];

	for (uint32_t i = 0; i < EXTENTS_MAX; i++)
		lens[i] = 300 + i * 7 % 900;
	make_layout(f, lens, EXTENTS_MAX, 512, 0);
	open_body(f);
	for (int round = 0; round < 20; round++) {
		atomic_int n_bad = 0;
		atomic_bool stop = false;
		struct worker w[4];
		pthread_t t[4];

		for (uint32_t i = 0; i < 4; i++) {
			w[i] = (struct worker){ f, i % 2, &n_bad, &stop, NULL };
			assert_int_equal(
				pthread_create(&t[i], NULL,
					       i < 2 ? write_every_second
						     : read_until_stopped,
					       &w[i]),
				0);
		}
		for (int i = 0; i < 4; i++) {
			assert_int_equal(pthread_join(t[i], NULL), 0);
			if (i == 1)
				atomic_store(&stop, true);
		}
		assert_int_equal(atomic_load(&n_bad), 0);
		assert_int_equal(body_n_landed(f->b), EXTENTS_MAX);
		body_put(f->b);
		f->b = NULL;
		assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
		assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
	}
}

static void *damage_often(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;

	for (uint32_t i = 0; i < 300; i++) {
		uint32_t bit = i * 7 % f->id.n_extents;

		flip_data(f, f->x[bit].off + i % f->x[bit].len);
		for (uint32_t k = 0; k < f->id.n_extents; k++) {
			if (write_bit(f, k) != 0)
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

static void *check_bytes_only(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	uint8_t p[5000];

	while (!atomic_load(w->stop)) {
		for (uint32_t i = 0; i < f->id.n_extents; i++) {
			int r = body_read(f->b, &f->lay, f->x[i].off, p,
					  f->x[i].len);

			if (r == 0 &&
			    memcmp(p, f->bytes + f->x[i].off, f->x[i].len))
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

/* @damage over a body that is all there, beside two readers; none of them gets
 * a wrong byte. */
static void run_beside_readers(struct fixture *f, void *(*damage)(void *))
{
	atomic_int n_bad = 0;
	atomic_bool stop = false;
	uint32_t lens[24];
	struct worker w = { f, 0, &n_bad, &stop, NULL };
	pthread_t t[3];

	for (uint32_t i = 0; i < ARRAY_LEN(lens); i++)
		lens[i] = 400 + i * 31;
	make_layout(f, lens, ARRAY_LEN(lens), 512, 0);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(pthread_create(&t[0], NULL, damage, &w), 0);
	assert_int_equal(pthread_create(&t[1], NULL, check_bytes_only, &w), 0);
	assert_int_equal(pthread_create(&t[2], NULL, check_bytes_only, &w), 0);
	assert_int_equal(pthread_join(t[0], NULL), 0);
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(t[1], NULL), 0);
	assert_int_equal(pthread_join(t[2], NULL), 0);
	assert_int_equal(atomic_load(&n_bad), 0);
}

/* Settling gives blocks new leaves in spite of bad extents in them: no reader
 * may slip in between. */
static void damage_is_never_served_while_it_is_settled(void **state)
{
	run_beside_readers(*state, damage_often);
}

/* A reader may find damage and have it repaired between any two steps. No
 * assertion: cmocka ends the process, without a word, for one in a thread. */
static void seal_now(struct fixture *f, atomic_int *n_bad)
{
	struct body_seal s;
	struct digest d;
	int r;

	if (body_seal_begin(f->b, &s) < 0)
		return;
	r = kernel_enable(s.fd);
	if (r == 0)
		r = kernel_measure(s.fd, &d);
	(void)close(s.fd);
	if (r == 0 && digest_equal(&d, &s.want))
		r = body_seal_end(f->b, &s);
	if (r < 0 && r != -EAGAIN && r != -ETXTBSY)
		(*n_bad)++;
}

/* Sealed, rejected, replaced; every second time it is damaged, and not sealed
 * (the fake kernel protects nothing). */
static void *seal_and_replace(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;

	for (uint32_t i = 0; i < 60; i++) {
		uint32_t bit = i * 7 % f->id.n_extents;

		while (body_complete(f->b, &f->lay) == -EAGAIN)
			write_bits(f, ALL);
		if (i % 2)
			flip_data(f, f->x[bit].off + i % f->x[bit].len);
		else
			seal_now(f, w->n_bad);
		if (body_reject(f->b, &f->lay) < 0)
			write_bits(f, ALL);
	}
	return NULL;
}

/* Readers keep the file that they have begun with; no writer meets the old one. */
static void damage_is_never_served_while_it_is_replaced(void **state)
{
	struct fixture *f = *state;

	run_beside_readers(f, seal_and_replace);
	while (body_complete(f->b, &f->lay) == -EAGAIN)
		write_bits(f, ALL);
	expect_served(f, ALL);
}

/* ---- short of file descriptors ---- */

#define MANY 120u /* bodies, two fds each and a third while written */
#define FDS 64u

static void *use_many(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	uint8_t p[100];

	for (uint32_t i = w->first_bit; i < MANY; i += 4) {
		struct body_id id = f->id;
		struct body *b;
		int r;

		id.ckey.b[0] = 1;
		id.ckey.b[1] = (uint8_t)i;
		r = body_open(f->bs, &id, &f->lay, &b);
		if (r == 0)
			r = body_write(b, &f->lay, 0, f->bytes, f->x[0].len);
		if (r == 0)
			r = body_read(b, &f->lay, 0, p, f->x[0].len);
		if (r < 0)
			atomic_fetch_add(w->n_bad, 1);
		/* It stays open, as one of a layer does. */
		if (r == 0)
			w->bodies[i] = b;
	}
	return NULL;
}

static void bodies_get_by_with_few_fds(void **state)
{
	struct fixture *f = *state;
	struct body *bodies[MANY] = { NULL };
	struct worker w[4];
	struct rlimit old, few;
	atomic_int n_bad = 0;
	pthread_t t[4];
	int dummy[FDS], n = 0;

	make_pack(f);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = FDS;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	open_body(f);
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){ .f = f,
					.first_bit = i,
					.n_bad = &n_bad,
					.bodies = bodies };
		assert_int_equal(pthread_create(&t[i], NULL, use_many, &w[i]),
				 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(atomic_load(&n_bad), 0);
	/* Others have taken what was left: idle bodies give theirs. */
	while (n < (int)FDS && (dummy[n] = dup(0)) >= 0)
		n++;
	assert_true(n > 8);
	for (unsigned i = 0; i < MANY; i++) {
		uint8_t p[100];

		assert_int_equal(
			body_read(bodies[i], &f->lay, 0, p, f->x[0].len), 0);
		body_put(bodies[i]);
	}
	/* and when nobody can, that is said after a while, and passes */
	close_body(f);
	while (n < (int)FDS && (dummy[n] = dup(0)) >= 0)
		n++;
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), -EMFILE);
	while (n)
		(void)close(dummy[--n]);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(threads_share_blocks_without_loss),
		T(damage_is_never_served_while_it_is_settled),
		T(damage_is_never_served_while_it_is_replaced),
		T(bodies_get_by_with_few_fds),
	};

	kernel_set_ops(&fake_kernel);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
