/* SPDX-License-Identifier: Apache-2.0 */
/* The sealer and its process: this program once more, with a kernel of its own
 * making (tests/lib/fake_verity.h). */
#include "verity/sealer.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "tests/lib/fake_verity.h"
#include "tests/unit/tmpdir.h"

#define PATIENCE_MS 60000

struct asked {
	struct seal_job job;
	struct lock lock;
	struct cond answered;
	bool is_done;
	struct seal_result res;
};

static void note(struct seal_job *j, const struct seal_result *res)
{
	struct asked *a = container_of(j, struct asked, job);

	lock_take(&a->lock);
	assert_false(a->is_done);
	a->is_done = true;
	a->res = *res;
	cond_signal(&a->answered);
	lock_drop(&a->lock);
}

static int ask(struct sealer *s, struct asked *a, int fd, bool cached)
{
	struct stat st;

	*a = (struct asked){ .job = { .cached = cached, .done = note } };
	assert_int_equal(fstat(fd, &st), 0);
	a->job.size = (uint64_t)st.st_size;
	lock_init(&a->lock, RANK_LEAF);
	assert_int_equal(cond_init(&a->answered), 0);
	return sealer_submit(s, &a->job, fd);
}

static void answer(struct asked *a)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	lock_take(&a->lock);
	while (!a->is_done)
		assert_int_equal(cond_wait_until(&a->answered, &a->lock, until),
				 0);
	lock_drop(&a->lock);
	cond_release(&a->answered);
	lock_release(&a->lock);
}

/* A file of @size bytes, open read-only. */
static int make(const char *dir, const char *name, size_t size)
{
	owned(mem) uint8_t *p = malloc(size + 1);
	char path[128];
	int fd;

	assert_non_null(p);
	for (size_t i = 0; i < size; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 24);
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, p, size), 0);
	(void)close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct sealer *new_sealer(void)
{
	struct sealer *s;

	assert_int_equal(sealer_new(SEALER_MEMORY, &s), 0);
	return s;
}

/* Until the helper has said hello, or another one than @old has. */
static struct helper_status wait_for_helper(struct sealer *s, int old)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	struct helper_status st;

	for (;;) {
		sealer_get_status(s, &st);
		if (st.pid && st.pid != old &&
		    strcmp(st.cgroup, "not started") != 0)
			return st;
		assert_true(now_ms() < until);
		(void)usleep(2000);
	}
}

static void sealer_submit_seals_a_file(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 4097, 9 << 20 };
	owned(sealer) struct sealer *s = new_sealer();

	for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
		char name[16];
		owned(fd) int fd = -1;
		struct asked a;
		struct digest want;

		(void)snprintf(name, sizeof(name), "f%zu", i);
		fd = make(*state, name, sizes[i / 2]);
		assert_int_equal(fake_digest(fd, &want), 0);
		assert_int_equal(ask(s, &a, fd, i % 2), 0);
		answer(&a);
		assert_int_equal(a.res.err, 0);
		assert_true(digest_equal(&a.res.digest, &want));
		assert_true(fake_is_sealed(fd));
	}
}

static void sealer_submit_measures_a_sealed_file(void **state)
{
	owned(sealer) struct sealer *s = new_sealer();
	owned(fd) int fd = make(*state, "f", 5000);
	struct digest want;

	assert_int_equal(fake_digest(fd, &want), 0);
	assert_int_equal(fake_enable(fd), 0);
	for (int i = 0; i < 2; i++) {
		struct asked a;

		assert_int_equal(ask(s, &a, fd, false), 0);
		answer(&a);
		assert_int_equal(a.res.err, 0);
		assert_true(digest_equal(&a.res.digest, &want));
	}
}

static void sealer_submit_takes_many_at_once(void **state)
{
	owned(sealer) struct sealer *s = new_sealer();
	struct asked a[20];
	int fd[20];

	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "f%zu", i);
		fd[i] = make(*state, name, 100 + i);
		assert_int_equal(ask(s, &a[i], fd[i], true), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		struct digest want;

		answer(&a[i]);
		assert_int_equal(a[i].res.err, 0);
		assert_int_equal(fake_digest(fd[i], &want), 0);
		assert_true(digest_equal(&a[i].res.digest, &want));
		(void)close(fd[i]);
	}
}

static void sealer_submit_tells_of_a_writer(void **state)
{
	owned(sealer) struct sealer *s = new_sealer();
	owned(fd) int fd = make(*state, "f", 5000);
	char path[64];
	struct asked a;
	int writer;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	writer = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(writer >= 0);
	assert_int_equal(ask(s, &a, fd, true), 0);
	answer(&a);
	assert_int_equal(a.res.err, -ETXTBSY);
	assert_false(fake_is_sealed(fd));
	(void)close(writer);
	assert_int_equal(ask(s, &a, fd, true), 0);
	answer(&a);
	assert_int_equal(a.res.err, 0);
}

static void sealer_submit_passes_errors_on(void **state)
{
	static const int errors[] = { EBUSY, EINTR, ENOSPC, EOPNOTSUPP,
				      EROFS, EFBIG, EIO,    EPERM };
	owned(fd) int fd = make(*state, "f", 5000);

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		owned(sealer) struct sealer *s = NULL;
		char fault[64];
		struct asked a;

		(void)snprintf(fault, sizeof(fault), "sealer_asked:fail=%d",
			       errors[i]);
		assert_int_equal(setenv("VS_FAULT", fault, 1), 0);
		s = new_sealer();
		assert_int_equal(unsetenv("VS_FAULT"), 0);
		assert_int_equal(ask(s, &a, fd, true), 0);
		answer(&a);
		assert_int_equal(a.res.err, -errors[i]);
		assert_false(fake_is_sealed(fd));
	}
}

static void helper_that_dies_is_started_again(void **state)
{
	owned(sealer) struct sealer *s = new_sealer();
	owned(fd) int fd = make(*state, "f", 5000);
	struct helper_status st = wait_for_helper(s, 0);
	struct asked a;

	assert_int_equal(st.n_starts, 1);
	assert_int_equal(kill(st.pid, SIGSTOP), 0);
	assert_int_equal(ask(s, &a, fd, true), 0);
	assert_int_equal(kill(st.pid, SIGKILL), 0);
	answer(&a);
	assert_int_equal(a.res.err, -EPIPE);
	st = wait_for_helper(s, st.pid);
	assert_int_equal(st.n_starts, 2);
	assert_int_equal(ask(s, &a, fd, true), 0);
	answer(&a);
	assert_int_equal(a.res.err, 0);
}

/* Whatever we have open, close-on-exec or not. */
static void helper_inherits_its_socket_only(void **state)
{
	owned(fd) int one = make(*state, "one", 1);
	owned(fd) int two = dup(one);
	owned(sealer) struct sealer *s = new_sealer();
	struct helper_status st = wait_for_helper(s, 0);
	owned(dir) DIR *d = NULL;
	char path[64];
	struct dirent *e;

	assert_true(two >= 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", st.pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			assert_in_range(strtol(e->d_name, NULL, 10), 0, 3);
	assert_int_equal(getpgid(st.pid), st.pid);
}

static void sealer_free_ends_the_process_and_its_jobs(void **state)
{
	struct sealer *s = new_sealer();
	owned(fd) int fd = make(*state, "f", 5000);
	struct helper_status st = wait_for_helper(s, 0);
	struct asked a;

	assert_int_equal(kill(st.pid, SIGSTOP), 0);
	assert_int_equal(ask(s, &a, fd, true), 0);
	assert_int_equal(kill(st.pid, SIGKILL), 0);
	sealer_free(s);
	answer(&a); /* lost, or never answered: told in any case */
	assert_true(a.res.err == -EPIPE || a.res.err == -ECANCELED);
	assert_int_equal(kill(st.pid, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void helper_main_refuses_what_it_does_not_know(void **state)
{
	(void)state;
	assert_int_equal(helper_main(""), 2);
	assert_int_equal(helper_main("sealer"), 2);
	assert_int_equal(helper_main("sealer:"), 2);
	assert_int_equal(helper_main("sealer:-1"), 2);
	assert_int_equal(helper_main("sealer:1x"), 2);
	assert_int_equal(helper_main("seal:1"), 2);
	assert_int_equal(helper_main("sealer:99999999999999999999999"), 2);
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
		T(sealer_submit_seals_a_file),
		T(sealer_submit_measures_a_sealed_file),
		T(sealer_submit_takes_many_at_once),
		T(sealer_submit_tells_of_a_writer),
		T(sealer_submit_passes_errors_on),
		T(helper_that_dies_is_started_again),
		T(helper_inherits_its_socket_only),
		T(sealer_free_ends_the_process_and_its_jobs),
		T(helper_main_refuses_what_it_does_not_know),
	};

	fake_verity_main(argc, argv);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
