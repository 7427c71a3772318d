/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call from its headers to its trailers; see call.h.
 *
 *	READING -> RUNNING -> answered
 *	           RUNNING -> PARKED (ready) -> RUNNING -> answered
 *	           RUNNING -> SENDING (drained) -> RUNNING ... -> answered
 *
 * The stream and the call end independently. Without a stream (the client
 * went away, or was told that its deadline has passed) the call goes on to the
 * end of what it is doing, and its result is dropped. A call in RUNNING or
 * PARKED is never freed: a worker, or the snapshotter, refers to it.
 */
#include "plugin/call.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/metrics.h"
#include "plugin/methods.h"
#include "rpc/grpc.h"
#include "snapshotter/snapshotter.h"

#define CALLS_MAX 2000u
#define REQUEST_BYTES_MAX (128u << 20)
#define REQUEST_TIMEOUT_US (60ull * 1000000)
#define TIMER_ACCURACY_US 1000 /* 0 would mean a quarter of a second */

enum call_state { CALL_READING, CALL_RUNNING, CALL_PARKED, CALL_SENDING };

struct call {
	struct list node;
	struct calls *all;
	struct h2_stream *stream; /* NULL: answered, or the client has gone */
	enum call_state state;
	bool responded; /* headers are sent */
	bool ready; /* second half of Prepare: ready() was called */
	bool expired; /* ... and snapshotter_prepare_expire() too */
	uint64_t begin_us, deadline_us; /* of CLOCK_MONOTONIC */
	sd_event_source *timer;
	struct grpc_reader reader;
	size_t n_bytes; /* our part of all->request_bytes */
	struct method_call m;
	enum method_next next; /* written by the worker */
	struct work work;
	struct loop_post ready_post;
};

static uint64_t now_us(struct calls *cs)
{
	uint64_t now = 0;

	(void)sd_event_now(loop_event(cs->loop), CLOCK_MONOTONIC, &now);
	return now;
}

/* ---- the end of a call ---- */

static void call_free(struct call *c)
{
	c->all->request_bytes -= c->n_bytes;
	c->all->n--;
	list_remove(&c->node);
	sd_event_source_disable_unref(c->timer);
	grpc_reader_release(&c->reader);
	method_call_release(&c->m);
	free(c);
}

/* The status, as trailers or, when nothing was sent before, as all there is. */
static void send_status(struct h2_stream *st, const struct grpc_status *status,
			bool responded)
{
	char message[GRPC_ENCODED_MAX], code[12];
	struct h2_header h[4];
	size_t n = 0;

	if (!responded)
		h[n++] = (struct h2_header){ "content-type",
					     "application/grpc" };
	(void)snprintf(code, sizeof(code), "%d", (int)status->code);
	h[n++] = (struct h2_header){ "grpc-status", code };
	if (status->code != GRPC_OK && status->msg[0]) {
		grpc_percent_encode(status->msg, message, sizeof(message));
		h[n++] = (struct h2_header){ "grpc-message", message };
	}
	if (status->code == GRPC_UNIMPLEMENTED && !responded)
		h[n++] = (struct h2_header){ "grpc-accept-encoding",
					     "identity" };
	if (responded)
		h2_finish(st, h, n);
	else
		h2_respond(st, 200, h, n, true);
}

static void send_data(struct call *c)
{
	static const struct h2_header h = { "content-type",
					    "application/grpc" };

	if (!c->responded)
		h2_respond(c->stream, 200, &h, 1, false);
	c->responded = true;
	h2_send(c->stream, &c->m.out);
}

/* Failures that are not the client's doing are seen without debug logging. */
static void log_answer(struct call *c, const struct grpc_status *status)
{
	const char *method = method_name(c->m.method);
	unsigned long long us = now_us(c->all) - c->begin_us;

	switch (status->code) {
	case GRPC_INTERNAL:
	case GRPC_DATA_LOSS:
	case GRPC_RESOURCE_EXHAUSTED:
	case GRPC_UNAVAILABLE:
	case GRPC_PERMISSION_DENIED:
		log_limited(LOG_LEVEL_WARN, status->msg,
			    "call failed: method=%s code=%s us=%llu err='%s'",
			    method, grpc_code_name(status->code), us,
			    status->msg);
		return;
	default:
		log_debug("call ended: method=%s code=%s us=%llu err='%s'",
			  method, grpc_code_name(status->code), us,
			  status->msg);
	}
}

static void count_answer(struct call *c, enum grpc_code code)
{
	if (strcmp(method_name(c->m.method), "Prepare") != 0)
		return;
	metrics_observe(METRIC_PREPARE_DURATION,
			code == GRPC_OK               ? METRIC_PREPARE_ORDINARY
			: code == GRPC_ALREADY_EXISTS ? METRIC_PREPARE_LAZY
						      : METRIC_PREPARE_FAILED,
			(now_us(c->all) - c->begin_us) * 1000);
}

/* Tells the client, and lets go of the stream. */
static void call_answer(struct call *c, const struct grpc_status *status)
{
	struct h2_stream *st = c->stream;

	log_answer(c, status);
	count_answer(c, status->code);
	if (status->code == GRPC_OK && c->m.out.len)
		send_data(c);
	h2_stream_set_user(st, NULL);
	c->stream = NULL;
	send_status(st, status, c->responded);
}

static void call_expire(struct call *c)
{
	if (c->expired || c->ready)
		return;
	c->expired = true;
	snapshotter_prepare_expire(c->m.op);
}

/* Nobody waits for the result any more; @c may be freed. */
static void call_abandon(struct call *c)
{
	c->stream = NULL;
	switch (c->state) {
	case CALL_READING:
	case CALL_SENDING:
		call_free(c);
		return;
	case CALL_PARKED:
		call_expire(c);
		return;
	case CALL_RUNNING:
		return;
	}
}

static void call_fail(struct call *c, const struct grpc_status *status)
{
	call_answer(c, status);
	call_abandon(c);
}

/* ---- time ---- */

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata);

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t budget_end(const struct call *c)
{
	return c->begin_us +
	       snapshotter_prepare_budget_ms(c->all->snapshotter) * 1000ull;
}

/* Sets the timer to what this state waits for. Failing here (no memory) must
 * not go unnoticed: a Prepare without its budget could wait for ever. */
static int call_arm(struct call *c)
{
	uint64_t at = UINT64_MAX;
	int r;

	if (c->stream)
		at = c->deadline_us;
	if (c->state == CALL_READING)
		at = earlier(at, c->begin_us + REQUEST_TIMEOUT_US);
	if (c->state == CALL_PARKED && !c->expired)
		at = earlier(at, budget_end(c));
	if (at == UINT64_MAX) {
		if (c->timer)
			(void)sd_event_source_set_enabled(c->timer,
							  SD_EVENT_OFF);
		return 0;
	}
	if (!c->timer)
		return sd_event_add_time(loop_event(c->all->loop), &c->timer,
					 CLOCK_MONOTONIC, at, TIMER_ACCURACY_US,
					 on_timer, c);
	r = sd_event_source_set_time(c->timer, at);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
	struct call *c = userdata;
	struct grpc_status late = { GRPC_DEADLINE_EXCEEDED,
				    "deadline exceeded" };
	uint64_t now = now_us(c->all);

	(void)src;
	(void)usec;
	if (c->stream && now >= c->deadline_us) {
		call_fail(c, &late);
		return 0;
	}
	if (c->state == CALL_READING &&
	    now >= c->begin_us + REQUEST_TIMEOUT_US) {
		(void)grpc_fail(&late, GRPC_DEADLINE_EXCEEDED,
				"the request did not arrive within a minute");
		call_fail(c, &late);
		return 0;
	}
	if (c->state == CALL_PARKED && now >= budget_end(c))
		call_expire(c);
	/* The source exists: this sets a time, which cannot fail. */
	(void)call_arm(c);
	return 0;
}

/* ---- steps ---- */

static void on_run(struct work *w)
{
	struct call *c = container_of(w, struct call, work);

	c->next = method_step(&c->m);
}

static void call_run(struct call *c)
{
	static const struct grpc_status stopping = { GRPC_UNAVAILABLE,
						     "stopping" };
	enum call_state was = c->state;

	c->state = CALL_RUNNING;
	if (work_submit(c->all->workers, &c->work) == 0)
		return;
	c->state = was;
	if (was == CALL_PARKED) {
		/* The workers have been stopped before their server, but the
		 * second half must run: it gives back what the first took. */
		c->state = CALL_RUNNING;
		on_run(&c->work);
		c->work.done(&c->work);
		return;
	}
	if (c->stream)
		call_answer(c, &stopping);
	call_abandon(c);
}

static void call_park(struct call *c)
{
	c->state = CALL_PARKED;
	if (c->ready)
		call_run(c);
	else if (!c->stream || c->all->stopping || call_arm(c) < 0)
		call_expire(c);
}

static void on_done(struct work *w)
{
	struct call *c = container_of(w, struct call, work);

	c->all->request_bytes -= c->n_bytes;
	c->n_bytes = 0;
	switch (c->next) {
	case METHOD_PARKED:
		call_park(c);
		return;
	case METHOD_MORE:
		c->state = CALL_SENDING;
		if (c->stream)
			send_data(c);
		else
			call_free(c);
		return;
	case METHOD_END:
		if (c->stream)
			call_answer(c, &c->m.status);
		call_free(c);
		return;
	}
}

static void on_ready_post(struct loop_post *p)
{
	struct call *c = container_of(p, struct call, ready_post);

	c->ready = true;
	/* Otherwise the first half's result is on its way: call_park(). */
	if (c->state == CALL_PARKED)
		call_run(c);
}

/* Any thread. */
static void on_ready(void *ctx)
{
	struct call *c = ctx;

	loop_post(c->all->loop, &c->ready_post);
}

void calls_stop(struct calls *cs)
{
	struct list *p, *next;

	cs->stopping = true;
	list_each_safe (p, next, &cs->list) {
		struct call *c = list_entry(p, struct call, node);

		if (c->state == CALL_PARKED)
			call_expire(c);
	}
}

/* ---- the stream ---- */

static int call_new(struct calls *cs, struct h2_stream *st,
		    const struct method *m, uint64_t timeout_us)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->all = cs;
	c->stream = st;
	c->begin_us = now_us(cs);
	c->deadline_us = timeout_us == UINT64_MAX ? UINT64_MAX
						  : c->begin_us + timeout_us;
	c->m.method = m;
	c->m.snapshotter = cs->snapshotter;
	c->m.ready = on_ready;
	c->m.ready_ctx = c;
	c->work.run = on_run;
	c->work.done = on_done;
	c->ready_post.fn = on_ready_post;
	list_push(&cs->list, &c->node);
	cs->n++;
	if (call_arm(c) < 0) {
		call_free(c);
		return -ENOMEM;
	}
	h2_stream_set_user(st, c);
	return 0;
}

/* What can be said against a request by its headers. */
static int check_request(struct calls *cs, const struct h2_request *rq,
			 const struct method *m, uint64_t *ret_timeout_us,
			 struct grpc_status *status)
{
	*ret_timeout_us = UINT64_MAX;
	if (!m)
		return grpc_fail(status, GRPC_UNIMPLEMENTED,
				 "unknown method '%s'", rq->path);
	if (rq->timeout[0] &&
	    grpc_timeout_parse(rq->timeout, ret_timeout_us) < 0)
		return grpc_fail(status, GRPC_INVALID_ARGUMENT,
				 "malformed grpc-timeout '%s'", rq->timeout);
	if (cs->stopping)
		return grpc_fail(status, GRPC_UNAVAILABLE, "stopping");
	if (cs->n >= CALLS_MAX)
		return grpc_fail(status, GRPC_UNAVAILABLE,
				 "more than %u calls at a time", CALLS_MAX);
	return 0;
}

void call_request(void *ctx, struct h2_stream *st)
{
	static const struct h2_header allow = { "allow", "POST" };
	const struct h2_request *rq = h2_stream_request(st);
	const struct method *m = method_find(rq->path);
	struct grpc_status status = { 0 };
	struct calls *cs = ctx;
	uint64_t timeout_us;

	if (strcmp(rq->method, "POST") != 0) {
		h2_respond(st, 405, &allow, 1, true);
		return;
	}
	if (!grpc_is_content_type(rq->content_type)) {
		h2_respond(st, 415, NULL, 0, true);
		return;
	}
	if (check_request(cs, rq, m, &timeout_us, &status) == 0) {
		if (call_new(cs, st, m, timeout_us) == 0)
			return;
		(void)grpc_fail(&status, GRPC_RESOURCE_EXHAUSTED,
				"out of memory");
	}
	send_status(st, &status, false);
}

void call_data(void *ctx, struct h2_stream *st, const uint8_t *p, size_t len)
{
	struct call *c = h2_stream_user(st);
	struct grpc_status status = { 0 };
	struct calls *cs = ctx;

	if (!c) /* answered; the rest of the request does not matter */
		return;
	if (len > REQUEST_BYTES_MAX - cs->request_bytes) {
		(void)grpc_fail(&status, GRPC_RESOURCE_EXHAUSTED,
				"more than %u bytes of requests at a time",
				REQUEST_BYTES_MAX);
		call_fail(c, &status);
		return;
	}
	cs->request_bytes += len;
	c->n_bytes += len;
	if (grpc_reader_feed(&c->reader, p, len, &status) < 0)
		call_fail(c, &status);
}

void call_end(void *ctx, struct h2_stream *st)
{
	struct call *c = h2_stream_user(st);
	struct grpc_status status = { 0 };

	(void)ctx;
	if (!c || c->state != CALL_READING)
		return;
	if (grpc_reader_end(&c->reader, &status) < 0) {
		call_fail(c, &status);
		return;
	}
	c->m.request = c->reader.msg;
	memset(&c->reader, 0, sizeof(c->reader));
	call_run(c);
	/* The request has come: only the deadline counts now. */
	if (h2_stream_user(st) == c)
		(void)call_arm(c);
}

void call_drained(void *ctx, struct h2_stream *st)
{
	struct call *c = h2_stream_user(st);

	(void)ctx;
	if (c && c->state == CALL_SENDING)
		call_run(c);
}

void call_stream_closed(void *ctx, struct h2_stream *st)
{
	struct call *c = h2_stream_user(st);

	(void)ctx;
	if (c)
		call_abandon(c);
}
