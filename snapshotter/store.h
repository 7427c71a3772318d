/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and relations, in SQLite: the only user of sqlite3.h. Bytes never go
 * through it. WAL, synchronous=FULL: what returned 0 is durable. Worker and job
 * threads only. Everything is partitioned by @sn, the request's snapshotter.
 *
 * Every call takes the store's lock (rank 10) and holds it over the database's
 * reads, writes and fsyncs: the one connection *is* what the lock guards, so
 * this is an exception to "nothing blocks under a lock". No callback runs, and
 * no other file is touched, under it.
 *
 * Errors named at a call come beside ERR_NO_SPACE, ERR_CORRUPT and ERR_INTERNAL,
 * which every one can give.
 *
 * Semantics: containerd core/snapshots/snapshotter.go and storage/bolt.go.
 */
#ifndef SNAPSHOTTER_STORE_H
#define SNAPSHOTTER_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "snapshotter/labels.h"

struct store;

enum snap_kind { SNAP_KIND_VIEW = 1, SNAP_KIND_ACTIVE, SNAP_KIND_COMMITTED };

#define NO_LAYER UINT32_MAX
#define STORE_FILE "state.db" /* below the state directory */

struct snap_time {
	int64_t sec;
	int32_t nsec;
};

/* One snapshot. Strings and labels are owned; zeroed means empty. */
struct snap {
	uint64_t id; /* > 0, never reused: s/<id>/ */
	char *name, *parent; /* parent "": none */
	enum snap_kind kind;
	struct snap_time created, updated;
	struct labels labels;
	uint32_t seq; /* lazy: its layer; else NO_LAYER */
	uint64_t size, inodes; /* usage; committed only */
};
void snap_release(struct snap *s);

static inline __attribute__((unused)) void owned_snap(struct snap *s)
{
	snap_release(s);
}

/*
 * store_open() - create or migrate ROOT/state.db, and keep others out of it
 * @root: the state directory, exists
 * @e: ERR_PRECONDITION (in use, of a newer version, of another program, or
 *     missing or empty beside folders with contents), ERR_CORRUPT; the text
 *     names the file and says what to do
 */
int store_open(const char *root, struct store **ret, struct err *e) must_check;
void store_close(struct store *s);
const char *store_uuid(const struct store *s);

/* ---- snapshots ---- */

/*
 * store_new_id() - the name of the next s/<id>, never given out twice
 *
 * In memory only: it is store_create() that makes it last. A folder of an id
 * that was not recorded before a crash is garbage, see trash_orphans().
 */
uint64_t store_new_id(struct store *s);

/*
 * store_create() - an active snapshot or a view
 * @id:  from store_new_id(); its folder is durable, where it has one
 * @key: not empty; "lazy/<number>" is reserved (ERR_INVALID)
 * @parent: "": none
 * @ret: out, may be NULL
 * @e:   ERR_EXISTS; ERR_NOT_FOUND (parent); ERR_INVALID (parent not committed);
 *       ERR_PRECONDITION (a layer of the parents is bad)
 */
int store_create(struct store *s, uint64_t id, const char *sn, const char *key,
		 const char *parent, enum snap_kind kind,
		 const struct labels *l, struct snap *ret, struct err *e)
	must_check;

/*
 * store_commit() - active @key becomes committed @name; labels replaced
 * @new_parent: NULL or "", or a parent for an active one that has none
 * @e: ERR_EXISTS (name); ERR_NOT_FOUND (key, parent); ERR_PRECONDITION (@key is
 *     not active, @new_parent not committed); ERR_INVALID (tries to change a
 *     parent)
 *
 * The ref rule: see store_add_lazy().
 */
int store_commit(struct store *s, const char *sn, const char *name,
		 const char *key, const char *new_parent,
		 const struct labels *l, uint64_t size, uint64_t inodes,
		 struct err *e) must_check;

/*
 * store_add_lazy() - a committed row "lazy/<id>" for layer @seq
 *
 * The ref rule. containerd picks the row: it lists by (snapshot.ref, parent)
 * and takes the first. So at most one committed row per (snapshotter, parent,
 * ref) shows the ref, that is, has the label. A row that can be trusted (one
 * that containerd unpacked itself, or of a proven layer whose diff id and the
 * parent's chain id give the ref) takes it from one that cannot, never the
 * other way round. Where commit or update may not show it, the row keeps its
 * other labels and the call succeeds. Who gave way gets the ref back when the
 * other row is removed; when that only loses its right to it, or drops the
 * label, then if it can be trusted itself.
 *
 * @e: ERR_EXISTS: a row of the same layer, or one that can be trusted, holds
 *     the ref (fine: answer AlreadyExists). ERR_PRECONDITION: an unproven row
 *     of another layer holds it, or the layer is bad. ERR_NOT_FOUND,
 *     ERR_INVALID: the parent, as in store_create()
 */
int store_add_lazy(struct store *s, const char *sn, const char *parent,
		   const char *ref, const struct labels *l, uint32_t seq,
		   uint64_t size, uint64_t inodes, struct err *e) must_check;

/* The committed row that shows (parent, ref). 1 found, 0 none, -1. A @parent
 * that does not exist has none. */
int store_find_ref(struct store *s, const char *sn, const char *parent,
		   const char *ref, struct snap *ret, struct err *e) must_check;

/* ERR_NOT_FOUND */
int store_get(struct store *s, const char *sn, const char *name,
	      struct snap *ret, struct err *e) must_check;

/*
 * store_remove() - the row only; files are the caller's business, afterwards
 * @ret: what it was
 * @e: ERR_NOT_FOUND; ERR_PRECONDITION with "remove" in its text: has children
 */
int store_remove(struct store *s, const char *sn, const char *name,
		 struct snap *ret, struct err *e) must_check;

/*
 * store_update() - labels only
 * @paths: field mask; n 0: replace all labels. "labels" replaces, "labels.K"
 *         sets one (K may hold dots and slashes; missing or empty value:
 *         deletes)
 * @ret:   the whole snapshot afterwards
 * @e:     ERR_NOT_FOUND; ERR_INVALID (any other path)
 */
int store_update(struct store *s, const char *sn, const char *name,
		 const struct labels *l, const char *const *paths,
		 size_t n_paths, struct snap *ret, struct err *e) must_check;

/*
 * store_list() - one page of snapshots, ascending by id
 * @ref:      NULL, or only those whose label containerd.io/snapshot.ref is this
 * @after_id: 0, or the id of the last one seen
 * @max:      calls of @fn at most; fn returns non-zero to stop
 *
 * Returns the number of rows seen, 0: the end. No lock is held while @fn runs.
 */
int store_list(struct store *s, const char *sn, const char *ref,
	       uint64_t after_id, unsigned max,
	       int (*fn)(void *ctx, const struct snap *sp), void *ctx,
	       struct err *e) must_check;

/* The chain from @name (first) down to the base; ids and layer seqs only.
 * *ret is heap, n entries. ERR_NOT_FOUND. */
struct snap_link {
	uint64_t id;
	uint32_t seq; /* or NO_LAYER */
	enum snap_kind kind;
};
int store_chain(struct store *s, const char *sn, const char *name,
		struct snap_link **ret, size_t *ret_n, struct err *e)
	must_check;

/* Every snapshot of every snapshotter that must have a folder s/<id>: all but
 * lazy ones and views with a parent. Ascending; for the orphan scan. */
struct snap_folder {
	uint64_t id;
	enum snap_kind kind;
};
int store_folders(struct store *s, struct snap_folder **ret, size_t *ret_n,
		  struct err *e) must_check;

/* Of every snapshotter. */
int store_count(struct store *s, uint64_t *ret, struct err *e) must_check;

/* ---- layers ---- */

enum proof_state { PROOF_NONE, PROOF_PROVEN, PROOF_FAILED };

struct layer_row {
	uint32_t seq;
	struct digest blob, toc; /* key, with: */
	uint32_t format, writer; /* enum format_id, BUILDER_VERSION */
	char parent_chain[72]; /* "" unless implied parents need it */
	uint64_t size; /* compressed */
	struct digest index_digest, map_digest; /* fs-verity digests */
	struct digest diff_id; /* of its stream once proven; zero: not told */
	char chain_id[72]; /* of its first use */
	char image[512]; /* reference of its first use */
	uint64_t payload, usage, n_inodes;
	uint32_t ino_base; /* st_ino: ino_base + ordinal, 1..n_inodes */
	enum proof_state proof;
	bool bad; /* no new snapshot may use it */
	int64_t created; /* seconds */
};

/* 1 found, 0 none, -1. A good one if there is one, else the newest bad one. */
int store_find_layer(struct store *s, const struct digest *blob,
		     const struct digest *toc, uint32_t format, uint32_t writer,
		     const char *parent_chain, struct layer_row *ret,
		     struct err *e) must_check;

/* The next seq, never given out again. Durable. */
int store_next_seq(struct store *s, uint32_t *ret, struct err *e) must_check;

/*
 * store_add_layer() - the layer's files are durable; make it known
 * @row: ino_base is chosen here, first fit below 2^32 among existing layers;
 *       proof and bad are ignored, created is set here
 * @ckeys: of its large bodies (body_ref rows); repetitions are fine
 * @e: ERR_EXISTS (a good layer with this key), ERR_NO_SPACE (also: no room for
 *     its inode numbers)
 */
int store_add_layer(struct store *s, struct layer_row *row,
		    const struct digest *ckeys, size_t n_ckeys, struct err *e)
	must_check;

int store_get_layer(struct store *s, uint32_t seq, struct layer_row *ret,
		    struct err *e) must_check; /* 1, 0, -1 */

/* All layers, ascending; *ret is heap. */
int store_layers(struct store *s, struct layer_row **ret, size_t *ret_n,
		 struct err *e) must_check;

/* Number of snapshot rows that use @seq. */
int store_layer_users(struct store *s, uint32_t seq, uint64_t *ret,
		      struct err *e) must_check;

/* PROOF_FAILED also makes the layer bad; its rows stop to show their refs. For
 * PROOF_PROVEN see store_set_proven(). */
int store_set_proof(struct store *s, uint32_t seq, enum proof_state p,
		    struct err *e) must_check;

/* The layer serves those who have it and nobody else; a new one with the same
 * key may be added. Its rows stop to show their refs. */
int store_set_bad(struct store *s, uint32_t seq, struct err *e) must_check;

/* How the rows of a layer relate to the diff id of its stream. */
struct claims {
	unsigned n_true, n_false;
	unsigned n_unknown; /* the parent's chain id is not known */
	/* of one that is false: what it claims, and what would be true */
	char claimed[DIGEST_STR_LEN + 1], found[DIGEST_STR_LEN + 1];
};
/* Nobody who has the layer tells the truth about it. */
static inline bool claims_all_false(const struct claims *c)
{
	return c->n_false && !c->n_true && !c->n_unknown;
}
int store_claims(struct store *s, uint32_t seq, const struct digest *diff_id,
		 struct claims *ret, struct err *e) must_check;

/*
 * store_set_proven() - the stream of layer @seq has this diff id, and its tree
 *
 * Rows whose claim is false stop to show their refs. When there is no other
 * row, the layer becomes bad, too; a new one may serve those who tell the truth.
 */
int store_set_proven(struct store *s, uint32_t seq,
		     const struct digest *diff_id, struct claims *ret,
		     struct err *e) must_check;

/* Can the claim of committed row @id be trusted? See store_add_lazy(). */
int store_snap_is_trusted(struct store *s, uint64_t id, bool *ret,
			  struct err *e) must_check;

/* What the rows of a layer lie on, 64 at most. *ret is heap. */
struct layer_use {
	char sn[256], parent[1024]; /* "": nothing */
};
int store_layer_parents(struct store *s, uint32_t seq, struct layer_use **ret,
			size_t *ret_n, struct err *e) must_check;

/*
 * store_drop_layer() - forget a layer without users
 * *ret_ckeys: heap; the bodies that no layer refers to any more.
 * ERR_PRECONDITION: somebody uses it again.
 */
int store_drop_layer(struct store *s, uint32_t seq, struct digest **ret_ckeys,
		     size_t *ret_n, struct err *e) must_check;

/* Every ckey with a reference, sorted; for the orphan scan. */
int store_all_ckeys(struct store *s, struct digest **ret, size_t *ret_n,
		    struct err *e) must_check;

/*
 * store_layers_below() - for each lazy layer the next ones below it
 *
 * In any chain of snapshots, over layers that containerd unpacked. Pairs in
 * rising order; @fn runs without a lock.
 */
int store_layers_below(struct store *s,
		       void (*fn)(void *ctx, uint32_t seq, uint32_t below),
		       void *ctx, struct err *e) must_check;

/*
 * store_lazy_chains() - what every usable lazy layer stands for in some chain
 *
 * Sorted by chain id; of several layers for one, proven ones first. Claims that
 * are known to be false and bad layers are left out. *ret is heap.
 */
struct lazy_chain {
	struct digest chain; /* chain id that a row claims */
	struct digest blob, toc; /* of its layer */
	uint32_t seq;
	bool proven;
};
int store_lazy_chains(struct store *s, struct lazy_chain **ret, size_t *ret_n,
		      struct err *e) must_check;
/* @fd: an eventfd (non-blocking), written to whenever that may have changed;
 * borrowed. -1: no more, and none comes when this has returned. */
void store_set_watch(struct store *s, int fd);

/* Which repositories have a blob: "host/repo". Forgotten with the last layer
 * of that blob. @fn runs without a lock; non-zero stops. */
int store_add_source(struct store *s, const struct digest *blob,
		     const char *source, struct err *e) must_check;
int store_sources(struct store *s, const struct digest *blob,
		  int (*fn)(void *ctx, const char *source), void *ctx,
		  struct err *e) must_check;

#endif
