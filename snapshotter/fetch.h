/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges over HTTP: the only user of libcurl beside url.c. One network thread
 * drives a curl multi handle and only moves bytes; decoding and hashing happen
 * elsewhere.
 *
 * Every wait has a deadline: name resolution and connect 10 s, first byte and
 * silence 10 s, a whole transfer `deadline_ms`, counted from fetch_start().
 * Callbacks come on the network thread with no lock held and must not block.
 *
 * Locks: one, rank RANK_POOL, around the queue into the network thread. It may
 * be taken below any other lock of the callers.
 */
#ifndef SNAPSHOTTER_FETCH_H
#define SNAPSHOTTER_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"

struct fetcher;

struct fetcher_opts {
	unsigned max_per_host; /* connections; 0: 8. A quarter serves urgent
				* requests only. */
	unsigned max_total; /* 0: 64 */
	unsigned silence_ms; /* no byte for so long: failed; 0: 10 s */
	bool http2; /* over TLS, where the server knows it */
	unsigned idle_ms; /* keep unused connections so long; 0: 60 s */
};

int fetcher_new(const struct fetcher_opts *o, struct fetcher **ret) must_check;
/*
 * Cancels everything (callbacks run with ERR_CANCELLED), joins the thread, and
 * gives up the caller's reference. With another one the object may still be
 * called: requests are then refused on the spot. Accepts NULL.
 */
void fetcher_free(struct fetcher *f);

/* How near it is to its limits. Any thread. */
struct fetcher_stats {
	unsigned n_running, n_queued; /* transfers, now */
	unsigned max_total, max_per_host; /* connections */
};
void fetcher_stats(struct fetcher *f, struct fetcher_stats *ret);
struct fetcher *fetcher_ref(struct fetcher *f);
void fetcher_unref(struct fetcher *f);

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST };

#define HTTP_NO_RANGE UINT64_MAX

/* What a response said; strings live during the callback. */
struct http_response {
	long status;
	uint64_t content_length; /* UINT64_MAX: not told */
	/* from Content-Range; range_first UINT64_MAX: none, or not readable;
	 * range_total UINT64_MAX: not told */
	uint64_t range_first, range_last, range_total;
	const char *content_type; /* these three may be NULL */
	const char *location; /* of a redirect */
	const char *www_authenticate; /* several joined with ", " */
	bool encoded; /* has a Content-Encoding: not the bytes we asked for */
	bool silent; /* in done(): no byte for too long, so we gave up */
	unsigned retry_after_s; /* 0: not told */
};

/*
 * One transfer. The caller fills it in, keeps it alive until done() was called,
 * and owns all strings. Redirects are not followed here (registry_req.c does:
 * the Authorization header must not cross hosts).
 */
struct http_req {
	const char *url; /* http or https */
	enum http_method method;
	const char *const
		*headers; /* "Name: value", NULL-terminated; may be NULL */
	const char *body; /* HTTP_POST */
	uint64_t range_off; /* or HTTP_NO_RANGE */
	uint64_t range_len; /* 0 with an offset: to the end */
	uint64_t suffix_len; /* > 0: the last so many bytes instead */
	const char *ca_file, *client_cert, *client_key; /* may be NULL */
	const char *ca_pem; /* in addition to the system's; may be NULL */
	bool skip_verify;
	bool impatient; /* there is somebody else to ask: half the silence and
			 * half the default time to connect are enough */
	unsigned connect_timeout_ms; /* 0: 10 s */
	unsigned silence_ms; /* no byte for so long: failed; 0: the fetcher's */
	unsigned deadline_ms; /* 0: 60 s */
	bool urgent; /* before others in the queue */

	/* Headers are complete. Non-zero: stop the transfer (ERR_CANCELLED in
	 * done unless the callback set something better in *e). May be NULL. */
	int (*on_header)(struct http_req *r, const struct http_response *resp,
			 struct err *e);
	/* Body bytes in order. Non-zero: stop. May be NULL: ignored. */
	int (*on_data)(struct http_req *r, const void *p, size_t len);
	/* Exactly once. e->kind ERR_NONE: the response arrived whole, whatever
	 * its status. ERR_UNAVAILABLE: network or deadline. resp->status is 0
	 * when no response came. */
	void (*done)(struct http_req *r, const struct http_response *resp,
		     const struct err *e);
	void *ctx;

	/* private to fetch.c */
	struct list node;
	struct transfer *transfer;
	int state;
	bool cancelled;
	uint64_t started_ms;
};

/* Never blocks. After it, done() will be called; also when it fails later. */
void fetch_start(struct fetcher *f, struct http_req *r);
/* done() is called soon with ERR_CANCELLED unless it was already. Never blocks. */
void fetch_cancel(struct fetcher *f, struct http_req *r);

/*
 * Something else to do on the network thread: a message to it, or a timer. A
 * state machine all of whose steps run there needs no lock.
 */
struct fetch_task {
	/* @stopping: the fetcher is being freed; come to an end. May add the
	 * task again unless stopping. */
	void (*run)(struct fetch_task *t, bool stopping);
	struct list node; /* the rest is private; list_init() it once */
	uint64_t due_ms;
};

/* Anew when it waits already. 0, or -ECANCELED: the thread has ended and the
 * task will not run. */
int fetch_task_add(struct fetcher *f, struct fetch_task *t, unsigned delay_ms)
	must_check;
/* true: it was waiting and will not run. On the network thread, or with the
 * certainty that it does not run there just now. */
bool fetch_task_remove(struct fetcher *f, struct fetch_task *t);

#endif
