/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse/view with real mounts and absent bytes: who waits, who does not, and
 * what ends the waiting. Readers are child processes, as a container's are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/viewworld.h"

static void parked_reads_delay_nobody_else(void **state)
{
	enum { N = 500 };
	struct world *w = *state;
	int fds[N];
	char name[16], page[4096];
	uint64_t start;

	for (int i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "slow%d", i);
		put_bytes(in_dir(w->src, name), 4096, (unsigned)i);
	}
	put_bytes(in_dir(w->src, "fast"), 4 << 20, 7);
	open_world(w);
	for (int i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "slow%d", i);
		fds[i] = open(seen(w, name), O_RDONLY | O_CLOEXEC);
		assert_true(fds[i] >= 0);
		(void)posix_fadvise(fds[i], 0, 4096, POSIX_FADV_WILLNEED);
	}
	assert_true(fake_wait_for(w->l, N, 10000));
	assert_int_equal(stats(w).n_parked, N);
	assert_int_equal(view_n_parked(w->v, SEQ), N);
	assert_int_equal(stats(w).n_open, N);
	start = now_ms();
	assert_same_bytes(in_dir(w->src, "fast"), seen(w, "fast"));
	assert_in_range(now_ms() - start, 0, 20000);
	assert_int_equal(fake_arrive(w->l), N);
	for (int i = 0; i < N; i++) {
		assert_int_equal(pread(fds[i], page, 4096, 0), 4096);
		assert_int_equal(close(fds[i]), 0);
	}
	(void)snprintf(name, sizeof(name), "slow%d", N - 1);
	assert_same_bytes(in_dir(w->src, name), seen(w, name));
	assert_int_equal(stats(w).n_parked, 0);
	assert_int_equal(stats(w).n_parked_total, N);
}

static void killed_reader_ends_at_once(void **state)
{
	struct world *w = *state;
	uint64_t start;
	int status;
	pid_t pid;

	put_bytes(in_dir(w->src, "slow"), 8192, 1);
	open_world(w);
	pid = spawn_direct_reader(seen(w, "slow"), SIG_DFL);
	assert_true(fake_wait_for(w->l, 1, 5000));
	start = now_ms();
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(wait_pid(pid, &status, 5000), pid);
	assert_in_range(now_ms() - start, 0, 20000);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(stats(w).n_parked, 0);
	assert_int_equal(fake_arrive(w->l), 0);
	assert_same_bytes(in_dir(w->src, "slow"), seen(w, "slow"));
}

static void ignore_it(int sig)
{
	(void)sig;
}

static void handled_signal_does_not_end_a_read(void **state)
{
	struct world *w = *state;
	int status = -1;
	pid_t pid;

	put_bytes(in_dir(w->src, "slow"), 8192, 1);
	open_world(w);
	pid = spawn_direct_reader(seen(w, "slow"), ignore_it);
	assert_true(fake_wait_for(w->l, 1, 5000));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kill(pid, SIGUSR1), 0);
		assert_int_equal(wait_pid(pid, &status, 150), 0);
	}
	assert_int_equal(stats(w).n_parked, 1);
	(void)fake_arrive(w->l);
	assert_int_equal(wait_pid(pid, &status, 5000), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Also what Ctrl-C is: the kernel makes it a SIGKILL for every thread. */
static void fatal_signal_ends_a_read(void **state)
{
	struct world *w = *state;
	int status;
	pid_t pid;

	put_bytes(in_dir(w->src, "slow"), 8192, 1);
	open_world(w);
	pid = spawn_direct_reader(seen(w, "slow"), SIG_DFL);
	assert_true(fake_wait_for(w->l, 1, 5000));
	assert_int_equal(kill(pid, SIGINT), 0);
	assert_int_equal(wait_pid(pid, &status, 5000), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

static void close_does_not_wait_for_parked_reads(void **state)
{
	struct world *w = *state;
	uint64_t start = now_ms();
	pid_t pids[8];
	int status;

	put_bytes(in_dir(w->src, "slow"), 1 << 20, 1);
	open_world(w);
	for (int i = 0; i < 8; i++)
		pids[i] = spawn_direct_reader(seen(w, "slow"), SIG_DFL);
	assert_true(fake_wait_for(w->l, 8, 5000));
	view_close(w->v);
	w->v = NULL;
	assert_in_range(now_ms() - start, 0, 20000);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(wait_pid(pids[i], &status, 5000), pids[i]);
		assert_int_equal(WEXITSTATUS(status), EIO);
	}
}

/* Open, read, forget, from many threads, while bytes come and go. */
struct hammer {
	struct world *w;
	unsigned seed;
	atomic_bool *stop;
	unsigned n_bad, n;
};

static void *hammer_main(void *arg)
{
	struct hammer *h = arg;
	char name[16], a[8192], b[8192];

	while (!atomic_load(h->stop)) {
		h->seed = h->seed * 1103515245 + 12345;
		unsigned i = h->seed >> 16;
		off_t off = (off_t)(h->seed >> 8 & 0xfffff);

		(void)snprintf(name, sizeof(name), "%s%u", i % 4 ? "f" : "slow",
			       i % 16);
		int fa = open(in_dir(h->w->src, name), O_RDONLY | O_CLOEXEC);
		int fb = open(seen(h->w, name),
			      O_RDONLY | O_CLOEXEC | (i % 3 ? 0 : O_DIRECT));
		ssize_t na = pread(fa, a, sizeof(a), off),
			nb = pread(fb, b, sizeof(b), off);

		/* O_DIRECT of an odd piece: EINVAL where pages must fit */
		if (nb >= 0 || errno != EINVAL)
			h->n_bad += na != nb ||
				    memcmp(a, b, (size_t)(na < 0 ? 0 : na));
		if (i % 5 == 0)
			(void)posix_fadvise(fb, 0, 0, POSIX_FADV_DONTNEED);
		(void)close(fa);
		(void)close(fb);
		h->n++;
	}
	return NULL;
}

static void view_serves_many_threads(void **state)
{
	enum { N = 8 };
	struct world *w = *state;
	struct hammer h[N];
	pthread_t t[N];
	atomic_bool stop = false;
	char name[16];

	for (unsigned i = 0; i < 16; i++) {
		(void)snprintf(name, sizeof(name), "f%u", i);
		put_bytes(in_dir(w->src, name), 900000 + i * 1000, i);
		(void)snprintf(name, sizeof(name), "slow%u", i);
		put_bytes(in_dir(w->src, name), 300000 + i * 1000, i + 99);
	}
	open_world(w);
	for (unsigned i = 0; i < N; i++) {
		h[i] = (struct hammer){ .w = w, .seed = i, .stop = &stop };
		assert_int_equal(
			pthread_create(&t[i], NULL, hammer_main, &h[i]), 0);
	}
	for (int i = 0; i < 150; i++) {
		(void)fake_arrive(w->l);
		lock_take(&w->l->lock);
		w->l->arrived = false;
		w->l->n_lose = (unsigned)i % 3;
		lock_drop(&w->l->lock);
		(void)usleep(10000);
	}
	atomic_store(&stop, true);
	lock_take(&w->l->lock);
	w->l->n_lose = 0;
	lock_drop(&w->l->lock);
	(void)fake_arrive(w->l);
	for (unsigned i = 0; i < N; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(h[i].n_bad, 0);
		assert_true(h[i].n > 0);
	}
	assert_true(stats(w).n_parked_total > 0);
	assert_int_equal(stats(w).n_parked, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORLD(parked_reads_delay_nobody_else),
		WITH_WORLD(killed_reader_ends_at_once),
		WITH_WORLD(handled_signal_does_not_end_a_read),
		WITH_WORLD(fatal_signal_ends_a_read),
		WITH_WORLD(close_does_not_wait_for_parked_reads),
		WITH_WORLD(view_serves_many_threads),
	};

	if (!private_mounts())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
