/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What store.c offers to the other store_*.c: statements with typed
 * arguments, transactions, and the one map from SQLite's results to errors.
 *
 * SQL stands where it is used, as a literal; its compiled form is kept, found
 * by the literal's address. Values reach it as arguments only.
 */
#ifndef SNAPSHOTTER_STORE_PRIV_H
#define SNAPSHOTTER_STORE_PRIV_H

#include <sqlite3.h>

#include "base/htab.h"
#include "base/lock.h"
#include "snapshotter/store.h"

struct statement;

struct store {
	struct lock lock; /* rank 10; guards what follows */
	sqlite3 *db;
	struct statement *statements;
	uint64_t next_id;
	int watch_fd; /* store_set_watch(); -1: none */
	char uuid[37]; /* this and the rest: set once, when opened */
	char path[]; /* of state.db, for messages */
};

enum arg_type { ARG_END, ARG_INT, ARG_TEXT, ARG_DIGEST };

struct arg {
	enum arg_type type;
	int64_t i;
	const void *p;
};

static inline struct arg arg_int(int64_t i)
{
	return (struct arg){ .type = ARG_INT, .i = i };
}

/* NULL becomes NULL. Borrowed until the statement is done with. */
static inline struct arg arg_text(const char *s)
{
	return (struct arg){ .type = ARG_TEXT, .p = s };
}

/* NULL becomes NULL; zeros are 32 zero bytes. */
static inline struct arg arg_digest(const struct digest *d)
{
	return (struct arg){ .type = ARG_DIGEST, .p = d };
}

/* NULL for 0, which is no id. */
static inline struct arg arg_id(int64_t id)
{
	return id ? arg_int(id) : arg_text(NULL);
}

static inline struct arg arg_end(void)
{
	return (struct arg){ .type = ARG_END };
}

/* For ?1, ?2, … in order. */
#define ARGS(...)                       \
	(const struct arg[])            \
	{                               \
		__VA_ARGS__,            \
		{                       \
			.type = ARG_END \
		}                       \
	}
#define NO_ARGS ARGS(arg_end())

/*
 * Read one row after the other. The statement must end (owned(rows) does it)
 * before its text is used again and before the lock is dropped.
 */
int db_start(struct store *s, const char *sql, const struct arg *args,
	     sqlite3_stmt **ret, struct err *e) must_check;
/* 1: a row, 0: no more, -1 */
int db_step(struct store *s, sqlite3_stmt *st, struct err *e) must_check;
void db_end(sqlite3_stmt *st);
DEFINE_OWNED(rows, sqlite3_stmt *, db_end)

/* A statement without result; *ret_changes (may be NULL): rows changed. */
int db_run(struct store *s, const char *sql, const struct arg *args,
	   int *ret_changes, struct err *e) must_check;

/* The first column of the first row. 1, 0: no row (*ret untouched), -1. */
int db_int(struct store *s, const char *sql, const struct arg *args,
	   int64_t *ret, struct err *e) must_check;

/* A text column on the heap; NULL becomes "". 0 or -1. */
int db_col_text(sqlite3_stmt *st, int col, char **ret, struct err *e)
	must_check;
/* Into a fixed buffer; too long is ERR_CORRUPT. */
int db_col_copy(sqlite3_stmt *st, int col, char *buf, size_t size,
		struct err *e) must_check;
/* NULL gives zeros; any other length than 32 is ERR_CORRUPT. */
int db_col_digest(sqlite3_stmt *st, int col, struct digest *ret, struct err *e)
	must_check;

/*
 * A write: tx_begin() takes the lock and the database's; tx_end() commits when
 * @r is not negative, else rolls back, and drops the lock in any case.
 *
 *	if (tx_begin(s, e) < 0)
 *		return -1;
 *	return tx_end(s, do_it_in_tx(s, ..., e), "it_is_done", e);
 *
 * @fault: fault point behind a successful commit, NULL: none. Returns @r, or -1.
 */
int tx_begin(struct store *s, struct err *e) must_check;
int tx_end(struct store *s, int r, const char *fault, struct err *e) must_check;

/* Growing arrays of query results. -1 with ERR_INTERNAL when out of memory. */
int grow(void **v, size_t n, size_t *cap, size_t size, struct err *e)
	must_check;

/* The columns that read_snap() takes apart; a WHERE follows. store_snap.c */
#define SNAP_SELECT                                                   \
	"SELECT s.id, s.name, p.name, s.kind, s.created, s.updated, " \
	"s.size, s.inodes, s.seq FROM snapshot s "                    \
	"LEFT JOIN snapshot p ON p.id = s.parent "

/* The row that @st stands at, with its labels. 0 or -1 */
int read_snap(struct store *s, sqlite3_stmt *st, struct snap *ret,
	      struct err *e) must_check;

/*
 * A row without layer was unpacked by containerd, which checked its diff id; a
 * proven layer's row can be trusted when its claim is true. For a query with
 * "snapshot s" and JOIN_TRUST.
 */
#define IS_TRUSTED                                           \
	"(s.seq IS NULL OR ifnull(l.proof = 1 AND l.bad = 0" \
	" AND vs_chain(s.parent, p.chain, l.diff_id) = s.ref, 0))"
#define JOIN_TRUST                            \
	" LEFT JOIN layer l ON l.seq = s.seq" \
	" LEFT JOIN snapshot p ON p.id = s.parent"

/* store_names.c; in a transaction that changes what store_lazy_chains() says */
void notice_lazy_change(struct store *s);

/* store_proof.c */
int store_add_functions(struct store *s) must_check; /* 0 or -ENOMEM */
/* Borrows from its arguments; NULL: not known. @ref: label or NULL. */
const char *chain_of(const char *ref, const char *name);
/* ERR_PRECONDITION when row @id or one below is of a quarantined layer, or
 * claims what its layer is not. */
int check_chain_is_good(struct store *s, int64_t id, struct err *e) must_check;

/*
 * store_ref.c, all in a transaction.
 *
 * show_ref() - committed row @id has the label: let its column follow, or take
 * the label away. See store_add_lazy() for the rule.
 */
int show_ref(struct store *s, const char *sn, int64_t id, int64_t parent,
	     uint32_t seq, const char *ref, struct err *e) must_check;
/* May a new row of layer @seq show @ref? ERR_EXISTS, ERR_PRECONDITION. */
int check_lazy_ref(struct store *s, const char *sn, int64_t parent,
		   const char *ref, uint32_t seq, struct err *e) must_check;
/*
 * pass_ref() - @ref has no holder, or one who has no right to keep it: give it
 * to a row that was hidden for the sake of another
 *
 * @to_unproven: also to a row of a layer that is not proven. Only where no
 * client can be between a Prepare that met the old holder and its List.
 */
int pass_ref(struct store *s, const char *sn, int64_t parent, const char *ref,
	     bool to_unproven, struct err *e) must_check;
/* Row @id shows its ref no more, and does not get it back. */
int forfeit_ref(struct store *s, int64_t id, struct err *e) must_check;
int forfeit_refs_of_layer(struct store *s, uint32_t seq, struct err *e)
	must_check;
/* Layer @seq is proven now: what its rows were hidden from may be theirs. */
int retake_refs(struct store *s, uint32_t seq, struct err *e) must_check;

/*
 * store_check_lost() - may a new database be made in @root?
 * @file: its path, for the message
 * @e: ERR_PRECONDITION: s/, layer/ or body/ hold what rows once stood for
 */
int store_check_lost(const char *root, const char *file, struct err *e)
	must_check;

#endif
