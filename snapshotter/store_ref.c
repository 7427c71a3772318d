/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which row shows a ref: the rule at store_add_lazy(). At most one committed row
 * per (snapshotter, parent, ref) has the label. A row that gives way to one with
 * a better right keeps the ref in the column "hidden", and may get it back when
 * that one goes; a row that has no right to it forfeits it for good. All
 * functions run between tx_begin() and tx_end().
 */
#include <inttypes.h>

#include "snapshotter/store_priv.h"

struct holder {
	int64_t id; /* 0: nobody */
	bool trusted;
	uint32_t seq;
};

static int find_holder(struct store *s, const char *sn, int64_t parent,
		       const char *ref, struct holder *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	*ret = (struct holder){ .seq = NO_LAYER };
	if (db_start(
		    s,
		    "SELECT s.id, " IS_TRUSTED
		    ", s.seq FROM snapshot s" JOIN_TRUST
		    " WHERE s.sn = ?1 AND ifnull(s.parent, 0) = ?2 AND s.ref = ?3",
		    ARGS(arg_text(sn), arg_int(parent), arg_text(ref)), &st,
		    e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r <= 0)
		return r;
	ret->id = sqlite3_column_int64(st, 0);
	ret->trusted = sqlite3_column_int(st, 1);
	if (sqlite3_column_type(st, 2) != SQLITE_NULL)
		ret->seq = (uint32_t)sqlite3_column_int64(st, 2);
	return 0;
}

/* What a row of layer @seq (or NO_LAYER) above @parent is worth for @ref. */
enum worth { WORTH_NOTHING, WORTH_LITTLE, WORTH_TRUST };

static int ask_worth(struct store *s, uint32_t seq, int64_t parent,
		     const char *ref, enum worth *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	*ret = WORTH_TRUST;
	if (seq == NO_LAYER)
		return 0;
	/* A blob has one diff id, whichever layer made of it was proven. The
	 * claim: 1 true, 0 false, NULL not known. */
	if (db_start(s,
		     "SELECT bad, proof, (SELECT vs_chain(?2, (SELECT chain"
		     " FROM snapshot WHERE id = ?2), q.diff_id) = ?3"
		     " FROM layer q WHERE q.blob = l.blob AND q.proof = 1"
		     " LIMIT 1) FROM layer l WHERE seq = ?1",
		     ARGS(arg_int(seq), arg_id(parent), arg_text(ref)), &st,
		     e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r < 0)
		return -1;
	if (r == 0)
		return err_set(e, ERR_INTERNAL,
			       "layer %" PRIu32 " is not recorded", seq);
	if (sqlite3_column_type(st, 2) == SQLITE_NULL ||
	    sqlite3_column_int(st, 1) != PROOF_PROVEN)
		*ret = WORTH_LITTLE;
	if (sqlite3_column_int(st, 0) ||
	    (sqlite3_column_type(st, 2) != SQLITE_NULL &&
	     !sqlite3_column_int(st, 2)))
		*ret = WORTH_NOTHING;
	return 0;
}

/* ---- giving way ---- */

static int hide_ref(struct store *s, int64_t id, const char *hidden,
		    struct err *e)
{
	if (db_run(s,
		   "UPDATE snapshot SET ref = NULL, hidden = ?2 WHERE id = ?1",
		   ARGS(arg_int(id), arg_text(hidden)), NULL, e) < 0)
		return -1;
	return db_run(s, "DELETE FROM label WHERE snapshot = ?1 AND key = ?2",
		      ARGS(arg_int(id), arg_text(LABEL_REF)), NULL, e);
}

static int set_ref(struct store *s, int64_t id, const char *ref, struct err *e)
{
	return db_run(
		s, "UPDATE snapshot SET ref = ?2, hidden = NULL WHERE id = ?1",
		ARGS(arg_int(id), arg_text(ref)), NULL, e);
}

int show_ref(struct store *s, const char *sn, int64_t id, int64_t parent,
	     uint32_t seq, const char *ref, struct err *e)
{
	struct holder h;
	enum worth w;

	if (find_holder(s, sn, parent, ref, &h, e) < 0 ||
	    ask_worth(s, seq, parent, ref, &w, e) < 0)
		return -1;
	if (h.id == id)
		return 0;
	if (w == WORTH_NOTHING)
		return hide_ref(s, id, NULL, e);
	if (h.id && (h.trusted || w != WORTH_TRUST))
		return hide_ref(s, id, ref, e);
	if (h.id && hide_ref(s, h.id, ref, e) < 0)
		return -1;
	return set_ref(s, id, ref, e);
}

int check_lazy_ref(struct store *s, const char *sn, int64_t parent,
		   const char *ref, uint32_t seq, struct err *e)
{
	struct holder h;
	enum worth w;

	if (ask_worth(s, seq, parent, ref, &w, e) < 0 ||
	    find_holder(s, sn, parent, ref, &h, e) < 0)
		return -1;
	if (w == WORTH_NOTHING)
		return err_set(
			e, ERR_PRECONDITION,
			"layer %" PRIu32
			" is quarantined, or its content has another diff_id than the image claims",
			seq);
	if (h.id && (h.trusted || h.seq == seq))
		return err_set(e, ERR_EXISTS, "ref '%s' has a snapshot already",
			       ref);
	if (h.id && w != WORTH_TRUST)
		return err_set(e, ERR_PRECONDITION,
			       "ref held by an unproven layer");
	return 0;
}

/* ---- getting it back ---- */

struct heir {
	int64_t id; /* 0: nobody */
	enum worth worth;
};

/* The first one that can be trusted, else the first one. */
static int find_heir(struct store *s, const char *sn, int64_t parent,
		     const char *ref, struct heir *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	*ret = (struct heir){ .worth = WORTH_NOTHING };
	if (db_start(s,
		     "SELECT id, seq FROM snapshot WHERE sn = ?1"
		     " AND ifnull(parent, 0) = ?2 AND hidden = ?3 ORDER BY id",
		     ARGS(arg_text(sn), arg_int(parent), arg_text(ref)), &st,
		     e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		uint32_t seq = sqlite3_column_type(st, 1) == SQLITE_NULL
				       ? NO_LAYER
				       : (uint32_t)sqlite3_column_int64(st, 1);
		enum worth w;

		if (ask_worth(s, seq, parent, ref, &w, e) < 0)
			return -1;
		if (w > ret->worth)
			*ret = (struct heir){ sqlite3_column_int64(st, 0), w };
	}
	return r;
}

int pass_ref(struct store *s, const char *sn, int64_t parent, const char *ref,
	     bool to_unproven, struct err *e)
{
	struct holder h;
	struct heir heir;

	if (find_holder(s, sn, parent, ref, &h, e) < 0 ||
	    find_heir(s, sn, parent, ref, &heir, e) < 0)
		return -1;
	if (!heir.id || h.trusted)
		return 0;
	if (heir.worth != WORTH_TRUST && (h.id || !to_unproven))
		return 0;
	if (h.id && hide_ref(s, h.id, ref, e) < 0)
		return -1;
	if (set_ref(s, heir.id, ref, e) < 0)
		return -1;
	return db_run(
		s,
		"INSERT INTO label (snapshot, key, value)"
		" VALUES (?1, ?2, ?3)",
		ARGS(arg_int(heir.id), arg_text(LABEL_REF), arg_text(ref)),
		NULL, e);
}

/* A row that shows a ref, or waits for one. */
struct claimant {
	int64_t id, parent;
	char *sn, *ref;
};

static void owned_claimant(struct claimant *c)
{
	free(c->sn);
	free(c->ref);
}

/* 1, 0, -1; columns: id, parent or 0, sn, ref */
static int get_claimant(struct store *s, const char *sql,
			const struct arg *args, struct claimant *ret,
			struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r <= 0)
		return r;
	ret->id = sqlite3_column_int64(st, 0);
	ret->parent = sqlite3_column_int64(st, 1);
	if (db_col_text(st, 2, &ret->sn, e) < 0 ||
	    db_col_text(st, 3, &ret->ref, e) < 0)
		return -1;
	return 1;
}

int forfeit_ref(struct store *s, int64_t id, struct err *e)
{
	owned(claimant) struct claimant c = { 0 };
	int r = get_claimant(s,
			     "SELECT id, ifnull(parent, 0), sn, ref"
			     " FROM snapshot WHERE id = ?1"
			     " AND ref IS NOT NULL",
			     ARGS(arg_int(id)), &c, e);

	if (r <= 0)
		return r;
	if (hide_ref(s, id, NULL, e) < 0)
		return -1;
	return pass_ref(s, c.sn, c.parent, c.ref, false, e);
}

int forfeit_refs_of_layer(struct store *s, uint32_t seq, struct err *e)
{
	int64_t id;
	int r;

	while ((r = db_int(s,
			   "SELECT id FROM snapshot WHERE seq = ?1"
			   " AND ref IS NOT NULL LIMIT 1",
			   ARGS(arg_int(seq)), &id, e)) > 0)
		if (forfeit_ref(s, id, e) < 0)
			return -1;
	return r;
}

static int retake_ref(struct store *s, int64_t id, struct err *e)
{
	owned(claimant) struct claimant c = { 0 };
	int r = get_claimant(s,
			     "SELECT id, ifnull(parent, 0), sn, hidden"
			     " FROM snapshot WHERE id = ?1",
			     ARGS(arg_int(id)), &c, e);

	return r <= 0 ? r : pass_ref(s, c.sn, c.parent, c.ref, false, e);
}

int retake_refs(struct store *s, uint32_t seq, struct err *e)
{
	int64_t id = 0;
	int r;

	while ((r = db_int(s,
			   "SELECT id FROM snapshot WHERE seq = ?1 AND id > ?2"
			   " AND hidden IS NOT NULL ORDER BY id LIMIT 1",
			   ARGS(arg_int(seq), arg_int(id)), &id, e)) > 0)
		if (retake_ref(s, id, e) < 0)
			return -1;
	return r;
}
