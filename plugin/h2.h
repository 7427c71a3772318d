/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 on one connected socket: the only user of nghttp2. A connection
 * belongs to the loop thread and everything here is called there.
 *
 * Memory is bounded whatever the peer does: a number of streams, one send
 * buffer, and for each stream what its owner gave to h2_send(), once. While
 * the peer does not take what we send, nothing is read from it.
 */
#ifndef PLUGIN_H2_H
#define PLUGIN_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define H2_STREAMS_MAX 1000u /* at a time on one connection */

struct h2_conn;
struct h2_stream;

/* What a server of gRPC wants to know of a request. A value that is too long
 * is cut, and then equals nothing that is valid; an absent one is "". */
struct h2_request {
	char method[8], path[128], content_type[64], timeout[16];
};

struct h2_header {
	const char *name, *value;
};

/*
 * What the owner is told, always on the loop thread. None of these may close
 * the connection. After stream_closed() the stream must not be touched.
 */
struct h2_ops {
	/* the headers are complete; h2_stream_set_user() now */
	void (*request)(void *ctx, struct h2_stream *st);
	void (*data)(void *ctx, struct h2_stream *st, const uint8_t *p,
		     size_t len);
	void (*end)(void *ctx, struct h2_stream *st);
	/* all that h2_send() was given has been taken: it may be called again,
	 * but not from within this */
	void (*drained)(void *ctx, struct h2_stream *st);
	void (*stream_closed)(void *ctx, struct h2_stream *st);
	/* the connection has ended; @c is freed when this returns */
	void (*conn_closed)(void *ctx, struct h2_conn *c);
};

/* Consumes @fd (non-blocking, connected), also on failure. 0 or -errno. */
int h2_open(sd_event *event, int fd, const struct h2_ops *ops, void *ctx,
	    struct h2_conn **ret) must_check;
/* Ends the connection at once, with all its callbacks. Not from a callback. */
void h2_close(struct h2_conn *c);
/* GOAWAY: no new streams; the connection ends when those open have ended. */
void h2_shutdown(struct h2_conn *c);

const struct h2_request *h2_stream_request(const struct h2_stream *st);
void h2_stream_set_user(struct h2_stream *st, void *user);
void *h2_stream_user(const struct h2_stream *st);

/*
 * The answer: h2_respond() once, then h2_send() as often as drained() allows,
 * then h2_finish(). With @end the headers are all there is. If memory runs
 * out, the stream is reset. Names and values are copied.
 */
void h2_respond(struct h2_stream *st, unsigned status,
		const struct h2_header *h, size_t n, bool end);
/* Takes the bytes out of @b, which is empty afterwards. */
void h2_send(struct h2_stream *st, struct buf *b);
/* The trailers, after all data. */
void h2_finish(struct h2_stream *st, const struct h2_header *h, size_t n);

#endif
