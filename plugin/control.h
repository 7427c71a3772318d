/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket RUN/control.sock: one request line, one JSON document,
 * end of file. verityctl is its client.
 *
 *	status\n           the daemon, its features, every layer
 *	registry IMAGE\n   does the registry of IMAGE answer the daemon?
 *	                   {"ok", "host", "by", "ms", "error_kind", "reason"}
 *	images\n           the images that containerd knows: snapshotter/names.h
 *	scrub all\n        have all layers read again, or those with these
 *	scrub SEQ...\n     numbers; {"ticket", "pid"}: done when the member
 *	                   scrub.finished of status has come to the ticket
 *	metrics\n          the metrics, in Prometheus' text format
 *	else               {"error": "..."}
 *
 * A request line of HTTP is understood, too: GET /metrics, for curl
 * --unix-socket and proxies. The connection ends with the answer.
 */
#ifndef PLUGIN_CONTROL_H
#define PLUGIN_CONTROL_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "plugin/features.h"
#include "plugin/loop.h"
#include "plugin/worker.h"
#include "snapshotter/snapshotter.h"

#define CONTROL_SOCKET "control.sock" /* below RUN */

/* What status says of the daemon itself; strings and all outlive it. */
struct control_info {
	const char *root, *run, *address;
	const char *policy;
	bool socket_activated;
	struct features features;
	uint64_t started_ms; /* on the clock of now_ms() */
};

struct control_opts {
	struct loop *loop;
	struct workers *workers;
	int listen_fd; /* bound and listening, non-blocking; consumed */
	const struct control_info *info;
	/* More members, without the outer braces; on a worker thread. */
	int (*members)(void *ctx, struct buf *out);
	/* As snapshotter_names_json(), on a worker thread; may be NULL. */
	int (*images)(void *ctx, struct buf *out);
	/* As snapshotter_ask_registry(); may be NULL. */
	int (*ask_registry)(void *ctx, struct registry_question *q,
			    struct err *e);
	/* As snapshotter_scrub(); may be NULL. */
	int (*scrub)(void *ctx, const char *what, uint64_t *ret, struct err *e);
	/* As snapshotter_view_flags(); may be NULL. */
	uint64_t (*view_flags)(void *ctx);
	void *ctx;
};

struct control;

/* ERR_INTERNAL. Requests are answered while loop_run() runs. */
int control_open(const struct control_opts *o, struct control **ret,
		 struct err *e) must_check;

/* After loop_run(): takes no more requests, and turns the loop until no worker
 * has one. Questions that a registry still has are not waited for; their
 * connections stay. NULL is fine. */
void control_stop(struct control *c);

/* After the snapshotter, whose end is the end of its questions: the loop must
 * not turn any more. NULL is fine. */
void control_close(struct control *c);

#endif
