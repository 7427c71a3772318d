/* SPDX-License-Identifier: Apache-2.0 */
/* One range request under way. Private to registry_req.c, which moves it on,
 * and registry_answer.c, which judges headers. */
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
	struct source *src;
	unsigned src_index, n_src_tried;
	uint64_t deadline_ms;
	enum phase phase;
	uint64_t got; /* bytes delivered */

	/* Start, pauses, and the deadline of waits without a transfer. */
	struct fetch_task task;
	struct fetch_task cancel_task;
	bool cancel_posted; /* under reg->lock */
	bool cancelled, sending;
	struct list node; /* among the source's waiters */
	struct token_waiter token;

	/* the attempt under way */
	unsigned tries, hops, auth_tries;
	bool reused_url; /* began with source.final_url */
	bool resolved_anew; /* ... which was stale once */
	bool alone; /* do not wait for a resolver again */
	struct url url;
	struct grant grant;
	const char *headers[3];
	struct http_req http;
	bool body_is_ours; /* what comes is the range */
	uint64_t got_before, n_junk;
	struct err broken; /* what on_header() or on_data() found wrong */
};

/*
 * The headers of a 206 and of a 200. 0: whether the body is ours to deliver is
 * in run->body_is_ours, and what q->off and q->len are is settled. -1: it is
 * not what was asked for, run->broken says why.
 */
int run_take_206(struct run *run, const struct http_response *resp) must_check;
int run_take_200(struct run *run, const struct http_response *resp) must_check;

/* Sets run->broken; -1 */
int run_broken(struct run *run, const char *what);

/* The source's waiters need not wait for this run any more. @success: they
 * know where to go; otherwise each finds out for itself. */
void run_stop_resolving(struct run *run, bool success);

#endif
