/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For unit tests of fuse/view: a directory, a view over it as layer SEQ, and
 * what is needed to look at it from outside.
 */
#ifndef TESTS_VIEWWORLD_H
#define TESTS_VIEWWORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/io.h"
#include "fuse/view.h"
#include "tests/lib/fakelayer.h"

#define SEQ 5
#define INO_BASE 1000

struct world {
	char top[32], src[48], mnt[48];
	struct fake_set fs;
	struct fake_layer *l; /* src, as layer SEQ */
	struct view *v;
	struct view_opts opts;
};

/* ---- helpers ---- */

static inline const char *in_dir(const char *dir, const char *name)
{
	static __thread char bufs[4][256];
	static __thread unsigned i;
	char *p = bufs[i++ % 4];

	(void)snprintf(p, sizeof(bufs[0]), "%s/%s", dir, name);
	return p;
}

/* Below the layer, as the view shows it. */
static inline const char *seen(const struct world *w, const char *name)
{
	char mnt[64];

	(void)snprintf(mnt, sizeof(mnt), "%s/%d", w->mnt, SEQ);
	return in_dir(mnt, name);
}

static inline void put_bytes(const char *path, size_t len, unsigned seed)
{
	char *p = malloc(len + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_non_null(p);
	assert_true(fd >= 0);
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245 + 12345;
		p[i] = (char)(seed >> 16);
	}
	assert_int_equal(write_full(fd, p, len), 0);
	assert_int_equal(close(fd), 0);
	free(p);
}

static inline void assert_same_bytes(const char *a, const char *b)
{
	owned(mem) char *pa = NULL, *pb = NULL;
	size_t na, nb;

	assert_int_equal(read_file_at(AT_FDCWD, a, 1 << 28, &pa, &na), 0);
	assert_int_equal(read_file_at(AT_FDCWD, b, 1 << 28, &pb, &nb), 0);
	assert_int_equal(na, nb);
	assert_memory_equal(pa, pb, na);
}

/* Waits for @pid for at most @ms; 0: it is still there. */
static inline pid_t wait_pid(pid_t pid, int *status, unsigned ms)
{
	uint64_t end = now_ms() + ms;
	pid_t r;

	while ((r = waitpid(pid, status, WNOHANG)) == 0 && now_ms() < end)
		(void)usleep(2000);
	return r;
}

/* A child that reads one page of @path past the page cache, which the kernel
 * sends as a request that the caller itself waits for. */
static inline pid_t spawn_direct_reader(const char *path, void (*handler)(int))
{
	pid_t pid = fork();

	if (pid == 0) {
		struct sigaction sa = { .sa_handler = handler };
		void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int fd;

		(void)sigaction(SIGUSR1, &sa, NULL);
		fd = open(path, O_RDONLY | O_DIRECT);
		if (fd < 0)
			_exit(100);
		if (pread(fd, p, 4096, 0) < 0)
			_exit(errno);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

static inline int remove_one(const char *path, const struct stat *st, int type,
			     struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline struct world *new_world(void)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	(void)snprintf(w->top, sizeof(w->top), "/tmp/test_view-XXXXXX");
	assert_non_null(mkdtemp(w->top));
	assert_int_equal(chmod(w->top, 0755), 0);
	(void)snprintf(w->src, sizeof(w->src), "%s/src", w->top);
	(void)snprintf(w->mnt, sizeof(w->mnt), "%s/mnt", w->top);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->mnt, 0755), 0);
	w->opts.mountpoint = w->mnt;
	w->opts.sources = fake_sources(&w->fs);
	return w;
}

static inline void open_world(struct world *w)
{
	w->l = fake_set_add(&w->fs, w->src, SEQ, INO_BASE);
	assert_int_equal(view_open(&w->opts, &w->v), 0);
}

static inline int setup(void **state)
{
	*state = new_world();
	return 0;
}

static inline int teardown(void **state)
{
	struct world *w = *state;

	view_close(w->v);
	(void)umount2(w->mnt, MNT_DETACH);
	for (unsigned i = 0; i < w->fs.n; i++)
		assert_int_equal(w->fs.layers[i]->n_refs, 0);
	fake_set_free(&w->fs);
	assert_int_equal(nftw(w->top, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	free(w);
	return 0;
}

static inline struct view_stats stats(struct world *w)
{
	struct view_stats st;

	view_stats(w->v, &st);
	return st;
}

#define WITH_WORLD(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* No mount of ours may reach, or outlive, anybody else. */
static inline bool private_mounts(void)
{
	if (unshare(CLONE_NEWNS) == 0 &&
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		return true;
	(void)fprintf(stderr, "needs root: %s\n", strerror(errno));
	return false;
}

#endif
