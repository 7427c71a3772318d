/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots in the store: rows, labels and the field mask. Which row shows a ref
 * is store_ref.c. Functions *_in_tx run between tx_begin() and tx_end().
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "snapshotter/store_priv.h"

#define NSEC 1000000000
#define LAZY_PREFIX "lazy/"

void snap_release(struct snap *s)
{
	free(s->name);
	free(s->parent);
	labels_release(&s->labels);
	*s = (struct snap){ 0 };
}

static int64_t now_real_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * NSEC + ts.tv_nsec;
}

static struct snap_time from_ns(int64_t ns)
{
	struct snap_time t = { .sec = ns / NSEC, .nsec = (int32_t)(ns % NSEC) };

	if (t.nsec < 0) {
		t.nsec += NSEC;
		t.sec--;
	}
	return t;
}

static int no_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "state database");
}

static int not_found(const char *name, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "snapshot '%s' does not exist", name);
}

/* ---- reading ---- */

static int load_labels(struct store *s, struct snap *sp, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s,
		     "SELECT key, value FROM label WHERE snapshot = ?1"
		     " ORDER BY key",
		     ARGS(arg_int((int64_t)sp->id)), &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		const char *key = (const char *)sqlite3_column_text(st, 0);
		const char *value = (const char *)sqlite3_column_text(st, 1);

		if (!key || !value || labels_set(&sp->labels, key, value) < 0)
			return no_memory(e);
	}
	return r;
}

int read_snap(struct store *s, sqlite3_stmt *st, struct snap *ret,
	      struct err *e)
{
	owned(snap) struct snap sp = {
		.id = (uint64_t)sqlite3_column_int64(st, 0),
		.kind = (enum snap_kind)sqlite3_column_int(st, 3),
		.created = from_ns(sqlite3_column_int64(st, 4)),
		.updated = from_ns(sqlite3_column_int64(st, 5)),
		.size = (uint64_t)sqlite3_column_int64(st, 6),
		.inodes = (uint64_t)sqlite3_column_int64(st, 7),
		.seq = NO_LAYER,
	};

	if (sqlite3_column_type(st, 8) != SQLITE_NULL)
		sp.seq = (uint32_t)sqlite3_column_int64(st, 8);
	if (db_col_text(st, 1, &sp.name, e) < 0 ||
	    db_col_text(st, 2, &sp.parent, e) < 0 || load_labels(s, &sp, e) < 0)
		return -1;
	*ret = sp;
	sp = (struct snap){ 0 };
	return 0;
}

/* The first row of a SNAP_SELECT. 1, 0, -1. */
static int select_one(struct store *s, const char *sql, const struct arg *args,
		      struct snap *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r <= 0)
		return r;
	return read_snap(s, st, ret, e) < 0 ? -1 : 1;
}

/* 0, or -1 with ERR_NOT_FOUND */
static int get_locked(struct store *s, const char *sn, const char *name,
		      struct snap *ret, struct err *e)
{
	int r = select_one(s, SNAP_SELECT "WHERE s.sn = ?1 AND s.name = ?2",
			   ARGS(arg_text(sn), arg_text(name)), ret, e);

	if (r == 0)
		return not_found(name, e);
	return r < 0 ? -1 : 0;
}

int store_get(struct store *s, const char *sn, const char *name,
	      struct snap *ret, struct err *e)
{
	int r;

	lock_take(&s->lock);
	r = get_locked(s, sn, name, ret, e);
	lock_drop(&s->lock);
	return r;
}

int store_find_ref(struct store *s, const char *sn, const char *parent,
		   const char *ref, struct snap *ret, struct err *e)
{
	int r;

	lock_take(&s->lock);
	r = select_one(s,
		       SNAP_SELECT
		       "WHERE s.sn = ?1 AND s.ref = ?3 AND ifnull(s.parent, 0)"
		       " = iif(?2 = '', 0, (SELECT id FROM snapshot"
		       " WHERE sn = ?1 AND name = ?2))",
		       ARGS(arg_text(sn), arg_text(parent), arg_text(ref)), ret,
		       e);
	lock_drop(&s->lock);
	return r;
}

/* ---- writing ---- */

static int put_labels(struct store *s, int64_t id, const struct labels *l,
		      struct err *e)
{
	for (size_t i = 0; i < l->n; i++)
		if (db_run(s,
			   "INSERT INTO label (snapshot, key, value)"
			   " VALUES (?1, ?2, ?3)",
			   ARGS(arg_int(id), arg_text(l->v[i].key),
				arg_text(l->v[i].value)),
			   NULL, e) < 0)
			return -1;
	return 0;
}

static int replace_labels(struct store *s, int64_t id, const struct labels *l,
			  struct err *e)
{
	if (db_run(s, "DELETE FROM label WHERE snapshot = ?1",
		   ARGS(arg_int(id)), NULL, e) < 0)
		return -1;
	return put_labels(s, id, l, e);
}

/* Our own names must not be taken: ERR_EXISTS would look like a lazy hit. */
static int check_name(const char *name, struct err *e)
{
	const char *p = name + strlen(LAZY_PREFIX);

	if (!*name)
		return err_set(e, ERR_INVALID, "snapshot without a name");
	if (!strncmp(name, LAZY_PREFIX, strlen(LAZY_PREFIX)) &&
	    p[strspn(p, "0123456789")] == '\0')
		return err_set(e, ERR_INVALID, "snapshot name '%s' is reserved",
			       name);
	return 0;
}

static int check_free(struct store *s, const char *sn, const char *name,
		      struct err *e)
{
	int64_t id;
	int r = db_int(s, "SELECT id FROM snapshot WHERE sn = ?1 AND name = ?2",
		       ARGS(arg_text(sn), arg_text(name)), &id, e);

	if (r > 0)
		return err_set(e, ERR_EXISTS, "snapshot '%s' exists already",
			       name);
	return r;
}

/* @kind: of the error when the parent is not committed. *ret 0: no parent. */
static int find_parent(struct store *s, const char *sn, const char *parent,
		       enum err_kind kind, int64_t *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	*ret = 0;
	if (!*parent)
		return 0;
	if (db_start(s,
		     "SELECT id, kind FROM snapshot WHERE sn = ?1"
		     " AND name = ?2",
		     ARGS(arg_text(sn), arg_text(parent)), &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r < 0)
		return -1;
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND,
			       "parent snapshot '%s' does not exist", parent);
	if (sqlite3_column_int(st, 1) != SNAP_KIND_COMMITTED)
		return err_set(e, kind, "parent snapshot '%s' is not committed",
			       parent);
	*ret = sqlite3_column_int64(st, 0);
	return 0;
}

uint64_t store_new_id(struct store *s)
{
	uint64_t id;

	lock_take(&s->lock);
	id = s->next_id++;
	lock_drop(&s->lock);
	return id;
}

static int create_in_tx(struct store *s, int64_t id, const char *sn,
			const char *key, const char *parent,
			enum snap_kind kind, const struct labels *l,
			struct snap *ret, struct err *e)
{
	int64_t now = now_real_ns(), parent_id;

	if (find_parent(s, sn, parent, ERR_INVALID, &parent_id, e) < 0 ||
	    check_free(s, sn, key, e) < 0 ||
	    check_chain_is_good(s, parent_id, e) < 0)
		return -1;
	if (db_run(s,
		   "INSERT INTO snapshot (id, sn, name, parent, kind,"
		   " created, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
		   ARGS(arg_int(id), arg_text(sn), arg_text(key),
			arg_id(parent_id), arg_int(kind), arg_int(now)),
		   NULL, e) < 0 ||
	    put_labels(s, id, l, e) < 0)
		return -1;
	return ret ? get_locked(s, sn, key, ret, e) : 0;
}

int store_create(struct store *s, uint64_t id, const char *sn, const char *key,
		 const char *parent, enum snap_kind kind,
		 const struct labels *l, struct snap *ret, struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	int r;

	if (check_name(key, e) < 0 || tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s,
		   create_in_tx(s, (int64_t)id, sn, key, parent, kind, l,
				ret ? &sp : NULL, e),
		   "snapshot_recorded", e);
	if (r == 0 && ret) {
		*ret = sp;
		sp = (struct snap){ 0 };
	}
	return r;
}

/* Which parent the committed row gets; see store_commit(). */
static int choose_parent(struct store *s, const char *sn,
			 const struct snap *active, const char *new_parent,
			 int64_t *ret, struct err *e)
{
	const char *parent = active->parent;

	if (new_parent && *new_parent && strcmp(new_parent, parent)) {
		if (*parent)
			return err_set(
				e, ERR_INVALID,
				"cannot change the parent of snapshot '%s' on commit",
				active->name);
		parent = new_parent;
	}
	return find_parent(s, sn, parent, ERR_PRECONDITION, ret, e);
}

static int commit_in_tx(struct store *s, const char *sn, const char *name,
			const char *key, const char *new_parent,
			const struct labels *l, uint64_t size, uint64_t inodes,
			struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	const char *ref = labels_get(l, LABEL_REF);
	int64_t parent, now = now_real_ns();

	if (check_free(s, sn, name, e) < 0 ||
	    get_locked(s, sn, key, &sp, e) < 0)
		return -1;
	if (sp.kind != SNAP_KIND_ACTIVE)
		return err_set(e, ERR_PRECONDITION,
			       "snapshot '%s' is not active", key);
	if (choose_parent(s, sn, &sp, new_parent, &parent, e) < 0)
		return -1;
	if (db_run(s,
		   "UPDATE snapshot SET name = ?2, kind = 3, parent = ?3,"
		   " created = ?4, updated = ?4, size = ?5, inodes = ?6,"
		   " chain = ?7 WHERE id = ?1",
		   ARGS(arg_int((int64_t)sp.id), arg_text(name), arg_id(parent),
			arg_int(now), arg_int((int64_t)size),
			arg_int((int64_t)inodes),
			arg_text(chain_of(ref, name))),
		   NULL, e) < 0 ||
	    replace_labels(s, (int64_t)sp.id, l, e) < 0)
		return -1;
	return ref ? show_ref(s, sn, (int64_t)sp.id, parent, NO_LAYER, ref, e)
		   : 0;
}

int store_commit(struct store *s, const char *sn, const char *name,
		 const char *key, const char *new_parent,
		 const struct labels *l, uint64_t size, uint64_t inodes,
		 struct err *e)
{
	if (check_name(name, e) < 0 || tx_begin(s, e) < 0)
		return -1;
	return tx_end(
		s,
		commit_in_tx(s, sn, name, key, new_parent, l, size, inodes, e),
		"snapshot_committed", e);
}

static int add_lazy_in_tx(struct store *s, const char *sn, const char *parent,
			  const char *ref, const struct labels *l, uint32_t seq,
			  uint64_t size, uint64_t inodes, struct err *e)
{
	int64_t id = (int64_t)s->next_id, now = now_real_ns(), parent_id;
	owned(labels) struct labels all = { 0 };
	char name[sizeof(LAZY_PREFIX) + 20];

	if (find_parent(s, sn, parent, ERR_INVALID, &parent_id, e) < 0 ||
	    check_lazy_ref(s, sn, parent_id, ref, seq, e) < 0)
		return -1;
	if (labels_copy(l, &all) < 0 || labels_set(&all, LABEL_REF, ref) < 0)
		return no_memory(e);
	s->next_id++;
	(void)snprintf(name, sizeof(name), LAZY_PREFIX "%" PRId64, id);
	if (db_run(s,
		   "INSERT INTO snapshot (id, sn, name, parent, kind, created,"
		   " updated, size, inodes, seq, chain)"
		   " VALUES (?1, ?2, ?3, ?4, 3, ?5, ?5, ?6, ?7, ?8, ?9)",
		   ARGS(arg_int(id), arg_text(sn), arg_text(name),
			arg_id(parent_id), arg_int(now), arg_int((int64_t)size),
			arg_int((int64_t)inodes), arg_int(seq), arg_text(ref)),
		   NULL, e) < 0 ||
	    put_labels(s, id, &all, e) < 0)
		return -1;
	notice_lazy_change(s);
	return show_ref(s, sn, id, parent_id, seq, ref, e);
}

int store_add_lazy(struct store *s, const char *sn, const char *parent,
		   const char *ref, const struct labels *l, uint32_t seq,
		   uint64_t size, uint64_t inodes, struct err *e)
{
	if (tx_begin(s, e) < 0)
		return -1;
	return tx_end(
		s, add_lazy_in_tx(s, sn, parent, ref, l, seq, size, inodes, e),
		"lazy_recorded", e);
}

static int remove_in_tx(struct store *s, const char *sn, const char *name,
			struct snap *ret, struct err *e)
{
	const char *ref;
	int64_t child, parent = 0;
	int r;

	if (get_locked(s, sn, name, ret, e) < 0)
		return -1;
	r = db_int(s, "SELECT id FROM snapshot WHERE parent = ?1 LIMIT 1",
		   ARGS(arg_int((int64_t)ret->id)), &child, e);
	if (r > 0)
		return err_set(e, ERR_PRECONDITION,
			       "cannot remove snapshot '%s': it has children",
			       name);
	if (r < 0 ||
	    find_parent(s, sn, ret->parent, ERR_INTERNAL, &parent, e) < 0 ||
	    db_run(s, "DELETE FROM snapshot WHERE id = ?1",
		   ARGS(arg_int((int64_t)ret->id)), NULL, e) < 0)
		return -1;
	ref = ret->kind == SNAP_KIND_COMMITTED
		      ? labels_get(&ret->labels, LABEL_REF)
		      : NULL;
	if (ret->seq != NO_LAYER)
		notice_lazy_change(s);
	/* containerd removes with the lock that a Prepare and its List share */
	return ref ? pass_ref(s, sn, parent, ref, true, e) : 0;
}

int store_remove(struct store *s, const char *sn, const char *name,
		 struct snap *ret, struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	int r;

	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, remove_in_tx(s, sn, name, &sp, e), "snapshot_removed", e);
	if (r == 0) {
		*ret = sp;
		sp = (struct snap){ 0 };
	}
	return r;
}

/* @l: what the request brought; @all: the snapshot's, changed in place. */
static int apply_mask(const struct labels *l, const char *const *paths,
		      size_t n_paths, struct labels *all, const char *name,
		      struct err *e)
{
	static const char prefix[] = "labels.";
	int r = n_paths ? 0 : labels_copy(l, all);

	for (size_t i = 0; i < n_paths && r == 0; i++) {
		const char *p = paths[i];

		if (!strcmp(p, "labels")) {
			r = labels_copy(l, all);
		} else if (!strncmp(p, prefix, sizeof(prefix) - 1)) {
			p += sizeof(prefix) - 1;
			r = labels_set(all, p, labels_get(l, p));
		} else {
			return err_set(
				e, ERR_INVALID,
				"cannot update field '%s' of snapshot '%s'", p,
				name);
		}
	}
	return r < 0 ? no_memory(e) : 0;
}

/* Whether an update with this mask says something about the ref. */
static bool names_ref(const char *const *paths, size_t n_paths)
{
	bool r = n_paths == 0;

	for (size_t i = 0; i < n_paths; i++)
		r |= !strcmp(paths[i], "labels") ||
		     !strcmp(paths[i], "labels." LABEL_REF);
	return r;
}

/* Before the labels of @sp are written: the ref that the row has shown, or
 * waits for, is given up unless the labels have it, too. */
static int leave_ref(struct store *s, const struct snap *sp, bool is_named,
		     struct err *e)
{
	const char *ref = labels_get(&sp->labels, LABEL_REF);
	int64_t id = (int64_t)sp->id, other;
	int r = db_int(s,
		       "SELECT 1 FROM snapshot WHERE id = ?1"
		       " AND ref IS NOT NULL AND ref IS NOT ?2",
		       ARGS(arg_int(id), arg_text(ref)), &other, e);

	if (r < 0 || (r > 0 && forfeit_ref(s, id, e) < 0))
		return -1;
	return is_named ? db_run(s,
				 "UPDATE snapshot SET hidden = NULL"
				 " WHERE id = ?1",
				 ARGS(arg_int(id)), NULL, e)
			: 0;
}

/* The column follows the label; see store_add_lazy() for the rule. */
static int follow_ref(struct store *s, const char *sn, const struct snap *sp,
		      struct err *e)
{
	const char *ref = labels_get(&sp->labels, LABEL_REF);
	int64_t parent = 0;

	if (!ref || sp->kind != SNAP_KIND_COMMITTED)
		return 0;
	if (find_parent(s, sn, sp->parent, ERR_INTERNAL, &parent, e) < 0)
		return -1;
	return show_ref(s, sn, (int64_t)sp->id, parent, sp->seq, ref, e);
}

static int update_in_tx(struct store *s, const char *sn, const char *name,
			const struct labels *l, const char *const *paths,
			size_t n_paths, struct snap *ret, struct err *e)
{
	owned(snap) struct snap sp = { 0 };

	if (get_locked(s, sn, name, &sp, e) < 0 ||
	    apply_mask(l, paths, n_paths, &sp.labels, name, e) < 0 ||
	    leave_ref(s, &sp, names_ref(paths, n_paths), e) < 0 ||
	    replace_labels(s, (int64_t)sp.id, &sp.labels, e) < 0 ||
	    follow_ref(s, sn, &sp, e) < 0)
		return -1;
	if (db_run(s, "UPDATE snapshot SET updated = ?2 WHERE id = ?1",
		   ARGS(arg_int((int64_t)sp.id), arg_int(now_real_ns())), NULL,
		   e) < 0)
		return -1;
	return get_locked(s, sn, name, ret, e);
}

int store_update(struct store *s, const char *sn, const char *name,
		 const struct labels *l, const char *const *paths,
		 size_t n_paths, struct snap *ret, struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	int r;

	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, update_in_tx(s, sn, name, l, paths, n_paths, &sp, e),
		   "snapshot_updated", e);
	if (r == 0) {
		*ret = sp;
		sp = (struct snap){ 0 };
	}
	return r;
}
