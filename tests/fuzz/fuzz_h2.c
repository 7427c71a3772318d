/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer of one HTTP/2 connection. The owner of the streams answers
 * each request, by one of three ways, in the turn after it has come. If the
 * first byte is even, a connection preface is put before the rest.
 */
#include <string.h>
#include <sys/socket.h>

#include "plugin/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
			      "\0\0\0\4\0\0\0\0"; /* SETTINGS, one 0 short */

struct owner {
	int n_open, n_conns;
};

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void on_request(void *ctx, struct h2_stream *st)
{
	struct owner *o = ctx;

	o->n_open++;
	require(!h2_stream_user(st));
	h2_stream_set_user(st, o);
	require(memchr(h2_stream_request(st)->path, 0, 128) != NULL);
}

static void answer(struct h2_stream *st)
{
	static const struct h2_header h = { "content-type", "text/plain" };
	static const struct h2_header t = { "status", "0" };
	struct buf b = { 0 };

	if (!h2_stream_user(st))
		return;
	h2_stream_set_user(st, NULL);
	switch (h2_stream_request(st)->path[1] % 3) {
	case 0:
		h2_respond(st, 200, &h, 1, true);
		return;
	case 1:
		h2_respond(st, 200, &h, 1, false);
		h2_finish(st, &t, 1);
		return;
	default:
		h2_respond(st, 200, &h, 1, false);
		(void)buf_reserve(&b, 300000);
		memset(b.p, 'x', 300000);
		b.len = 300000;
		h2_send(st, &b);
		h2_finish(st, &t, 1);
	}
}

static void on_data(void *ctx, struct h2_stream *st, const uint8_t *p,
		    size_t len)
{
	(void)ctx;
	if (len && p[0] == 'a')
		answer(st); /* before the request has ended */
}

static void on_end(void *ctx, struct h2_stream *st)
{
	(void)ctx;
	answer(st);
}

static void on_drained(void *ctx, struct h2_stream *st)
{
	(void)ctx;
	(void)st;
}

static void on_stream_closed(void *ctx, struct h2_stream *st)
{
	struct owner *o = ctx;

	(void)st;
	require(o->n_open-- > 0);
}

static void on_conn_closed(void *ctx, struct h2_conn *c)
{
	struct owner *o = ctx;

	(void)c;
	require(o->n_open == 0);
	o->n_conns--;
}

static const struct h2_ops ops = {
	on_request, on_data,          on_end,
	on_drained, on_stream_closed, on_conn_closed
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static sd_event *event;
	struct owner o = { .n_conns = 1 };
	struct h2_conn *c;
	char in[4096];
	int fds[2];

	if (size < 1 || size > 60000)
		return 0;
	if (!event && sd_event_new(&event) < 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		       fds) < 0)
		return 0;
	if (h2_open(event, fds[0], &ops, &o, &c) < 0)
		abort();
	if (data[0] % 2 == 0)
		(void)!write(fds[1], preface, sizeof(preface));
	(void)!write(fds[1], data + 1, size - 1);
	for (int i = 0; i < 20 && o.n_conns; i++) {
		if (sd_event_run(event, 0) <= 0)
			break;
		while (read(fds[1], in, sizeof(in)) > 0)
			;
	}
	(void)close(fds[1]);
	if (o.n_conns)
		h2_close(c);
	require(o.n_conns == 0);
	return 0;
}
