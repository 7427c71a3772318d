/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers in the store: their rows and numbers, which bodies they use, and which
 * repositories have their blobs. Functions *_in_tx run between tx_begin() and
 * tx_end().
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "snapshotter/store_priv.h"

/* st_ino must stay below 2^32: 32-bit programs get EOVERFLOW otherwise. Low
 * numbers are left to the view's own directories. */
#define INO_FIRST 1024
#define INO_END ((uint64_t)UINT32_MAX + 1)

#define LAYER_SELECT                                                    \
	"SELECT seq, blob, toc, format, writer, parent_chain, size, "   \
	"index_digest, map_digest, diff_id, chain_id, image, payload, " \
	"usage, n_inodes, ino_base, proof, bad, created FROM layer "

static int read_layer(sqlite3_stmt *st, struct layer_row *ret, struct err *e)
{
	struct layer_row row = {
		.seq = (uint32_t)sqlite3_column_int64(st, 0),
		.format = (uint32_t)sqlite3_column_int64(st, 3),
		.writer = (uint32_t)sqlite3_column_int64(st, 4),
		.size = (uint64_t)sqlite3_column_int64(st, 6),
		.payload = (uint64_t)sqlite3_column_int64(st, 12),
		.usage = (uint64_t)sqlite3_column_int64(st, 13),
		.n_inodes = (uint64_t)sqlite3_column_int64(st, 14),
		.ino_base = (uint32_t)sqlite3_column_int64(st, 15),
		.proof = (enum proof_state)sqlite3_column_int(st, 16),
		.bad = sqlite3_column_int(st, 17),
		.created = sqlite3_column_int64(st, 18),
	};

	if (db_col_digest(st, 1, &row.blob, e) < 0 ||
	    db_col_digest(st, 2, &row.toc, e) < 0 ||
	    db_col_copy(st, 5, row.parent_chain, sizeof(row.parent_chain), e) <
		    0 ||
	    db_col_digest(st, 7, &row.index_digest, e) < 0 ||
	    db_col_digest(st, 8, &row.map_digest, e) < 0 ||
	    db_col_digest(st, 9, &row.diff_id, e) < 0 ||
	    db_col_copy(st, 10, row.chain_id, sizeof(row.chain_id), e) < 0 ||
	    db_col_copy(st, 11, row.image, sizeof(row.image), e) < 0)
		return -1;
	*ret = row;
	return 0;
}

/* 1, 0, -1 */
static int select_layer(struct store *s, const char *sql,
			const struct arg *args, struct layer_row *ret,
			struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r <= 0)
		return r;
	return read_layer(st, ret, e) < 0 ? -1 : 1;
}

int store_find_layer(struct store *s, const struct digest *blob,
		     const struct digest *toc, uint32_t format, uint32_t writer,
		     const char *parent_chain, struct layer_row *ret,
		     struct err *e)
{
	int r;

	lock_take(&s->lock);
	r = select_layer(
		s,
		LAYER_SELECT "WHERE blob = ?1 AND toc = ?2 AND format = ?3"
			     " AND writer = ?4 AND parent_chain = ?5"
			     " ORDER BY bad, seq DESC LIMIT 1",
		ARGS(arg_digest(blob), arg_digest(toc), arg_int(format),
		     arg_int(writer), arg_text(parent_chain)),
		ret, e);
	lock_drop(&s->lock);
	return r;
}

int store_get_layer(struct store *s, uint32_t seq, struct layer_row *ret,
		    struct err *e)
{
	int r;

	lock_take(&s->lock);
	r = select_layer(s, LAYER_SELECT "WHERE seq = ?1", ARGS(arg_int(seq)),
			 ret, e);
	lock_drop(&s->lock);
	return r;
}

static int layers_locked(struct store *s, struct layer_row **v, size_t *n,
			 struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r;

	if (db_start(s, LAYER_SELECT "ORDER BY seq", NO_ARGS, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)v, *n, &cap, sizeof(**v), e) < 0 ||
		    read_layer(st, &(*v)[*n], e) < 0)
			return -1;
		(*n)++;
	}
	return r;
}

int store_layers(struct store *s, struct layer_row **ret, size_t *ret_n,
		 struct err *e)
{
	struct layer_row *v = NULL;
	size_t n = 0;
	int r;

	lock_take(&s->lock);
	r = layers_locked(s, &v, &n, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(v);
		return -1;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

int store_layer_users(struct store *s, uint32_t seq, uint64_t *ret,
		      struct err *e)
{
	int64_t n = 0;
	int r;

	lock_take(&s->lock);
	r = db_int(s, "SELECT count(*) FROM snapshot WHERE seq = ?1",
		   ARGS(arg_int(seq)), &n, e);
	lock_drop(&s->lock);
	if (r < 0)
		return -1;
	*ret = (uint64_t)n;
	return 0;
}

/* ---- numbers ---- */

/* The view's node ids are (seq + 1) << 32, so the last two are never used. */
static int next_seq_in_tx(struct store *s, int64_t *ret, struct err *e)
{
	if (db_int(s, "SELECT next_seq FROM meta", NO_ARGS, ret, e) < 0)
		return -1;
	if (*ret < 1 || *ret >= NO_LAYER - 1)
		return err_set(e, ERR_NO_SPACE, "layer numbers are used up");
	return db_run(s, "UPDATE meta SET next_seq = next_seq + 1", NO_ARGS,
		      NULL, e);
}

int store_next_seq(struct store *s, uint32_t *ret, struct err *e)
{
	int64_t seq = 0;
	int r;

	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, next_seq_in_tx(s, &seq, e), "seq_taken", e);
	if (r == 0)
		*ret = (uint32_t)seq;
	return r;
}

/* First fit among existing layers. A layer's numbers are ino_base + 1 up to
 * ino_base + n_inodes, and ino_base itself is kept free with them. */
static int choose_ino_base(struct store *s, uint64_t n_inodes, uint32_t *ret,
			   struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	uint64_t at = INO_FIRST;
	int r;

	if (db_start(s,
		     "SELECT ino_base, n_inodes FROM layer ORDER BY ino_base",
		     NO_ARGS, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		uint64_t base = (uint64_t)sqlite3_column_int64(st, 0);
		uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);

		if (base >= at && base - at > n_inodes)
			break;
		if (base + n + 1 > at)
			at = base + n + 1;
	}
	if (r < 0)
		return -1;
	if (n_inodes >= INO_END || at + n_inodes >= INO_END)
		return err_set(e, ERR_NO_SPACE,
			       "no room for %" PRIu64
			       " inode numbers below 2^32",
			       n_inodes);
	*ret = (uint32_t)at;
	return 0;
}

/* ---- writing ---- */

static int insert_layer(struct store *s, const struct layer_row *row,
			struct err *e)
{
	return db_run(
		s,
		"INSERT INTO layer (seq, blob, toc, format, writer,"
		" parent_chain, size, index_digest, map_digest, diff_id,"
		" chain_id, image, payload, usage, n_inodes, ino_base, created)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
		" ?13, ?14, ?15, ?16, ?17)",
		ARGS(arg_int(row->seq), arg_digest(&row->blob),
		     arg_digest(&row->toc), arg_int(row->format),
		     arg_int(row->writer), arg_text(row->parent_chain),
		     arg_int((int64_t)row->size),
		     arg_digest(&row->index_digest),
		     arg_digest(&row->map_digest),
		     arg_digest(digest_is_zero(&row->diff_id) ? NULL
							      : &row->diff_id),
		     arg_text(row->chain_id), arg_text(row->image),
		     arg_int((int64_t)row->payload),
		     arg_int((int64_t)row->usage),
		     arg_int((int64_t)row->n_inodes), arg_int(row->ino_base),
		     arg_int(row->created)),
		NULL, e);
}

static int add_layer_in_tx(struct store *s, struct layer_row *row,
			   const struct digest *ckeys, size_t n_ckeys,
			   struct err *e)
{
	int64_t seq;
	int r = db_int(s,
		       "SELECT seq FROM layer WHERE bad = 0 AND blob = ?1"
		       " AND toc = ?2 AND format = ?3 AND writer = ?4"
		       " AND parent_chain = ?5",
		       ARGS(arg_digest(&row->blob), arg_digest(&row->toc),
			    arg_int(row->format), arg_int(row->writer),
			    arg_text(row->parent_chain)),
		       &seq, e);

	if (r > 0)
		return err_set(e, ERR_EXISTS,
			       "layer is there already, as number %" PRId64,
			       seq);
	if (r < 0 || choose_ino_base(s, row->n_inodes, &row->ino_base, e) < 0 ||
	    insert_layer(s, row, e) < 0)
		return -1;
	for (size_t i = 0; i < n_ckeys; i++)
		if (db_run(s,
			   "INSERT OR IGNORE INTO body_ref (ckey, seq)"
			   " VALUES (?1, ?2)",
			   ARGS(arg_digest(&ckeys[i]), arg_int(row->seq)), NULL,
			   e) < 0)
			return -1;
	return 0;
}

int store_add_layer(struct store *s, struct layer_row *row,
		    const struct digest *ckeys, size_t n_ckeys, struct err *e)
{
	struct layer_row copy = *row;
	int r;

	copy.proof = PROOF_NONE;
	copy.bad = false;
	copy.created = (int64_t)time(NULL);
	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, add_layer_in_tx(s, &copy, ckeys, n_ckeys, e),
		   "layer_recorded", e);
	if (r == 0)
		*row = copy;
	return r;
}

static int set_proof_in_tx(struct store *s, uint32_t seq, enum proof_state p,
			   struct err *e)
{
	if (db_run(s,
		   "UPDATE layer SET proof = ?2, bad = max(bad, ?2 = 2)"
		   " WHERE seq = ?1",
		   ARGS(arg_int(seq), arg_int(p)), NULL, e) < 0)
		return -1;
	notice_lazy_change(s);
	return p == PROOF_FAILED ? forfeit_refs_of_layer(s, seq, e) : 0;
}

int store_set_proof(struct store *s, uint32_t seq, enum proof_state p,
		    struct err *e)
{
	if (tx_begin(s, e) < 0)
		return -1;
	return tx_end(s, set_proof_in_tx(s, seq, p, e), "proof_recorded", e);
}

static int set_bad_in_tx(struct store *s, uint32_t seq, struct err *e)
{
	if (db_run(s, "UPDATE layer SET bad = 1 WHERE seq = ?1",
		   ARGS(arg_int(seq)), NULL, e) < 0)
		return -1;
	notice_lazy_change(s);
	return forfeit_refs_of_layer(s, seq, e);
}

int store_set_bad(struct store *s, uint32_t seq, struct err *e)
{
	if (tx_begin(s, e) < 0)
		return -1;
	return tx_end(s, set_bad_in_tx(s, seq, e), "layer_condemned", e);
}

/* ---- digests of bodies ---- */

struct ckeys {
	struct digest *v;
	size_t n;
};

static int select_ckeys(struct store *s, const char *sql,
			const struct arg *args, struct ckeys *k, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)&k->v, k->n, &cap, sizeof(*k->v), e) < 0 ||
		    db_col_digest(st, 0, &k->v[k->n], e) < 0)
			return -1;
		k->n++;
	}
	return r;
}

static int drop_in_tx(struct store *s, uint32_t seq, struct ckeys *k,
		      struct err *e)
{
	int64_t user;
	int r = db_int(s, "SELECT id FROM snapshot WHERE seq = ?1 LIMIT 1",
		       ARGS(arg_int(seq)), &user, e);

	if (r > 0)
		return err_set(e, ERR_PRECONDITION,
			       "layer %" PRIu32 " is in use", seq);
	if (r < 0 || select_ckeys(s,
				  "SELECT ckey FROM body_ref a WHERE seq = ?1"
				  " AND NOT EXISTS (SELECT 1 FROM body_ref b"
				  " WHERE b.ckey = a.ckey AND b.seq <> ?1)"
				  " ORDER BY ckey",
				  ARGS(arg_int(seq)), k, e) < 0)
		return -1;
	if (db_run(s,
		   "DELETE FROM source WHERE blob = (SELECT blob FROM layer"
		   " WHERE seq = ?1) AND NOT EXISTS (SELECT 1 FROM layer l"
		   " WHERE l.blob = source.blob AND l.seq <> ?1)",
		   ARGS(arg_int(seq)), NULL, e) < 0)
		return -1;
	/* body_ref follows by its foreign key. */
	return db_run(s, "DELETE FROM layer WHERE seq = ?1", ARGS(arg_int(seq)),
		      NULL, e);
}

int store_drop_layer(struct store *s, uint32_t seq, struct digest **ret_ckeys,
		     size_t *ret_n, struct err *e)
{
	struct ckeys k = { 0 };
	int r;

	if (tx_begin(s, e) < 0)
		return -1;
	r = tx_end(s, drop_in_tx(s, seq, &k, e), "layer_row_dropped", e);
	if (r < 0) {
		free(k.v);
		return -1;
	}
	*ret_ckeys = k.v;
	*ret_n = k.n;
	return 0;
}

int store_all_ckeys(struct store *s, struct digest **ret, size_t *ret_n,
		    struct err *e)
{
	struct ckeys k = { 0 };
	int r;

	lock_take(&s->lock);
	r = select_ckeys(s, "SELECT DISTINCT ckey FROM body_ref ORDER BY ckey",
			 NO_ARGS, &k, e);
	lock_drop(&s->lock);
	if (r < 0) {
		free(k.v);
		return -1;
	}
	*ret = k.v;
	*ret_n = k.n;
	return 0;
}

/* ---- sources ---- */

int store_add_source(struct store *s, const struct digest *blob,
		     const char *source, struct err *e)
{
	if (tx_begin(s, e) < 0)
		return -1;
	return tx_end(s,
		      db_run(s,
			     "INSERT OR IGNORE INTO source (blob, name)"
			     " VALUES (?1, ?2)",
			     ARGS(arg_digest(blob), arg_text(source)), NULL, e),
		      NULL, e);
}

struct names {
	char **v;
	size_t n, cap;
};

static void owned_names(struct names *n)
{
	for (size_t i = 0; i < n->n; i++)
		free(n->v[i]);
	free(n->v);
}

static int sources_locked(struct store *s, const struct digest *blob,
			  struct names *names, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, "SELECT name FROM source WHERE blob = ?1 ORDER BY name",
		     ARGS(arg_digest(blob)), &st, e) < 0)
		return -1;
	while ((r = db_step(s, st, e)) > 0) {
		if (grow((void **)&names->v, names->n, &names->cap,
			 sizeof(*names->v), e) < 0 ||
		    db_col_text(st, 0, &names->v[names->n], e) < 0)
			return -1;
		names->n++;
	}
	return r;
}

int store_sources(struct store *s, const struct digest *blob,
		  int (*fn)(void *ctx, const char *source), void *ctx,
		  struct err *e)
{
	owned(names) struct names names = { 0 };
	int r;

	lock_take(&s->lock);
	r = sources_locked(s, blob, &names, e);
	lock_drop(&s->lock);
	if (r < 0)
		return -1;
	for (size_t i = 0; i < names.n; i++)
		if (fn(ctx, names.v[i]))
			break;
	return 0;
}
