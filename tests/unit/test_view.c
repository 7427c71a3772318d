/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse/view with real mounts, in a mount namespace of its own. What is looked
 * at from outside runs in child processes, as a container would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "fuse/abi.h"
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

static const char *in_dir(const char *dir, const char *name)
{
	static __thread char bufs[4][256];
	static __thread unsigned i;
	char *p = bufs[i++ % 4];

	(void)snprintf(p, sizeof(bufs[0]), "%s/%s", dir, name);
	return p;
}

/* Below the layer, as the view shows it. */
static const char *seen(const struct world *w, const char *name)
{
	char mnt[64];

	(void)snprintf(mnt, sizeof(mnt), "%s/%d", w->mnt, SEQ);
	return in_dir(mnt, name);
}

static void put_bytes(const char *path, size_t len, unsigned seed)
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

static void assert_same_bytes(const char *a, const char *b)
{
	owned(mem) char *pa = NULL, *pb = NULL;
	size_t na, nb;

	assert_int_equal(read_file_at(AT_FDCWD, a, 1 << 28, &pa, &na), 0);
	assert_int_equal(read_file_at(AT_FDCWD, b, 1 << 28, &pb, &nb), 0);
	assert_int_equal(na, nb);
	assert_memory_equal(pa, pb, na);
}

/* Waits for @pid for at most @ms; 0: it is still there. */
static pid_t wait_pid(pid_t pid, int *status, unsigned ms)
{
	uint64_t end = now_ms() + ms;
	pid_t r;

	while ((r = waitpid(pid, status, WNOHANG)) == 0 && now_ms() < end)
		(void)usleep(2000);
	return r;
}

/* A child that reads one page of @path past the page cache, which the kernel
 * sends as a request that the caller itself waits for. */
static pid_t spawn_direct_reader(const char *path, void (*handler)(int))
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

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static struct world *new_world(void)
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

static void open_world(struct world *w)
{
	w->l = fake_set_add(&w->fs, w->src, SEQ, INO_BASE);
	assert_int_equal(view_open(&w->opts, &w->v), 0);
}

static int setup(void **state)
{
	*state = new_world();
	return 0;
}

static int teardown(void **state)
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

static struct view_stats stats(struct world *w)
{
	struct view_stats st;

	view_stats(w->v, &st);
	return st;
}

/* ---- what a layer looks like ---- */

static void make_tree(struct world *w)
{
	assert_int_equal(mkdir(in_dir(w->src, "dir"), 0750), 0);
	assert_int_equal(mkdir(in_dir(w->src, "dir/deep"), 0700), 0);
	put_bytes(in_dir(w->src, "empty"), 0, 0);
	put_bytes(in_dir(w->src, "one"), 1, 1);
	put_bytes(in_dir(w->src, "page"), 4096, 2);
	put_bytes(in_dir(w->src, "dir/odd"), 3 * 1048576 + 4097, 3);
	assert_int_equal(
		link(in_dir(w->src, "page"), in_dir(w->src, "dir/deep/hard")),
		0);
	assert_int_equal(symlink("../no/where", in_dir(w->src, "link")), 0);
	assert_int_equal(
		mknod(in_dir(w->src, "null"), S_IFCHR | 0666, makedev(1, 3)),
		0);
	assert_int_equal(mknod(in_dir(w->src, "disk"), S_IFBLK | 0600,
			       makedev(259, 70000)),
			 0);
	assert_int_equal(mknod(in_dir(w->src, "gone"), S_IFCHR, 0), 0);
	assert_int_equal(mkfifo(in_dir(w->src, "fifo"), 0644), 0);
	assert_int_equal(chown(in_dir(w->src, "one"), 1234, 5678), 0);
	assert_int_equal(chmod(in_dir(w->src, "one"), 04755), 0);
}

static void compare_one(const struct world *w, const char *name)
{
	const char *a = in_dir(w->src, name), *b = seen(w, name);
	struct stat sa, sb;

	assert_int_equal(lstat(a, &sa), 0);
	assert_int_equal(lstat(b, &sb), 0);
	assert_int_equal(sa.st_mode, sb.st_mode);
	assert_int_equal(sa.st_uid, sb.st_uid);
	assert_int_equal(sa.st_gid, sb.st_gid);
	assert_int_equal(sa.st_nlink, sb.st_nlink);
	assert_int_equal(sa.st_rdev, sb.st_rdev);
	assert_memory_equal(&sa.st_mtim, &sb.st_mtim, sizeof(sa.st_mtim));
	assert_memory_equal(&sb.st_mtim, &sb.st_atim, sizeof(sa.st_mtim));
	assert_memory_equal(&sb.st_mtim, &sb.st_ctim, sizeof(sa.st_mtim));
	assert_in_range(sb.st_ino, INO_BASE + 1, UINT32_MAX);
	assert_int_equal(sb.st_blksize, 4096);
	if (!S_ISDIR(sa.st_mode))
		assert_int_equal(sa.st_size, sb.st_size);
	if (S_ISREG(sa.st_mode)) {
		assert_int_equal(sb.st_blocks, (sb.st_size + 4095) / 4096 * 8);
		assert_same_bytes(a, b);
	}
}

static void view_shows_what_the_layer_holds(void **state)
{
	static const char *const names[] = {
		".",    "dir",  "dir/deep", "empty",   "one",
		"page", "link", "null",     "dir/odd", "dir/deep/hard",
		"disk", "gone", "fifo",
	};
	struct world *w = *state;
	char target[64] = { 0 };
	struct stat a, b;

	make_tree(w);
	open_world(w);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		compare_one(w, names[i]);
	assert_int_equal(readlink(seen(w, "link"), target, sizeof(target)), 11);
	assert_string_equal(target, "../no/where");
	assert_int_equal(stat(seen(w, "page"), &a), 0);
	assert_int_equal(stat(seen(w, "dir/deep/hard"), &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(a.st_nlink, 2);
	assert_int_equal(access(seen(w, "nothing"), F_OK), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(stats(w).n_open, 0);
}

static void view_root_knows_exact_names_only(void **state)
{
	static const char *const wrong[] = { "05", "+5", "6", "5x", "lost" };
	struct world *w = *state;
	struct dirent *d;
	struct stat st;
	int n = 0;

	open_world(w);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		assert_int_equal(stat(in_dir(w->mnt, wrong[i]), &st), -1);
		assert_int_equal(errno, ENOENT);
	}
	DIR *dir = opendir(w->mnt);

	assert_non_null(dir);
	while ((d = readdir(dir)))
		n++;
	assert_int_equal(closedir(dir), 0);
	assert_int_equal(n, 2);
	/* A new layer is there at once, although its name was missed. */
	(void)fake_set_add(&w->fs, w->src, 6, 50000);
	assert_int_equal(stat(in_dir(w->mnt, "6"), &st), 0);
	assert_int_equal(st.st_ino, 50001);
}

static void view_cannot_be_written(void **state)
{
	struct world *w = *state;

	put_bytes(in_dir(w->src, "f"), 10, 1);
	open_world(w);
	for (int rw = 0; rw < 2; rw++) {
		assert_int_equal(open(seen(w, "f"), O_WRONLY), -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(open(seen(w, "f"), O_RDONLY | O_TRUNC), -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(open(seen(w, "g"), O_WRONLY | O_CREAT, 0644),
				 -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(mkdir(seen(w, "d"), 0755), -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(unlink(seen(w, "f")), -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(chmod(seen(w, "f"), 0), -1);
		assert_int_equal(errno, EROFS);
		assert_int_equal(setxattr(seen(w, "f"), "user.a", "b", 1, 0),
				 -1);
		assert_int_equal(errno, EROFS);
		/* the second round: as if somebody had remounted it */
		assert_int_equal(mount(NULL, w->mnt, NULL, MS_REMOUNT, NULL),
				 0);
	}
	assert_same_bytes(in_dir(w->src, "f"), seen(w, "f"));
}

static void view_shows_attributes(void **state)
{
	static const char cap[] = "\1\0\0\2\0\40\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
	struct world *w = *state;
	char buf[1024], big[3000];
	ssize_t n;

	memset(big, 'b', sizeof(big));
	put_bytes(in_dir(w->src, "f"), 10, 1);
	put_bytes(in_dir(w->src, "plain"), 10, 1);
	assert_int_equal(setxattr(in_dir(w->src, "f"), "security.capability",
				  cap, 20, 0),
			 0);
	assert_int_equal(
		setxattr(in_dir(w->src, "f"), "user.big", big, sizeof(big), 0),
		0);
	assert_int_equal(setxattr(w->src, "trusted.overlay.opaque", "y", 1, 0),
			 0);
	open_world(w);
	n = getxattr(seen(w, "f"), "security.capability", buf, sizeof(buf));
	assert_int_equal(n, 20);
	assert_memory_equal(buf, cap, 20);
	assert_int_equal(getxattr(seen(w, "f"), "user.big", NULL, 0),
			 sizeof(big));
	assert_int_equal(getxattr(seen(w, "f"), "user.big", buf, 100), -1);
	assert_int_equal(errno, ERANGE);
	assert_int_equal(getxattr(seen(w, "f"), "user.none", buf, 100), -1);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(getxattr(seen(w, "plain"), "user.big", buf, 100), -1);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(listxattr(seen(w, "plain"), buf, sizeof(buf)), 0);
	n = listxattr(seen(w, "f"), buf, sizeof(buf));
	assert_int_equal(n, sizeof("security.capability") + sizeof("user.big"));
	assert_int_equal(listxattr(seen(w, "f"), NULL, 0), n);
	assert_int_equal(getxattr(seen(w, ""), "trusted.overlay.opaque", buf,
				  sizeof(buf)),
			 1);
	assert_int_equal(buf[0], 'y');
}

/* user::rw-, user:1001:r--, group::---, mask::r--, other::---: the mode says
 * 0640, but the group may not read and 1001 may. */
static void view_enforces_acls(void **state)
{
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} e[5];
	} acl = { 2,
		  { { 1, 6, UINT32_MAX },
		    { 2, 4, 1001 },
		    { 4, 0, UINT32_MAX },
		    { 16, 4, UINT32_MAX },
		    { 32, 0, UINT32_MAX } } };
	static const struct {
		unsigned uid, gid;
		int want;
	} who[] = { { 0, 0, 0 },
		    { 1001, 1001, 0 },
		    { 1002, 2000, EACCES },
		    { 1003, 1003, EACCES } };
	struct world *w = *state;
	int status;

	put_bytes(in_dir(w->src, "f"), 10, 1);
	assert_int_equal(chown(in_dir(w->src, "f"), 0, 2000), 0);
	assert_int_equal(setxattr(in_dir(w->src, "f"),
				  "system.posix_acl_access", &acl, sizeof(acl),
				  0),
			 0);
	open_world(w);
	if (!(stats(w).init_flags & ABI_POSIX_ACL))
		skip();
	for (size_t i = 0; i < ARRAY_LEN(who); i++) {
		pid_t pid = fork();

		if (pid == 0) {
			if (setresgid(who[i].gid, who[i].gid, who[i].gid) ||
			    setresuid(who[i].uid, who[i].uid, who[i].uid))
				_exit(100);
			_exit(open(seen(w, "f"), O_RDONLY) < 0 ? errno : 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), who[i].want);
	}
}

enum { N_ENTRIES = 10000 };

static void list_big_directory(struct world *w, unsigned without)
{
	struct dirent *d;
	struct stat st;
	unsigned n = 0;
	uint8_t *hit = calloc(N_ENTRIES, 1);
	char name[32];

	assert_non_null(hit);
	assert_int_equal(mkdir(in_dir(w->src, "big"), 0755), 0);
	for (unsigned i = 0; i < N_ENTRIES; i++) {
		(void)snprintf(name, sizeof(name), "big/a-file-%05u", i);
		put_bytes(in_dir(w->src, name), 0, 0);
	}
	w->opts.without = without;
	open_world(w);
	DIR *dir = opendir(seen(w, "big"));

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		assert_int_equal(fstatat(dirfd(dir), d->d_name, &st,
					 AT_SYMLINK_NOFOLLOW),
				 0);
		assert_int_equal(st.st_ino, d->d_ino);
		assert_int_equal(d->d_type, DT_REG);
		assert_int_equal(strncmp(d->d_name, "a-file-", 7), 0);
		unsigned i = (unsigned)strtoul(d->d_name + 7, NULL, 10);

		assert_in_range(i, 0, N_ENTRIES - 1);
		assert_int_equal(hit[i]++, 0);
		n++;
	}
	assert_int_equal(n, N_ENTRIES);
	/* The second time the kernel knows it all. */
	uint64_t before = stats(w).n_requests;

	rewinddir(dir);
	for (n = 0; readdir(dir); n++)
		;
	assert_int_equal(n, N_ENTRIES + 2);
	assert_in_range(stats(w).n_requests - before, 0, 3);
	assert_int_equal(closedir(dir), 0);
	free(hit);
}

static void view_lists_a_big_directory(void **state)
{
	list_big_directory(*state, 0);
}

static void view_lists_a_big_directory_without_readdirplus(void **state)
{
	list_big_directory(*state, VIEW_WITHOUT_READDIRPLUS);
}

static void view_reads_without_big_reads(void **state)
{
	struct world *w = *state;

	put_bytes(in_dir(w->src, "f"), 2 << 20, 9);
	w->opts.without = VIEW_WITHOUT_BIG_READS | VIEW_WITHOUT_RESEND;
	open_world(w);
	assert_same_bytes(in_dir(w->src, "f"), seen(w, "f"));
	assert_true(stats(w).n_reads >= 16);
	assert_false(stats(w).init_flags & (ABI_MAX_PAGES | ABI_HAS_RESEND));
}

static void view_reads_a_mebibyte_at_once(void **state)
{
	struct world *w = *state;

	put_bytes(in_dir(w->src, "f"), 16 << 20, 9);
	open_world(w);
	if (!(stats(w).init_flags & ABI_MAX_PAGES))
		skip();
	assert_same_bytes(in_dir(w->src, "f"), seen(w, "f"));
	assert_in_range(stats(w).n_reads, 16, 40);
}

/* A file handle must find an inode that has left the cache. (Of directories
 * only overlay's index wants that; see the remark in init.c.) */
static void view_opens_file_handles(void **state)
{
	struct world *w = *state;
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = { .h = { .handle_bytes = MAX_HANDLE_SZ } };
	int mount_id, mnt, fd = -1;
	struct stat a, b;

	assert_int_equal(mkdir(in_dir(w->src, "d"), 0755), 0);
	put_bytes(in_dir(w->src, "d/f"), 5000, 1);
	open_world(w);
	assert_int_equal(
		name_to_handle_at(AT_FDCWD, seen(w, "d/f"), &u.h, &mount_id, 0),
		0);
	assert_int_equal(stat(seen(w, "d/f"), &a), 0);
	view_forget_layer(w->v, SEQ);
	(void)usleep(100000);
	mnt = open(w->mnt, O_RDONLY | O_DIRECTORY);
	assert_true(mnt >= 0);
	fd = open_by_handle_at(mnt, &u.h, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(b.st_size, 5000);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(mnt), 0);
}

/* ---- layers come and go ---- */

static void view_drops_a_removed_layer(void **state)
{
	struct world *w = *state;
	struct stat st;
	char c;
	int fd;

	put_bytes(in_dir(w->src, "f"), 8192, 1);
	open_world(w);
	fd = open(seen(w, "f"), O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(stat(seen(w, "f"), &st), 0);
	atomic_store(&w->l->gone, true);
	view_forget_layer(w->v, SEQ);
	uint64_t end = now_ms() + 5000;

	while (stat(seen(w, "f"), &st) == 0 && now_ms() < end)
		(void)usleep(1000);
	assert_int_equal(stat(seen(w, "f"), &st), -1);
	assert_int_equal(errno, ENOENT);
	/* who holds it still gets an error, not a lie */
	assert_int_equal(pread(fd, &c, 1, 4096), -1);
	assert_int_equal(close(fd), 0);
}

/* ---- parked reads ---- */

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
	assert_in_range(now_ms() - start, 0, 3000);
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
	assert_in_range(now_ms() - start, 0, 1000);
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
	assert_in_range(now_ms() - start, 0, 6000);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(wait_pid(pids[i], &status, 5000), pids[i]);
		assert_int_equal(WEXITSTATUS(status), EIO);
	}
}

/* The mount lives on below whoever uses it; the threads must end all the same,
 * and who is left gets errors instead of waiting. */
static void close_ends_the_session_of_a_busy_mount(void **state)
{
	struct world *w = *state;
	uint64_t start = now_ms();
	struct stat st;
	int fd, dir;

	put_bytes(in_dir(w->src, "f"), 1 << 20, 1);
	open_world(w);
	fd = open(seen(w, "f"), O_RDONLY | O_CLOEXEC);
	dir = open(seen(w, ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0 && dir >= 0);
	view_close(w->v);
	w->v = NULL;
	assert_in_range(now_ms() - start, 0, 3000);
	assert_int_equal(fstatat(dir, "never-looked-up", &st, 0), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(dir), 0);
}

static void view_can_be_opened_again_and_again(void **state)
{
	struct world *w = *state;

	put_bytes(in_dir(w->src, "f"), 10, 1);
	open_world(w);
	for (int i = 0; i < 20; i++) {
		assert_same_bytes(in_dir(w->src, "f"), seen(w, "f"));
		view_close(w->v);
		w->v = NULL;
		assert_int_equal(access(seen(w, "f"), F_OK), -1);
		assert_int_equal(view_open(&w->opts, &w->v), 0);
	}
	assert_true(stats(w).mounted);
}

static void view_notices_that_it_was_unmounted(void **state)
{
	struct world *w = *state;
	uint64_t end = now_ms() + 5000;

	open_world(w);
	assert_int_equal(umount2(w->mnt, 0), 0);
	while (stats(w).mounted && now_ms() < end)
		(void)usleep(1000);
	assert_false(stats(w).mounted);
	/* Somebody else's mount on the same place stays. */
	assert_int_equal(mount("t", w->mnt, "tmpfs", 0, NULL), 0);
	view_close(w->v);
	w->v = NULL;
	assert_int_equal(umount2(w->mnt, 0), 0);
}

static void view_open_reports_a_missing_mountpoint(void **state)
{
	struct world *w = *state;
	struct view *v = NULL;

	w->opts.mountpoint = in_dir(w->top, "nowhere");
	assert_int_equal(view_open(&w->opts, &v), -ENOENT);
	assert_null(v);
}

/* ---- many at once ---- */

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

/* ---- what a dead process left ---- */

/* Two servers that were killed, one mount on the other. */
static void detach_dead_takes_all_of_ours_and_nothing_else(void **state)
{
	struct world *w = *state;
	const char *odd = in_dir(w->top, "a b\\c\nd");
	char path[256];
	int status;

	(void)snprintf(path, sizeof(path), "%s", odd);
	assert_int_equal(mkdir(path, 0755), 0);
	w->opts.mountpoint = path;
	assert_int_equal(view_detach_dead(path), 0);
	assert_int_equal(mount("t", path, "tmpfs", 0, NULL), 0);
	assert_int_equal(view_detach_dead(path), 0);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			struct view *v;

			_exit(view_open(&w->opts, &v) == 0 ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(view_detach_dead(path), 2);
	assert_int_equal(view_detach_dead(path), 0);
	assert_int_equal(umount2(path, 0), 0); /* the tmpfs */
	assert_int_equal(view_detach_dead("/no/such/place"), 0);
	w->opts.mountpoint = w->mnt;
}

int main(void)
{
#define WITH_WORLD(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH_WORLD(view_shows_what_the_layer_holds),
		WITH_WORLD(view_root_knows_exact_names_only),
		WITH_WORLD(view_cannot_be_written),
		WITH_WORLD(view_shows_attributes),
		WITH_WORLD(view_enforces_acls),
		WITH_WORLD(view_lists_a_big_directory),
		WITH_WORLD(view_lists_a_big_directory_without_readdirplus),
		WITH_WORLD(view_reads_without_big_reads),
		WITH_WORLD(view_reads_a_mebibyte_at_once),
		WITH_WORLD(view_opens_file_handles),
		WITH_WORLD(view_drops_a_removed_layer),
		WITH_WORLD(parked_reads_delay_nobody_else),
		WITH_WORLD(killed_reader_ends_at_once),
		WITH_WORLD(handled_signal_does_not_end_a_read),
		WITH_WORLD(fatal_signal_ends_a_read),
		WITH_WORLD(close_does_not_wait_for_parked_reads),
		WITH_WORLD(close_ends_the_session_of_a_busy_mount),
		WITH_WORLD(view_can_be_opened_again_and_again),
		WITH_WORLD(view_notices_that_it_was_unmounted),
		WITH_WORLD(view_open_reports_a_missing_mountpoint),
		WITH_WORLD(view_serves_many_threads),
		WITH_WORLD(detach_dead_takes_all_of_ours_and_nothing_else),
	};

	/* No mount of ours may reach, or outlive, anybody else. */
	if (unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		(void)fprintf(stderr, "needs root: %s\n", strerror(errno));
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
