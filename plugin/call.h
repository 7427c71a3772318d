/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one gRPC call, between its HTTP/2 stream, a worker and its
 * timer. Loop thread only.
 */
#ifndef PLUGIN_CALL_H
#define PLUGIN_CALL_H

#include <stdbool.h>

#include "base/list.h"
#include "plugin/h2.h"
#include "plugin/loop.h"
#include "plugin/worker.h"

struct snapshotter;

/* All calls of a server. */
struct calls {
	struct loop *loop;
	struct workers *workers;
	struct snapshotter *snapshotter;
	struct list list;
	unsigned n; /* in list; those whose client has gone included */
	size_t request_bytes; /* held for requests that are not unpacked yet */
	bool stopping;
};

/* No new calls; parked Prepares are told that their budget is over. */
void calls_stop(struct calls *cs);

/* For struct h2_ops, with a struct calls as context. */
void call_request(void *ctx, struct h2_stream *st);
void call_data(void *ctx, struct h2_stream *st, const uint8_t *p, size_t len);
void call_end(void *ctx, struct h2_stream *st);
void call_drained(void *ctx, struct h2_stream *st);
void call_stream_closed(void *ctx, struct h2_stream *st);

#endif
