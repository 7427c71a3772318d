/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking gRPC client; see client.h. nghttp2 keeps the protocol, poll() the
 * time. nghttp2 must not be re-entered from its own callbacks: those only note
 * what came, and reset a stream by their return value or by a submit.
 */
#include "rpc/client.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/io.h"
#include "base/list.h"
#include "rpc/wire.h"

#define READ_CHUNK (64u << 10)
#define STREAM_WINDOW (1 << 20)
#define CONN_WINDOW (8 << 20)
#define CONNECT_MS 5000

struct rpc_stream {
	struct list node;
	struct rpc_client *client;
	int32_t id;
	const struct rpc_method *method;
	rpc_message_fn fn;
	void *ctx;
	bool endless; /* a subscription */
	bool closed;
	struct buf request;
	size_t n_sent;
	struct grpc_reader reader;
	char http[8], grpc[8]; /* statuses; "": not seen */
	char message[200]; /* grpc-message, as it came */
	struct err e; /* of ours: of a callback, or of what came */
};

struct rpc_client {
	int fd, stop_fd;
	nghttp2_session *session;
	struct list subscriptions;
	uint64_t n_messages; /* of subscriptions */
	bool broken;
	struct err why;
};

/* ---- what comes ---- */

static struct rpc_stream *find_stream(nghttp2_session *s, int32_t id)
{
	return nghttp2_session_get_stream_user_data(s, id);
}

static int on_header(nghttp2_session *s, const nghttp2_frame *f,
		     const uint8_t *name, size_t name_len, const uint8_t *value,
		     size_t len, uint8_t flags unused_arg, void *ctx unused_arg)
{
	struct rpc_stream *st = find_stream(s, f->hd.stream_id);
	const struct {
		const char *name;
		char *to;
		size_t cap;
	} fields[] = {
		{ ":status", st ? st->http : NULL, sizeof(st->http) },
		{ "grpc-status", st ? st->grpc : NULL, sizeof(st->grpc) },
		{ "grpc-message", st ? st->message : NULL,
		  sizeof(st->message) },
	};

	for (size_t i = 0; st && i < ARRAY_LEN(fields); i++) {
		if (name_len != strlen(fields[i].name) ||
		    memcmp(name, fields[i].name, name_len) != 0)
			continue;
		if (len >= fields[i].cap)
			len = fields[i].cap - 1;
		memcpy(fields[i].to, value, len);
		fields[i].to[len] = '\0';
	}
	return 0;
}

static int deliver(struct rpc_stream *st)
{
	ProtobufCMessage *m = NULL;
	int r;

	if (wire_unpack(st->method->answer, st->reader.msg.p,
			st->reader.msg.len, &m, &st->e) < 0) {
		/* Of the server's making, not the caller's. */
		if (st->e.kind == ERR_INVALID)
			st->e.kind = ERR_UNAVAILABLE;
		return -1;
	}
	grpc_reader_release(&st->reader);
	if (st->endless)
		st->client->n_messages++;
	r = st->fn(st->ctx, m, &st->e);
	protobuf_c_message_free_unpacked(m, NULL);
	return r;
}

static int take_data(struct rpc_stream *st, const uint8_t *p, size_t len)
{
	struct grpc_status gs = { 0 };

	while (len) {
		size_t used;
		int r = grpc_reader_take(&st->reader, p, len, &used, &gs);

		if (r < 0)
			return err_set(&st->e, ERR_UNAVAILABLE, "%s", gs.msg);
		p += used;
		len -= used;
		if (r > 0 && deliver(st) < 0)
			return -1;
	}
	return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags unused_arg, int32_t id,
		   const uint8_t *p, size_t len, void *ctx unused_arg)
{
	struct rpc_stream *st = find_stream(s, id);

	if (!st || st->e.kind != ERR_NONE || take_data(st, p, len) == 0)
		return 0;
	return nghttp2_submit_rst_stream(s, NGHTTP2_FLAG_NONE, id,
					 NGHTTP2_CANCEL) < 0
		       ? NGHTTP2_ERR_CALLBACK_FAILURE
		       : 0;
}

static int on_stream_close(nghttp2_session *s, int32_t id,
			   uint32_t code unused_arg, void *ctx unused_arg)
{
	struct rpc_stream *st = find_stream(s, id);

	if (st)
		st->closed = true;
	return 0;
}

static ssize_t on_pull(nghttp2_session *s unused_arg, int32_t id unused_arg,
		       uint8_t *p, size_t cap, uint32_t *flags,
		       nghttp2_data_source *source, void *ctx unused_arg)
{
	struct rpc_stream *st = source->ptr;
	size_t n = st->request.len - st->n_sent;

	if (n > cap)
		n = cap;
	memcpy(p, st->request.p + st->n_sent, n);
	st->n_sent += n;
	if (st->n_sent == st->request.len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

/* ---- the socket ---- */

static int broke(struct rpc_client *c, const char *what)
{
	if (!c->broken)
		(void)err_set(&c->why, ERR_UNAVAILABLE, "connection: %s", what);
	c->broken = true;
	return -1;
}

/* Sends what nghttp2 wants to send; the buffer of a unix socket takes our small
 * requests, so that a full one means a peer that reads nothing. */
static int flush(struct rpc_client *c)
{
	for (;;) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(c->session, &p);

		if (n == 0)
			return 0;
		if (n < 0)
			return broke(c, nghttp2_strerror((int)n));
		while (n > 0) {
			ssize_t w = send(c->fd, p, (size_t)n, MSG_NOSIGNAL);

			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0)
				return broke(c, strerror(errno));
			p += w;
			n -= w;
		}
	}
}

static int receive(struct rpc_client *c)
{
	uint8_t in[READ_CHUNK];
	ssize_t n = recv(c->fd, in, sizeof(in), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return broke(c, n < 0 ? strerror(errno) : "it was closed");
	n = nghttp2_session_mem_recv(c->session, in, (size_t)n);
	if (n < 0)
		return broke(c, nghttp2_strerror((int)n));
	return 0;
}

static int check_subscriptions(struct rpc_client *c)
{
	const struct list *p;

	list_each (p, &c->subscriptions) {
		const struct rpc_stream *st =
			list_entry(p, const struct rpc_stream, node);

		if (st->e.kind != ERR_NONE)
			return broke(c, st->e.msg);
		if (st->closed)
			return broke(c, "the subscription ended");
	}
	return 0;
}

/* One wait. 1: @fd is readable, 0: something came or the time is over, -1. */
static int turn(struct rpc_client *c, int fd, uint64_t until_ms, struct err *e)
{
	struct pollfd pfd[] = { { .fd = c->fd, .events = POLLIN },
				{ .fd = c->stop_fd, .events = POLLIN },
				{ .fd = fd, .events = POLLIN } };
	uint64_t now = now_ms(), left = until_ms > now ? until_ms - now : 0;
	int r;

	if (!c->broken && flush(c) == 0 &&
	    !nghttp2_session_want_read(c->session))
		(void)broke(c, "the server wants no more requests");
	if (c->broken)
		goto broken;
	r = poll(pfd, ARRAY_LEN(pfd), left < INT32_MAX ? (int)left : INT32_MAX);
	if (r < 0 && errno != EINTR)
		return err_sys(e, -errno, "wait for the connection");
	if (r <= 0)
		return 0;
	if (pfd[1].revents)
		return err_set(e, ERR_CANCELLED, "the daemon is stopping");
	if (pfd[0].revents && receive(c) == 0 && flush(c) == 0)
		(void)check_subscriptions(c);
	if (!c->broken)
		return pfd[2].revents != 0;
broken:
	return err_set(e, c->why.kind, "%s", c->why.msg);
}

int rpc_client_wait(struct rpc_client *c, int fd, unsigned timeout_ms,
		    struct err *e)
{
	uint64_t until = now_ms() + timeout_ms, seen = c->n_messages;
	int r;

	do {
		r = turn(c, fd, until, e);
		if (r < 0)
			return -1;
	} while (r == 0 && c->n_messages == seen && now_ms() < until);
	return 0;
}

bool rpc_client_is_broken(const struct rpc_client *c)
{
	return c->broken;
}

/* ---- calls ---- */

static nghttp2_nv header(const char *name, const char *value)
{
	return (nghttp2_nv){ .name = (uint8_t *)(uintptr_t)name,
			     .value = (uint8_t *)(uintptr_t)value,
			     .namelen = strlen(name),
			     .valuelen = strlen(value) };
}

static int pack(const ProtobufCMessage *m, struct buf *out, struct err *e)
{
	size_t at = grpc_frame_begin(out);
	size_t len = protobuf_c_message_get_packed_size(m);
	int r = buf_reserve(out, len);

	if (r == 0) {
		out->len += protobuf_c_message_pack(m, out->p + out->len);
		r = grpc_frame_end(out, at);
	}
	return r < 0 ? err_sys(e, r, "request") : 0;
}

/* Source: grpc doc/PROTOCOL-HTTP2.md, "Requests". */
static int submit(struct rpc_stream *st, const char *ns,
		  const ProtobufCMessage *request, struct err *e)
{
	nghttp2_data_provider body = { .source.ptr = st,
				       .read_callback = on_pull };
	nghttp2_nv nv[8];
	size_t n = 0;

	if (pack(request, &st->request, e) < 0)
		return -1;
	nv[n++] = header(":method", "POST");
	nv[n++] = header(":scheme", "http");
	nv[n++] = header(":path", st->method->path);
	nv[n++] = header(":authority", "localhost");
	nv[n++] = header("content-type", "application/grpc");
	nv[n++] = header("te", "trailers");
	nv[n++] = header("user-agent", "verity-snapshotter/" VERSION);
	if (ns)
		nv[n++] = header("containerd-namespace", ns);
	st->id = nghttp2_submit_request(st->client->session, NULL, nv, n, &body,
					st);
	if (st->id < 0)
		return err_set(e, ERR_UNAVAILABLE, "request: %s",
			       nghttp2_strerror(st->id));
	return 0;
}

static void stream_release(struct rpc_stream *st)
{
	buf_release(&st->request);
	grpc_reader_release(&st->reader);
}

/* What the end of a call means. */
static int judge(const struct rpc_stream *st, struct err *e)
{
	if (st->e.kind != ERR_NONE)
		return err_set(e, st->e.kind, "%s", st->e.msg);
	if (!strcmp(st->grpc, "0")) {
		if (!st->reader.n_prefix)
			return 0;
		return err_set(e, ERR_UNAVAILABLE,
			       "%s: the answer ends within a message",
			       st->method->path);
	}
	if (!strcmp(st->grpc, "5"))
		return err_set(e, ERR_NOT_FOUND, "%s: not found: %s",
			       st->method->path, st->message);
	return err_set(e, ERR_UNAVAILABLE,
		       "%s: HTTP status '%s', gRPC status '%s': %s",
		       st->method->path, st->http, st->grpc, st->message);
}

int rpc_call(struct rpc_client *c, const struct rpc_method *m, const char *ns,
	     const ProtobufCMessage *request, rpc_message_fn fn, void *ctx,
	     unsigned deadline_ms, struct err *e)
{
	struct rpc_stream st = {
		.client = c, .method = m, .fn = fn, .ctx = ctx
	};
	uint64_t until = now_ms() + deadline_ms;
	int r = submit(&st, ns, request, e);

	while (r == 0 && !st.closed && st.e.kind == ERR_NONE) {
		r = turn(c, -1, until, e);
		if (r == 0 && !st.closed && now_ms() >= until) {
			(void)broke(c, "a call was not answered");
			r = err_set(e, ERR_UNAVAILABLE,
				    "%s: no answer within %u ms", m->path,
				    deadline_ms);
		}
	}
	if (r == 0)
		r = judge(&st, e);
	if (st.id > 0 && !st.closed) {
		/* What still comes for it finds nobody. */
		(void)nghttp2_session_set_stream_user_data(c->session, st.id,
							   NULL);
		if (nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE,
					      st.id, NGHTTP2_CANCEL) < 0)
			(void)broke(c, "out of memory");
		/* Unsent parts of the request lie in @st. */
		if (st.n_sent < st.request.len)
			(void)broke(c, "a request was not taken");
	}
	stream_release(&st);
	return r;
}

int rpc_subscribe(struct rpc_client *c, const struct rpc_method *m,
		  const ProtobufCMessage *request, rpc_message_fn fn, void *ctx,
		  struct err *e)
{
	struct rpc_stream *st = calloc(1, sizeof(*st));

	if (!st)
		return err_sys(e, -ENOMEM, "subscription");
	st->client = c;
	st->method = m;
	st->fn = fn;
	st->ctx = ctx;
	st->endless = true;
	list_push(&c->subscriptions, &st->node);
	if (submit(st, NULL, request, e) < 0)
		return -1;
	if (flush(c) < 0)
		return err_set(e, c->why.kind, "%s", c->why.msg);
	return 0;
}

/* ---- life ---- */

static int session_new(struct rpc_client *c)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
	};
	nghttp2_session_callbacks *cb;
	int r;

	if (nghttp2_session_callbacks_new(&cb) < 0)
		return -ENOMEM;
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb,
							       on_stream_close);
	r = nghttp2_session_client_new(&c->session, cb, c);
	nghttp2_session_callbacks_del(cb);
	if (r < 0)
		return -ENOMEM;
	if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
				    ARRAY_LEN(settings)) < 0 ||
	    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE,
						  0, CONN_WINDOW) < 0)
		return -ENOMEM;
	return 0;
}

/* A server that does not take what we send must not hold us for good. */
static int connect_to(const char *path, int *ret, struct err *e)
{
	owned(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval patience = { .tv_sec = CONNECT_MS / 1000 };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	if (fd < 0)
		return err_sys(e, -errno, "socket");
	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(e, ERR_INVALID, "path '%s' is too long", path);
	memcpy(sa.sun_path, path, strlen(path));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience,
		       sizeof(patience)) < 0)
		return err_sys(e, -errno, "socket");
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return err_set(e, ERR_UNAVAILABLE, "connect to '%s': %s", path,
			       strerror(errno));
	*ret = take_fd(&fd);
	return 0;
}

int rpc_client_new(int fd, int stop_fd, struct rpc_client **ret, struct err *e)
{
	struct rpc_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)close(fd);
		return err_sys(e, -ENOMEM, "client");
	}
	c->fd = fd;
	c->stop_fd = stop_fd;
	list_init(&c->subscriptions);
	r = session_new(c);
	if (r < 0) {
		rpc_client_close(c);
		return err_sys(e, r, "client");
	}
	*ret = c;
	return 0;
}

int rpc_client_open(const char *path, int stop_fd, struct rpc_client **ret,
		    struct err *e)
{
	int fd = -1;

	return connect_to(path, &fd, e) < 0
		       ? -1
		       : rpc_client_new(fd, stop_fd, ret, e);
}

void rpc_client_close(struct rpc_client *c)
{
	struct list *p, *n;

	if (!c)
		return;
	nghttp2_session_del(c->session);
	list_each_safe (p, n, &c->subscriptions) {
		struct rpc_stream *st = list_entry(p, struct rpc_stream, node);

		stream_release(st);
		free(st);
	}
	(void)close(c->fd);
	free(c);
}
