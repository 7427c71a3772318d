/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database itself: opening, schema and migrations, statements,
 * transactions, errors. What is in it: store_snap.c and store_layer.c.
 *
 * One connection in exclusive mode: no second process can open the state, and
 * SQLite needs no shared-memory file (an mmap would turn a bad sector into
 * SIGBUS).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/hex.h"
#include "base/log.h"
#include "schema.sql.h"
#include "snapshotter/store_priv.h"

#define APPLICATION_ID 0x56537374 /* "VSst": so that file(1) can know it */
#define FORMAT_VERSION 1 /* of the folders beside the database */

/* migrations[i] leads from schema i to schema i + 1. */
static const char *const migrations[] = {
	schema_sql,
	/* The chain id that a committed row was made with. Unlike the ref it is
	 * never hidden: proofs of the layers above need it. */
	"ALTER TABLE snapshot ADD COLUMN chain TEXT;"
	"UPDATE snapshot SET chain = ref;",
	/* The ref that a row would show if no other had a better right to it. */
	"ALTER TABLE snapshot ADD COLUMN hidden TEXT;"
	"CREATE INDEX snapshot_hidden ON snapshot (sn, ifnull(parent, 0), hidden)"
	" WHERE hidden IS NOT NULL;",
};
#define SCHEMA_VERSION ((int64_t)ARRAY_LEN(migrations))

/* ---- errors ---- */

static int db_failed(struct store *s, struct err *e)
{
	int code = sqlite3_extended_errcode(s->db);
	int sys = sqlite3_system_errno(s->db);
	const char *text = sqlite3_errmsg(s->db);

	switch (code & 0xff) {
	case SQLITE_FULL:
		return err_set(e, ERR_NO_SPACE,
			       "no space for state database '%s'", s->path);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_set(
			e, ERR_CORRUPT,
			"state database '%s' is damaged (%s): put back a copy; to start empty, move the whole directory away",
			s->path, text);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(
			e, ERR_PRECONDITION,
			"state database '%s' is in use by another process",
			s->path);
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		if (sys)
			return err_sys(e, -sys, "state database '%s': %s",
				       s->path, text);
		break;
	default:
		break;
	}
	return err_set(e, ERR_INTERNAL, "state database '%s': %s (code %d)",
		       s->path, text, code);
}

static int damaged(struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT,
		       "state database is damaged: bad value in column '%s'",
		       what);
}

/* ---- statements ---- */

struct statement {
	const char *sql; /* the literal's address is the key */
	sqlite3_stmt *st;
	UT_hash_handle hh;
};

static int find_statement(struct store *s, const char *sql, sqlite3_stmt **ret,
			  struct err *e)
{
	struct statement *p;

	HASH_FIND_PTR(s->statements, &sql, p);
	if (p) {
		*ret = p->st;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_sys(e, -ENOMEM, "state database");
	p->sql = sql;
	if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
			       &p->st, NULL) != SQLITE_OK) {
		free(p);
		return db_failed(s, e);
	}
	HASH_ADD_PTR(s->statements, sql, p);
	if (!HTAB_ADDED(p)) {
		(void)sqlite3_finalize(p->st);
		free(p);
		return err_sys(e, -ENOMEM, "state database");
	}
	*ret = p->st;
	return 0;
}

static int bind_one(sqlite3_stmt *st, int at, const struct arg *a)
{
	switch (a->type) {
	case ARG_INT:
		return sqlite3_bind_int64(st, at, a->i);
	case ARG_TEXT:
		return sqlite3_bind_text(st, at, a->p, -1, SQLITE_STATIC);
	case ARG_DIGEST:
	default:
		return sqlite3_bind_blob(st, at, a->p, DIGEST_LEN,
					 SQLITE_STATIC);
	}
}

int db_start(struct store *s, const char *sql, const struct arg *args,
	     sqlite3_stmt **ret, struct err *e)
{
	sqlite3_stmt *st = NULL;

	if (find_statement(s, sql, &st, e) < 0)
		return -1;
	for (int i = 0; args[i].type != ARG_END; i++) {
		if (bind_one(st, i + 1, &args[i]) != SQLITE_OK) {
			(void)db_failed(s, e);
			db_end(st);
			return -1;
		}
	}
	*ret = st;
	return 0;
}

int db_step(struct store *s, sqlite3_stmt *st, struct err *e)
{
	switch (sqlite3_step(st)) {
	case SQLITE_ROW:
		return 1;
	case SQLITE_DONE:
		return 0;
	default:
		return db_failed(s, e);
	}
}

void db_end(sqlite3_stmt *st)
{
	/* Its result is the last step's, which was looked at. */
	(void)sqlite3_reset(st);
	(void)sqlite3_clear_bindings(st);
}

int db_run(struct store *s, const char *sql, const struct arg *args,
	   int *ret_changes, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	do {
		r = db_step(s, st, e);
	} while (r > 0);
	if (r == 0 && ret_changes)
		*ret_changes = sqlite3_changes(s->db);
	return r;
}

int db_int(struct store *s, const char *sql, const struct arg *args,
	   int64_t *ret, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int r;

	if (db_start(s, sql, args, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r > 0)
		*ret = sqlite3_column_int64(st, 0);
	return r;
}

int db_col_text(sqlite3_stmt *st, int col, char **ret, struct err *e)
{
	const char *p = (const char *)sqlite3_column_text(st, col);
	char *copy;

	/* NULL is also what a conversion gives that ran out of memory. */
	if (!p && sqlite3_column_type(st, col) != SQLITE_NULL)
		return err_sys(e, -ENOMEM, "state database");
	copy = strdup(p ? p : "");
	if (!copy)
		return err_sys(e, -ENOMEM, "state database");
	*ret = copy;
	return 0;
}

int db_col_copy(sqlite3_stmt *st, int col, char *buf, size_t size,
		struct err *e)
{
	const char *p = (const char *)sqlite3_column_text(st, col);

	if (!p && sqlite3_column_type(st, col) != SQLITE_NULL)
		return err_sys(e, -ENOMEM, "state database");
	if (p && strlen(p) >= size)
		return damaged(e, sqlite3_column_name(st, col));
	memcpy(buf, p ? p : "", p ? strlen(p) + 1 : 1);
	return 0;
}

int db_col_digest(sqlite3_stmt *st, int col, struct digest *ret, struct err *e)
{
	const void *p;

	if (sqlite3_column_type(st, col) == SQLITE_NULL) {
		*ret = (struct digest){ 0 };
		return 0;
	}
	p = sqlite3_column_blob(st, col);
	if (!p || sqlite3_column_bytes(st, col) != DIGEST_LEN)
		return damaged(e, sqlite3_column_name(st, col));
	memcpy(ret->b, p, DIGEST_LEN);
	return 0;
}

int grow(void **v, size_t n, size_t *cap, size_t size, struct err *e)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (n < *cap)
		return 0;
	p = reallocarray(*v, more, size);
	if (!p)
		return err_sys(e, -ENOMEM, "state database");
	*v = p;
	*cap = more;
	return 0;
}

/* ---- transactions ---- */

int tx_begin(struct store *s, struct err *e)
{
	lock_take(&s->lock);
	if (db_run(s, "BEGIN IMMEDIATE", NO_ARGS, NULL, e) == 0)
		return 0;
	lock_drop(&s->lock);
	return -1;
}

int tx_end(struct store *s, int r, const char *fault, struct err *e)
{
	int injected = r >= 0 ? fault_point("store_before_commit") : 0;

	if (injected < 0)
		r = err_sys(e, injected, "state database '%s'", s->path);
	if (r >= 0 && db_run(s, "COMMIT", NO_ARGS, NULL, e) < 0)
		r = -1;
	/* Some errors have ended the transaction already. */
	if (r < 0 && !sqlite3_get_autocommit(s->db) &&
	    db_run(s, "ROLLBACK", NO_ARGS, NULL, NULL) < 0)
		log_err("roll-back failed: database='%s' err='%s'", s->path,
			sqlite3_errmsg(s->db));
	lock_drop(&s->lock);
	if (r >= 0 && fault)
		(void)fault_point(fault);
	return r;
}

/* ---- opening ---- */

static int new_uuid(char ret[static 37])
{
	uint8_t b[16];
	char hex[33];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		return -EIO;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* RFC 9562: version 4 */
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	hex_encode(b, sizeof(b), hex);
	(void)snprintf(ret, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8,
		       hex + 12, hex + 16, hex + 20);
	return 0;
}

/* More than one statement, so not for db_run(); no values in it. */
static int run_script(struct store *s, const char *sql, struct err *e)
{
	if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
		return db_failed(s, e);
	return 0;
}

static int fill_new(struct store *s, struct err *e)
{
	char uuid[37];
	int r = new_uuid(uuid);

	if (r < 0)
		return err_sys(e, r, "random bytes");
	return db_run(s,
		      "INSERT INTO meta (one, uuid, format, next_seq)"
		      " VALUES (1, ?1, ?2, 1)",
		      ARGS(arg_text(uuid), arg_int(FORMAT_VERSION)), NULL, e);
}

static int set_version(struct store *s, struct err *e)
{
	char sql[96];

	(void)snprintf(sql, sizeof(sql),
		       "PRAGMA user_version = %" PRId64
		       "; PRAGMA application_id = %d",
		       SCHEMA_VERSION, APPLICATION_ID);
	return run_script(s, sql, e);
}

static int migrate_in_tx(struct store *s, int64_t from, struct err *e)
{
	for (int64_t v = from; v < SCHEMA_VERSION; v++)
		if (run_script(s, migrations[v], e) < 0)
			return err_wrap(e, "schema %" PRId64, v + 1);
	if (from == 0 && fill_new(s, e) < 0)
		return -1;
	return set_version(s, e);
}

static int check_is_ours(struct store *s, int64_t version, struct err *e)
{
	int64_t app = 0, n_tables = 0;

	if (db_int(s, "PRAGMA application_id", NO_ARGS, &app, e) < 0 ||
	    db_int(s, "SELECT count(*) FROM sqlite_schema", NO_ARGS, &n_tables,
		   e) < 0)
		return -1;
	if (version < 0 ||
	    (version == 0 ? n_tables > 0 : app != APPLICATION_ID))
		return err_set(
			e, ERR_PRECONDITION,
			"'%s' is a database of another program: move it away, or choose another --root",
			s->path);
	if (version > SCHEMA_VERSION)
		return err_set(
			e, ERR_PRECONDITION,
			"state database '%s' has schema %" PRId64
			", this version knows up to %" PRId64
			": install the newer version again, or put back a copy made before the upgrade",
			s->path, version, SCHEMA_VERSION);
	return 0;
}

static int bring_up_to_date(struct store *s, int64_t version, struct err *e)
{
	if (version == SCHEMA_VERSION)
		return 0;
	if (tx_begin(s, e) < 0)
		return -1;
	return tx_end(s, migrate_in_tx(s, version, e), "schema_written", e);
}

/* 1,000 snapshots take a few milliseconds; what is damaged deeper inside is
 * reported by the call that meets it. */
static int check_sound(struct store *s, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	const char *text;

	if (db_start(s, "PRAGMA quick_check(1)", NO_ARGS, &st, e) < 0 ||
	    db_step(s, st, e) < 0)
		return -1;
	text = (const char *)sqlite3_column_text(st, 0);
	if (text && !strcmp(text, "ok"))
		return 0;
	return err_set(
		e, ERR_CORRUPT,
		"state database '%s' is damaged (%.60s): put back a copy; to start empty, move the whole directory away",
		s->path, text ? text : "?");
}

static int load_meta(struct store *s, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	int64_t last_id = 0;
	int r;

	if (db_start(s, "SELECT uuid, format FROM meta", NO_ARGS, &st, e) < 0)
		return -1;
	r = db_step(s, st, e);
	if (r < 0)
		return -1;
	if (r == 0)
		return damaged(e, "meta");
	if (db_col_copy(st, 0, s->uuid, sizeof(s->uuid), e) < 0)
		return -1;
	if (sqlite3_column_int64(st, 1) != FORMAT_VERSION)
		return err_set(
			e, ERR_PRECONDITION,
			"the folders beside '%s' have format %d, this version knows %d: install the version that made them",
			s->path, sqlite3_column_int(st, 1), FORMAT_VERSION);
	if (db_int(s, "SELECT seq FROM sqlite_sequence WHERE name = 'snapshot'",
		   NO_ARGS, &last_id, e) < 0)
		return -1;
	s->next_id = (uint64_t)last_id + 1;
	return 0;
}

/* Where SQLite cannot have a WAL it says so in a row, not with an error. */
static int switch_to_wal(struct store *s, struct err *e)
{
	owned(rows) sqlite3_stmt *st = NULL;
	const char *mode;

	if (db_start(s, "PRAGMA journal_mode = WAL", NO_ARGS, &st, e) < 0 ||
	    db_step(s, st, e) < 0)
		return -1;
	mode = (const char *)sqlite3_column_text(st, 0);
	if (mode && !strcmp(mode, "wal"))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "state database '%s': no write-ahead log here", s->path);
}

/*
 * Whether there is anything in the file, before SQLite sees it: beside an empty
 * one it would remove a log that may hold the only copy of the rows.
 */
static int prepare_file(struct store *s, const char *root, struct err *e)
{
	struct stat st;
	int fd;

	if (stat(s->path, &st) == 0 && st.st_size > 0)
		return 0;
	if (store_check_lost(root, s->path, e) < 0)
		return -1;
	fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "state database '%s'", s->path);
	(void)close(fd);
	return 0;
}

/* Not for others, wherever the folder is copied to. SQLite gives the log the
 * mode of the database; one that an earlier version left keeps its own. */
static int make_private(struct store *s, struct err *e)
{
	static const char *const tails[] = { "", "-wal" };
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", s->path, tails[i]);
		if (chmod(path, 0600) < 0 && errno != ENOENT)
			return err_sys(e, -errno, "set the mode of '%s'", path);
	}
	return 0;
}

/* Nothing is written before it is known whose database this is. */
static int set_up(struct store *s, const char *root, struct err *e)
{
	int64_t version = 0;

	/* Exclusive mode must come before the first access in WAL mode. */
	if (run_script(s,
		       "PRAGMA locking_mode = EXCLUSIVE;"
		       "PRAGMA synchronous = FULL;"
		       "PRAGMA foreign_keys = ON;"
		       "PRAGMA trusted_schema = OFF;"
		       "PRAGMA journal_size_limit = 4194304;",
		       e) < 0)
		return -1;
	if (db_int(s, "PRAGMA user_version", NO_ARGS, &version, e) < 0 ||
	    check_is_ours(s, version, e) < 0 || check_sound(s, e) < 0)
		return -1;
	if (version == 0 && store_check_lost(root, s->path, e) < 0)
		return -1;
	if (switch_to_wal(s, e) < 0 || make_private(s, e) < 0 ||
	    bring_up_to_date(s, version, e) < 0)
		return -1;
	return load_meta(s, e);
}

int store_open(const char *root, struct store **ret, struct err *e)
{
	size_t size =
		sizeof(struct store) + strlen(root) + sizeof("/" STORE_FILE);
	struct store *s = calloc(1, size);
	int r;

	if (!s)
		return err_sys(e, -ENOMEM, "state database");
	lock_init(&s->lock, RANK_STORE);
	s->watch_fd = -1;
	(void)snprintf(s->path, size - sizeof(*s), "%s/" STORE_FILE, root);
	if (prepare_file(s, root, e) < 0) {
		store_close(s);
		return -1;
	}
	r = sqlite3_open_v2(s->path, &s->db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
				    SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
			    NULL);
	if (!s->db)
		r = err_sys(e, -ENOMEM, "state database '%s'", s->path);
	else if (r != SQLITE_OK)
		r = db_failed(s, e);
	else if (store_add_functions(s) < 0)
		r = err_sys(e, -ENOMEM, "state database '%s'", s->path);
	else
		r = set_up(s, root, e);
	if (r < 0) {
		store_close(s);
		return -1;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	struct statement *p, *tmp;

	if (!s)
		return;
	htab_each (s->statements, p, tmp) {
		HASH_DEL(s->statements, p);
		(void)sqlite3_finalize(p->st);
		free(p);
	}
	if (sqlite3_close(s->db) != SQLITE_OK)
		log_err("state database not closed: database='%s' err='%s'",
			s->path, sqlite3_errmsg(s->db));
	lock_release(&s->lock);
	free(s);
}

const char *store_uuid(const struct store *s)
{
	return s->uuid;
}
