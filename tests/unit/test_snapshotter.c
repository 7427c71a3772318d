/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/snapshotter: rows and folders together, as containerd drives
 * them. Deaths in between are in test_snapshotter_crash.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "snapshotter/usage.h"
#include "tests/unit/snapshotter_util.h"

/* ---- opening ---- */

static void open_makes_private_folders_and_refuses_a_second(void **state)
{
	struct snapshotter *s = open_sn(*state), *other = NULL;
	char root[300], path[340];
	struct snapshotter_opts o = { .root = root,
				      .run = root,
				      .without = SNAPSHOTTER_WITHOUT_FUSE };
	struct err e = ERR_INIT;
	struct stat st;
	static const char *const names[] = { "",      "s",    "l",
					     "layer", "body", "trash" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(
			stat(at(*state, path, sizeof(path), names[i]), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
	}
	(void)snprintf(root, sizeof(root), "%s/root", (char *)*state);
	assert_int_equal(snapshotter_open(&o, &other, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	snapshotter_close(s);

	(void)snprintf(root, sizeof(root), "%s/a:b", (char *)*state);
	assert_int_equal(snapshotter_open(&o, &other, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_non_null(strstr(e.msg, "mount options"));
}

/* ---- Prepare and View ---- */

static void prepare_makes_folders_whatever_the_umask(void **state)
{
	mode_t old = umask(0177);
	struct snapshotter *s = open_sn(*state);
	char path[340];
	struct stat st;

	prepare(s, "k", "");
	(void)umask(old);
	fs_path(s, "k", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	memcpy(strrchr(path, '/'), "/work", 6);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	*strrchr(path, '/') = '\0';
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	snapshotter_close(s);
}

static void prepare_answers_with_the_mounts_of_the_table(void **state)
{
	struct snapshotter *s = open_sn(*state);
	char got[1024], expect[1024];
	const char *index = s->env.index_off ? " index=off" : "";
	uint64_t base, mid, top;

	make(s, SN, "k", "", false, got, sizeof(got));
	base = id_of(s, "k");
	(void)snprintf(expect, sizeof(expect),
		       "bind %s/s/%" PRIu64 "/fs rw rbind", s->root, base);
	assert_string_equal(got, expect);
	commit(s, "base", "k");

	make(s, SN, "v", "base", true, got, sizeof(got));
	(void)snprintf(expect, sizeof(expect),
		       "bind %s/s/%" PRIu64 "/fs ro rbind", s->root, base);
	assert_string_equal(got, expect);

	make(s, SN, "k", "base", false, got, sizeof(got));
	mid = id_of(s, "k");
	(void)snprintf(expect, sizeof(expect),
		       "overlay overlay workdir=%s/s/%" PRIu64
		       "/work upperdir=%s/s/%" PRIu64
		       "/fs lowerdir=%s/s/%" PRIu64 "/fs%s",
		       s->root, mid, s->root, mid, s->root, base, index);
	assert_string_equal(got, expect);
	commit(s, "mid", "k");

	make(s, SN, "v2", "mid", true, got, sizeof(got));
	(void)snprintf(expect, sizeof(expect),
		       "overlay overlay lowerdir=%s/s/%" PRIu64
		       "/fs:%s/s/%" PRIu64 "/fs%s",
		       s->root, mid, s->root, base, index);
	assert_string_equal(got, expect);

	make(s, SN, "v3", "", true, got, sizeof(got));
	top = id_of(s, "v3");
	(void)snprintf(expect, sizeof(expect),
		       "bind %s/s/%" PRIu64 "/fs ro rbind", s->root, top);
	assert_string_equal(got, expect);
	snapshotter_close(s);
}

static void prepare_copies_the_root_folder_of_the_parent(void **state)
{
	struct snapshotter *s = open_sn(*state);
	char path[340];
	struct stat st;

	prepare(s, "k", "");
	fs_path(s, "k", path, sizeof(path));
	if (chown(path, 1234, 4321) < 0) {
		snapshotter_close(s);
		skip(); /* not root */
	}
	assert_int_equal(chmod(path, 03710), 0);
	commit(s, "base", "k");
	prepare(s, "k", "base");
	fs_path(s, "k", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(st.st_gid, 4321);
	assert_int_equal(st.st_mode & 07777, 03710);
	snapshotter_close(s);
}

/* Lazy layers have no root of their own: what lies below them has. */
static void prepare_looks_below_lazy_parents(void **state)
{
	struct snapshotter *s = open_sn(*state);
	struct layer_row row = { .format = 1, .n_inodes = 1 };
	struct labels none = { 0 };
	struct err e = ERR_INIT;
	owned(snap) struct snap sp = { 0 }, over = { 0 };
	char path[340], got[1024], expect[340];
	struct stat st;

	assert_int_equal(store_next_seq(s->store, &row.seq, &e), 0);
	assert_int_equal(store_add_layer(s->store, &row, NULL, 0, &e), 0);
	assert_int_equal(
		store_add_lazy(s->store, SN, "", "R", &none, row.seq, 1, 1, &e),
		0);
	assert_int_equal(store_find_ref(s->store, SN, "", "R", &sp, &e), 1);
	make(s, SN, "k", sp.name, false, got, sizeof(got));
	fs_path(s, "k", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	(void)snprintf(expect, sizeof(expect), "lowerdir=%s/l/%" PRIu32,
		       s->root, row.seq);
	assert_non_null(strstr(got, expect));

	assert_int_equal(chmod(path, 0701), 0);
	commit(s, "base", "k");
	assert_int_equal(store_add_lazy(s->store, SN, "base", "S", &none,
					row.seq, 1, 1, &e),
			 0);
	assert_int_equal(store_find_ref(s->store, SN, "base", "S", &over, &e),
			 1);
	prepare(s, "k", over.name);
	fs_path(s, "k", path, sizeof(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0701);
	/* Removing the lazy row touches no folder. */
	{
		struct err no = ERR_INIT;

		assert_int_equal(snapshotter_remove(s, SN, sp.name, &no), -1);
		assert_int_equal(no.kind, ERR_PRECONDITION);
		assert_int_equal(snapshotter_remove(s, SN, "k", &e), 0);
		assert_int_equal(snapshotter_remove(s, SN, over.name, &e), 0);
		assert_int_equal(snapshotter_remove(s, SN, "base", &e), 0);
		assert_int_equal(snapshotter_remove(s, SN, sp.name, &e), 0);
	}
	snapshotter_close(s);
}

static void assert_fails(struct snapshotter *s, const char *key,
			 const char *parent, enum err_kind kind)
{
	struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(try_make(s, SN, key, parent, false, &m, &e), -1);
	assert_int_equal(e.kind, kind);
	assert_null(m.v);
}

static void prepare_that_fails_leaves_no_folder(void **state)
{
	struct snapshotter *s = open_sn(*state);
	char path[340];

	prepare(s, "k", "");
	at(*state, path, sizeof(path), "s");
	assert_int_equal(entries(path), 1);
	assert_fails(s, "k", "", ERR_EXISTS);
	assert_fails(s, "x", "nobody", ERR_NOT_FOUND);
	assert_fails(s, "x", "k", ERR_INVALID);
	assert_fails(s, "", "", ERR_INVALID);
	assert_int_equal(entries(path), 1);
	snapshotter_close(s);
}

static void prepare_refuses_a_layer_without_its_parent(void **state)
{
	struct snapshotter *s = open_sn(*state);
	owned(labels) struct labels l = { 0 };
	struct prepare_req rq = {
		.sn = SN, .key = "k", .parent = "", .labels = &l
	};
	struct prepare_op *op = NULL;
	struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(labels_set(&l, LABEL_PARENT_CHAIN_ID, "sha256:x"), 0);
	assert_int_equal(snapshotter_prepare(s, &rq, NULL, NULL, &m, &op, &e),
			 -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_non_null(strstr(e.msg, "rebase"));
	snapshotter_close(s);
}

/* ---- the other calls ---- */

static void mounts_refuses_committed_and_unknown(void **state)
{
	struct snapshotter *s = open_sn(*state);
	struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	prepare(s, "k", "");
	commit(s, "c", "k");
	assert_int_equal(snapshotter_mounts(s, SN, "c", &m, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_int_equal(snapshotter_mounts(s, SN, "k", &m, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	snapshotter_close(s);
}

static void commit_records_the_usage_of_the_upper(void **state)
{
	struct snapshotter *s = open_sn(*state);
	uint64_t size = 0, inodes = 0, size2 = 0, inodes2 = 0;
	struct labels none = { 0 };
	struct err e = ERR_INIT;
	char path[340];
	int fd;

	prepare(s, "k", "");
	fs_path(s, "k", path, sizeof(path));
	(void)strncat(path, "/f", sizeof(path) - strlen(path) - 1);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(write_full(fd, path, sizeof(path)), 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(snapshotter_usage(s, SN, "k", &size, &inodes, &e), 0);
	assert_int_equal(inodes, 2);
	assert_true(size >= 32768);
	commit(s, "c", "k");
	assert_int_equal(snapshotter_usage(s, SN, "c", &size2, &inodes2, &e),
			 0);
	assert_int_equal(size2, size);
	assert_int_equal(inodes2, inodes);
	make(s, SN, "v", "c", true, NULL, 0);
	assert_int_equal(snapshotter_usage(s, SN, "v", &size, &inodes, &e), 0);
	assert_int_equal(size, 0);
	assert_int_equal(snapshotter_usage(s, SN, "x", &size, &inodes, &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(snapshotter_commit(s, SN, "n", "v", "", &none, &e),
			 -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_int_equal(snapshotter_commit(s, SN, "n", "x", "", &none, &e),
			 -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	snapshotter_close(s);
}

static void usage_survives_hostile_depth_and_counts_links_once(void **state)
{
	struct snapshotter *s = open_sn(*state);
	uint64_t size = 0, inodes = 0;
	struct err e = ERR_INIT;
	char path[340], a[360], b[360];
	int fd;

	prepare(s, "k", "");
	fs_path(s, "k", path, sizeof(path));
	(void)snprintf(a, sizeof(a), "%s/a", path);
	(void)snprintf(b, sizeof(b), "%s/b", path);
	fd = open(a, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, a, sizeof(a)), 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(link(a, b), 0);
	assert_int_equal(snapshotter_usage(s, SN, "k", &size, &inodes, &e), 0);
	assert_int_equal(inodes, 2);
	log_set_level(LOG_LEVEL_ERR);
	assert_int_equal(make_deep(AT_FDCWD, path, 3000), 0);
	assert_int_equal(snapshotter_usage(s, SN, "k", &size, &inodes, &e), 0);
	log_set_level(LOG_LEVEL_INFO);
	assert_int_equal(inodes, 2 + USAGE_DEPTH_MAX);
	commit(s, "c", "k");
	assert_int_equal(snapshotter_remove(s, SN, "c", &e), 0);
	trash_drain(s->trash);
	assert_int_equal(entries(at(*state, path, sizeof(path), "trash")), 0);
	snapshotter_close(s);
}

static void remove_takes_row_and_folder(void **state)
{
	struct snapshotter *s = open_sn(*state);
	struct err e = ERR_INIT;
	char path[340];

	prepare(s, "k", "");
	assert_int_equal(snapshotter_remove(s, SN, "k", &e), 0);
	assert_int_equal(entries(at(*state, path, sizeof(path), "s")), 0);
	assert_int_equal(snapshotter_remove(s, SN, "k", &e), -1);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	prepare(s, "k", "");
	assert_int_equal(snapshotter_cleanup(s, SN, &e), 0);
	trash_drain(s->trash);
	assert_int_equal(entries(at(*state, path, sizeof(path), "trash")), 0);
	snapshotter_close(s);
}

struct page {
	char text[2000];
	int n;
};

static int add_to_page(void *ctx, const struct snap *sp)
{
	struct page *p = ctx;

	(void)snprintf(p->text + strlen(p->text),
		       sizeof(p->text) - strlen(p->text), "%s ", sp->name);
	p->n++;
	return 0;
}

static void list_pages_count_matches_only(void **state)
{
	struct snapshotter *s = open_sn(*state);
	static const char *const filter = "name~=5$";
	static const char *const wrong = "name==";
	struct labels none = { 0 };
	struct page p = { 0 };
	struct err e = ERR_INIT;
	uint64_t cursor = 0;
	char key[16];
	int r, pages = 0;

	/* More than one page of rows; made in the store, without folders. */
	for (int i = 0; i < 400; i++) {
		(void)snprintf(key, sizeof(key), "%d", i);
		assert_int_equal(store_create(s->store, store_new_id(s->store),
					      SN, key, "", SNAP_KIND_ACTIVE,
					      &none, NULL, &e),
				 0);
	}
	while ((r = snapshotter_list(s, SN, &filter, 1, &cursor, 15,
				     add_to_page, &p, &e)) > 0) {
		assert_true(r <= 15);
		pages++;
	}
	assert_int_equal(r, 0);
	assert_int_equal(p.n, 40);
	assert_int_equal(pages, 3);
	assert_int_equal(strncmp(p.text, "5 15 25 ", 8), 0);
	cursor = 0;
	p = (struct page){ 0 };
	assert_int_equal(snapshotter_list(s, SN, NULL, 0, &cursor, 1000,
					  add_to_page, &p, &e),
			 400);
	assert_int_equal(snapshotter_list(s, SN, &wrong, 1, &cursor, 9,
					  add_to_page, &p, &e),
			 -1);
	assert_int_equal(e.kind, ERR_INVALID);
	cursor = 0;
	assert_int_equal(snapshotter_list(s, "other", NULL, 0, &cursor, 9,
					  add_to_page, &p, &e),
			 0);
	snapshotter_close(s);
}

static void status_counts_snapshots(void **state)
{
	struct snapshotter *s = open_sn(*state);
	owned(buf) struct buf b = { 0 };

	prepare(s, "a", "");
	make(s, "stargz", "a", "", false, NULL, 0);
	assert_int_equal(snapshotter_status_json(s, &b), 0);
	assert_non_null(strstr((char *)b.p, "\"snapshots\":2,\"layers\":[]"));
	snapshotter_close(s);
}

/* ---- restarts ---- */

static void reopening_finds_everything(void **state)
{
	struct snapshotter *s = open_sn(*state);
	char before[1024], path[340];
	owned(mount_list) struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	prepare(s, "k", "");
	fs_path(s, "k", path, sizeof(path));
	commit(s, "base", "k");
	make(s, SN, "top", "base", false, before, sizeof(before));
	snapshotter_close(s);
	s = open_sn(*state);
	assert_int_equal(snapshotter_mounts(s, SN, "top", &m, &e), 0);
	assert_non_null(strstr(before, m.v[0].options[1]));
	assert_int_equal(access(path, F_OK), 0);
	snapshotter_close(s);
}

static void open_without_the_database_touches_no_snapshot(void **state)
{
	struct snapshotter *s = open_sn(*state), *again = NULL;
	char root[300], path[340], db[340];
	struct snapshotter_opts o = { .root = root,
				      .run = root,
				      .without = SNAPSHOTTER_WITHOUT_FUSE };

	prepare(s, "k", "");
	fs_path(s, "k", path, sizeof(path));
	snapshotter_close(s);
	(void)snprintf(root, sizeof(root), "%s/root", (char *)*state);
	assert_int_equal(unlink(at(*state, db, sizeof(db), STORE_FILE)), 0);
	for (int i = 0; i < 2; i++) {
		struct err e = ERR_INIT;

		assert_int_equal(snapshotter_open(&o, &again, &e), -1);
		assert_int_equal(e.kind, ERR_PRECONDITION);
		assert_non_null(strstr(e.msg, "put back a copy"));
		assert_int_equal(access(path, F_OK), 0);
	}
}

/* Runs this program anew, for fault points are read once a process. */
/* ---- several threads ---- */

struct worker {
	struct snapshotter *s;
	int no;
	atomic_int *n_failed;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct labels none = { 0 };
	char name[32], parent[32] = "";

	for (int i = 0; i < 6; i++) {
		owned(mount_list) struct mount_list m = { 0 };
		owned(mount_list) struct mount_list again = { 0 };
		struct err e = ERR_INIT;

		/* The keys are shared: one of the eight gets it. */
		if (try_make(w->s, SN, "shared", parent, false, &m, &e) < 0) {
			if (e.kind != ERR_EXISTS)
				atomic_fetch_add(w->n_failed, 1);
			continue;
		}
		(void)snprintf(name, sizeof(name), "c-%d-%d", w->no, i);
		if (snapshotter_mounts(w->s, SN, "shared", &again, &e) < 0 ||
		    snapshotter_commit(w->s, SN, name, "shared", "", &none,
				       &e) < 0) {
			atomic_fetch_add(w->n_failed, 1);
			continue;
		}
		memcpy(parent, name, sizeof(parent));
		if (i == 3 && snapshotter_remove(w->s, SN, name, &e) == 0)
			parent[0] = '\0';
	}
	return NULL;
}

static void eight_threads_agree(void **state)
{
	struct snapshotter *s = open_sn(*state);
	struct worker w[8];
	pthread_t t[8];
	atomic_int n_failed = 0;
	uint64_t n = 0;
	struct err e = ERR_INIT;
	char path[340];

	for (int i = 0; i < 8; i++) {
		w[i] = (struct worker){ s, i, &n_failed };
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(atomic_load(&n_failed), 0);
	assert_int_equal(store_count(s->store, &n, &e), 0);
	assert_true(n > 0);
	assert_int_equal(entries(at(*state, path, sizeof(path), "s")), (int)n);
	snapshotter_close(s);
}

static void open_with_a_thousand_snapshots_is_quick(void **state)
{
	struct snapshotter *s = open_sn(*state);
	owned(labels) struct labels l = { 0 };
	struct err e = ERR_INIT;
	char key[32];
	uint64_t start;

	for (int i = 0; i < 5; i++) {
		(void)snprintf(key, sizeof(key), "containerd.io/l%d", i);
		assert_int_equal(labels_set(&l, key, "some value"), 0);
	}
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(key, sizeof(key), "key-%d", i);
		assert_int_equal(store_create(s->store, store_new_id(s->store),
					      SN, key, "", SNAP_KIND_VIEW, &l,
					      NULL, &e),
				 0);
	}
	log_set_level(LOG_LEVEL_ERR);
	snapshotter_close(s);
	snapshotter_close(open_sn(*state)); /* makes the folders */
	start = now_ms();
	s = open_sn(*state);
	start = now_ms() - start;
	log_set_level(LOG_LEVEL_INFO);
	print_message("open: %" PRIu64 " ms\n", start);
	/* Far above what it takes: no figure, but a guard against O(n²). */
	assert_true(start < 5000);
	snapshotter_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(open_makes_private_folders_and_refuses_a_second),
		T(prepare_makes_folders_whatever_the_umask),
		T(prepare_answers_with_the_mounts_of_the_table),
		T(prepare_copies_the_root_folder_of_the_parent),
		T(prepare_looks_below_lazy_parents),
		T(prepare_that_fails_leaves_no_folder),
		T(prepare_refuses_a_layer_without_its_parent),
		T(mounts_refuses_committed_and_unknown),
		T(commit_records_the_usage_of_the_upper),
		T(usage_survives_hostile_depth_and_counts_links_once),
		T(remove_takes_row_and_folder),
		T(list_pages_count_matches_only),
		T(status_counts_snapshots),
		T(reopening_finds_everything),
		T(open_without_the_database_touches_no_snapshot),
		T(eight_threads_agree),
		T(open_with_a_thousand_snapshots_is_quick),
	};

	return cmocka_run_group_tests_name("snapshotter", tests, NULL, NULL);
}
