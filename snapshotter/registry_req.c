/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One range of one blob, until it is here or cannot be had; see registry.h.
 *
 * A run is a state machine all of whose steps happen on the network thread:
 *
 *	attempt() -> [hosts] -> [a place] -> [resolver] -> [token] -> send()
 *	   ^                                                           |
 *	   |  try_again(): network, 429, 5xx, short                    |
 *	   +- give_up(): this place has it not, or refuses             |
 *	   +- 401: another token   3xx: another URL   403: a stale URL |
 *	   +---------------------- on_done() <-------------------------+
 *
 * A place that fails is left for the next one; when all have been asked, those
 * whose failure may pass are asked again after a pause, in another round.
 *
 * Bytes are delivered as they come, and only after the headers have promised
 * exactly the range that was asked for. Other threads reach a run through its
 * two tasks only.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/io.h"
#include "base/metrics.h"
#include "snapshotter/auth.h"
#include "snapshotter/registry_run.h"

#define DEADLINE_MS 60000
#define ROUNDS_MAX 3
#define HOPS_MAX 5
#define AUTH_TRIES_MAX 2
#define JUNK_MAX (64 * 1024)
#define TOO_MANY "more bytes than promised"

static void attempt(struct run *run);

/* ---- the end ---- */

/* "host/repository@sha256:0123456789ab" */
static const char *describe(const struct run *run, char *buf, size_t size)
{
	const struct source *s = run->blob->sources[run->src_index];

	(void)snprintf(buf, size, "%.80s/%.64s%c%.19s", s->ref.host,
		       s->ref.repo, s->by_tag ? ':' : '@',
		       s->by_tag ? s->ref.tag
				 : digest_str(&run->blob->digest).s);
	return buf;
}

/* When the resolver has failed, the place may be no good: each waiter looks for
 * a better one, and does not wait again if there is none. */
static void wake_resolved(struct place *p, bool failed)
{
	struct list woken;

	list_init(&woken);
	list_splice(&woken, &p->waiters);
	while (!list_empty(&woken)) {
		struct run *run = list_first(&woken, struct run, node);

		list_remove(&run->node);
		if (failed) {
			run->alone_at = p->id;
			place_put(take_ptr(&run->place));
		}
		/* Not from here: the list may be long. */
		if (fetch_task_add(run->reg->fetcher, &run->task, 0) < 0)
			return; /* cannot be: this is the network thread */
	}
}

void run_stop_resolving(struct run *run, bool success)
{
	if (!run->place || run->place->resolver != run)
		return;
	run->place->resolver = NULL;
	wake_resolved(run->place, !success);
}

static void finish(struct run *run, const struct err *e)
{
	struct registry *reg = run->reg;
	struct blob_req *q = run->q;

	run_stop_resolving(run, false);
	list_remove(&run->node);
	list_remove(&run->waiter.node);
	place_put(run->place);
	(void)fetch_task_remove(reg->fetcher, &run->task);
	lock_take(&reg->lock);
	q->impl = NULL;
	lock_drop(&reg->lock);
	/* Nobody can post it any more. */
	(void)fetch_task_remove(reg->fetcher, &run->cancel_task);
	lock_assert_none();
	q->done(q, e);
	blob_unref(run->blob);
	grant_release(&run->grant);
	url_release(&run->url);
	free(run->headers);
	free(run);
}

static void finish_with(struct run *run, enum err_kind kind, const char *what)
{
	char name[192];
	struct err e = ERR_INIT;

	(void)err_set(&e, kind, "%s: %s", describe(run, name, sizeof(name)),
		      what);
	finish(run, &e);
}

/* The last word of all places that were asked, or of @kind. */
static void finish_failed(struct run *run, enum err_kind kind, const char *what)
{
	run->q->no_blob = run->n_no_blob && run->n_no_blob == run->n_tried;
	if (run->kept.kind != ERR_NONE)
		finish_with(run, run->kept.kind, run->kept.msg);
	else
		finish_with(run, kind, what);
}

/* ---- what to do about a failure ---- */

/* What this run began with is no good; a newer one of another run may be. */
static void forget_final_url(struct run *run)
{
	struct place *p = run->place;

	if (!run->reused_url || !p->final_url)
		return;
	if (run->hops == 0 && strcmp(p->final_url, run->url.text) != 0)
		return;
	free(take_ptr(&p->final_url));
}

static uint64_t time_left(const struct run *run)
{
	uint64_t now = now_ms();

	return run->deadline_ms > now ? run->deadline_ms - now : 0;
}

static void pause_then_attempt(struct run *run, uint64_t ms)
{
	if (fetch_task_add(run->reg->fetcher, &run->task, (unsigned)ms) < 0)
		finish_with(run, ERR_CANCELLED, "stopping");
}

/* Half to all of @ms. It only has to differ from one node to the next. */
static uint64_t jitter(uint64_t ms)
{
	return ms / 2 + now_ns() % (ms / 2 + 1);
}

static unsigned series_of_fault(enum err_kind kind)
{
	switch (kind) {
	case ERR_UNAVAILABLE:
		return METRIC_FAULT_UNAVAILABLE;
	case ERR_DENIED:
		return METRIC_FAULT_DENIED;
	case ERR_CORRUPT:
		return METRIC_FAULT_CORRUPT;
	default:
		return METRIC_FAULT_OTHER;
	}
}

/* The host that stands last in its list is the registry itself: what it says
 * counts more than what a mirror says. */
static void keep_error(struct run *run, enum err_kind kind, const char *what)
{
	const struct place *p = run->place;
	size_t rank = (size_t)(p->host - p->list->v);

	metrics_add(METRIC_REGISTRY_FAULTS, series_of_fault(kind), 1);
	if (run->kept.kind != ERR_NONE && rank < run->kept_rank)
		return;
	run->kept_rank = rank;
	/* What the network says names the host itself. */
	if (p->host->is_mirror &&
	    strncmp(what, p->host->name, strlen(p->host->name)) != 0)
		(void)err_set(&run->kept, kind, "'%.60s': %s", p->host->name,
			      what);
	else
		(void)err_set(&run->kept, kind, "%s", what);
}

/* A registry whose hosts.toml cannot be read is not asked, and says why. */
static void keep_error_of_hosts(struct run *run, const char *what)
{
	if (run->kept.kind != ERR_NONE)
		return;
	run->kept_rank = 0;
	(void)err_set(&run->kept, ERR_UNAVAILABLE, "%s", what);
}

/* Not this place, in this round or for good. */
static void leave_place(struct run *run, bool for_good)
{
	run_stop_resolving(run, false);
	run->tried[run->n_tried].id = run->place->id;
	run->tried[run->n_tried++].for_good = for_good;
	place_put(take_ptr(&run->place));
	attempt(run);
}

/* This place cannot help; another one may. */
static void give_up(struct run *run, enum err_kind kind, const char *what)
{
	place_failed(run->reg, run->place, FAULT_BLOB, 0, what);
	keep_error(run, kind, what);
	leave_place(run, true);
}

/* A failure that may go away. */
static void try_again(struct run *run, const char *what, unsigned retry_after_s)
{
	uint64_t pause =
		jitter((uint64_t)run->reg->backoff_ms << 2 * run->n_rounds);
	char msg[200];

	if (retry_after_s)
		pause = (uint64_t)retry_after_s * 1000;
	else if (run->got > run->got_before)
		pause = 0; /* it works, only not to the end */
	if (pause < run->pause_ms)
		run->pause_ms = pause;
	(void)snprintf(msg, sizeof(msg), "%.140s, not before %u s", what,
		       retry_after_s);
	if (retry_after_s && now_ms() + pause >= run->deadline_ms)
		what = msg;
	place_failed(run->reg, run->place, FAULT_HOST, retry_after_s, what);
	keep_error(run, ERR_UNAVAILABLE, what);
	/* The host that we were sent to may be gone for good. */
	forget_final_url(run);
	leave_place(run, false);
}

/* No place is left to ask in this round. */
static void end_round(struct run *run)
{
	uint64_t pause = run->pause_ms;
	unsigned n = 0;

	for (unsigned i = 0; i < run->n_tried; i++)
		if (run->tried[i].for_good)
			run->tried[n++] = run->tried[i];
	if (n == run->n_tried || ++run->n_rounds >= ROUNDS_MAX ||
	    now_ms() + pause >= run->deadline_ms) {
		finish_failed(run, ERR_UNAVAILABLE, "nobody to ask");
		return;
	}
	run->n_tried = n;
	run->pause_ms = UINT64_MAX;
	pause_then_attempt(run, pause);
}

/* ---- what comes from the network ---- */

static int on_header(struct http_req *http, const struct http_response *resp,
		     struct err *e)
{
	struct run *run = http->ctx;

	(void)e;
	if (resp->status == 206)
		return run_take_206(run, resp);
	/* An answer to "bytes=-N" that does not fit is not the last word: the
	 * server may know ranges with a beginning. */
	if (resp->status == 200 && run->phase == PHASE_SUFFIX &&
	    (resp->encoded || resp->content_length > run->q->suffix_len))
		return -1;
	if (resp->status == 200)
		return run_take_200(run, resp);
	return 0;
}

static int on_data(struct http_req *http, const void *p, size_t len)
{
	struct run *run = http->ctx;
	struct blob_req *q = run->q;
	bool too_many;

	if (!run->body_is_ours) {
		/* Error pages are read, for the connection's sake. */
		run->n_junk += len;
		return run->n_junk > JUNK_MAX ? -1 : 0;
	}
	too_many = len > q->len - run->got;
	if (too_many)
		len = q->len - run->got;
	if (!run->noted)
		place_note_part(run, q->off + run->got);
	run->noted = true;
	if (run->cancelled ||
	    (len && q->on_data(q, q->off + run->got, p, len) != 0)) {
		return err_set(&run->broken, ERR_CANCELLED,
			       "stopped by its reader");
	}
	run->got += len;
	atomic_fetch_add(&run->reg->bytes, len);
	metrics_add(METRIC_RECEIVED_BYTES,
		    run->place->host->is_mirror ? METRIC_FROM_MIRROR
						: METRIC_FROM_REGISTRY,
		    len);
	return too_many ? run_broken(run, TOO_MANY) : 0;
}

/* ---- what the answer means ---- */

static void send_request(struct run *run);

static void follow(struct run *run, const char *location)
{
	struct url to = { 0 };
	int r;

	if (!location) {
		give_up(run, ERR_CORRUPT, "redirect without Location");
		return;
	}
	if (++run->hops > HOPS_MAX) {
		give_up(run, ERR_CORRUPT, "too many redirects");
		return;
	}
	r = url_parse(run->url.text, location, &to);
	if (r == -ENOMEM) {
		finish_with(run, ERR_INTERNAL, "out of memory");
		return;
	}
	if (r < 0) {
		give_up(run, ERR_CORRUPT, "redirect to something unusable");
		return;
	}
	if (run->url.https && !to.https &&
	    !(host_is_loopback(to.host) && host_is_loopback(run->url.host))) {
		url_release(&to);
		give_up(run, ERR_CORRUPT, "redirect from https to http");
		return;
	}
	url_release(&run->url);
	run->url = to;
	send_request(run);
}

/* A presigned URL has expired, or was never good. */
static void refused_elsewhere(struct run *run, long status)
{
	char msg[160];

	if (run->reused_url && !run->resolved_anew) {
		run->resolved_anew = true;
		forget_final_url(run);
		attempt(run);
		return;
	}
	(void)snprintf(msg, sizeof(msg), "'%.100s' answers %ld", run->url.host,
		       status);
	give_up(run, ERR_DENIED, msg);
}

/* Tokens that are good elsewhere, or a user that this registry does not know. */
static void refused_for_good(struct run *run)
{
	static const char basic[] = "Authorization: Basic ";
	char path[PATH_MAX], msg[300];

	if (!run->grant.header ||
	    strncmp(run->grant.header, basic, strlen(basic)) != 0) {
		give_up(run, ERR_DENIED, "401 in spite of a new token");
		return;
	}
	auth_config_name(run->reg->docker_config, path, sizeof(path));
	(void)snprintf(msg, sizeof(msg),
		       "401: the user and password of '%.100s' are refused: "
		       "docker login %.80s",
		       path, run->place->host->name);
	give_up(run, ERR_DENIED, msg);
}

static void refused_here(struct run *run, const struct http_response *resp)
{
	struct err e = ERR_INIT;
	int r;

	if (resp->status != 401) {
		give_up(run, ERR_DENIED, "403: access is denied");
		return;
	}
	if (++run->auth_tries > AUTH_TRIES_MAX) {
		refused_for_good(run);
		return;
	}
	r = token_refused(run->reg, run->place, &run->grant,
			  resp->www_authenticate, &run->waiter, &e);
	if (r < 0) {
		give_up(run, e.kind, e.msg);
		return;
	}
	pause_then_attempt(run, r > 0 ? 0 : time_left(run));
}

/* Whole, but not the bytes. */
static void judge_status(struct run *run, const struct http_response *resp)
{
	char msg[160];
	long s = resp->status;

	if (run_at_place(run))
		(void)snprintf(msg, sizeof(msg), "%s answers %ld",
			       run->place->host->is_mirror ? "the host"
							   : "the registry",
			       s);
	else
		(void)snprintf(msg, sizeof(msg), "'%.100s' answers %ld",
			       run->url.host, s);
	if (s == 301 || s == 302 || s == 303 || s == 307 || s == 308)
		follow(run, resp->location);
	else if (run->phase == PHASE_SUFFIX &&
		 (s == 200 || s == 206 || s == 400 || s == 416 || s == 501)) {
		run->phase = PHASE_SIZE;
		attempt(run);
	} else if (s == 206) {
		attempt(run); /* PHASE_SIZE has become PHASE_RANGE */
	} else if (run->reused_url && !run->resolved_anew && s >= 400 &&
		   s < 500 && s != 408 && s != 416 && s != 429) {
		/* Hosts differ in what they say to an expired signature. */
		refused_elsewhere(run, s);
	} else if (run_at_place(run) && (s == 401 || s == 403)) {
		refused_here(run, resp);
	} else if (s == 401 || s == 403) {
		refused_elsewhere(run, s);
	} else if (s == 408 || s == 429 || (s >= 500 && s != 501)) {
		try_again(run, msg, resp->retry_after_s);
	} else if (s == 416) {
		give_up(run, ERR_CORRUPT,
			"416: the blob is shorter than it should be");
	} else {
		run->n_no_blob += s >= 400 && s < 500;
		give_up(run, ERR_UNAVAILABLE, msg);
	}
}

static void on_done(struct http_req *http, const struct http_response *resp,
		    const struct err *e)
{
	static const struct err none = ERR_INIT;
	struct run *run = http->ctx;
	char msg[200];

	run->sending = false;
	run->q->silent = resp->silent;
	if (run->cancelled) {
		finish_with(run, ERR_CANCELLED, "cancelled");
	} else if (run->broken.kind == ERR_CANCELLED) {
		finish_with(run, ERR_CANCELLED, run->broken.msg);
	} else if (run->body_is_ours && run->broken.kind == ERR_CORRUPT &&
		   run->got == run->q->len) {
		/* All that was promised is here, and will be verified. Nobody
		 * can be asked for less than nothing. */
		place_failed(run->reg, run->place, FAULT_BLOB, 0, TOO_MANY);
		finish(run, &none);
	} else if (run->broken.kind != ERR_NONE) {
		give_up(run, run->broken.kind, run->broken.msg);
	} else if (run->body_is_ours && run->got == run->q->len) {
		place_worked(run->reg, run->place);
		finish(run, &none);
	} else if (e->kind == ERR_CANCELLED &&
		   (run->body_is_ours || !resp->status)) {
		finish_with(run, ERR_CANCELLED, "stopping");
	} else if (resp->silent && run->q->yields) {
		place_failed(run->reg, run->place, FAULT_HOST, 0, e->msg);
		give_up(run, ERR_UNAVAILABLE, e->msg);
	} else if (run->body_is_ours) {
		(void)snprintf(msg, sizeof(msg),
			       "the answer ended after %" PRIu64 " of %" PRIu64
			       " bytes (%.100s)",
			       run->got, run->q->len,
			       e->kind == ERR_NONE ? "without an error"
						   : e->msg);
		try_again(run, msg, 0);
	} else if (e->kind == ERR_UNAVAILABLE) {
		try_again(run, e->msg, 0);
	} else if (e->kind == ERR_NONE || e->kind == ERR_CANCELLED) {
		judge_status(run, resp);
	} else {
		finish_with(run, e->kind, e->msg);
	}
}

/* ---- asking ---- */

/* Asks run->url. */
static void send_request(struct run *run)
{
	uint64_t left = time_left(run);
	struct http_req *h = &run->http;

	if (!left) {
		finish_failed(run, ERR_UNAVAILABLE, "no time left");
		return;
	}
	memset(h, 0, sizeof(*h));
	if (run_form_request(run, left) < 0) {
		finish_with(run, ERR_INTERNAL, "out of memory");
		return;
	}
	run->body_is_ours = run->noted = false;
	run->n_junk = 0;
	run->got_before = run->got;
	memset(&run->broken, 0, sizeof(run->broken));
	h->on_header = on_header;
	h->on_data = on_data;
	h->done = on_done;
	h->ctx = run;
	run->sending = true;
	atomic_fetch_add(&run->reg->n_requests, 1);
	metrics_add(METRIC_REGISTRY_REQUESTS, 0, 1);
	fetch_start(run->reg->fetcher, h);
}

/* A token first, where one is known to be needed. */
static void authorise(struct run *run)
{
	struct err e = ERR_INIT;
	int r = token_get(run->reg, run->place, &run->grant, &run->waiter, &e);

	if (r < 0)
		finish_with(run, e.kind, e.msg);
	else if (r == 0)
		pause_then_attempt(run, time_left(run));
	else
		send_request(run);
}

/* Hosts are known, or a token has come; or why not. */
static void run_ready(struct net_waiter *w, const struct err *e)
{
	struct run *run = list_entry(w, struct run, waiter);

	(void)fetch_task_remove(run->reg->fetcher, &run->task);
	if (run->cancelled)
		finish_with(run, ERR_CANCELLED, "cancelled");
	else if (e->kind == ERR_NONE)
		attempt(run);
	else if (e->kind == ERR_CANCELLED || e->kind == ERR_INTERNAL)
		finish_with(run, e->kind, e->msg);
	else if (e->kind == ERR_UNAVAILABLE)
		try_again(run, e->msg, 0);
	else
		give_up(run, e->kind, e->msg);
}

/* The places of all sources as they are configured now. 1: they are known, 0:
 * run_ready() will be called, or the run is over. */
static int find_hosts(struct run *run)
{
	struct err e = ERR_INIT;
	unsigned n;
	int r = 1;

	lock_take(&run->reg->lock);
	n = run->blob->n_sources;
	lock_drop(&run->reg->lock);
	for (unsigned i = 0; i < n && r > 0; i++) {
		struct source *s = run->blob->sources[i];
		struct host_list *l = NULL;

		r = hosts_get(run->reg, s->ref.host, &l, &run->waiter, &e);
		if (r > 0 && source_set_hosts(run->blob, s, l) < 0)
			r = err_set(&e, ERR_INTERNAL, "out of memory");
		if (r > 0 && l->error)
			keep_error_of_hosts(run, l->error);
	}
	if (r < 0)
		finish_with(run, e.kind, e.msg);
	else if (r == 0)
		pause_then_attempt(run, time_left(run));
	return r > 0;
}

/* At the place that was chosen. */
static void ask_place(struct run *run)
{
	struct place *p = run->place;
	const char *url = p->final_url ? p->final_url : p->url.text;

	run->reused_url = p->final_url != NULL;
	run->hops = 0;
	if (!p->final_url && !p->direct && run->alone_at != p->id &&
	    p->resolver != run) {
		if (p->resolver) {
			list_push(&p->waiters, &run->node);
			pause_then_attempt(run, time_left(run));
			return;
		}
		p->resolver = run;
	}
	if (url_parse(NULL, url, &run->url) < 0)
		finish_with(run, ERR_INTERNAL, "out of memory");
	else if (p->final_url && !run_at_place(run))
		send_request(run);
	else
		authorise(run);
}

/* From the beginning, for what is still missing. */
static void attempt(struct run *run)
{
	if (run->cancelled) {
		finish_with(run, ERR_CANCELLED, "cancelled");
		return;
	}
	if (!time_left(run)) {
		finish_failed(run, ERR_UNAVAILABLE, "no time left");
		return;
	}
	if (!run->place) {
		if (!find_hosts(run))
			return;
		if (!place_choose(run)) {
			end_round(run);
			return;
		}
	}
	ask_place(run);
}

static void run_task(struct fetch_task *t, bool stopping)
{
	struct run *run = list_entry(t, struct run, task);

	list_remove(&run->node);
	list_remove(&run->waiter.node);
	if (stopping)
		finish_with(run, ERR_CANCELLED, "stopping");
	else
		attempt(run);
}

static void run_cancel(struct fetch_task *t, bool stopping)
{
	struct run *run = list_entry(t, struct run, cancel_task);

	(void)stopping;
	run->cancelled = true;
	if (run->sending)
		fetch_cancel(run->reg->fetcher, &run->http);
	else
		finish_with(run, ERR_CANCELLED, "cancelled");
}

/* ---- what other threads call ---- */

static int check_range(struct blob_req *q, struct err *e)
{
	uint64_t size, end;

	if (q->suffix_len)
		return 0;
	/* A size that an answer told is no reason to refuse: it may be wrong,
	 * and only another answer can show that. */
	lock_take(&q->blob->reg->lock);
	size = q->blob->size_was_set ? q->blob->size : 0;
	lock_drop(&q->blob->reg->lock);
	if (q->len == 0 || __builtin_add_overflow(q->off, q->len, &end) ||
	    (size && end > size))
		return err_set(e, ERR_INVALID,
			       "range %" PRIu64 "+%" PRIu64
			       " of a blob of %" PRIu64 " bytes",
			       q->off, q->len, size);
	return 0;
}

int blob_fetch(struct blob_req *q, struct err *e)
{
	struct blob *b = q->blob;
	uint64_t size = blob_size(b);
	struct run *run;
	int r;

	if (check_range(q, e) < 0)
		return -1;
	run = calloc(1, sizeof(*run));
	if (!run)
		return err_set(e, ERR_INTERNAL, "out of memory");
	run->reg = b->reg;
	run->q = q;
	q->silent = q->no_blob = false;
	run->blob = blob_ref(b);
	run->deadline_ms =
		now_ms() + (q->deadline_ms ? q->deadline_ms : DEADLINE_MS);
	run->phase = q->suffix_len && !size ? PHASE_SUFFIX : PHASE_RANGE;
	if (q->suffix_len && size) {
		q->len = q->suffix_len < size ? q->suffix_len : size;
		q->off = size - q->len;
	}
	list_init(&run->task.node);
	list_init(&run->cancel_task.node);
	list_init(&run->node);
	list_init(&run->waiter.node);
	run->task.run = run_task;
	run->cancel_task.run = run_cancel;
	run->waiter.ready = run_ready;
	run->pause_ms = UINT64_MAX;
	lock_take(&b->reg->lock);
	run->src_index = b->preferred;
	/* Both in one: a blob_cancel() in between would end and free a run that
	 * had not begun. */
	r = fetch_task_add(b->reg->fetcher, &run->task, 0);
	q->impl = r < 0 ? NULL : run;
	lock_drop(&b->reg->lock);
	if (r == 0)
		return 0;
	blob_unref(run->blob);
	free(run);
	return err_set(e, ERR_CANCELLED, "stopping");
}

void blob_cancel(struct blob_req *q)
{
	struct registry *reg = q->blob->reg;

	lock_take(&reg->lock);
	if (q->impl && !q->impl->cancel_posted) {
		q->impl->cancel_posted = true;
		/* Refused: the thread has ended, and done() was called. */
		(void)!fetch_task_add(reg->fetcher, &q->impl->cancel_task, 0);
	}
	lock_drop(&reg->lock);
}
