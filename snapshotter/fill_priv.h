/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the filler, shared by fill.c (who wants what), fill_sched.c (what
 * is fetched next), fill_decode.c (what arrived), fill_resume.c (what did
 * not) and fill_move.c (in whose queue it waits).
 *
 * One lock (rank 34) guards everything here, except what a comment gives to a
 * single thread. It is never held over a read of the map, a callback or a call
 * into registry.c.
 */
#ifndef SNAPSHOTTER_FILL_PRIV_H
#define SNAPSHOTTER_FILL_PRIV_H

#include "base/buf.h"
#include "base/htab.h"
#include "snapshotter/fill.h"
#include "snapshotter/formats/decode.h"
#include "verity/sha256.h"

#define MAX_WAITERS_PER_HOST 2048u
#define RANGE_MAX (4u << 20) /* compressed bytes, if one unit is not more */
#define RANGE_MIN (256u << 10) /* where halving after silence ends */
/* What a reader's range may take along; see fill_ahead.c */
#define AHEAD_MIN (64u << 10)
#define AHEAD_MAX (512u << 10)
#define RANGE_UNITS_MAX 512u
#define RESIDUE_MAX (8u << 20) /* bytes of one unit */
#define ATTEMPTS_MAX 3u /* of a unit that does not match */
#define HALVES_MAX (16u << 20) /* bytes of all units that came in part */
#define SILENCE_MIN_MS 3000u
#define SILENCE_MAX_MS 10000u
#define IDLE_BEFORE_BACKGROUND_MS 1000u
#define BACKOFF_MIN_MS 250u
#define BACKOFF_MAX_MS 8000u
#define REFUSED_PAUSE_MS 60000u /* of unasked work after a refusal */
#define MISSED_PAUSE_MAX_MS \
	3600000u /* before what was given up is tried anew */

/* What a link has shown of itself; 0: nothing yet. */
struct link_pace {
	uint64_t wait_us; /* from question to first byte: the least, of late */
	uint64_t rate; /* bytes a second of one range: the most, of late */
};

/* How much may be asked for at once. Something on the way to a registry may
 * answer no question for more. */
struct link_size {
	size_t max; /* RANGE_MAX: no limit is known */
	uint64_t grow_at_ms; /* then more is tried again */
	unsigned grow_pause_ms;
};

/* A registry, by name; lives as long as the filler. */
struct fill_host {
	struct link_pace pace;
	struct link_size size;
	char *name;
	unsigned n_inflight, n_background;
	uint32_t n_waiters;
	uint64_t last_reader_ms; /* when a reader last asked or was answered */
	struct list queue; /* struct ureq wanted by readers, in order */
	struct list fills; /* struct fill.by_host */
	bool failed; /* who could be served elsewhere may move; fill_move.c */
	UT_hash_handle hh;
};

enum ureq_state { UREQ_QUEUED, UREQ_FLYING };

/* A unit that somebody wants, or that is under way. */
struct ureq {
	uint32_t unit;
	struct unit rec;
	enum ureq_state state;
	unsigned attempts;
	uint64_t not_before_ms;
	struct list node; /* in host->queue while UREQ_QUEUED */
	struct list waiters; /* struct fill_waiter.node */
	struct range *half; /* while UREQ_QUEUED: what came of it already */
	struct fill *fill;
	UT_hash_handle hh;
};

/* A stretch of units that nobody waits for. */
struct cursor {
	uint32_t next, end;
};

/* What is prefetched: the layer's start, as its image wishes, and what files
 * that are read in order will want next. */
#define PREFETCH_START 0u
#define PREFETCHES 5u

struct fill {
	struct filler *fl;
	struct fill_host *host; /* changes on the scheduler's thread only */
	struct map *map;
	struct blob *blob;
	struct fill_ops ops;
	struct ureq *ureqs; /* by unit */
	struct list by_host, ranges;
	struct cursor prefetch[PREFETCHES], background;
	unsigned last_prefetch; /* whose turn it was; they take turns */
	unsigned next_stream; /* which one is given up for a new one */
	uint32_t missed; /* first unit behind the background that failed, or
			  * UINT32_MAX */
	unsigned missed_pause_ms;
	uint64_t background_not_before_ms; /* other layers come first */
	uint64_t retry_not_before_ms; /* nothing unasked after a failure */
	uint64_t backoff_at_ms; /* when it last grew */
	unsigned backoff_ms;
	/* All sources have answered that they have no such blob, from when to
	 * when; 0: never, or it has been got since. */
	uint64_t absent_since_ms, absent_last_ms;
	bool closing;
	unsigned n_busy; /* uses without the lock: plans, late answers */
	unsigned n_ranges;
	struct fill_stats stats;
};

struct filler {
	struct lock lock;
	struct cond wake; /* the scheduler has work */
	struct cond idle; /* some fill became less busy */
	struct pool *decode;
	struct fill_host *hosts;
	struct list by_time; /* all waiters, earliest deadline first */
	uint64_t n_refused; /* waiters, above the limit */
	unsigned ranges_per_host, read_timeout_ms, silence_ms;
	size_t half_bytes; /* memory of all halves */
	struct list spaces; /* struct range_space that nobody uses */
	unsigned n_spaces;
	uint64_t spaces_until_ms; /* then they are given back */
	unsigned n_huge; /* ranges under way with more than RANGE_MAX */
	bool stopping, poked;
	pthread_t thread;
	bool thread_runs;
};

/* Buffers and tools of one range; see fill_space.c. */
struct range_space {
	struct list node; /* filler->spaces while nobody uses it */
	uint8_t *buf; /* network thread writes, decode thread reads behind it */
	size_t cap;
	/* decode thread only: */
	struct decoder *dec; /* made when first needed */
	struct sha256 *hash;
	uint8_t *xbuf; /* an extent */
	size_t xcap;
};

/*
 * One range on its way: units [0, n) of it lie side by side in the blob. It may
 * take several transfers: when one breaks off, or was to bring a part only, the
 * range is cut to the unit that has begun and hangs there (ureq.half) until it
 * is that unit's turn again.
 */
struct range {
	struct blob_req req;
	struct fill *fill;
	struct fill_host *host; /* in whose numbers it is while under way */
	struct list node; /* fill->ranges */
	enum fill_prio prio;
	struct range_space *space; /* from range_start() on */
	uint64_t off; /* in the blob, of the first byte in space->buf */
	size_t len, received; /* received: under the lock */
	size_t from, upto; /* of those, what the transfer is to bring */
	size_t kicked_at; /* received, when the decode job was last woken */
	uint64_t asked_us;
	/* network thread only: */
	uint64_t first_us; /* when the first bytes came, and how many */
	size_t n_first;
	bool net_done, queued, cancelled, huge;
	bool kept; /* it will go on */
	bool useful; /* even if nobody waits for it */
	unsigned pause_ms; /* before that */
	size_t half_bytes; /* its share of filler->half_bytes */
	unsigned n_refs;
	struct err err; /* of the transfer; valid once net_done */
	struct job job;
	/* decode thread only: */
	uint32_t cur; /* index into units */
	size_t fed; /* bytes of space->buf given to the decoder */
	uint64_t out; /* bytes of output of the current unit so far */
	uint32_t x; /* next extent of the current unit: 0..n_x */
	struct extent xrec;
	uint32_t xnum;
	bool xvalid;
	int unit_err; /* why the current unit is bad, or 0 */
	bool local_err; /* its bytes are not to blame */
	bool any_bad; /* some unit of this range was */
	bool no_space; /* the disk did not take all of it */
	struct buf residue; /* output of the unit outside its extents */
	size_t xlen; /* of the current extent, in space->xbuf */
	uint32_t n_units;
	struct ureq *units[];
};

/* fill.c */
void fill_poke_locked(struct filler *fl);
/* NULL: out of memory */
struct fill_host *fill_host_get_locked(struct filler *fl, const char *name);
/* Takes the waiters of @u that want @extent (UINT32_MAX: all) to @out. */
void fill_detach_locked(struct ureq *u, uint32_t extent, struct list *out);
/* Calls done() of all in @l. No lock held. */
void fill_tell(struct list *l, const struct err *e);
/* The unit is finished, whatever came of it: frees @u, collects its waiters. */
void ureq_finish_locked(struct ureq *u, struct list *out);
/* The same for one that did not land: the background will come back to it. */
void ureq_give_up_locked(struct ureq *u, struct list *out);
/* The last who waited for it has gone: it is not fetched for nobody, and above
 * all not by a transfer that the next reader would have to wait for. */
void ureq_unwanted_locked(struct fill *f, uint32_t unit);
/* Under way or in the queue; else it only keeps what has come of it. */
bool ureq_is_asked_locked(const struct ureq *u);
struct ureq *ureq_find_locked(struct fill *f, uint32_t unit);
struct ureq *ureq_new_locked(struct fill *f, uint32_t unit,
			     const struct unit *rec);
void fill_unbusy_locked(struct fill *f);
/* All extents are on the disk. Reads the map: no lock held. */
int fill_unit_landed(struct fill *f, const struct unit *u);

/* fill_resume.c */
/* What the transfer did not bring goes back to the queue, or is given up, and
 * those who waited are told. No lock held. */
void range_give_back(struct range *r);
/* After that, for a range that is kept: it hangs on its unit now. false: it
 * does not, and the unit has been dealt with. */
bool half_keep_locked(struct range *r);
/* @u is asked for again: from where it broke off. NULL: from the start. */
struct range *half_take_locked(struct ureq *u);
void half_drop_locked(struct ureq *u);
/* How many bytes the next transfer of a range may bring, of @left. */
size_t size_of_transfer(const struct link_size *s, size_t left);
/* No answer came to a question for @asked bytes. true: less may help. */
bool size_note_silent(struct link_size *s, size_t asked, uint64_t now);
void size_note_good(struct link_size *s, uint64_t now);

/* fill_sched.c */
void *fill_scheduler(void *arg);

/* fill_move.c */
/* The layers that stand in a queue behind a failure and can be had elsewhere
 * stand in that queue from now on. Scheduler's thread, no lock held. */
void fills_move(struct filler *fl);

/* fill_ahead.c */
/* A range of @len bytes was asked for, began to arrive with @n_first bytes, and
 * was complete, at these times. */
void pace_note(struct link_pace *p, uint64_t asked_us, uint64_t first_us,
	       size_t n_first, uint64_t end_us, size_t len);
/* @n_inflight: ranges that share the link */
size_t pace_ahead(const struct link_pace *p, unsigned n_inflight);

/* fill_space.c */
int space_get(struct filler *fl, size_t len, struct range_space **ret)
	must_check;
int space_want_extent(struct range_space *s, size_t len) must_check;
void space_put_locked(struct filler *fl, struct range_space *s);
/* Gives back what has not been used for a while. */
void spaces_trim_locked(struct filler *fl, uint64_t now);

/* fill_decode.c */
int range_start(struct range *r, struct err *e) must_check;
void range_unref_locked(struct range *r);

#endif
