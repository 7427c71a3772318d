/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a proof means for rows. A layer's stream has one diff id; a row claims a
 * chain id, its ref. The claim is true when the chain id of the row's parent
 * and the diff id give that ref (OCI image-spec config.md, "ChainID"). So one
 * layer can serve true and false claims at a time, and each row is judged by
 * itself.
 */
#include <inttypes.h>
#include <string.h>

#include "snapshotter/store_priv.h"
#include "verity/sha256.h"

/*
 * vs_chain(parent's id, its chain id, diff id): the chain id; NULL when the
 * parent has one that we do not know.
 */
static void sql_chain(sqlite3_context *c, int n unused_arg, sqlite3_value **v)
{
	const char *parent = (const char *)sqlite3_value_text(v[1]);
	struct digest d;
	char both[2 * DIGEST_STR_LEN + 2];
	int r;

	if (sqlite3_value_bytes(v[2]) != DIGEST_LEN)
		return; /* NULL */
	memcpy(d.b, sqlite3_value_blob(v[2]), DIGEST_LEN);
	if (sqlite3_value_type(v[0]) != SQLITE_NULL) {
		if (!parent || strlen(parent) != DIGEST_STR_LEN)
			return;
		r = snprintf(both, sizeof(both), "%s %s", parent,
			     digest_str(&d).s);
		if (sha256_buf(both, (size_t)r, &d) < 0) {
			sqlite3_result_error_nomem(c);
			return;
		}
	}
	sqlite3_result_text(c, digest_str(&d).s, DIGEST_STR_LEN,
			    SQLITE_TRANSIENT);
}

int store_add_functions(struct store *s)
{
	return sqlite3_create_function_v2(
		       s->db, "vs_chain", 3,
		       SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
		       NULL, sql_chain, NULL, NULL, NULL) == SQLITE_OK
		       ? 0
		       : -ENOMEM;
}

/* The chain id of a committed row: its ref, or containerd's name for it. */
const char *chain_of(const char *ref, const char *name)
{
	const char *slash = strrchr(name, '/');
	struct digest d;

	if (ref)
		return ref;
	name = slash ? slash + 1 : name;
	return digest_parse(name, &d) == 0 ? name : NULL;
}

#define CLAIMS                                                         \
	"SELECT s.id, s.ref, vs_chain(s.parent, p.chain, ?2), s.chain" \
	" FROM snapshot s LEFT JOIN snapshot p ON p.id = s.parent"     \
	" WHERE s.seq = ?1 ORDER BY s.id"

static int read_claims(struct store *s, uint32_t seq, const struct digest *d,
		       struct claims *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	*ret = (struct claims){ 0 };
	if (db_start(s, CLAIMS, ARGS(arg_int(seq), arg_digest(d)), &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		const char *found = (const char *)sqlite3_column_text(st, 2);
		const char *claim = (const char *)sqlite3_column_text(st, 3);

		if (!found || !claim) {
			ret->n_unknown++;
		} else if (!strcmp(found, claim)) {
			ret->n_true++;
		} else if (ret->n_false++ == 0) {
			(void)snprintf(ret->claimed, sizeof(ret->claimed), "%s",
				       claim);
			(void)snprintf(ret->found, sizeof(ret->found), "%s",
				       found);
		}
	}
	return r;
}

int store_claims(struct store *s, uint32_t seq, const struct digest *diff_id,
		 struct claims *ret, struct err *e)
{
	int r;

	lock_take(&s->lock);
	r = read_claims(s, seq, diff_id, ret, e);
	lock_drop(&s->lock);
	return r;
}

/* The rows of @seq whose claim is false show their refs no more. */
static int hide_false_claims(struct store *s, uint32_t seq,
			     const struct digest *d, struct err *e)
{
	static const char which[] =
		"SELECT s.id FROM snapshot s LEFT JOIN snapshot p"
		" ON p.id = s.parent WHERE s.seq = ?1 AND s.ref IS NOT NULL"
		" AND vs_chain(s.parent, p.chain, ?2) <> s.ref LIMIT 1";
	int64_t id;
	int r;

	while ((r = db_int(s, which, ARGS(arg_int(seq), arg_digest(d)), &id,
			   e)) > 0)
		if (forfeit_ref(s, id, e) < 0)
			return -1;
	return r;
}

static int set_proven_in_tx(struct store *s, uint32_t seq,
			    const struct digest *d, struct claims *c,
			    struct err *e)
{
	bool bad;

	if (read_claims(s, seq, d, c, e) < 0)
		return -1;
	bad = claims_all_false(c);
	if (db_run(s,
		   "UPDATE layer SET proof = 1, diff_id = ?2,"
		   " bad = max(bad, ?3) WHERE seq = ?1",
		   ARGS(arg_int(seq), arg_digest(d), arg_int(bad)), NULL,
		   e) < 0)
		return -1;
	notice_lazy_change(s);
	if (bad)
		return forfeit_refs_of_layer(s, seq, e);
	return hide_false_claims(s, seq, d, e) < 0 ? -1
						   : retake_refs(s, seq, e);
}

int store_set_proven(struct store *s, uint32_t seq,
		     const struct digest *diff_id, struct claims *ret,
		     struct err *e)
{
	struct claims c = { 0 };
	int r;

	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, set_proven_in_tx(s, seq, diff_id, &c, e), "layer_proven",
		   e);
	if (r == 0)
		*ret = c;
	return r;
}

int store_snap_is_trusted(struct store *s, uint64_t id, bool *ret,
			  struct err *e)
{
	int64_t trusted = 0;
	int r;

	lock_take(&s->lock);
	r = db_int(s,
		   "SELECT " IS_TRUSTED " FROM snapshot s" JOIN_TRUST
		   " WHERE s.id = ?1",
		   ARGS(arg_int((int64_t)id)), &trusted, e);
	lock_drop(&s->lock);
	if (r < 0)
		return -1;
	*ret = trusted;
	return 0;
}

int check_chain_is_good(struct store *s, int64_t id, struct err *e)
{
	int64_t seq;
	int r = db_int(s,
		       "WITH RECURSIVE up (id, parent, seq, chain) AS ("
		       " SELECT id, parent, seq, chain FROM snapshot"
		       " WHERE id = ?1"
		       " UNION ALL SELECT s.id, s.parent, s.seq, s.chain"
		       " FROM snapshot s JOIN up ON s.id = up.parent)"
		       " SELECT l.seq FROM up JOIN layer l ON l.seq = up.seq"
		       " LEFT JOIN snapshot p ON p.id = up.parent"
		       " WHERE l.bad = 1 OR (l.proof = 1 AND"
		       " vs_chain(up.parent, p.chain, l.diff_id) <> up.chain)"
		       " LIMIT 1",
		       ARGS(arg_int(id)), &seq, e);

	if (r > 0)
		return err_set(
			e, ERR_PRECONDITION,
			"layer %" PRId64
			" below is bad: damaged here, or not what the image claims (see verityctl status); remove the image and pull it again",
			seq);
	return r;
}

/* ---- rows that use a layer ---- */

struct uses {
	struct layer_use *v;
	size_t n;
};

static int read_uses(struct store *s, uint32_t seq, struct uses *u,
		     struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r;

	if (db_start(s,
		     "SELECT s.sn, ifnull(p.name, '') FROM snapshot s"
		     " LEFT JOIN snapshot p ON p.id = s.parent"
		     " WHERE s.seq = ?1 ORDER BY s.id LIMIT 64",
		     ARGS(arg_int(seq)), &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		struct layer_use *v;

		if (grow((void **)&u->v, u->n, &cap, sizeof(*u->v), e) < 0)
			return -1;
		v = &u->v[u->n];
		if (db_col_copy(st, 0, v->sn, sizeof(v->sn), e) < 0 ||
		    db_col_copy(st, 1, v->parent, sizeof(v->parent), e) < 0)
			return -1;
		u->n++;
	}
	return r;
}

int store_layer_parents(struct store *s, uint32_t seq, struct layer_use **ret,
			size_t *ret_n, struct err *e)
{
	struct uses u = { 0 };
	int r;

	lock_take(&s->lock);
	r = read_uses(s, seq, &u, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(u.v);
		return -1;
	}
	*ret = u.v;
	*ret_n = u.n;
	return 0;
}
