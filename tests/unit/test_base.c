/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/base: errors, digests, buffers, pool, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/io.h"
#include "base/pool.h"
#include "base/utf8.h"

static void err_sys_never_says_not_found(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_sys(&e, -ENOENT, "open '%s'", "x"), -1);
	assert_int_equal(e.kind, ERR_INTERNAL);
	assert_string_equal(e.msg, "open 'x': No such file or directory");
	assert_int_equal(err_sys(&e, -ENOSPC, "write"), -1);
	assert_int_equal(e.kind, ERR_NO_SPACE);
	assert_int_equal(err_wrap(&e, "layer %d", 7), -1);
	assert_string_equal(e.msg, "layer 7: write: No space left on device");
	assert_int_equal(err_set(NULL, ERR_INVALID, "nobody listens"), -1);
}

static void digest_parse_accepts_one_spelling(void **state)
{
	static const char good[] =
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	char bad[sizeof(good) + 1];
	struct digest d;

	(void)state;
	assert_int_equal(digest_parse(good, &d), 0);
	assert_string_equal(digest_str(&d).s, good);
	memcpy(bad, good, sizeof(good));
	bad[10] = 'B';
	assert_int_equal(digest_parse(bad, &d), -EINVAL);
	memcpy(bad, good, sizeof(good));
	bad[sizeof(good) - 1] = '0';
	bad[sizeof(good)] = '\0';
	assert_int_equal(digest_parse(bad, &d), -EINVAL);
	assert_int_equal(digest_parse("sha256:../../etc", &d), -EINVAL);
}

static void buf_add_json_escapes_and_replaces(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(buf_add_json(&b, "a\"\\\n\xff\xc3\xa9"), 0);
	assert_string_equal((char *)b.p, "\"a\\\"\\\\\\u000a\\ufffd\xc3\xa9\"");
	buf_release(&b);
}

/* Stands before the one of libc, so that a thread can be refused. */
static atomic_bool no_threads;

int pthread_create(pthread_t *t, const pthread_attr_t *attr,
		   void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
		    void *) = NULL;
	void *sym = dlsym(RTLD_NEXT, "pthread_create");

	if (no_threads || !sym)
		return EAGAIN;
	memcpy(&real, &sym, sizeof(real));
	return real(t, attr, fn, arg);
}

struct counted {
	struct job job;
	atomic_int *n;
};

static void count_job(struct job *j)
{
	struct counted *c = container_of(j, struct counted, job);

	atomic_fetch_add(c->n, 1);
}

static void pool_runs_every_job_before_it_stops(void **state)
{
	struct counted c[200];
	struct pool *p = NULL;
	atomic_int n = 0;

	(void)state;
	assert_int_equal(pool_new("test", 1, 4, &p), 0);
	for (size_t i = 0; i < ARRAY_LEN(c); i++) {
		c[i] = (struct counted){ .job.run = count_job, .n = &n };
		assert_int_equal(pool_add(p, &c[i].job), 0);
	}
	pool_stop(p);
	assert_int_equal(atomic_load(&n), ARRAY_LEN(c));
	assert_int_equal(pool_add(p, &c[0].job), -ECANCELED);
	pool_free(p);
}

/* Two jobs that need each other only work when a second thread starts
 * although one was idle when the first came. */
struct meeting {
	struct job job;
	atomic_int *n;
};

static void meet(struct job *j)
{
	struct meeting *m = container_of(j, struct meeting, job);
	uint64_t end = now_ms() + 20000;

	atomic_fetch_add(m->n, 1);
	while (atomic_load(m->n) < 2 && now_ms() < end)
		(void)usleep(1000);
}

static void pool_starts_a_thread_for_each_waiting_job(void **state)
{
	struct pool *p = NULL;
	atomic_int n = 0;
	struct meeting a = { .job.run = meet, .n = &n }, b = a;
	uint64_t start = now_ms();

	(void)state;
	assert_int_equal(pool_new("meet", 1, 4, &p), 0);
	(void)usleep(20000);
	assert_int_equal(pool_add(p, &a.job), 0);
	assert_int_equal(pool_add(p, &b.job), 0);
	pool_free(p);
	assert_true(now_ms() - start < 19000);
}

/* Threads of this process that are named @name. */
static unsigned n_threads(const char *name)
{
	owned(dir) DIR *d = opendir("/proc/self/task");
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(d);
	while ((de = readdir(d))) {
		owned(mem) char *comm = NULL;
		char path[300];

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			       de->d_name);
		if (read_file_at(AT_FDCWD, path, 64, &comm, NULL) == 0)
			n += !strncmp(comm, name, strlen(name));
	}
	return n;
}

/* Two idle threads that time out together must not both leave. */
static void pool_keeps_its_last_thread(void **state)
{
	unsigned was = pool_idle_ms;
	struct pool *p = NULL;
	atomic_int n = 0;
	struct meeting a = { .job.run = meet, .n = &n }, b = a;

	(void)state;
	pool_idle_ms = 50;
	assert_int_equal(pool_new("stay", 1, 4, &p), 0);
	assert_int_equal(pool_add(p, &a.job), 0);
	assert_int_equal(pool_add(p, &b.job), 0);
	(void)usleep(400000);
	assert_int_equal(n_threads("vs-stay"), 1);
	pool_free(p);
	pool_idle_ms = was;
}

/* A pool of no threads that cannot start one refuses; it forgets no job. */
static void pool_add_says_when_nobody_will_come(void **state)
{
	unsigned was = pool_idle_ms;
	struct pool *p = NULL;
	atomic_int n = 0;
	struct counted c = { .job.run = count_job, .n = &n };

	(void)state;
	pool_idle_ms = 20;
	assert_int_equal(pool_new("none", 0, 1, &p), 0);
	(void)usleep(200000);
	assert_int_equal(n_threads("vs-none"), 0);
	no_threads = true;
	assert_int_equal(pool_add(p, &c.job), -EAGAIN);
	no_threads = false;
	assert_int_equal(pool_add(p, &c.job), 0);
	pool_free(p);
	assert_int_equal(atomic_load(&n), 1);
	pool_idle_ms = was;
}

static void remove_tree_follows_no_link(void **state)
{
	char dir[] = "/tmp/vs-base-XXXXXX";
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	fd = open_dir(AT_FDCWD, dir);
	assert_true(fd >= 0);
	assert_int_equal(mkdir_exact(fd, "t", 0711), 0);
	assert_int_equal(mkdir_exact(fd, "t/sub", 0700), 0);
	assert_int_equal(write_file_atomic(fd, "f", "hello", 5, 0600), 0);
	assert_int_equal(renameat(fd, "f", fd, "t/sub/f"), 0);
	assert_int_equal(linkat(fd, "t/sub/f", fd, "t/g", 0), 0);
	assert_int_equal(symlinkat("/etc", fd, "t/link"), 0);
	assert_int_equal(remove_tree(fd, "t"), 0);
	assert_int_equal(remove_tree(fd, "t"), 0);
	assert_int_equal(access("/etc/passwd", R_OK), 0);
	(void)close(fd);
	assert_int_equal(rmdir(dir), 0);
}

/* The current folder as the start, and a path of several parts. */
static void remove_tree_works_from_the_current_folder(void **state)
{
	char dir[] = "/tmp/vs-base-XXXXXX", path[64];

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/a", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/a/b", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(remove_tree(AT_FDCWD, path), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(remove_tree(AT_FDCWD, dir), 0);
	assert_int_equal(access(dir, F_OK), -1);
}

static void remove_tree_never_enters_a_mount(void **state)
{
	char dir[] = "/tmp/vs-base-XXXXXX", from[64], to[64], file[80];
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(from, sizeof(from), "%s/from", dir);
	(void)snprintf(to, sizeof(to), "%s/t", dir);
	(void)snprintf(file, sizeof(file), "%s/from/keep", dir);
	assert_int_equal(mkdir(from, 0700), 0);
	assert_int_equal(mkdir(to, 0700), 0);
	(void)snprintf(to, sizeof(to), "%s/t/m", dir);
	assert_int_equal(mkdir(to, 0700), 0);
	f = fopen(file, "w");
	assert_non_null(f);
	assert_int_equal(fclose(f), 0);
	if (mount(from, to, NULL, MS_BIND, NULL) == 0) {
		int r = remove_tree(AT_FDCWD, to), deep;

		(void)snprintf(to, sizeof(to), "%s/t", dir);
		deep = remove_tree(AT_FDCWD, to);
		(void)snprintf(to, sizeof(to), "%s/t/m", dir);
		assert_int_equal(umount2(to, MNT_DETACH), 0);
		assert_int_equal(r, -EBUSY);
		assert_int_equal(deep, -EBUSY);
	} else {
		print_message("no mounts here: only half of it is tested\n");
	}
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(remove_tree(AT_FDCWD, dir), 0);
}

static void base64_has_one_spelling(void **state unused_arg)
{
	static const char *const bad[] = {
		"A",    "AA",   "AAA",   "AA=",  "AA==A",    "A===", "====",
		"AB==", "AAB=", "AA\n=", "AA-_", "AA==AAAA", " AAA", "A=AA"
	};
	uint8_t out[16];

	assert_int_equal(base64_decode("", 0, out), 0);
	assert_int_equal(base64_decode("AA==", 4, out), 1);
	assert_int_equal(base64_decode("//8=", 4, out), 2);
	assert_memory_equal(out, "\xff\xff", 2);
	assert_int_equal(base64_decode("TWFueQ==", 8, out), 4);
	assert_memory_equal(out, "Many", 4);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (base64_decode(bad[i], strlen(bad[i]), out) >= 0)
			fail_msg("passed: %s", bad[i]);
	}
}

static void utf8_len_takes_only_what_rfc_3629_allows(void **state)
{
	static const struct {
		const char *s;
		size_t want;
	} cases[] = {
		{ "a", 1 },
		{ "\xc3\xa9", 2 },
		{ "\xe4\xb8\xad", 3 },
		{ "\xf0\x9f\x90\xb3", 4 },
		{ "\xc0\x80", 0 }, /* overlong */
		{ "\xe0\x9f\xbf", 0 },
		{ "\xed\xa0\x80", 0 }, /* surrogate */
		{ "\xf4\x90\x80\x80", 0 }, /* above U+10FFFF */
		{ "\x80", 0 },
		{ "\xe4\xb8", 0 }, /* cut */
	};
	uint8_t out[4];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(utf8_len(cases[i].s, strlen(cases[i].s)),
				 cases[i].want);
	assert_false(utf8_is_valid("ok\xff", 3));
	assert_int_equal(utf8_encode(0x1f433, out), 4);
	assert_memory_equal(out, "\xf0\x9f\x90\xb3", 4);
}

/* ---- log ---- */

static uint64_t fake_ms;
static char lines[8][200];
static unsigned n_lines;

static uint64_t fake_clock(void)
{
	return fake_ms;
}

static void keep_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)snprintf(lines[n_lines++ % ARRAY_LEN(lines)], sizeof(*lines),
		       "%s", msg);
}

static int log_set_up(void **state)
{
	(void)state;
	fake_ms = 1000000;
	n_lines = 0;
	log_set_clock(fake_clock);
	log_set_sink(keep_line);
	return 0;
}

static int log_tear_down(void **state)
{
	(void)state;
	log_set_clock(NULL);
	log_set_sink(NULL);
	return 0;
}

static void fault(const char *host)
{
	log_limited(LOG_LEVEL_WARN, host, "down: host=%s", host);
}

static void log_limited_says_once_and_counts_the_rest(void **state)
{
	(void)state;
	for (int i = 0; i < 500; i++)
		fault("a");
	assert_int_equal(n_lines, 1);
	assert_string_equal(lines[0], "down: host=a");
	fake_ms += LOG_LIMIT_MS - 1;
	fault("a");
	assert_int_equal(n_lines, 1);
	fake_ms++;
	fault("a");
	assert_int_equal(n_lines, 2);
	assert_string_equal(lines[1], "down: host=a suppressed=500");
}

static void log_limited_keeps_keys_and_sentences_apart(void **state)
{
	(void)state;
	fault("a");
	fault("a");
	fault("b");
	log_limited(LOG_LEVEL_WARN, "a", "slow: host=%s", "a");
	log_limited(LOG_LEVEL_WARN, NULL, "no key");
	log_limited(LOG_LEVEL_WARN, NULL, "no key either");
	assert_int_equal(n_lines, 5);
	assert_string_equal(lines[1], "down: host=b");
	assert_string_equal(lines[2], "slow: host=a");
}

static void log_limited_speaks_less_of_what_goes_on(void **state)
{
	unsigned n[4];

	(void)state;
	/* A fault each second for four hours. */
	for (int h = 0; h < 4; h++) {
		for (int s = 0; s < 3600; s++, fake_ms += 1000)
			fault("a");
		n[h] = n_lines;
	}
	assert_true(n[0] >= 8 && n[0] <= 25);
	for (int h = 1; h < 4; h++)
		assert_in_range(n[h] - n[h - 1], 3600000 / LOG_LIMIT_MAX_MS - 1,
				3600000 / LOG_LIMIT_MAX_MS + 1);
	/* After a pause it is news again. */
	fake_ms += 3 * LOG_LIMIT_MAX_MS;
	n_lines = 0;
	fault("a");
	fake_ms += LOG_LIMIT_MS;
	fault("a");
	assert_int_equal(n_lines, 2);
}

static void log_limited_forgets_rather_than_stay_silent(void **state)
{
	char host[16];

	(void)state;
	for (int i = 0; i < 3000; i++) {
		(void)snprintf(host, sizeof(host), "h%d", i);
		fault(host);
	}
	assert_int_equal(n_lines, 3000);
}

static void log_limited_respects_the_level(void **state)
{
	(void)state;
	errno = ENOTTY;
	for (int i = 0; i < 3; i++)
		log_limited(LOG_LEVEL_DEBUG, NULL, "quiet");
	assert_int_equal(n_lines, 0);
	fault("a");
	assert_int_equal(errno, ENOTTY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(base64_has_one_spelling),
		cmocka_unit_test(utf8_len_takes_only_what_rfc_3629_allows),
		cmocka_unit_test(err_sys_never_says_not_found),
		cmocka_unit_test(digest_parse_accepts_one_spelling),
		cmocka_unit_test(buf_add_json_escapes_and_replaces),
		cmocka_unit_test(pool_runs_every_job_before_it_stops),
		cmocka_unit_test(pool_starts_a_thread_for_each_waiting_job),
		cmocka_unit_test(pool_keeps_its_last_thread),
		cmocka_unit_test(pool_add_says_when_nobody_will_come),
		cmocka_unit_test(remove_tree_follows_no_link),
		cmocka_unit_test(remove_tree_works_from_the_current_folder),
		cmocka_unit_test(remove_tree_never_enters_a_mount),
		cmocka_unit_test_setup_teardown(
			log_limited_says_once_and_counts_the_rest, log_set_up,
			log_tear_down),
		cmocka_unit_test_setup_teardown(
			log_limited_keeps_keys_and_sentences_apart, log_set_up,
			log_tear_down),
		cmocka_unit_test_setup_teardown(
			log_limited_speaks_less_of_what_goes_on, log_set_up,
			log_tear_down),
		cmocka_unit_test_setup_teardown(
			log_limited_forgets_rather_than_stay_silent, log_set_up,
			log_tear_down),
		cmocka_unit_test_setup_teardown(log_limited_respects_the_level,
						log_set_up, log_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
