/* SPDX-License-Identifier: Apache-2.0 */
/* The scrubber and its process, and helper_call() by the way: this program once
 * more, with the kernel of tests/lib/fake_verity.h. */
#include "verity/scrubber_priv.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "tests/lib/fake_verity.h"
#include "tests/unit/tmpdir.h"

#define PATIENCE_MS 60000

static const atomic_bool never = false;

/* A file of @size bytes, and what it must be. */
static void make(const char *dir, size_t size, struct scrub_job *ret)
{
	static unsigned n;
	owned(mem) uint8_t *p = malloc(size + 1);
	char path[128];
	int fd;

	assert_non_null(p);
	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 23);
	(void)snprintf(path, sizeof(path), "%s/f%u", dir, n++);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, p, size), 0);
	*ret = (struct scrub_job){ .fd = fd, .size = size };
	assert_int_equal(fake_digest(fd, &ret->want), 0);
}

static void flip(int fd, uint64_t off)
{
	uint8_t byte;

	assert_int_equal(pread_full(fd, &byte, 1, off), 0);
	byte ^= 1;
	assert_int_equal(pwrite_full(fd, &byte, 1, off), 0);
}

static int scrub(struct helper_caller *s, const struct scrub_job *j,
		 struct scrub_result *res)
{
	return scrubber_read(s, j, &never, res);
}

static void scrubber_read_compares_every_byte(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 4097, 3000000 };
	owned(helper_caller) struct helper_caller *s = scrubber_new();

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct scrub_job j;
		struct scrub_result res;

		make(*state, sizes[i], &j);
		assert_int_equal(scrub(s, &j, &res), 0);
		assert_int_equal(res.err, 0);
		assert_false(res.sealed);
		assert_int_equal(res.bytes, sizes[i]);
		assert_int_equal(res.n_unreadable, 0);
		for (int at = 0; sizes[i] && at < 3; at++) {
			uint64_t off = at == 0   ? 0
				       : at == 1 ? sizes[i] / 2
						 : sizes[i] - 1;

			flip(j.fd, off);
			assert_int_equal(scrub(s, &j, &res), 0);
			assert_int_equal(res.err, -EBADMSG);
			flip(j.fd, off);
			assert_int_equal(scrub(s, &j, &res), 0);
			assert_int_equal(res.err, 0);
		}
		(void)close(j.fd);
	}
}

static void scrubber_read_knows_another_size(void **state)
{
	owned(helper_caller) struct helper_caller *s = scrubber_new();
	static const int sizes[] = { 0, 4999, 5001, 1 << 20 };

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct scrub_job j;
		struct scrub_result res;

		make(*state, 5000, &j);
		assert_int_equal(ftruncate(j.fd, sizes[i]), 0);
		assert_int_equal(scrub(s, &j, &res), 0);
		assert_int_equal(res.err, -EBADMSG);
		(void)close(j.fd);
	}
}

/* The kernel compares: what is wrong would be an error of the page. */
static void scrubber_read_touches_what_is_sealed(void **state)
{
	owned(helper_caller) struct helper_caller *s = scrubber_new();
	struct scrub_job j;
	struct scrub_result res;
	char path[64];
	int ro;

	make(*state, 100000, &j);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", j.fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	(void)close(j.fd);
	j.fd = ro;
	assert_int_equal(fake_enable(ro), 0);
	assert_int_equal(scrub(s, &j, &res), 0);
	assert_int_equal(res.err, 0);
	assert_true(res.sealed);
	assert_int_equal(res.bytes, 100000);
	/* Another file that was sealed. */
	j.want.b[0] ^= 1;
	assert_int_equal(scrub(s, &j, &res), 0);
	assert_int_equal(res.err, -EBADMSG);
	assert_int_equal(res.bytes, 0);
	(void)close(ro);
}

/* Behind the end of a file its mapping is as unreadable as a bad sector. */
static void unreadable_pages_are_counted(void **state)
{
	struct scrub_request rq = { .size = 20 * LEAF_BLOCK };
	struct scrub_answer a = { 0 };
	struct scrub_job j;
	int pair[2];

	sigset_t all, old;

	make(*state, 12 * LEAF_BLOCK + 5, &j);
	/* as in the helper */
	(void)sigfillset(&all);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	scrub_file(j.fd, &rq, pair[0], &a);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	assert_int_equal(a.err, -EBADMSG);
	assert_int_equal(a.n_unreadable, 7);
	assert_int_equal(a.first_unreadable, 13);
	assert_int_equal(a.bytes, rq.size);
	(void)close(pair[0]);
	(void)close(pair[1]);
	(void)close(j.fd);
}

static void scrubber_read_is_no_faster_than_told(void **state)
{
	owned(helper_caller) struct helper_caller *s = scrubber_new();
	struct scrub_job j;
	struct scrub_result res;
	uint64_t began = now_ms();

	make(*state, 3 << 20, &j);
	j.rate = 6 << 20;
	assert_int_equal(scrub(s, &j, &res), 0);
	assert_int_equal(res.err, 0);
	assert_true(now_ms() - began >= 450);
	(void)close(j.fd);
}

static void *stop_soon(void *stop)
{
	(void)usleep(20000);
	atomic_store((atomic_bool *)stop, true);
	return NULL;
}

/* Neither who asks nor the process is held up by a file that takes hours. */
static void scrubber_read_stops(void **state)
{
	struct helper_caller *s = scrubber_new();
	atomic_bool stop = false;
	struct scrub_job j;
	struct scrub_result res;
	pthread_t t;

	make(*state, 3 << 20, &j);
	j.rate = 100; /* eight hours */
	assert_int_equal(pthread_create(&t, NULL, stop_soon, &stop), 0);
	assert_int_equal(scrubber_read(s, &j, &stop, &res), -ECANCELED);
	(void)pthread_join(t, NULL);
	helper_caller_free(s);
	(void)close(j.fd);
}

struct killer {
	struct helper_caller *s;
	atomic_bool stop;
};

/* Every process that there is: the one that was asked, too. */
static void *kill_all(void *arg)
{
	struct killer *k = arg;

	while (!atomic_load(&k->stop)) {
		struct helper_status st;

		(void)usleep(20000);
		helper_caller_get_status(k->s, &st);
		if (st.pid)
			(void)kill(st.pid, SIGKILL);
	}
	return NULL;
}

static void death_of_the_helper_is_an_answer(void **state)
{
	owned(helper_caller) struct helper_caller *s = scrubber_new();
	uint64_t until = now_ms() + PATIENCE_MS;
	struct scrub_job j;
	struct scrub_result res;
	struct killer k = { .s = s };
	pthread_t t;
	int r;

	make(*state, 3 << 20, &j);
	j.rate = 100;
	assert_int_equal(pthread_create(&t, NULL, kill_all, &k), 0);
	assert_int_equal(scrub(s, &j, &res), -EPIPE);
	atomic_store(&k.stop, true);
	(void)pthread_join(t, NULL);
	/* There is another one soon. */
	j.rate = 0;
	while ((r = scrub(s, &j, &res)) == -EPIPE) {
		assert_true(now_ms() < until);
		(void)usleep(10000);
	}
	assert_int_equal(r, 0);
	assert_int_equal(res.err, 0);
	(void)close(j.fd);
}

/* The answers to four who ask at the same time are told apart. */
struct asker {
	struct helper_caller *s;
	struct scrub_job j;
	int want;
};

static void *ask_often(void *arg)
{
	struct asker *a = arg;

	for (int i = 0; i < 20; i++) {
		struct scrub_result res;

		assert_int_equal(scrub(a->s, &a->j, &res), 0);
		assert_int_equal(res.err, a->want);
		if (!a->want)
			assert_int_equal(res.bytes, a->j.size);
	}
	return NULL;
}

static void many_ask_at_once(void **state)
{
	owned(helper_caller) struct helper_caller *s = scrubber_new();
	struct asker askers[4];
	pthread_t t[ARRAY_LEN(askers)];

	for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
		struct asker *a = &askers[i];

		*a = (struct asker){ .s = s };
		make(*state, 5000 * (i + 1), &a->j);
		if (i % 2) {
			flip(a->j.fd, 77);
			a->want = -EBADMSG;
		}
		assert_int_equal(pthread_create(&t[i], NULL, ask_often, a), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
		(void)pthread_join(t[i], NULL);
		(void)close(askers[i].j.fd);
	}
}

static void drop_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)msg;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, tmpdir_setup, tmpdir_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(scrubber_read_compares_every_byte),
		T(scrubber_read_knows_another_size),
		T(scrubber_read_touches_what_is_sealed),
		T(unreadable_pages_are_counted),
		T(scrubber_read_is_no_faster_than_told),
		T(scrubber_read_stops),
		T(death_of_the_helper_is_an_answer),
		T(many_ask_at_once),
	};

	fake_verity_main(argc, argv);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
