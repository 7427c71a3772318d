/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/paths: which folders may be taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "plugin/paths.h"
#include "tests/unit/tmpdir.h"

static void assert_absolute(const char *path, const char *want)
{
	owned(mem) char *got = NULL;

	assert_int_equal(path_absolute(path, &got), 0);
	assert_string_equal(got, want);
}

static void path_absolute_is_text_only(void **state)
{
	(void)state;
	assert_absolute("/", "/");
	assert_absolute("///a/./b//", "/a/b");
	assert_absolute("/a/../b/.c/..d", "/a/../b/.c/..d");
	assert_int_equal(chdir("/tmp"), 0);
	assert_absolute("x/y", "/tmp/x/y");
	assert_absolute("./x", "/tmp/x");
}

static int outside(const char *root, const char *path)
{
	struct err e = ERR_INIT;
	int r = paths_check_outside(root, path, "--run", &e);

	if (r < 0) {
		assert_int_equal(e.kind, ERR_INVALID);
		assert_non_null(strstr(e.msg, path));
	}
	return r;
}

static void check_outside_refuses_names_of_ours(void **state)
{
	(void)state;
	assert_int_equal(outside("/r", "/r"), 0);
	assert_int_equal(outside("/r", "/run"), 0);
	assert_int_equal(outside("/r", "/r/run"), 0);
	assert_int_equal(outside("/r", "/r/lx"), 0);
	assert_int_equal(outside("/r", "/l/r"), 0);
	assert_int_equal(outside("/r", "/r/l"), -1);
	assert_int_equal(outside("/r", "/r/./l//x"), -1);
	assert_int_equal(outside("/r", "/r/s/7/fs"), -1);
	assert_int_equal(outside("/r", "/r/trash"), -1);
	assert_int_equal(outside("/r", "/r/state.db"), -1);
	assert_int_equal(outside("/", "/body/x"), -1);
}

static int claim(const char *dir, const char *run, const char *address)
{
	struct err e = ERR_INIT;
	owned(fd) int fd = open_dir(AT_FDCWD, dir);
	int r;

	assert_true(fd >= 0);
	r = paths_check_root(fd, dir, run, address, &e);
	if (r < 0) {
		assert_int_equal(e.kind, ERR_INVALID);
		assert_non_null(strstr(e.msg, dir));
	}
	return r;
}

static void touch(const char *dir, const char *name)
{
	owned(fd) int fd = open_dir(AT_FDCWD, dir);

	assert_int_equal(write_file_atomic(fd, name, "", 0, 0600), 0);
}

static void make(const char *dir, const char *name)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir_parents(path, 0755), 0);
}

static void check_root_takes_what_is_empty_or_ours(void **state)
{
	char run[300], address[300];

	(void)snprintf(run, sizeof(run), "%s/x/run", (char *)*state);
	(void)snprintf(address, sizeof(address), "%s/y.sock", (char *)*state);
	assert_int_equal(claim(*state, "/run/x", NULL), 0);
	make(*state, "s");
	make(*state, "l");
	make(*state, "lost+found");
	touch(*state, "lock");
	assert_int_equal(claim(*state, "/run/x", NULL), 0);
	make(*state, "x");
	touch(*state, "y.sock");
	assert_int_equal(claim(*state, run, address), 0);
	assert_int_equal(claim(*state, run, NULL), -1);
	assert_int_equal(claim(*state, "/run/x", address), -1);
	/* with the database it is ours, whatever else was put there */
	touch(*state, "state.db");
	assert_int_equal(claim(*state, "/run/x", NULL), 0);
}

/* /run has a folder "lock", /var a link, dpkg a file. */
static void check_root_is_not_fooled_by_a_lock(void **state)
{
	make(*state, "lock");
	make(*state, "state.db");
	make(*state, "dpkg");
	assert_int_equal(claim(*state, "/run/x", NULL), -1);
	assert_int_equal(claim("/", "/run/x", NULL), -1);
	assert_int_equal(claim("/var/lib/dpkg", "/run/x", NULL), -1);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, tmpdir_setup, tmpdir_teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(path_absolute_is_text_only),
		cmocka_unit_test(check_outside_refuses_names_of_ours),
		T(check_root_takes_what_is_empty_or_ours),
		T(check_root_is_not_fooled_by_a_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
