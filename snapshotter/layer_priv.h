/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the layer registry, shared by layer.c (which layers there are),
 * layer_open.c (their files), layer_repos.c (where their blobs lie),
 * layer_body.c (their bodies), layer_source.c (their bytes, for the view),
 * layer_seal.c (what of them is sealed), layer_scrub.c (what is read again),
 * layer_job.c (how a new one is made) and layer_status.c.
 *
 * Lock ranks: layers.lock 28 guards the table, the states and the jobs;
 * layer.lock 30 guards what one open layer keeps. Neither is held over disk
 * access, a callback, or a call into another module that may block.
 */
#ifndef SNAPSHOTTER_LAYER_PRIV_H
#define SNAPSHOTTER_LAYER_PRIV_H

#include <stdatomic.h>

#include "base/htab.h"
#include "base/pool.h"
#include "fuse/index.h"
#include "snapshotter/body.h"
#include "snapshotter/layer.h"
#include "snapshotter/residue.h"
#include "verity/vfile.h"

#define N_STREAMS 8
#define FALLBACKS_MAX 256
#define NEWS_MAX 64
#define IMAGE_MAX 512
#define REPO_NAME_MAX 520

enum layer_open_state { LAYER_CLOSED, LAYER_OPENING, LAYER_OPEN, LAYER_BROKEN };

/* A file that is being read in order; see layer_source.c. */
struct stream {
	uint32_t ino;
	uint64_t next_off;
	uint32_t ahead; /* extents below this number were asked for */
};

struct layer {
	struct source src; /* first: the view's handle */
	struct layers *ls;
	struct layer_row row;
	unsigned n_refs; /* under layers.lock; the table holds one */
	enum layer_open_state state;
	bool claimed; /* a snapshot row uses it, or did in this process */
	bool inherited; /* an earlier process made it */
	uint64_t made_ms;
	/* of a removed layer: bodies that go with its last reference */
	struct digest *doomed;
	size_t n_doomed;
	UT_hash_handle hh; /* by row.seq */
	char **repos; /* "host/repo" that have the blob; under layers.lock */
	unsigned n_repos;
	/* the row is bad, for the sake of damage or of a proof */
	atomic_bool damage_recorded;
	atomic_bool checked; /* index and map whole, by this process */

	/* set while LAYER_OPENING, constant afterwards */
	int dirfd;
	struct vfile *index_file;
	struct index *index; /* src.index is set once all the rest is open */
	struct map *map;
	struct vfile *map_file; /* borrowed from map */
	struct blob *blob;
	struct fill *fill;
	struct residue *residue; /* may be NULL: then nothing of it is kept */
	uint32_t n_bodies;

	struct lock lock;
	struct body **bodies; /* opened at need */
	struct stream streams[N_STREAMS];
	unsigned next_stream;
	struct list parked; /* struct parked of layer_source.c */
	struct cond unparked;

	atomic_bool complete;
	atomic_bool sealed; /* as far as this process has seen */
	atomic_uint n_waiting;

	/* proof.c */
	atomic_int proof; /* enum proof_state */
	atomic_bool suspect; /* only the blob itself can prove it now */
	atomic_bool condemned; /* readers get EIO; set behind proof_why */
	char proof_why[240]; /* "" when an earlier process found it out */
	atomic_ullong proof_fetched, proof_refetched;
	/* Somebody waits for the proof; under layers.lock. For a layer that no
	 * snapshot uses yet: what will lie below. */
	bool proof_asked;
	struct snap_link *proof_below;
	size_t n_proof_below;
};

struct fallback {
	struct digest blob;
	char image[IMAGE_MAX];
	char reason[240];
	uint64_t size;
};

struct layer_job;
struct prover;
struct sealing;
struct scrubbing;

struct layers {
	struct layers_opts o;
	struct lock lock;
	struct cond changed; /* a layer finished opening, a job ended */
	struct layer *table;
	struct layer_job *jobs;
	struct pool *pool;
	struct host_jobs *host_jobs; /* run in it */
	struct prover *prover;
	struct sealing *sealing;
	struct scrubbing *scrubbing;
	bool closing;
	struct fallback *fallbacks; /* ring, allocated with the first */
	unsigned n_fallbacks, next_fallback;
	struct news {
		struct digest d;
		uint64_t until_ms;
	} news[NEWS_MAX]; /* see layers_is_news() */
	unsigned next_news;
};

/* layer.c */
struct layer *layer_get(struct layers *ls, uint32_t seq); /* open, or NULL */
void layer_put(struct layer *l);
/* The numbers of all layers, in order; the caller's to free. */
int layers_seqs(struct layers *ls, uint32_t **ret, size_t *ret_n) must_check;
/*
 * layer_look() - a layer that somebody looks at because he looks at all of them
 *
 * One that is closed, and known to be complete, is left closed (layer_state()).
 * layer_unlook() closes again what this opened, if it is complete and nobody
 * else uses it. NULL, which that accepts: there is no such layer.
 */
struct layer *layer_look(struct layers *ls, uint32_t seq, bool *ret_was_closed);
void layer_unlook(struct layer *l, bool was_closed);
/* The same, but it is opened in any case (if it can be: layer_state()). */
struct layer *layer_use(struct layers *ls, uint32_t seq, bool *ret_was_closed);
enum layer_open_state layer_state(struct layer *l);
int layers_insert(struct layers *ls, const struct layer_row *row, struct err *e)
	must_check;

/* layer_open.c */
int layer_dir(struct layers *ls, uint32_t seq) must_check; /* fd or -errno */
/* With layers.lock, which it drops over the disk: LAYER_CLOSED becomes another
 * state, or remains when the failure may pass. */
void layer_open_locked(struct layer *l);
void layer_close_files(struct layer *l);
/* Index or map are not what was built, as far as anybody has looked. */
bool layer_is_damaged(struct layer *l);
/* Makes the row bad, once. Not from FUSE threads: asks the database. */
int layer_record_damage(struct layer *l, struct err *e) must_check;

/* layer_repos.c */
int layer_load_repos(struct layer *l, struct err *e) must_check;
void layer_free_repos(struct layer *l);
int layer_open_blob(struct layer *l) must_check; /* 0 or -errno */
void layer_use_repos_locked(struct layer *l);
/* A repository that has the layer's blob; kept when it is new. Not from FUSE
 * threads. */
void layer_learn_repo(struct layers *ls, const struct layer_row *row,
		      const struct image_ref *ref);

/*
 * layer_implied() - what a directory looks like in the layers below
 * @below: nearest first
 *
 * As builder_opts.implied wants it; ret->xattrs is added to.
 */
int layer_implied(struct layers *ls, const struct snap_link *below,
		  size_t n_below, const char *path, struct implied_attr *ret)
	must_check;

/* layer_status.c: the layer is served lazily after all */
void layers_clear_fallback(struct layers *ls, const struct digest *blob);

/* layer_body.c */

/* What body.c asks about extents: a layer and the number of the body in it. */
struct body_view {
	struct layer *l;
	struct map_body rec;
	uint32_t num;
};

/* Everything the map knows about extent @i of its file, and the open body. */
struct body_place {
	struct map_file f;
	struct body *b;
	struct body_view v;
	struct body_layout lay;
	uint32_t bit;
};

/* The layout of body @num, for the calls of body.h. */
int layer_view(struct layer *l, uint32_t num, struct body_view *v,
	       struct body_layout *lay) must_check;
/* Where extent @extent, whose record is @x, lies; opens the body. */
int layer_find_place(struct layer *l, uint32_t extent, const struct extent *x,
		     struct body_place *p) must_check;
/* The body with number @i; opens it. A borrowed reference. 0 or -errno. */
int layer_body(struct layer *l, uint32_t i, struct body **ret) must_check;
/* If it is open already, else NULL. */
struct body *layer_body_kept(struct layer *l, uint32_t i);
/* 1: as layer_body(); 0: it is not on the disk (yet), or the layer has none. */
int layer_find_body(struct layer *l, uint32_t i, struct body **ret) must_check;
/* As body_reject(); on -EAGAIN what is missing has been asked for. */
int layer_reject_body(struct layer *l, uint32_t i) must_check;
/* Bytes of body @i that are here. */
uint64_t layer_body_local(struct layer *l, uint32_t i);

/* layer_source.c */
extern const struct source_ops layer_source_ops;
void layer_fill_ops(struct layer *l, struct fill_ops *ret);
void layer_check_complete(struct layer *l);
/* Bytes [@off, @off + @len) of extent @i, checked as by body_read(). */
int layer_read_extent(struct layer *l, uint32_t i, const struct extent *x,
		      uint32_t off, void *p, size_t len) must_check;

/* layer_job.c */
void layer_jobs_cancel(struct layers *ls);

#endif
