/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse/view with real mounts, in a mount namespace of its own: what a layer
 * looks like, how it comes and goes, how a view begins and ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/syscall.h>

#include "fuse/abi.h"
#include "tests/lib/viewworld.h"

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

/* A user namespace in which ids begin at 100000 outside. */
static int shifted_userns(void)
{
	char path[64];
	int pipes[2], fd, map;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		char c = unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';

		if (write_full(pipes[1], &c, 1) < 0)
			_exit(1);
		(void)pause();
		_exit(0);
	}
	assert_int_equal(read(pipes[0], path, 1), 1);
	assert_int_equal(path[0], 'y');
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/%cid_map", pid,
			       "ug"[i]);
		map = open(path, O_WRONLY | O_CLOEXEC);
		assert_true(map >= 0);
		assert_int_equal(write_full(map, "0 100000 65536", 14), 0);
		assert_int_equal(close(map), 0);
	}
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	return fd;
}

/* As containerd does it for a container with user namespaces. */
static void view_can_be_mapped_to_other_ids(void **state)
{
	struct world *w = *state;
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	struct stat st;
	int tree;

	put_bytes(in_dir(w->src, "f"), 10, 1);
	assert_int_equal(chown(in_dir(w->src, "f"), 5, 6), 0);
	open_world(w);
	if (!(stats(w).init_flags & ABI_ALLOW_IDMAP))
		skip();
	attr.userns_fd = (uint64_t)shifted_userns();
	tree = (int)syscall(SYS_open_tree, AT_FDCWD, seen(w, ""),
			    OPEN_TREE_CLONE);
	assert_true(tree >= 0);
	assert_int_equal(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH,
				 &attr, sizeof(attr)),
			 0);
	assert_int_equal(fstatat(tree, "f", &st, 0), 0);
	assert_int_equal(st.st_uid, 100005);
	assert_int_equal(st.st_gid, 100006);
	assert_int_equal(stat(seen(w, "f"), &st), 0);
	assert_int_equal(st.st_uid, 5);
	assert_int_equal(close((int)attr.userns_fd), 0);
	assert_int_equal(close(tree), 0);
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

/* ---- the end of a view ---- */

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
	assert_in_range(now_ms() - start, 0, 20000);
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
	const struct CMUnitTest tests[] = {
		WITH_WORLD(view_shows_what_the_layer_holds),
		WITH_WORLD(view_root_knows_exact_names_only),
		WITH_WORLD(view_cannot_be_written),
		WITH_WORLD(view_shows_attributes),
		WITH_WORLD(view_enforces_acls),
		WITH_WORLD(view_can_be_mapped_to_other_ids),
		WITH_WORLD(view_lists_a_big_directory),
		WITH_WORLD(view_lists_a_big_directory_without_readdirplus),
		WITH_WORLD(view_reads_without_big_reads),
		WITH_WORLD(view_reads_a_mebibyte_at_once),
		WITH_WORLD(view_opens_file_handles),
		WITH_WORLD(view_drops_a_removed_layer),
		WITH_WORLD(close_ends_the_session_of_a_busy_mount),
		WITH_WORLD(view_can_be_opened_again_and_again),
		WITH_WORLD(view_notices_that_it_was_unmounted),
		WITH_WORLD(view_open_reports_a_missing_mountpoint),
		WITH_WORLD(detach_dead_takes_all_of_ours_and_nothing_else),
	};

	if (!private_mounts())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
