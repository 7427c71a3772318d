/* SPDX-License-Identifier: Apache-2.0 */
/* One range request under way. Private to registry_req.c, which moves it on,
 * registry_form.c, which says what is asked, and registry_answer.c, which judges
 * headers. */
#ifndef SNAPSHOTTER_REGISTRY_RUN_H
#define SNAPSHOTTER_REGISTRY_RUN_H

#include "snapshotter/registry_priv.h"

enum phase {
	PHASE_RANGE, /* q->off and q->len are known */
	PHASE_SUFFIX, /* "bytes=-N" */
	PHASE_SIZE, /* the server knows no suffixes: ask for one byte */
};

struct run {
	struct registry *reg;
	struct blob_req *q;
	struct blob *blob; /* a reference */
	struct place *place; /* a reference; NULL: to be chosen */
	unsigned src_index;
	unsigned n_no_blob; /* places that do not have it */
	uint64_t deadline_ms;
	enum phase phase;
	uint64_t got; /* bytes delivered */

	/* Start, pauses, and the deadline of waits without a transfer. */
	struct fetch_task task;
	struct fetch_task cancel_task;
	bool cancel_posted; /* under reg->lock */
	bool cancelled, sending;
	struct list node; /* among the place's waiters */
	struct net_waiter waiter; /* for hosts, or a token */

	/* the round: each place is asked once */
	struct {
		uint32_t id;
		bool for_good; /* not in later rounds either */
	} tried[PLACES_MAX];
	unsigned n_tried, n_rounds;
	uint64_t pause_ms; /* before the next one */
	struct err kept; /* of the place that has the last word */
	size_t kept_rank;

	/* the attempt under way */
	unsigned hops, auth_tries;
	bool reused_url; /* began with place.final_url */
	bool resolved_anew; /* ... which was stale once */
	uint32_t alone_at; /* do not wait for that place's resolver again */
	struct url url;
	struct grant grant;
	const char **headers;
	struct http_req http;
	bool body_is_ours; /* what comes is the range */
	uint64_t got_before, n_junk;
	bool noted; /* who sends these bytes */
	struct err broken; /* what on_header() or on_data() found wrong */
};

/* Does run->url lead to the place itself, and not where it redirected to? */
bool run_at_place(const struct run *run);

/*
 * run_form_request() - all of run->http but the callbacks; it comes zeroed
 * 0 or -ENOMEM.
 */
int run_form_request(struct run *run, uint64_t left_ms) must_check;

/*
 * The headers of a 206 and of a 200. 0: whether the body is ours to deliver is
 * in run->body_is_ours, and what q->off and q->len are is settled. -1: it is
 * not what was asked for, run->broken says why.
 */
int run_take_206(struct run *run, const struct http_response *resp) must_check;
int run_take_200(struct run *run, const struct http_response *resp) must_check;

/*
 * place_choose() - which place is asked next
 *
 * In the order of sources and hosts, those that failed lately last. It is in
 * run->place then; false: all have been tried in this round.
 */
bool place_choose(struct run *run) must_check;
/* Another one that is not known to be bad could be asked. */
bool place_has_other(const struct run *run);
/* Bytes from @off on come from run->place. */
void place_note_part(struct run *run, uint64_t off);

/* Sets run->broken; -1 */
int run_broken(struct run *run, const char *what);

/* The place's waiters need not wait for this run any more. @success: they
 * know where to go; otherwise each finds out for itself. */
void run_stop_resolving(struct run *run, bool success);

#endif
