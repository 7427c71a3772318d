/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each RPC of containerd.services.snapshots.v1 means. The facade of this
 * folder: plugin/ calls nothing else of it, except for configuration.
 *
 * All calls block on the disk, never on the network: worker threads only.
 * Prepare has two halves, so that nobody waits: see snapshotter_prepare().
 */
#ifndef SNAPSHOTTER_SNAPSHOTTER_H
#define SNAPSHOTTER_SNAPSHOTTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "snapshotter/host_jobs.h"
#include "snapshotter/labels.h"
#include "snapshotter/mounts.h"
#include "snapshotter/store.h"

struct registry;
struct snapshotter;
struct sealer;
struct helper_caller;

enum policy { POLICY_PREFER_LAZY, POLICY_REQUIRE_LAZY, POLICY_NEVER_LAZY };
/* May lazy content be kept where it cannot be sealed; is it sealed at all? */
enum verity_mode { VERITY_PREFER, VERITY_REQUIRE, VERITY_OFF };

struct snapshotter_opts {
	const char *root, *run; /* absolute; created */
	enum policy policy;
	enum verity_mode verity;
	bool background_fill;
	bool prove_before_run; /* proof = "before-run" */
	bool unsealed_passthrough; /* unsealed_reads = "passthrough" */
	unsigned prepare_budget_s, read_timeout_s;
	struct sealer *sealer; /* borrowed; NULL: nothing is sealed */
	struct helper_caller
		*scrubber; /* borrowed; NULL: nothing is scrubbed */
	uint64_t scrub_rate; /* bytes a second; 0: no limit */
	unsigned scrub_interval_s; /* 0: only when somebody asks */
	int verity_error; /* of a try to seal a file below root; 0: it works */
	uint64_t seal_from_cache; /* bytes of the largest such file */
	const char *docker_config; /* NULL: as clients find it */
	const char *hosts_dirs; /* as in registry.h */
	bool http2; /* where a registry speaks it over TLS */
	const char *containerd; /* its socket, for image names; NULL: none */
	unsigned without; /* SNAPSHOTTER_WITHOUT_* */
	/* sinks of progress; may be NULL */
};

#define SNAPSHOTTER_WITHOUT_FUSE 1u /* no view: everything ordinary */
#define SNAPSHOTTER_WITHOUT_DONTCACHE 2u
#define SNAPSHOTTER_WITHOUT_VERITY 4u
#define SNAPSHOTTER_WITHOUT_HINTS 8u /* to the page cache */
/* from bit 8 on: VIEW_WITHOUT_* << 8 */
#define SNAPSHOTTER_WITHOUT_VIEW_SHIFT 8

/*
 * snapshotter_open() - store, layers, view; never needs the network
 *
 * Detaches what a dead process left mounted, finds orphans in both directions
 * (the deletion itself goes on in the background).
 */
int snapshotter_open(const struct snapshotter_opts *o, struct snapshotter **ret,
		     struct err *e) must_check;
/* Detaches our own mounts, deletes nothing. */
void snapshotter_close(struct snapshotter *s);

/* ---- Prepare and View ---- */

struct prepare_req {
	const char *sn, *key, *parent; /* parent "": none */
	const struct labels *labels;
	bool view;
};

struct prepare_op;

/*
 * snapshotter_prepare() - first half
 *
 * 0: done, *ret holds the mounts. -1: done, *e (ERR_EXISTS after a lazy hit is
 * what containerd waits for). 1: a layer is being made ready; *ret_op stands
 * for the call: @ready(@ctx) is called once, from any thread, when the second
 * half has work to do, at the latest when the caller says so with
 * snapshotter_prepare_expire() (the budget is the caller's timer).
 * Then call snapshotter_prepare_finish() from a worker, exactly once.
 */
int snapshotter_prepare(struct snapshotter *s, const struct prepare_req *rq,
			void (*ready)(void *ctx), void *ctx,
			struct mount_list *ret, struct prepare_op **ret_op,
			struct err *e) must_check;
/* The budget is over, or the client has gone: ready() will be called unless it
 * was. Never blocks. */
void snapshotter_prepare_expire(struct prepare_op *op);
/* Consumes @op. 0 or -1, as above. */
int snapshotter_prepare_finish(struct prepare_op *op, struct mount_list *ret,
			       struct err *e) must_check;
unsigned snapshotter_prepare_budget_ms(const struct snapshotter *s);

/* ---- the other calls ---- */
int snapshotter_mounts(struct snapshotter *s, const char *sn, const char *key,
		       struct mount_list *ret, struct err *e) must_check;
int snapshotter_commit(struct snapshotter *s, const char *sn, const char *name,
		       const char *key, const char *parent,
		       const struct labels *l, struct err *e) must_check;
int snapshotter_remove(struct snapshotter *s, const char *sn, const char *key,
		       struct err *e) must_check;
int snapshotter_stat(struct snapshotter *s, const char *sn, const char *key,
		     struct snap *ret, struct err *e) must_check;
int snapshotter_update(struct snapshotter *s, const char *sn, const char *name,
		       const struct labels *l, const char *const *paths,
		       size_t n_paths, struct snap *ret, struct err *e)
	must_check;
/* Pages of the snapshots that match one of @filters (none: all). @max counts
 * matches; *cursor starts at 0; returns the number passed to @fn, 0: end. */
int snapshotter_list(struct snapshotter *s, const char *sn,
		     const char *const *filters, size_t n_filters,
		     uint64_t *cursor, unsigned max,
		     int (*fn)(void *ctx, const struct snap *sp), void *ctx,
		     struct err *e) must_check;
int snapshotter_usage(struct snapshotter *s, const char *sn, const char *key,
		      uint64_t *ret_size, uint64_t *ret_inodes, struct err *e)
	must_check;
/* Queues the trash and the sweep; replies at once. */
int snapshotter_cleanup(struct snapshotter *s, const char *sn, struct err *e)
	must_check;

/* ---- registries ---- */

/* Whether the registry of an image answers the daemon; lives with the caller
 * until done() was called. */
struct registry_question {
	const char *image; /* a reference, as a user writes it */
	/* In any thread. @e: ERR_NONE, or as registry_check(). */
	void (*done)(struct registry_question *q);
	struct err e;
	char host[256]; /* whose image it is */
	char by[300]; /* who answered; "" when nobody did */
	unsigned ms; /* it took */
	/* private: */
	struct host_job job;
	struct registry *registry;
};

/*
 * snapshotter_ask_registry() - at most ten seconds later done() is called
 *
 * Never blocks. ERR_INVALID (not a reference): it will not be called.
 */
int snapshotter_ask_registry(struct snapshotter *s, struct registry_question *q,
			     struct err *e) must_check;

/* ---- scrub ---- */

/*
 * snapshotter_scrub() - have layers read again
 * @what: "all", or their numbers with blanks between them
 * @ret: it is done when "finished" in the member "scrub" of status has come to
 *	this number
 * ERR_INVALID: @what is neither; ERR_UNAVAILABLE: there is no scrubber, or too
 * much waits for it. Never blocks; any thread.
 */
int snapshotter_scrub(struct snapshotter *s, const char *what, uint64_t *ret,
		      struct err *e) must_check;

/* ---- status ---- */
/* What the view agreed on with the kernel: INIT flags | flags2 << 32; 0 while
 * there is no view. Any thread. */
uint64_t snapshotter_view_flags(const struct snapshotter *s);
/* The images that containerd knows, as names_json(). 0 or -ENOMEM. */
int snapshotter_names_json(struct snapshotter *s, struct buf *out) must_check;
/* The JSON members that verityctl shows, without the outer braces. */
int snapshotter_status_json(struct snapshotter *s, struct buf *out) must_check;

#endif
