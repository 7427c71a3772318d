/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/snapshotter: killed at each of its durable steps, it has the old
 * state or the new one when it starts again. Runs itself for the child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "tests/unit/snapshotter_util.h"

static void do_prepare(struct snapshotter *s)
{
	make(s, SN, "new", "", false, NULL, 0);
}

static void do_commit(struct snapshotter *s)
{
	commit(s, "done", "old");
}

static void do_remove(struct snapshotter *s)
{
	struct err e = ERR_INIT;

	(void)!snapshotter_remove(s, SN, "old", &e);
}

static void do_update(struct snapshotter *s)
{
	owned(labels) struct labels l = { 0 };
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	(void)!labels_set(&l, "containerd.io/snapshot/x", "y");
	(void)!snapshotter_update(s, SN, "old", &l, NULL, 0, &sp, &e);
}

static const struct action {
	const char *name;
	void (*fn)(struct snapshotter *s);
} actions[] = {
	{ "prepare", do_prepare },
	{ "commit", do_commit },
	{ "remove", do_remove },
	{ "update", do_update },
};

/* What the program does when it is started as "DIR ACTION". */
static int act(const char *dir, const char *name)
{
	log_set_level(LOG_LEVEL_ERR);
	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		if (!strcmp(name, actions[i].name))
			actions[i].fn(open_sn(dir));
	return 0;
}

/* Whoever loses state.db must not lose the containers' files as well. */
static void die_at(char *dir, const char *fault, const char *name)
{
	char copy[16];
	char *const argv[] = { (char[]){ "test" }, dir, copy, NULL };
	pid_t pid;
	int status;

	(void)snprintf(copy, sizeof(copy), "%s", name);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setenv("VS_FAULT", fault, 1);
		(void)execv("/proc/self/exe", argv);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("%s was not reached", fault);
}

static int stat_kind(struct snapshotter *s, const char *key)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	return snapshotter_stat(s, SN, key, &sp, &e) < 0 ? 0 : (int)sp.kind;
}

/* After each death: rows and folders agree, and the call can be made again. */
static void a_death_at_any_point_leaves_old_or_new(void **state)
{
	static const struct {
		const char *fault, *action;
	} deaths[] = {
		{ "snapshot_folder_made:kill", "prepare" },
		{ "snapshot_folder_renamed:kill", "prepare" },
		{ "store_before_commit:kill", "prepare" },
		{ "snapshot_recorded:kill", "prepare" },
		{ "store_before_commit:kill", "commit" },
		{ "snapshot_committed:kill", "commit" },
		{ "store_before_commit:kill", "update" },
		{ "snapshot_updated:kill", "update" },
		{ "store_before_commit:kill", "remove" },
		{ "snapshot_removed:kill", "remove" },
		{ "trash_renamed:kill", "remove" },
	};

	for (size_t i = 0; i < ARRAY_LEN(deaths); i++) {
		struct err e = ERR_INIT;
		struct snapshotter *s = open_sn(*state);
		int have = 0;
		char path[340];

		prepare(s, "old", "");
		snapshotter_close(s);
		die_at(*state, deaths[i].fault, deaths[i].action);
		log_set_level(LOG_LEVEL_WARN);
		s = open_sn(*state);
		log_set_level(LOG_LEVEL_INFO);
		trash_drain(s->trash);
		static const char *const names[] = { "old", "new", "done" };
		for (size_t j = 0; j < ARRAY_LEN(names); j++) {
			if (!stat_kind(s, names[j]))
				continue;
			have++;
			fs_path(s, names[j], path, sizeof(path));
			assert_int_equal(access(path, F_OK), 0);
		}
		assert_int_equal(entries(at(*state, path, sizeof(path), "s")),
				 have);
		assert_int_equal(
			entries(at(*state, path, sizeof(path), "trash")), 0);
		assert_true(!stat_kind(s, "old") || !stat_kind(s, "done"));
		for (size_t j = 0; j < ARRAY_LEN(names); j++)
			if (stat_kind(s, names[j]))
				assert_int_equal(
					snapshotter_remove(s, SN, names[j], &e),
					0);
		snapshotter_close(s);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_death_at_any_point_leaves_old_or_new),
	};

	if (argc == 3)
		return act(argv[1], argv[2]);
	return cmocka_run_group_tests_name("snapshotter_crash", tests, NULL,
					   NULL);
}
