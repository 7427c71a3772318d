/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who needs which unit, and in what order it is fetched. Single flight per
 * unit; neighbouring units travel in one range; several ranges are in flight;
 * readers come before prefetch, prefetch before background. While a range
 * arrives, the decode pool inflates it, checks every extent and writes the
 * bodies; who waits for an extent is told as soon as that one has landed.
 *
 * A mismatch is fetched again a bounded number of times, then the waiters get
 * ERR_CORRUPT. A network error is tried again with back-off until the waiter's
 * deadline. In both cases the unit is afterwards as if never asked for.
 *
 * No function blocks, except filler_free(), fill_close() and fill_free().
 */
#ifndef SNAPSHOTTER_FILL_H
#define SNAPSHOTTER_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/pool.h"
#include "snapshotter/map.h"
#include "snapshotter/registry.h"

enum fill_prio { FILL_READER, FILL_PREFETCH, FILL_BACKGROUND };

struct fill_waiter {
	/* Exactly once, from a decode thread or the caller's, no lock held.
	 * @e: ERR_NONE, or why not. */
	void (*done)(struct fill_waiter *w, const struct err *e);
	/* private to fill.c */
	struct list node; /* in its unit */
	struct list by_time; /* in the filler, by deadline */
	struct fill *fill;
	uint64_t deadline_ms;
	uint32_t unit, extent;
};

/* Process-wide: the decode pool and the limits per registry. */
struct filler;
struct filler_opts {
	unsigned n_decode; /* threads; 0: number of processors, max 4 */
	unsigned ranges_per_host; /* in flight; 0: 6 */
	unsigned read_timeout_s; /* a waiter's longest wait; 0: 60 */
};
int filler_new(const struct filler_opts *o, struct filler **ret) must_check;
void filler_free(struct filler *fl);

/* How near it is to its limits. Any thread. */
struct filler_stats {
	uint32_t n_waiters; /* of the registry that has most of them, now */
	uint32_t max_waiters; /* of one registry */
	uint64_t n_refused; /* readers beyond that, with EBUSY, ever */
};
void filler_stats(struct filler *fl, struct filler_stats *ret);

/* What a fill needs of its layer. */
struct fill_ops {
	/* Bytes of extent @i, verified: write them to their body. Decode
	 * thread. 0 or -errno (-ENOSPC: waiters still get ERR_NO_SPACE). */
	int (*land)(void *ctx, uint32_t extent, const struct extent *x,
		    const void *p, size_t len);
	/*
	 * The same when that had no room and a reader may wait: keep it where
	 * landed() finds it, for a while. May be NULL.
	 */
	int (*spill)(void *ctx, uint32_t extent, const struct extent *x,
		     const void *p, size_t len);
	/* Is the extent on the disk, or spilled, already? */
	bool (*landed)(void *ctx, uint32_t extent, const struct extent *x);
	/*
	 * A whole unit was good: its output outside the extents (tar headers,
	 * padding), in order, for a later proof. Decode thread. May be NULL.
	 */
	void (*residue)(void *ctx, uint32_t unit, const void *p, size_t len);
	void *ctx;
};

/* One layer's fetches. */
struct fill;
int fill_new(struct filler *fl, struct map *m, struct blob *b,
	     const struct fill_ops *ops, struct fill **ret) must_check;
/*
 * fill_close() - cancel what runs, tell every waiter (ERR_CANCELLED)
 *
 * When it returns, no callback runs and none will; fill_want() refuses with
 * -ECANCELED. The object stays for those who still have it. Not from done().
 */
void fill_close(struct fill *f);
void fill_free(struct fill *f); /* closes first; accepts NULL */

/*
 * fill_want() - have extent @extent of unit @unit fetched for a reader
 * @w: NULL when nobody waits (further units of a range that is being read)
 * 0: w->done will be called, perhaps before fill_want() returns. -EBUSY: too
 * many waiters for this registry (2048). -ECANCELED: closed. -ENOMEM and what
 * the map returns.
 */
int fill_want(struct fill *f, uint32_t unit, uint32_t extent,
	      struct fill_waiter *w) must_check;
/* true: done() was not and will not be called. false: it was, or is being. */
bool fill_cancel(struct fill *f, struct fill_waiter *w);

/*
 * fill_range() - fetch units [first, last) that are absent; nobody waits
 * FILL_PREFETCH: beside the ranges asked for before. The one that begins at
 * unit 0 is kept to its end; of the others there are four. A range that goes on
 * where one of them is lengthens it, and a fifth one takes another's place.
 * FILL_BACKGROUND: replaces the former range; it proceeds only while no reader
 * has waited for a second.
 */
void fill_range(struct fill *f, uint32_t first, uint32_t last,
		enum fill_prio p);
/* Is the unit on its way? Its last extent may have landed. */
bool fill_is_fetching(struct fill *f, uint32_t unit);

struct fill_stats {
	uint32_t n_units;
	uint32_t n_waiters; /* now */
	uint64_t bytes_fetched; /* compressed, by this process */
	uint64_t bytes_refetched;
	struct err last_error; /* of a fetch; ERR_NONE after a success */
};
void fill_stats(struct fill *f, struct fill_stats *ret);

#endif
