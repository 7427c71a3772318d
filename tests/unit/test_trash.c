/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/trash and orphans: what is removed, what is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/hex.h"
#include "base/log.h"
#include "snapshotter/trash.h"
#include "tests/unit/store_util.h"
#include "tests/unit/tmpdir.h"

struct rig {
	int rootfd;
	struct trash *trash;
};

static void rig_open(struct rig *g, const char *dir)
{
	static const char *const names[] = { "s", "l", "layer", "body" };
	struct err e = ERR_INIT;

	g->rootfd = open_dir(AT_FDCWD, dir);
	assert_true(g->rootfd >= 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(mkdir_exact(g->rootfd, names[i], 0700), 0);
	assert_int_equal(trash_open(g->rootfd, &g->trash, &e), 0);
}

static void rig_close(struct rig *g)
{
	trash_close(g->trash);
	assert_int_equal(close(g->rootfd), 0);
}

static void make_dir(const struct rig *g, const char *path)
{
	assert_int_equal(mkdir_exact(g->rootfd, path, 0755), 0);
}

static void make_file(const struct rig *g, const char *path)
{
	int fd = openat(g->rootfd, path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(close(fd), 0);
}

static bool exists(const struct rig *g, const char *path)
{
	return faccessat(g->rootfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static unsigned mode_of(const struct rig *g, const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(g->rootfd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static int entries(const struct rig *g, const char *path)
{
	int n = 0, fd = open_dir(g->rootfd, path);
	DIR *d = fdopendir(fd);

	assert_non_null(d);
	while (readdir(d))
		n++;
	assert_int_equal(closedir(d), 0);
	return n - 2;
}

static void trash_add_takes_the_name_away_at_once(void **state)
{
	struct rig g;

	rig_open(&g, *state);
	make_dir(&g, "s/1");
	make_dir(&g, "s/1/fs");
	make_file(&g, "s/1/fs/x");
	assert_int_equal(trash_add(g.trash, "s/1"), 0);
	assert_false(exists(&g, "s/1"));
	trash_drain(g.trash);
	assert_int_equal(entries(&g, "trash"), 0);
	/* Gone is gone. */
	assert_int_equal(trash_add(g.trash, "s/1"), 0);
	rig_close(&g);
}

static void trash_open_empties_what_lies_there(void **state)
{
	struct rig g;

	rig_open(&g, *state);
	trash_close(g.trash);
	make_dir(&g, "trash/anything");
	make_file(&g, "trash/anything/x");
	{
		struct err e = ERR_INIT;

		assert_int_equal(trash_open(g.rootfd, &g.trash, &e), 0);
	}
	trash_drain(g.trash);
	assert_int_equal(entries(&g, "trash"), 0);
	rig_close(&g);
}

static void trash_keeps_what_is_busy_and_removes_the_rest(void **state)
{
	struct rig g;
	char path[300];

	rig_open(&g, *state);
	make_dir(&g, "s/1");
	make_dir(&g, "s/1/mnt");
	make_dir(&g, "s/1/other");
	(void)snprintf(path, sizeof(path), "%s/s/1/mnt", (char *)*state);
	if (mount("none", path, "tmpfs", 0, NULL) < 0) {
		rig_close(&g);
		skip(); /* not root */
	}
	make_file(&g, "s/1/mnt/precious");
	log_set_level(LOG_LEVEL_ERR);
	assert_int_equal(trash_add(g.trash, "s/1"), 0);
	trash_drain(g.trash);
	log_set_level(LOG_LEVEL_INFO);
	assert_int_equal(entries(&g, "trash"), 1);
	{
		owned(dir) DIR *d = fdopendir(open_dir(g.rootfd, "trash"));
		struct dirent *de;

		assert_non_null(d);
		do {
			de = readdir(d);
			assert_non_null(de);
		} while (de->d_name[0] == '.');
		(void)snprintf(path, sizeof(path), "%s/trash/%.100s/mnt",
			       (char *)*state, de->d_name);
	}
	{
		char inside[320];

		(void)snprintf(inside, sizeof(inside), "%s/precious", path);
		assert_int_equal(access(inside, F_OK), 0);
	}
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	trash_kick(g.trash);
	trash_drain(g.trash);
	assert_int_equal(entries(&g, "trash"), 0);
	rig_close(&g);
}

/* A container can build what no recursion can take apart. */
static void trash_removes_trees_of_any_depth(void **state)
{
	struct rig g;

	rig_open(&g, *state);
	make_dir(&g, "s/1");
	assert_int_equal(make_deep(g.rootfd, "s/1", 3000), 0);
	make_dir(&g, "s/1/wide");
	make_file(&g, "s/1/wide/x");
	assert_int_equal(trash_add(g.trash, "s/1"), 0);
	trash_drain(g.trash);
	assert_int_equal(entries(&g, "trash"), 0);
	rig_close(&g);
}

static void run_orphans(struct rig *g, struct store *s)
{
	struct err e = ERR_INIT;

	log_set_level(LOG_LEVEL_ERR);
	if (trash_orphans(g->trash, s, &e) < 0)
		fail_msg("trash_orphans: %s", e.msg);
	trash_drain(g->trash);
	log_set_level(LOG_LEVEL_INFO);
}

static void orphans_snapshots_follow_the_rows(void **state)
{
	struct store *s = open_store(*state);
	struct rig g;
	char base[40], active[60], path[64];

	rig_open(&g, *state);
	(void)snprintf(base, sizeof(base), "s/%" PRIu64,
		       prepare(s, SN, "k", ""));
	commit(s, SN, "base", "k");
	(void)snprintf(active, sizeof(active), "s/%" PRIu64,
		       prepare(s, "other", "k", ""));
	(void)snprintf(path, sizeof(path), "s/%" PRIu64,
		       view(s, SN, "v", "base"));
	make_dir(&g, path); /* a view with a parent has no folder */
	make_dir(&g, base);
	make_dir(&g, active);
	make_dir(&g, "s/999");
	make_dir(&g, "s/3.tmp");
	make_dir(&g, "s/new-123");
	make_dir(&g, "s/007");
	make_dir(&g, "s/lost+found");
	make_dir(&g, "s/99999999999999999999999");
	make_dir(&g, "run");
	run_orphans(&g, s);
	assert_true(exists(&g, base));
	assert_true(exists(&g, active));
	assert_false(exists(&g, path));
	assert_false(exists(&g, "s/999"));
	assert_false(exists(&g, "s/3.tmp"));
	assert_true(exists(&g, "s/new-123"));
	assert_true(exists(&g, "s/007"));
	assert_true(exists(&g, "s/lost+found"));
	assert_true(exists(&g, "s/99999999999999999999999"));
	assert_true(exists(&g, "run"));
	rig_close(&g);
	store_close(s);
}

static void orphans_active_rows_get_their_folder_back(void **state)
{
	struct store *s = open_store(*state);
	struct rig g;
	uint64_t active, v, base;
	char path[64];

	rig_open(&g, *state);
	active = prepare(s, SN, "a", "");
	v = view(s, SN, "v", "");
	base = prepare(s, SN, "k", "");
	commit(s, SN, "base", "k");
	run_orphans(&g, s);
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", active);
	assert_int_equal(mode_of(&g, path), 0755);
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/work", active);
	assert_int_equal(mode_of(&g, path), 0711);
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", v);
	assert_true(exists(&g, path));
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/work", v);
	assert_false(exists(&g, path));
	/* An empty layer would run, wrongly. */
	(void)snprintf(path, sizeof(path), "s/%" PRIu64, base);
	assert_false(exists(&g, path));
	rig_close(&g);
	store_close(s);
}

static void add_layer(struct store *s, const struct digest *ckey)
{
	struct layer_row row = { .format = 1, .n_inodes = 1 };
	struct err e = ERR_INIT;

	assert_int_equal(store_next_seq(s, &row.seq, &e), 0);
	assert_int_equal(row.seq, 1);
	assert_int_equal(store_add_layer(s, &row, ckey, 1, &e), 0);
}

static void orphans_layers_and_bodies_follow_the_rows(void **state)
{
	struct store *s = open_store(*state);
	struct digest alive, dead;
	char a[DIGEST_HEX_LEN + 1], d[DIGEST_HEX_LEN + 1], path[128];
	struct rig g;

	rig_open(&g, *state);
	memset(alive.b, 0xab, sizeof(alive.b));
	memset(dead.b, 0xab, sizeof(dead.b));
	dead.b[31] = 1;
	hex_encode(alive.b, sizeof(alive.b), a);
	hex_encode(dead.b, sizeof(dead.b), d);
	add_layer(s, &alive);
	make_dir(&g, "layer/1");
	make_dir(&g, "layer/2");
	make_dir(&g, "layer/3.tmp");
	make_dir(&g, "layer/x");
	make_dir(&g, "body/ab");
	make_dir(&g, "body/cd"); /* goes: empty */
	make_dir(&g, "body/zz");
	make_dir(&g, "body/AB");
	static const char *const tails[] = { "", ".state", ".tmp", ".other" };
	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		(void)snprintf(path, sizeof(path), "body/ab/%s%s", a, tails[i]);
		make_file(&g, path);
		(void)snprintf(path, sizeof(path), "body/ab/%s%s", d, tails[i]);
		make_file(&g, path);
	}
	make_file(&g, "body/ab/readme");
	run_orphans(&g, s);
	assert_true(exists(&g, "layer/1"));
	assert_false(exists(&g, "layer/2"));
	assert_false(exists(&g, "layer/3.tmp"));
	assert_true(exists(&g, "layer/x"));
	assert_false(exists(&g, "body/cd"));
	assert_true(exists(&g, "body/zz"));
	assert_true(exists(&g, "body/AB"));
	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		(void)snprintf(path, sizeof(path), "body/ab/%s%s", a, tails[i]);
		assert_int_equal(exists(&g, path), i != 2);
		(void)snprintf(path, sizeof(path), "body/ab/%s%s", d, tails[i]);
		assert_int_equal(exists(&g, path), i == 3);
	}
	assert_true(exists(&g, "body/ab/readme"));
	rig_close(&g);
	store_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct rlimit few = { 256, 256 };
	const struct CMUnitTest tests[] = {
		T(trash_add_takes_the_name_away_at_once),
		T(trash_open_empties_what_lies_there),
		T(trash_keeps_what_is_busy_and_removes_the_rest),
		T(trash_removes_trees_of_any_depth),
		T(orphans_snapshots_follow_the_rows),
		T(orphans_active_rows_get_their_folder_back),
		T(orphans_layers_and_bodies_follow_the_rows),
	};

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		return 1;
	/* A mount namespace of our own, before there are threads: whatever
	 * happens, nothing stays mounted. Without it (not root) mount() fails
	 * as well. */
	if (unshare(CLONE_NEWNS) == 0)
		(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return cmocka_run_group_tests_name("trash", tests, NULL, NULL);
}
