/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of this node: the registry of those that are ready, and the jobs
 * that make new ones (resolve the blob, read the table of contents, build index
 * and map, make them durable, record them). A layer is a source of the view.
 *
 * Locks: the registry (rank 28), one per layer (rank 30). Jobs run in a pool of
 * their own and may wait for the network; nobody waits for a job.
 */
#ifndef SNAPSHOTTER_LAYER_H
#define SNAPSHOTTER_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "fuse/source.h"
#include "snapshotter/builder.h"
#include "snapshotter/fill.h"
#include "snapshotter/host_jobs.h"
#include "snapshotter/registry.h"
#include "snapshotter/store.h"

struct layers;
struct layer;
struct bodies;
struct sealer;
struct helper_caller;

/* Repositories that a layer is read from; more of them do not help. */
#define LAYER_REPOS_MAX 8u

struct layers_opts {
	int rootfd; /* the state directory, borrowed */
	struct store *store;
	struct registry *registry;
	struct filler *filler;
	struct bodies *bodies;
	struct sealer *sealer; /* NULL: none */
	const char *seal_off; /* why nothing is sealed, or NULL; copied */
	struct helper_caller *scrubber; /* NULL: none; see verity/scrubber.h */
	uint64_t scrub_rate; /* bytes a second; 0: no limit */
	unsigned scrub_interval_s; /* 0: only when somebody asks */
	bool background_fill;
	bool prove_before_run; /* a new layer is fetched and proven at once */
	bool unsealed_passthrough; /* the kernel reads what it does not verify */
	bool userxattr;
	unsigned read_timeout_s;
	unsigned job_deadline_s;
};

int layers_open(const struct layers_opts *o, struct layers **ret, struct err *e)
	must_check;
void layers_close(struct layers *ls); /* after the view is closed */

/* For view_opts.sources. */
void layers_source_set(struct layers *ls, struct source_set *ret);

/* What somebody wants to have. */
struct layer_want {
	struct image_ref ref;
	char image[512];
	struct layer_desc desc;
	char chain_id[72];
	/*
	 * What lies below, top first, for directories that the layer implies
	 * but does not name. NULL and below_known false: not known yet; a layer
	 * that needs it cannot be built then.
	 */
	const struct snap_link *below;
	size_t n_below;
	bool below_known;
};

/* Told when a job ends. */
struct layer_waiter {
	/* Exactly once, any thread, no lock held. @row: on success. */
	void (*done)(struct layer_waiter *w, const struct layer_row *row,
		     const struct err *e);
	struct list node; /* private */
	void *job; /* private */
};

/*
 * layers_want() - have a layer made ready; joins the job that runs for it
 *
 * 1: ready, *row is filled in, w is not used. 0: w->done will be called. -1.
 * @w: may be NULL (a neighbour is prepared ahead). Worker threads.
 */
int layers_want(struct layers *ls, const struct layer_want *lw,
		struct layer_waiter *w, struct layer_row *row, struct err *e)
	must_check;
/*
 * layers_check() - may a layer that is there be given to who wants @lw?
 *
 * 1: yes, its files are open; its blob is read from the repository of @lw, too.
 * 0: no: it is gone, or damaged, and then its rows show their refs no more.
 * -1: not now. Worker and job threads.
 */
int layers_check(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct err *e) must_check;
/* A layer that took attributes from below serves only above the same chain. */
bool layer_row_fits(const struct layer_row *row, const struct layer_want *lw);
/* true: done was not and will not be called */
bool layers_cancel(struct layers *ls, struct layer_waiter *w);

/* Run @j among the layer jobs of registry @host: it may wait for the network.
 * 0 or -errno. */
int layers_add_job(struct layers *ls, const char *host, struct host_job *j)
	must_check;

/* True when @d was not asked about within the last @ms. */
bool layers_is_news(struct layers *ls, const struct digest *d, unsigned ms);

/* After a start: go on filling the layers that snapshots use. Blocks on disk. */
int layers_resume(struct layers *ls, struct err *e) must_check;

/* A snapshot row now uses the layer: prefetch and background fill may start.
 * Worker threads. */
void layers_used(struct layers *ls, uint32_t seq);

/* Told when a layer is judged, or will not be. */
struct proof_waiter {
	/* Exactly once, any thread, no lock held. */
	void (*done)(struct proof_waiter *w);
	struct list node, chosen; /* list_init()ed by the caller */
	uint32_t seq;
};

/*
 * layers_prove() - have a layer fetched and proven, now
 *
 * 1: it is judged already, w is not used. 0: w->done will be called, at the
 * latest when the daemon stops. -errno. The verdict is in the layer's row.
 * @w: may be NULL: nobody waits
 */
int layers_prove(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct proof_waiter *w) must_check;
/* true: done was not and will not be called */
bool layers_prove_cancel(struct layers *ls, struct proof_waiter *w);
/* "12 of 34 bytes are here" */
void layers_progress(struct layers *ls, uint32_t seq, char *buf, size_t size);

/* Why a layer was not served lazily, for status. The last 256 are kept. */
void layers_note_fallback(struct layers *ls, const struct digest *blob,
			  const char *image, uint64_t size, const char *reason);

/*
 * layers_sweep() - drop layers without users
 * Those of this process that were never claimed are kept for @grace_s, those of
 * an earlier one are not. Calls @gone for each. Files and bodies are closed, and
 * bodies deleted, with the last reader.
 */
int layers_sweep(struct layers *ls, unsigned grace_s,
		 void (*gone)(void *ctx, uint32_t seq), void *ctx,
		 struct err *e) must_check;

/* As scrubbing_ask(): UINT32_MAX for all layers. Never blocks. */
uint64_t layers_scrub(struct layers *ls, uint32_t seq);

/* One line of status. Strings live during the callback. */
struct layer_status {
	struct digest digest;
	const char *image, *state, *reason;
	uint64_t bytes_total, bytes_local; /* uncompressed contents */
	uint64_t bytes_fetched;
	uint32_t seq;
	uint32_t waiting;
	const char *waiting_for; /* host, or "" */
	unsigned n_repos; /* that it may be read from */
	bool proven;
	const char *proof; /* "none", "queued", "running", "waiting", "proven",
			    * "failed" */
	uint64_t bytes_refetched; /* for the proof, though they had been here */
};
/* Why nothing is sealed any more, now that it is known; "": it is. */
void layers_why_unsealed(struct layers *ls, char *buf, size_t size);
/* The members "sealing" and "scrub" of status. */
void layers_scrub_json(struct layers *ls, struct buf *out);
void layers_sealing_json(struct layers *ls, struct buf *out);
void layers_status(struct layers *ls,
		   void (*fn)(void *ctx, const struct layer_status *st),
		   void *ctx);

#endif
