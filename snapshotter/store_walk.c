/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading many snapshots: pages for List, the chain of parents for Mounts, and
 * the folders that must exist. All results are copied out before the lock is
 * dropped; callbacks run after it.
 */
#include <string.h>

#include "snapshotter/store_priv.h"

#define CHAIN_MAX 65536 /* longer is a cycle, and damage */

struct page {
	struct snap *v;
	size_t n, cap;
};

static void owned_page(struct page *p)
{
	for (size_t i = 0; i < p->n; i++)
		snap_release(&p->v[i]);
	free(p->v);
}

static int read_page(struct store *s, const char *sql, const struct arg *args,
		     struct page *p, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)&p->v, p->n, &p->cap, sizeof(*p->v), e) < 0 ||
		    read_snap(s, st, &p->v[p->n], e) < 0)
			return -1;
		p->n++;
	}
	return r;
}

int store_list(struct store *s, const char *sn, const char *ref,
	       uint64_t after_id, unsigned max,
	       int (*fn)(void *ctx, const struct snap *sp), void *ctx,
	       struct err *e)
{
	/* The second has its key as a literal, or label_ref is not used. */
	const char *sql = !ref ? SNAP_SELECT "WHERE s.sn = ?1 AND s.id > ?2"
					     " ORDER BY s.id LIMIT ?3"
			       : SNAP_SELECT
				  "JOIN label b ON b.snapshot = s.id"
				  " AND b.key = 'containerd.io/snapshot.ref'"
				  " WHERE b.value = ?4 AND s.sn = ?1"
				  " AND s.id > ?2 ORDER BY s.id LIMIT ?3";
	owned(page) struct page p = { 0 };
	size_t i;
	int r;

	lock_take(&s->lock);
	r = read_page(s, sql,
		      ARGS(arg_text(sn), arg_int((int64_t)after_id),
			   arg_int(max), ref ? arg_text(ref) : arg_end()),
		      &p, e);
	lock_drop(&s->lock);
	if (r < 0)
		return -1;
	for (i = 0; i < p.n; i++)
		if (fn(ctx, &p.v[i]))
			return (int)i + 1;
	return (int)i;
}

/* ---- chain ---- */

struct chain {
	struct snap_link *v;
	size_t n, cap;
};

/* Adds the row of @sql; *ret_parent 0: it is the base. 1, 0: no row, -1. */
static int add_link(struct store *s, const char *sql, const struct arg *args,
		    struct chain *c, int64_t *ret_parent, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r <= 0)
		return r;
	if (grow((void **)&c->v, c->n, &c->cap, sizeof(*c->v), e) < 0)
		return -1;
	c->v[c->n++] = (struct snap_link){
		.id = (uint64_t)sqlite3_column_int64(st, 0),
		.seq = sqlite3_column_type(st, 1) == SQLITE_NULL
			       ? NO_LAYER
			       : (uint32_t)sqlite3_column_int64(st, 1),
		.kind = (enum snap_kind)sqlite3_column_int(st, 2),
	};
	*ret_parent = sqlite3_column_int64(st, 3);
	return 1;
}

static int chain_locked(struct store *s, const char *sn, const char *name,
			struct chain *c, struct err *e)
{
	int64_t parent = 0;
	int r = add_link(s,
			 "SELECT id, seq, kind, parent FROM snapshot"
			 " WHERE sn = ?1 AND name = ?2",
			 ARGS(arg_text(sn), arg_text(name)), c, &parent, e);

	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, "snapshot '%s' does not exist",
			       name);
	while (r > 0 && parent) {
		if (c->n == CHAIN_MAX)
			return err_set(e, ERR_CORRUPT,
				       "parents of snapshot '%s' do not end",
				       name);
		r = add_link(s,
			     "SELECT id, seq, kind, parent FROM snapshot"
			     " WHERE id = ?1",
			     ARGS(arg_int(parent)), c, &parent, e);
		if (r == 0)
			return err_set(e, ERR_CORRUPT,
				       "a parent of snapshot '%s' is missing",
				       name);
	}
	return r < 0 ? -1 : 0;
}

int store_chain(struct store *s, const char *sn, const char *name,
		struct snap_link **ret, size_t *ret_n, struct err *e)
{
	struct chain c = { 0 };
	int r;

	lock_take(&s->lock);
	r = chain_locked(s, sn, name, &c, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(c.v);
		return -1;
	}
	*ret = c.v;
	*ret_n = c.n;
	return 0;
}

/* ---- folders ---- */

static int folders_locked(struct store *s, struct snap_folder **v, size_t *n,
			  struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r;

	if (db_start(s,
		     "SELECT id, kind FROM snapshot WHERE seq IS NULL"
		     " AND (kind <> 1 OR parent IS NULL) ORDER BY id",
		     NO_ARGS, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)v, *n, &cap, sizeof(**v), e) < 0)
			return -1;
		(*v)[(*n)++] = (struct snap_folder){
			.id = (uint64_t)sqlite3_column_int64(st, 0),
			.kind = (enum snap_kind)sqlite3_column_int(st, 1),
		};
	}
	return r;
}

int store_folders(struct store *s, struct snap_folder **ret, size_t *ret_n,
		  struct err *e)
{
	struct snap_folder *v = NULL;
	size_t n = 0;
	int r;

	lock_take(&s->lock);
	r = folders_locked(s, &v, &n, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(v);
		return -1;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

int store_count(struct store *s, uint64_t *ret, struct err *e)
{
	int64_t n = 0;
	int r;

	lock_take(&s->lock);
	r = db_int(s, "SELECT count(*) FROM snapshot", NO_ARGS, &n, e);
	lock_drop(&s->lock);
	if (r < 0)
		return -1;
	*ret = (uint64_t)n;
	return 0;
}

/* ---- what layers stand on ---- */

struct pairs {
	struct {
		uint32_t seq, below;
	} * v;
	size_t n, cap;
};

static int below_locked(struct store *s, struct pairs *p, struct err *e)
{
	/* UNION drops what is there already, so this ends. */
	static const char sql[] =
		"WITH RECURSIVE up (seq, id) AS ("
		" SELECT seq, parent FROM snapshot"
		"  WHERE seq IS NOT NULL AND parent IS NOT NULL"
		" UNION SELECT up.seq, s.parent FROM up"
		"  JOIN snapshot s ON s.id = up.id"
		"  WHERE s.seq IS NULL AND s.parent IS NOT NULL)"
		" SELECT DISTINCT up.seq, s.seq FROM up"
		" JOIN snapshot s ON s.id = up.id"
		" WHERE s.seq IS NOT NULL AND s.seq <> up.seq ORDER BY 1, 2";
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, NO_ARGS, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)&p->v, p->n, &p->cap, sizeof(*p->v), e) < 0)
			return -1;
		p->v[p->n].seq = (uint32_t)sqlite3_column_int64(st, 0);
		p->v[p->n++].below = (uint32_t)sqlite3_column_int64(st, 1);
	}
	return r;
}

int store_layers_below(struct store *s,
		       void (*fn)(void *ctx, uint32_t seq, uint32_t below),
		       void *ctx, struct err *e)
{
	struct pairs p = { 0 };
	int r;

	lock_take(&s->lock);
	r = below_locked(s, &p, e);
	lock_drop(&s->lock);
	for (size_t i = 0; r == 0 && i < p.n; i++)
		fn(ctx, p.v[i].seq, p.v[i].below);
	free(p.v);
	return r;
}
