/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse/read without a mount: libfuse's replies are replaced by our own, which
 * count, so that "exactly once" can be seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/io.h"
#include "fuse/read.h"
#include "fuse/repeat.h"
#include "tests/lib/fakelayer.h"

/* What stands behind a fuse_req_t here. */
struct answer {
	atomic_uint n;
	atomic_int error;
	atomic_size_t len;
	char first;
};

int fuse_reply_err(fuse_req_t req, int err)
{
	struct answer *a = (struct answer *)req;

	lock_assert_none();
	atomic_store(&a->error, err);
	atomic_fetch_add(&a->n, 1);
	return 0;
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	struct answer *a = (struct answer *)req;

	lock_assert_none();
	a->first = buf[0];
	atomic_store(&a->len, size);
	atomic_fetch_add(&a->n, 1);
	return 0;
}

struct world {
	char dir[32];
	struct fake_set fs;
	struct source_set sources;
	struct fake_layer *l;
	struct buffers *buffers;
	struct reads *rs;
	uint32_t ino_fast, ino_slow;
	atomic_uint_fast64_t unique;
};

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, strlen(text)), 0);
	assert_int_equal(close(fd), 0);
}

static int setup_with(void **state, unsigned max_parked, uint64_t timeout_ms)
{
	struct world *w = calloc(1, sizeof(*w));
	struct inode in;

	assert_non_null(w);
	(void)snprintf(w->dir, sizeof(w->dir), "/tmp/test_read-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	put_file(w->dir, "fast", "fast bytes");
	put_file(w->dir, "slow", "slow bytes");
	w->l = fake_set_add(&w->fs, w->dir, 3, 1);
	w->sources = fake_sources(&w->fs);
	assert_int_equal(index_walk(w->l->src.index, "fast", &in), 0);
	w->ino_fast = in.ino;
	assert_int_equal(index_walk(w->l->src.index, "slow", &in), 0);
	w->ino_slow = in.ino;
	assert_int_equal(buffers_new(2, 1 << 20, &w->buffers), 0);
	struct reads_opts o = {
		.sources = &w->sources,
		.buffers = w->buffers,
		.timeout_ms = timeout_ms,
		.max_parked = max_parked,
	};

	assert_int_equal(reads_new(&o, &w->rs), 0);
	*state = w;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, 100, 60000);
}

static int teardown(void **state)
{
	struct world *w = *state;
	char path[64];
	struct reads_stats st;

	reads_close(w->rs);
	reads_stats(w->rs, &st);
	assert_int_equal(st.n_parked, 0);
	assert_int_equal(w->l->n_refs, 0);
	assert_int_equal(w->l->n_waits, 0);
	reads_free(w->rs);
	buffers_free(w->buffers);
	fake_set_free(&w->fs);
	(void)snprintf(path, sizeof(path), "%s/fast", w->dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/slow", w->dir);
	(void)unlink(path);
	assert_int_equal(rmdir(w->dir), 0);
	free(w);
	return 0;
}

static struct read_request request(struct world *w, struct answer *a,
				   uint32_t ino)
{
	memset(a, 0, sizeof(*a));
	return (struct read_request){
		.req = (fuse_req_t)a,
		.src = w->sources.get(w->sources.ctx, 3),
		.file = { .ino = ino, .size = 10 },
		.off = 0,
		.len = 10,
		.unique = 2 + 2 * atomic_fetch_add(&w->unique, 1),
		.pid = getpid(),
		.n_interrupts = reads_n_interrupts(w->rs),
	};
}

static uint64_t ask(struct world *w, struct answer *a, uint32_t ino)
{
	struct read_request rq = request(w, a, ino);

	reads_handle(w->rs, &rq);
	return rq.unique;
}

static void read_of_present_bytes_is_answered_at_once(void **state)
{
	struct world *w = *state;
	struct answer a;

	(void)ask(w, &a, w->ino_fast);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, 0);
	assert_int_equal(a.len, 10);
	assert_int_equal(a.first, 'f');
	assert_int_equal(w->l->n_wants, 0);
}

static void read_of_absent_bytes_waits_for_done(void **state)
{
	struct world *w = *state;
	struct answer a, b;

	(void)ask(w, &a, w->ino_slow);
	assert_int_equal(a.n, 0);
	assert_int_equal(reads_n_parked(w->rs, 3), 1);
	assert_int_equal(reads_n_parked(w->rs, 4), 0);
	(void)ask(w, &b, w->ino_fast);
	assert_int_equal(b.n, 1);
	assert_int_equal(fake_arrive(w->l), 1);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, 0);
	assert_int_equal(a.first, 's');
	assert_int_equal(reads_n_parked(w->rs, 3), 0);
}

static void read_survives_done_inside_want(void **state)
{
	struct world *w = *state;
	struct answer a;

	w->l->sync = true;
	(void)ask(w, &a, w->ino_slow);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, 0);
}

static void read_asks_again_when_bytes_are_lost(void **state)
{
	struct world *w = *state;
	struct answer a;

	w->l->sync = true;
	w->l->n_lose = 3;
	(void)ask(w, &a, w->ino_slow);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, 0);
	assert_int_equal(w->l->n_wants, 4);
}

static void read_gives_up_when_bytes_are_lost_for_ever(void **state)
{
	struct world *w = *state;
	struct answer a;

	w->l->sync = true;
	w->l->n_lose = 1000000;
	(void)ask(w, &a, w->ino_slow);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, EIO);
	assert_in_range(w->l->n_wants, 2, 100);
}

static void read_of_a_layer_lost_meanwhile_is_stale(void **state)
{
	struct world *w = *state;
	struct answer a;

	(void)ask(w, &a, w->ino_slow);
	w->l->n_lose = 1;
	atomic_store(&w->l->gone, true);
	(void)fake_arrive(w->l);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, ESTALE);
	assert_int_equal(w->l->n_failed, 1);
}

static void read_shows_no_strange_errors(void **state)
{
	static const int map[][2] = {
		{ -ENOMEM, ENOMEM }, { -ENOSPC, ENOSPC },
		{ -ENOENT, EIO },    { -EAGAIN, EIO },
		{ -EINTR, EIO },     { -EBUSY, EIO },
		{ -EMFILE, EIO },    { -ETIMEDOUT, ETIMEDOUT }, /* remembered */
	};
	struct world *w = *state;
	struct answer a;

	w->l->busy = -EBUSY;
	(void)ask(w, &a, w->ino_slow);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, EIO);
	assert_int_equal(reads_n_parked(w->rs, 3), 0);
	w->l->busy = 0;
	for (size_t i = 0; i < ARRAY_LEN(map); i++) {
		w->l->arrived = false;
		w->l->fail = map[i][0];
		(void)ask(w, &a, w->ino_slow);
		(void)fake_arrive(w->l);
		assert_int_equal(a.n, 1);
		assert_int_equal(a.error, map[i][1]);
	}
}

static int setup_two(void **state)
{
	return setup_with(state, 2, 60000);
}

static void read_parks_no_more_than_allowed(void **state)
{
	struct world *w = *state;
	struct answer a[3];

	for (int i = 0; i < 3; i++)
		(void)ask(w, &a[i], w->ino_slow);
	assert_int_equal(a[2].n, 1);
	assert_int_equal(a[2].error, EIO);
	assert_int_equal(w->l->n_failed, 1); /* nobody else would say so */
	assert_int_equal(fake_arrive(w->l), 2);
	w->l->arrived = false;
	(void)ask(w, &a[2], w->ino_slow);
	assert_int_equal(a[2].n, 0);
	(void)fake_arrive(w->l);
	assert_int_equal(a[2].n, 1);
	assert_int_equal(a[2].error, 0);
}

static int setup_hasty(void **state)
{
	return setup_with(state, 100, 30);
}

static void read_ends_at_its_deadline(void **state)
{
	struct world *w = *state;
	uint64_t start = now_ms(), next;
	struct answer a;

	(void)ask(w, &a, w->ino_slow);
	next = reads_expire(w->rs);
	assert_int_equal(a.n, 0);
	assert_in_range(next, start + 30, start + 1000);
	while (now_ms() < next)
		(void)usleep(1000);
	next = reads_expire(w->rs);
	assert_true(next > now_ms());
	assert_int_equal(a.n, 1);
	assert_int_equal(a.error, ETIMEDOUT);
	assert_int_equal(w->l->n_failed, 1);
	assert_int_equal(fake_arrive(w->l), 0);
}

static void ask_as(struct world *w, struct answer *a, int pid)
{
	struct read_request rq = request(w, a, w->ino_slow);

	rq.pid = pid;
	reads_handle(w->rs, &rq);
}

/* The kernel sends a failed readahead again, for each thread that slept on it:
 * none of them waits twice. What the application asks then waits anew. */
static void read_that_timed_out_is_not_waited_for_twice(void **state)
{
	struct world *w = *state;
	struct answer first, again, other, anew;
	struct read_request rq;
	uint64_t end;

	ask_as(w, &first, 11);
	while (!first.n)
		(void)usleep((useconds_t)(reads_expire(w->rs) - now_ms()) *
			     1000);
	end = now_ms() + REPEAT_MS;
	assert_int_equal(first.error, ETIMEDOUT);
	ask_as(w, &again, 11);
	ask_as(w, &other, 12);
	if (now_ms() >= end)
		skip(); /* a machine this busy has seen the moment pass */
	assert_int_equal(again.n, 1);
	assert_int_equal(again.error, ETIMEDOUT);
	assert_int_equal(other.n, 1);
	assert_int_equal(other.error, ETIMEDOUT);
	ask_as(w, &anew, 11);
	assert_int_equal(anew.n, 0);
	(void)fake_arrive(w->l);
	assert_int_equal(anew.n, 1);
	assert_int_equal(anew.error, 0);
	/* Bytes that are here, and other bytes, are nobody's repetition. */
	ask_as(w, &anew, 13);
	assert_int_equal(anew.error, 0);
	w->l->arrived = false;
	rq = request(w, &anew, w->ino_slow);
	rq.file.ino = w->ino_fast;
	reads_handle(w->rs, &rq);
	assert_int_equal(anew.error, 0);
	while (now_ms() <= end)
		(void)usleep(1000);
	ask_as(w, &anew, 14);
	assert_int_equal(anew.n, 0);
	(void)fake_arrive(w->l);
	assert_int_equal(anew.error, 0);
}

static void repeats_match_by_file_and_bytes(void **state)
{
	static struct repeats rp;
	struct repeat_range at = {
		.off = 4096, .len = 4096, .seq = 3, .ino = 7, .pid = 1
	};
	struct repeat_range q = at;

	(void)state;
	assert_false(repeats_tell(&rp, &at, 1000));
	repeats_note(&rp, &at, 1000);
	q.off = 8192;
	assert_false(repeats_tell(&rp, &q, 1000));
	q.off = 0;
	assert_false(repeats_tell(&rp, &q, 1000));
	q.len = 4097;
	q.seq = 4;
	assert_false(repeats_tell(&rp, &q, 1000));
	q.seq = 3;
	q.ino = 8;
	assert_false(repeats_tell(&rp, &q, 1000));
	q.ino = 7;
	assert_true(repeats_tell(&rp, &q, 1000));
	assert_false(repeats_tell(&rp, &at, 1000));
	q.pid = 2;
	assert_false(repeats_tell(&rp, &q, 1000 + REPEAT_MS));
	/* A ring: the oldest is forgotten, nothing else. */
	for (unsigned i = 0; i < REPEATS_MAX; i++) {
		at.ino = 100 + i;
		repeats_note(&rp, &at, 1000);
	}
	assert_false(repeats_tell(&rp, &q, 1000));
	for (unsigned i = 0; i < REPEATS_MAX; i++) {
		at.ino = 100 + i;
		assert_true(repeats_tell(&rp, &at, 1000));
	}
}

/* The caller is this process, which nobody kills. */
static void interrupt_of_a_living_caller_does_nothing(void **state)
{
	struct world *w = *state;
	unsigned before = reads_n_interrupts(w->rs);
	struct answer a;
	uint64_t unique = ask(w, &a, w->ino_slow);

	reads_interrupt(w->rs, unique);
	assert_int_equal(a.n, 0);
	assert_int_equal(reads_n_interrupts(w->rs), before);
	reads_interrupt(w->rs, unique + 2); /* not parked: counted */
	assert_int_equal(reads_n_interrupts(w->rs), before + 1);
	(void)fake_arrive(w->l);
	assert_int_equal(a.n, 1);
	reads_interrupt(w->rs, unique);
	assert_int_equal(a.n, 1);
}

static void close_answers_all_and_refuses_new_ones(void **state)
{
	struct world *w = *state;
	struct answer a[50], late;

	for (int i = 0; i < 50; i++)
		(void)ask(w, &a[i], w->ino_slow);
	reads_close(w->rs);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(a[i].n, 1);
		assert_int_equal(a[i].error, EIO);
	}
	(void)ask(w, &late, w->ino_slow);
	assert_int_equal(late.n, 1);
	assert_int_equal(late.error, EIO);
	(void)ask(w, &late, w->ino_fast);
	assert_int_equal(late.error, 0);
}

/* Readers, arriving bytes, interrupts, deadlines and the end, all at once. */
enum { N_THREADS = 6, N_READS = 300 };

struct load {
	struct world *w;
	struct answer a[N_READS];
};

static void *load_main(void *arg)
{
	struct load *ld = arg;

	for (int i = 0; i < N_READS; i++) {
		uint64_t u = ask(ld->w, &ld->a[i],
				 i % 3 ? ld->w->ino_slow : ld->w->ino_fast);

		if (i % 5 == 0)
			reads_interrupt(ld->w->rs, u);
		if (i % 7 == 0)
			(void)reads_expire(ld->w->rs);
	}
	return NULL;
}

static void *arrive_main(void *arg)
{
	struct world *w = arg;

	for (int i = 0; i < 40; i++) {
		(void)fake_arrive(w->l);
		lock_take(&w->l->lock);
		w->l->arrived = false;
		w->l->n_lose = i % 4 ? 2 : 0;
		lock_drop(&w->l->lock);
		(void)usleep(300);
	}
	return NULL;
}

static void every_read_is_answered_exactly_once_under_load(void **state)
{
	struct world *w = *state;
	struct load *ld = calloc(N_THREADS, sizeof(*ld));
	pthread_t t[N_THREADS + 1];

	assert_non_null(ld);
	for (int i = 0; i < N_THREADS; i++) {
		ld[i].w = w;
		assert_int_equal(pthread_create(&t[i], NULL, load_main, &ld[i]),
				 0);
	}
	assert_int_equal(pthread_create(&t[N_THREADS], NULL, arrive_main, w),
			 0);
	for (int i = 0; i <= N_THREADS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	reads_close(w->rs);
	for (int i = 0; i < N_THREADS; i++)
		for (int k = 0; k < N_READS; k++)
			assert_int_equal(ld[i].a[k].n, 1);
	free(ld);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			read_of_present_bytes_is_answered_at_once, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			read_of_absent_bytes_waits_for_done, setup, teardown),
		cmocka_unit_test_setup_teardown(read_survives_done_inside_want,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			read_asks_again_when_bytes_are_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(
			read_gives_up_when_bytes_are_lost_for_ever, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			read_of_a_layer_lost_meanwhile_is_stale, setup,
			teardown),
		cmocka_unit_test_setup_teardown(read_shows_no_strange_errors,
						setup, teardown),
		cmocka_unit_test_setup_teardown(read_parks_no_more_than_allowed,
						setup_two, teardown),
		cmocka_unit_test_setup_teardown(read_ends_at_its_deadline,
						setup_hasty, teardown),
		cmocka_unit_test_setup_teardown(
			read_that_timed_out_is_not_waited_for_twice,
			setup_hasty, teardown),
		cmocka_unit_test(repeats_match_by_file_and_bytes),
		cmocka_unit_test_setup_teardown(
			interrupt_of_a_living_caller_does_nothing, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			close_answers_all_and_refuses_new_ones, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			every_read_is_answered_exactly_once_under_load, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
