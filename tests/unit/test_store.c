/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/store: snapshots, labels, the ref rule, opening and damage. The
 * layers are in test_store_layer.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/io.h"
#include "snapshotter/store.h"
#include "tests/unit/store_util.h"
#include "tests/unit/tmpdir.h"

/* ---- opening ---- */

static void store_open_keeps_its_identity(void **state)
{
	struct store *s = open_store(*state);
	char uuid[40];

	(void)snprintf(uuid, sizeof(uuid), "%s", store_uuid(s));
	assert_int_equal(strlen(uuid), 36);
	assert_int_equal(uuid[14], '4');
	store_close(s);
	s = open_store(*state);
	assert_string_equal(store_uuid(s), uuid);
	store_close(s);
}

static void store_open_keeps_a_second_one_out(void **state)
{
	struct store *s = open_store(*state), *other = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(store_open(*state, &other, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_non_null(strstr(e.msg, "in use by another process"));
	assert_null(other);
	store_close(s);
}

/* Runs @sql on the closed database. */
static void tamper(const char *dir, const char *sql)
{
	char path[300];
	sqlite3 *db;

	(void)snprintf(path, sizeof(path), "%s/state.db", dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void assert_open_fails(const char *dir, enum err_kind kind,
			      const char *text)
{
	struct store *s = NULL;
	struct err e = ERR_INIT;
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/state.db", dir);
	assert_int_equal(store_open(dir, &s, &e), -1);
	assert_null(s);
	assert_int_equal(e.kind, kind);
	assert_non_null(strstr(e.msg, path));
	if (!strstr(e.msg, text))
		fail_msg("'%s' does not say '%s'", e.msg, text);
}

static void store_open_refuses_a_newer_schema(void **state)
{
	store_close(open_store(*state));
	tamper(*state, "PRAGMA user_version = 99");
	assert_open_fails(*state, ERR_PRECONDITION,
			  "install the newer version again");
}

static void store_open_refuses_a_newer_format(void **state)
{
	store_close(open_store(*state));
	tamper(*state, "UPDATE meta SET format = 2");
	assert_open_fails(*state, ERR_PRECONDITION,
			  "install the version that made them");
}

static void store_open_leaves_a_foreign_database_alone(void **state)
{
	owned(mem) char *before = NULL;
	owned(mem) char *after = NULL;
	char path[300];
	size_t n = 0, m = 0;

	tamper(*state, "CREATE TABLE x (y)");
	(void)snprintf(path, sizeof(path), "%s/state.db", (char *)*state);
	assert_int_equal(read_file_at(AT_FDCWD, path, 1 << 20, &before, &n), 0);
	assert_open_fails(*state, ERR_PRECONDITION, "another program");
	assert_int_equal(read_file_at(AT_FDCWD, path, 1 << 20, &after, &m), 0);
	assert_int_equal(n, m);
	assert_memory_equal(before, after, n);
}

static void overwrite(const char *dir, off_t at, size_t len)
{
	static const char junk[4096] = "this is not a page";
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/state.db", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (size_t done = 0; done < len; done += sizeof(junk))
		assert_int_equal(pwrite_full(fd, junk, sizeof(junk),
					     (uint64_t)at + done),
				 0);
	assert_int_equal(close(fd), 0);
}

/* ---- a lost database ---- */

#define HEX64 "abababababababababababababababababababababababababababababababab"

static char *below(const char *dir, const char *name, char path[300])
{
	(void)snprintf(path, 300, "%s/%s", dir, name);
	return path;
}

static void make_file(const char *dir, const char *name, const char *text)
{
	int fd = open_dir(AT_FDCWD, dir);

	assert_true(fd >= 0);
	assert_int_equal(write_file_atomic(fd, name, text, strlen(text), 0644),
			 0);
	assert_int_equal(close(fd), 0);
}

static void make_dirs(const char *dir, const char *name)
{
	char path[300];

	assert_int_equal(mkdir_parents(below(dir, name, path), 0700), 0);
}

static void assert_refused_untouched(const char *dir)
{
	char path[300];
	struct stat st;

	/* twice: the first refusal must not make a database */
	for (int i = 0; i < 2; i++)
		assert_open_fails(dir, ERR_PRECONDITION, "put back a copy");
	assert_int_equal(unlink(below(dir, "state.db-wal", path)), 0);
	(void)below(dir, "state.db", path);
	assert_true(lstat(path, &st) < 0 || st.st_size == 0);
}

/* Empty, or gone; a log beside it may be all that is left of the rows. */
static void store_open_refuses_to_replace_a_lost_database(void **state)
{
	static const char *const contents[] = { "s/3", "layer/1",
						("body/ab/" HEX64) };
	char path[300];

	make_dirs(*state, "s/lost+found");
	make_dirs(*state, "layer");
	make_dirs(*state, "body/ab");
	for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
		make_dirs(*state, contents[i]);
		make_file(*state, "state.db-wal", "rows");
		assert_refused_untouched(*state);
		make_file(*state, "state.db-wal", "rows");
		make_file(*state, "state.db", "");
		assert_refused_untouched(*state);
		assert_int_equal(unlink(below(*state, "state.db", path)), 0);
		assert_int_equal(rmdir(below(*state, contents[i], path)), 0);
	}
	/* empty folders are what a first start that died leaves */
	store_close(open_store(*state));
}

/* A file with a header and no tables is as good as empty. */
static void store_open_refuses_a_database_without_tables(void **state)
{
	make_dirs(*state, "s/3");
	tamper(*state, "CREATE TABLE x (y); DROP TABLE x; VACUUM");
	assert_open_fails(*state, ERR_PRECONDITION, "put back a copy");
}

static unsigned mode_of(const char *dir, const char *name)
{
	char path[300];
	struct stat st;

	assert_int_equal(lstat(below(dir, name, path), &st), 0);
	return st.st_mode & 0777;
}

static void store_open_keeps_its_files_private(void **state)
{
	mode_t old = umask(022);
	struct store *s = open_store(*state);
	char path[300];

	prepare(s, SN, "k", "");
	assert_int_equal(mode_of(*state, "state.db"), 0600);
	assert_int_equal(mode_of(*state, "state.db-wal"), 0600);
	store_close(s);
	/* as an earlier version left them */
	assert_int_equal(chmod(below(*state, "state.db", path), 0644), 0);
	s = open_store(*state);
	prepare(s, SN, "k2", "");
	assert_int_equal(mode_of(*state, "state.db"), 0600);
	assert_int_equal(mode_of(*state, "state.db-wal"), 0600);
	store_close(s);
	(void)umask(old);
}

/* ---- damage ---- */

static void store_open_explains_a_damaged_file(void **state)
{
	overwrite(*state, 0, 8192);
	assert_open_fails(*state, ERR_CORRUPT, "put back a copy");
}

static void store_open_finds_a_damaged_page(void **state)
{
	struct store *s = open_store(*state);
	char key[32];

	for (int i = 0; i < 200; i++) {
		(void)snprintf(key, sizeof(key), "key-%d", i);
		prepare(s, SN, key, "");
	}
	store_close(s);
	overwrite(*state, 8 * 4096, 4096 * 8);
	assert_open_fails(*state, ERR_CORRUPT, "put back a copy");
}

/* Snapshots until it fails; the kind of the failure. */
static int fill_up(struct store *s)
{
	owned(labels) struct labels l = { 0 };
	static char value[4000];
	char key[32];

	memset(value, 'x', sizeof(value) - 1);
	assert_int_equal(labels_set(&l, "k", value), 0);
	for (int i = 0; i < 2000; i++) {
		struct err e = ERR_INIT;

		(void)snprintf(key, sizeof(key), "fill-%d", i);
		if (store_create(s, store_new_id(s), SN, key, "",
				 SNAP_KIND_ACTIVE, &l, NULL, &e) < 0)
			return (int)e.kind;
	}
	return ERR_NONE;
}

static void store_create_on_a_full_disk_says_so(void **state)
{
	struct store *s;
	struct snap sp = { 0 };
	struct err e = ERR_INIT;
	uint64_t n = 0, again = 0;

	if (mount("none", *state, "tmpfs", 0, "size=1m") < 0)
		skip(); /* not root */
	s = open_store(*state);
	assert_int_equal(fill_up(s), ERR_NO_SPACE);
	/* It goes on serving, and nothing of the last one stayed. */
	assert_int_equal(store_count(s, &n, &e), 0);
	assert_true(n > 10);
	assert_int_equal(store_get(s, SN, "fill-3", &sp, &e), 0);
	snap_release(&sp);
	store_close(s);
	assert_int_equal(mount("none", *state, "tmpfs", MS_REMOUNT, "size=9m"),
			 0);
	s = open_store(*state);
	assert_int_equal(store_count(s, &again, &e), 0);
	assert_int_equal(again, n);
	prepare(s, SN, "one more", "");
	store_close(s);
	assert_int_equal(umount2(*state, MNT_DETACH), 0);
}

/* ---- create, get, commit, remove ---- */

static void store_create_records_all_of_it(void **state)
{
	struct store *s = open_store(*state);
	owned(labels) struct labels l = { 0 };
	owned(snap) struct snap sp = { 0 }, got = { 0 };
	struct err e = ERR_INIT;
	uint64_t id = store_new_id(s);

	assert_int_equal(labels_set(&l, "containerd.io/a.b/c", "v"), 0);
	assert_int_equal(store_create(s, id, SN, "k 1", "", SNAP_KIND_ACTIVE,
				      &l, &sp, &e),
			 0);
	assert_int_equal(sp.id, id);
	assert_string_equal(sp.name, "k 1");
	assert_string_equal(sp.parent, "");
	assert_int_equal(sp.kind, SNAP_KIND_ACTIVE);
	assert_int_equal(sp.seq, NO_LAYER);
	assert_memory_equal(&sp.created, &sp.updated, sizeof(sp.created));
	assert_true(llabs(sp.created.sec - (int64_t)time(NULL)) < 5);
	store_close(s);

	s = open_store(*state);
	assert_int_equal(store_get(s, SN, "k 1", &got, &e), 0);
	assert_int_equal(got.id, id);
	assert_memory_equal(&got.created, &sp.created, sizeof(sp.created));
	assert_string_equal(labels_get(&got.labels, "containerd.io/a.b/c"),
			    "v");
	store_close(s);
}

static void store_create_checks_names_and_parents(void **state)
{
	struct store *s = open_store(*state);

	prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	prepare(s, SN, "active", "base");
	assert_create(s, SN, "active", "", ERR_EXISTS);
	assert_create(s, SN, "base", "", ERR_EXISTS);
	assert_create(s, SN, "x", "nobody", ERR_NOT_FOUND);
	assert_create(s, SN, "x", "active", ERR_INVALID);
	assert_create(s, SN, "", "", ERR_INVALID);
	assert_create(s, SN, "lazy/12", "", ERR_INVALID);
	/* Only our own form is reserved. */
	prepare(s, SN, "lazy/12/x", "base");
	store_close(s);
}

static void store_get_knows_only_its_own(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(store_get(s, SN, "k", &sp, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	prepare(s, SN, "k", "");
	assert_int_equal(store_get(s, "other", "k", &sp, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	/* The same names under another snapshotter are other snapshots. */
	prepare(s, "other", "k", "");
	commit(s, "other", "c", "k");
	assert_create(s, SN, "y", "c", ERR_NOT_FOUND);
	assert_int_equal(store_get(s, SN, "k", &sp, &e), 0);
	store_close(s);
}

static void store_commit_moves_the_row(void **state)
{
	struct store *s = open_store(*state);
	owned(labels) struct labels l = { 0 }, l2 = { 0 };
	owned(snap) struct snap active = { 0 }, sp = { 0 }, child = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(labels_set(&l, "old", "1"), 0);
	assert_int_equal(labels_set(&l2, "new", "2"), 0);
	assert_int_equal(store_create(s, store_new_id(s), SN, "k", "",
				      SNAP_KIND_ACTIVE, &l, &active, &e),
			 0);
	assert_int_equal(store_commit(s, SN, "c", "k", NULL, &l2, 4096, 3, &e),
			 0);
	assert_int_equal(store_get(s, SN, "k", &sp, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(store_get(s, SN, "c", &sp, &e), 0);
	assert_int_equal(sp.id, active.id);
	assert_int_equal(sp.kind, SNAP_KIND_COMMITTED);
	assert_int_equal(sp.size, 4096);
	assert_int_equal(sp.inodes, 3);
	assert_null(labels_get(&sp.labels, "old"));
	assert_string_equal(labels_get(&sp.labels, "new"), "2");
	assert_memory_equal(&sp.created, &sp.updated, sizeof(sp.created));
	assert_true(sp.created.sec > active.created.sec ||
		    sp.created.nsec > active.created.nsec);
	prepare(s, SN, "child", "c");
	assert_int_equal(store_get(s, SN, "child", &child, &e), 0);
	assert_string_equal(child.parent, "c");
	store_close(s);
}

static int try_commit(struct store *s, const char *name, const char *key,
		      const char *parent)
{
	struct labels none = { 0 };
	struct err e = ERR_INIT;

	return store_commit(s, SN, name, key, parent, &none, 0, 0, &e) < 0
		       ? (int)e.kind
		       : 0;
}

static void store_commit_says_what_is_wrong(void **state)
{
	struct store *s = open_store(*state);

	prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	view(s, SN, "v", "base");
	prepare(s, SN, "b", "base");
	assert_int_equal(try_commit(s, "base", "b", NULL), ERR_EXISTS);
	assert_int_equal(try_commit(s, "b", "b", NULL), ERR_EXISTS);
	assert_int_equal(try_commit(s, "n", "nobody", NULL), ERR_NOT_FOUND);
	assert_int_equal(try_commit(s, "n", "v", NULL), ERR_PRECONDITION);
	assert_int_equal(try_commit(s, "n", "base", NULL), ERR_PRECONDITION);
	assert_int_equal(try_commit(s, "", "b", NULL), ERR_INVALID);
	assert_int_equal(try_commit(s, "lazy/1", "b", NULL), ERR_INVALID);
	/* Nothing of that left a trace. */
	assert_int_equal(try_commit(s, "n", "b", NULL), 0);
	store_close(s);
}

static void store_commit_sets_a_parent_only_where_none_was(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	prepare(s, SN, "a", "");
	commit(s, SN, "base2", "a");
	prepare(s, SN, "top", "base");
	assert_int_equal(try_commit(s, "n", "top", "base2"), ERR_INVALID);
	assert_int_equal(try_commit(s, "n", "top", "base"), 0);
	prepare(s, SN, "free", "");
	prepare(s, SN, "act", "");
	assert_int_equal(try_commit(s, "m", "free", "nobody"), ERR_NOT_FOUND);
	assert_int_equal(try_commit(s, "m", "free", "act"), ERR_PRECONDITION);
	assert_int_equal(try_commit(s, "m", "free", "n"), 0);
	assert_int_equal(store_get(s, SN, "m", &sp, &e), 0);
	assert_string_equal(sp.parent, "n");
	store_close(s);
}

static void store_remove_wants_no_children(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;
	uint64_t id;

	prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	id = prepare(s, SN, "top", "base");
	assert_int_equal(store_remove(s, SN, "base", &sp, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_non_null(strstr(e.msg, "remove"));
	assert_int_equal(store_remove(s, SN, "nobody", &sp, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(store_remove(s, SN, "top", &sp, &e), 0);
	assert_int_equal(sp.id, id);
	snap_release(&sp);
	assert_int_equal(store_remove(s, SN, "base", &sp, &e), 0);
	/* Both names can be used again, with another kind. */
	view(s, SN, "base", "");
	store_close(s);
}

static void store_new_id_is_never_one_that_was_recorded(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;
	uint64_t last = prepare(s, SN, "a", "");

	assert_int_equal(store_remove(s, SN, "a", &sp, &e), 0);
	store_close(s);
	s = open_store(*state);
	assert_true(prepare(s, SN, "a", "") > last);
	store_close(s);
}

/* ---- update ---- */

struct update {
	const char *paths[3];
	size_t n_paths;
	const char *set[2][2]; /* labels of the request */
};

/* "k=v k=v " of the result */
static void do_update(struct store *s, const struct update *u, char *out,
		      size_t size)
{
	owned(labels) struct labels l = { 0 };
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	for (int i = 0; i < 2 && u->set[i][0]; i++)
		assert_int_equal(labels_set(&l, u->set[i][0], u->set[i][1]), 0);
	if (store_update(s, SN, "k", &l, u->paths, u->n_paths, &sp, &e) < 0) {
		(void)snprintf(out, size, "%s", err_kind_name(e.kind));
		return;
	}
	*out = '\0';
	for (size_t i = 0; i < sp.labels.n; i++)
		(void)snprintf(out + strlen(out), size - strlen(out), "%s=%s ",
			       sp.labels.v[i].key, sp.labels.v[i].value);
}

static void store_update_applies_the_mask(void **state)
{
	static const struct {
		struct update u;
		const char *expect;
	} steps[] = {
		{ { .set = { { "a", "1" }, { "b", "2" } } }, "a=1 b=2 " },
		{ { { "labels.c.d/e" }, 1, { { "c.d/e", "3" } } },
		  "a=1 b=2 c.d/e=3 " },
		{ { { "labels.a" }, 1, { { "b", "no" } } }, "b=2 c.d/e=3 " },
		{ { { "labels.b", "labels.x" },
		    2,
		    { { "x", "4" }, { "b", "5" } } },
		  "b=5 c.d/e=3 x=4 " },
		{ { { "labels.x", "parent" }, 2, { { "x", "9" } } },
		  "invalid" },
		{ { { "name" }, 1, { { NULL } } }, "invalid" },
		{ { { "labelsx" }, 1, { { NULL } } }, "invalid" },
		{ { { "labels.nobody" }, 1, { { NULL } } },
		  "b=5 c.d/e=3 x=4 " },
		{ { { "labels" }, 1, { { "only", "1" } } }, "only=1 " },
		{ { .set = { { NULL } } }, "" },
	};
	struct store *s = open_store(*state);
	char got[128];

	prepare(s, SN, "k", "");
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		do_update(s, &steps[i].u, got, sizeof(got));
		assert_string_equal(got, steps[i].expect);
	}
	store_close(s);
}

static void store_update_bumps_updated_alone(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap before = { 0 }, after = { 0 };
	struct labels none = { 0 };
	struct err e = ERR_INIT;

	prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	prepare(s, SN, "k", "base");
	assert_int_equal(store_get(s, SN, "k", &before, &e), 0);
	assert_int_equal(store_update(s, SN, "k", &none, NULL, 0, &after, &e),
			 0);
	assert_memory_equal(&before.created, &after.created,
			    sizeof(before.created));
	assert_true(after.updated.sec > before.updated.sec ||
		    after.updated.nsec > before.updated.nsec);
	assert_string_equal(after.parent, "base");
	assert_string_equal(after.name, "k");
	assert_int_equal(after.kind, SNAP_KIND_ACTIVE);
	snap_release(&after);
	assert_int_equal(
		store_update(s, SN, "nobody", &none, NULL, 0, &after, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	store_close(s);
}

/* ---- walks ---- */

struct seen {
	struct store *s;
	char text[256];
	uint64_t last;
	int stop_after;
};

static int see(void *ctx, const struct snap *sp)
{
	struct seen *seen = ctx;
	owned(snap) struct snap again = { 0 };
	struct err e = ERR_INIT;

	/* Calls back into the store: no lock may be held. */
	assert_int_equal(store_get(seen->s, SN, sp->name, &again, &e), 0);
	(void)snprintf(seen->text + strlen(seen->text),
		       sizeof(seen->text) - strlen(seen->text), "%s ",
		       sp->name);
	seen->last = sp->id;
	return --seen->stop_after == 0;
}

static void store_list_gives_pages_in_order(void **state)
{
	struct store *s = open_store(*state);
	struct seen seen = { .s = s };
	struct err e = ERR_INIT;
	char key[16];

	for (int i = 0; i < 5; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		prepare(s, SN, key, "");
		prepare(s, "other", key, "");
	}
	assert_int_equal(store_list(s, SN, NULL, 0, 2, see, &seen, &e), 2);
	assert_string_equal(seen.text, "k0 k1 ");
	seen.stop_after = 1;
	assert_int_equal(store_list(s, SN, NULL, seen.last, 9, see, &seen, &e),
			 1);
	assert_int_equal(store_list(s, SN, NULL, seen.last, 9, see, &seen, &e),
			 2);
	assert_string_equal(seen.text, "k0 k1 k2 k3 k4 ");
	assert_int_equal(store_list(s, SN, NULL, seen.last, 9, see, &seen, &e),
			 0);
	store_close(s);
}

static void store_list_by_ref_gives_all_kinds(void **state)
{
	struct store *s = open_store(*state);
	struct seen seen = { .s = s };
	struct err e = ERR_INIT;

	prepare_ref(s, SN, "a", "", "R");
	prepare_ref(s, SN, "b", "", "R");
	prepare_ref(s, SN, "c", "", "Q");
	prepare_ref(s, "other", "d", "", "R");
	commit_ref(s, SN, "done", "a", "R");
	assert_int_equal(store_list(s, SN, "R", 0, 9, see, &seen, &e), 2);
	assert_string_equal(seen.text, "done b ");
	store_close(s);
}

static void store_chain_leads_to_the_base(void **state)
{
	struct store *s = open_store(*state);
	owned(mem) struct snap_link *chain = NULL;
	struct err e = ERR_INIT;
	uint64_t base, mid, top;
	size_t n = 0;

	base = prepare(s, SN, "a", "");
	commit(s, SN, "base", "a");
	mid = prepare(s, SN, "a", "base");
	commit(s, SN, "mid", "a");
	top = prepare(s, SN, "a", "mid");
	assert_int_equal(store_chain(s, SN, "a", &chain, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_int_equal(chain[0].id, top);
	assert_int_equal(chain[0].kind, SNAP_KIND_ACTIVE);
	assert_int_equal(chain[1].id, mid);
	assert_int_equal(chain[2].id, base);
	assert_int_equal(chain[2].kind, SNAP_KIND_COMMITTED);
	assert_int_equal(chain[2].seq, NO_LAYER);
	assert_int_equal(store_chain(s, SN, "nobody", &chain, &n, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	store_close(s);
}

/* ---- several threads ---- */

struct worker {
	struct store *s;
	int no;
	atomic_int *n_failed;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct labels none = { 0 };
	char key[32], name[32], sn[16];

	/* Two threads share a name space and fight for the same keys. */
	(void)snprintf(sn, sizeof(sn), "sn%d", w->no / 2);
	for (int i = 0; i < 12; i++) {
		struct err e = ERR_INIT;
		struct snap sp = { 0 };

		(void)snprintf(key, sizeof(key), "key%d", i % 3);
		(void)snprintf(name, sizeof(name), "c-%d-%d", w->no, i);
		if (store_create(w->s, store_new_id(w->s), sn, key, "",
				 SNAP_KIND_ACTIVE, &none, NULL, &e) < 0) {
			if (e.kind != ERR_EXISTS)
				atomic_fetch_add(w->n_failed, 1);
			continue;
		}
		if (store_commit(w->s, sn, name, key, NULL, &none, 1, 1, &e) <
			    0 ||
		    store_get(w->s, sn, name, &sp, &e) < 0)
			atomic_fetch_add(w->n_failed, 1);
		snap_release(&sp);
		if (i % 2 && store_remove(w->s, sn, name, &sp, &e) < 0)
			atomic_fetch_add(w->n_failed, 1);
		snap_release(&sp);
	}
	return NULL;
}

static void store_serves_eight_threads(void **state)
{
	struct store *s = open_store(*state);
	struct worker w[8];
	pthread_t t[8];
	atomic_int n_failed = 0;

	for (int i = 0; i < 8; i++) {
		w[i] = (struct worker){ s, i, &n_failed };
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(atomic_load(&n_failed), 0);
	store_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(store_open_keeps_its_identity),
		T(store_open_keeps_a_second_one_out),
		T(store_open_refuses_a_newer_schema),
		T(store_open_refuses_a_newer_format),
		T(store_open_leaves_a_foreign_database_alone),
		T(store_open_refuses_to_replace_a_lost_database),
		T(store_open_refuses_a_database_without_tables),
		T(store_open_keeps_its_files_private),
		T(store_open_explains_a_damaged_file),
		T(store_open_finds_a_damaged_page),
		T(store_create_on_a_full_disk_says_so),
		T(store_create_records_all_of_it),
		T(store_create_checks_names_and_parents),
		T(store_get_knows_only_its_own),
		T(store_commit_moves_the_row),
		T(store_commit_says_what_is_wrong),
		T(store_commit_sets_a_parent_only_where_none_was),
		T(store_remove_wants_no_children),
		T(store_new_id_is_never_one_that_was_recorded),
		T(store_update_applies_the_mask),
		T(store_update_bumps_updated_alone),
		T(store_list_gives_pages_in_order),
		T(store_list_by_ref_gives_all_kinds),
		T(store_chain_leads_to_the_base),
		T(store_serves_eight_threads),
	};

	/* A mount namespace of our own: whatever happens, nothing stays. */
	if (unshare(CLONE_NEWNS) == 0)
		(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
