/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP/2 connection; see h2.h. Owns the socket, the nghttp2 session and
 * the streams. nghttp2 must not be re-entered from its own callbacks, so the
 * functions that answer only queue, and a deferred event sends.
 */
#include "plugin/h2.h"

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/log.h"

#define READ_CHUNK (64u << 10)
#define FRAME_ROOM (18u << 10) /* 16 KiB of payload, and all our headers */
#define OUT_CAP (64u << 10)
#define WRITE_BUDGET (1u << 20) /* a turn of the loop */
#define STREAM_WINDOW (1 << 20)
#define CONN_WINDOW (8 << 20)
#define HEADERS_MAX (16u << 10) /* as RFC 9113 counts: 32 for each field */
#define TRAILERS_MAX 4u
#define HEADERS_OUT_MAX 6u
#define PREFACE_TIMEOUT_US (10ull * 1000000)

struct h2_stream {
	struct list node;
	struct h2_conn *conn;
	int32_t id;
	void *user;
	struct h2_request rq;
	size_t n_header_bytes;
	bool complete; /* request headers */
	bool finished; /* trailers are known */
	bool waiting; /* nghttp2 waits for h2_send() or h2_finish() */
	struct buf out;
	size_t out_pos;
	struct buf trailers; /* name NUL value NUL ... */
};

struct h2_conn {
	int fd;
	const struct h2_ops *ops;
	void *ctx;
	sd_event_source *io, *kick, *preface;
	nghttp2_session *session;
	struct list streams;
	bool greeted; /* the peer's SETTINGS have come */
	bool blocked; /* the socket takes no more */
	bool broken;
	size_t out_pos, out_len;
	uint8_t out[OUT_CAP];
};

/* ---- streams ---- */

static void stream_free(struct h2_stream *st)
{
	struct h2_conn *c = st->conn;

	if (st->complete)
		c->ops->stream_closed(c->ctx, st);
	list_remove(&st->node);
	buf_release(&st->out);
	buf_release(&st->trailers);
	free(st);
}

static struct h2_stream *stream_find(nghttp2_session *s, int32_t id)
{
	return nghttp2_session_get_stream_user_data(s, id);
}

static int on_begin_headers(nghttp2_session *s, const nghttp2_frame *f,
			    void *userdata)
{
	struct h2_conn *c = userdata;
	struct h2_stream *st;

	if (f->hd.type != NGHTTP2_HEADERS ||
	    f->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	st = calloc(1, sizeof(*st));
	if (!st)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	st->conn = c;
	st->id = f->hd.stream_id;
	list_push(&c->streams, &st->node);
	(void)nghttp2_session_set_stream_user_data(s, st->id, st);
	return 0;
}

/* The place for a header's value, or NULL. */
static char *request_field(struct h2_request *rq, const uint8_t *name,
			   size_t len, size_t *ret_cap)
{
#define FIELD(n, f)                                               \
	{                                                         \
		n, sizeof(n) - 1, offsetof(struct h2_request, f), \
			sizeof(rq->f)                             \
	}
	static const struct {
		const char *name;
		size_t len, off, cap;
	} fields[] = {
		FIELD(":method", method),
		FIELD(":path", path),
		FIELD("content-type", content_type),
		FIELD("grpc-timeout", timeout),
	};
#undef FIELD

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (len != fields[i].len || memcmp(name, fields[i].name, len))
			continue;
		*ret_cap = fields[i].cap;
		return (char *)rq + fields[i].off;
	}
	return NULL;
}

static int on_header(nghttp2_session *s, const nghttp2_frame *f,
		     const uint8_t *name, size_t name_len, const uint8_t *value,
		     size_t value_len, uint8_t flags, void *userdata)
{
	struct h2_stream *st = stream_find(s, f->hd.stream_id);
	size_t cap;
	char *to;

	(void)flags;
	(void)userdata;
	if (!st)
		return 0;
	st->n_header_bytes += name_len + value_len + 32;
	if (st->n_header_bytes > HEADERS_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (st->complete) /* trailers of the client */
		return 0;
	to = request_field(&st->rq, name, name_len, &cap);
	if (!to)
		return 0;
	if (value_len >= cap)
		value_len = cap - 1;
	memcpy(to, value, value_len);
	to[value_len] = '\0';
	return 0;
}

static int on_frame_recv(nghttp2_session *s, const nghttp2_frame *f,
			 void *userdata)
{
	struct h2_conn *c = userdata;
	struct h2_stream *st;

	if (f->hd.type == NGHTTP2_SETTINGS &&
	    !(f->hd.flags & NGHTTP2_FLAG_ACK) && !c->greeted) {
		c->greeted = true;
		c->preface = sd_event_source_disable_unref(c->preface);
	}
	if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
		return 0;
	st = stream_find(s, f->hd.stream_id);
	if (!st)
		return 0;
	if (!st->complete) {
		st->complete = true;
		c->ops->request(c->ctx, st);
	}
	if (f->hd.flags & NGHTTP2_FLAG_END_STREAM)
		c->ops->end(c->ctx, st);
	return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id,
		   const uint8_t *p, size_t len, void *userdata)
{
	struct h2_conn *c = userdata;
	struct h2_stream *st = stream_find(s, id);

	(void)flags;
	if (st)
		c->ops->data(c->ctx, st, p, len);
	return 0;
}

static int on_stream_close(nghttp2_session *s, int32_t id, uint32_t code,
			   void *userdata)
{
	struct h2_stream *st = stream_find(s, id);

	(void)code;
	(void)userdata;
	if (st)
		stream_free(st);
	return 0;
}

/* An answer that ends before its request: tell the peer not to go on. */
static int on_frame_send(nghttp2_session *s, const nghttp2_frame *f,
			 void *userdata)
{
	(void)userdata;
	if ((f->hd.type == NGHTTP2_HEADERS || f->hd.type == NGHTTP2_DATA) &&
	    f->hd.flags & NGHTTP2_FLAG_END_STREAM &&
	    nghttp2_session_get_stream_remote_close(s, f->hd.stream_id) == 0)
		return nghttp2_submit_rst_stream(s, NGHTTP2_FLAG_NONE,
						 f->hd.stream_id,
						 NGHTTP2_NO_ERROR);
	return 0;
}

static int on_invalid_frame(nghttp2_session *s, const nghttp2_frame *f,
			    int code, void *userdata)
{
	(void)s;
	(void)userdata;
	log_debug("invalid frame: type=%u stream=%d err='%s'", f->hd.type,
		  f->hd.stream_id, nghttp2_strerror(code));
	return 0;
}

/* ---- answers ---- */

static void conn_kick(struct h2_conn *c)
{
	(void)sd_event_source_set_enabled(c->kick, SD_EVENT_ONESHOT);
}

static nghttp2_nv make_nv(const char *name, const char *value)
{
	/* nghttp2 does not write to them; its type only lacks the const */
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name,
			     (uint8_t *)(uintptr_t)value, strlen(name),
			     strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static void stream_reset(struct h2_stream *st)
{
	/* If even this fails there is no memory for the connection either. */
	if (nghttp2_submit_rst_stream(st->conn->session, NGHTTP2_FLAG_NONE,
				      st->id, NGHTTP2_INTERNAL_ERROR) < 0)
		st->conn->broken = true;
	conn_kick(st->conn);
}

static int submit_trailers(struct h2_stream *st)
{
	const char *p = (const char *)st->trailers.p;
	const char *end = p + st->trailers.len;
	nghttp2_nv nv[TRAILERS_MAX];
	size_t n = 0;

	while (p < end && n < TRAILERS_MAX) {
		const char *value = p + strlen(p) + 1;

		nv[n++] = make_nv(p, value);
		p = value + strlen(value) + 1;
	}
	return nghttp2_submit_trailer(st->conn->session, st->id, nv, n);
}

/* nghttp2 has room, and window, for @cap bytes of this stream. */
static ssize_t on_pull(nghttp2_session *s, int32_t id, uint8_t *p, size_t cap,
		       uint32_t *flags, nghttp2_data_source *source,
		       void *userdata)
{
	struct h2_stream *st = source->ptr;
	struct h2_conn *c = userdata;
	size_t n = st->out.len - st->out_pos;

	(void)s;
	(void)id;
	if (n > cap)
		n = cap;
	if (n)
		memcpy(p, st->out.p + st->out_pos, n);
	st->out_pos += n;
	if (st->out_pos < st->out.len)
		return (ssize_t)n;
	buf_release(&st->out);
	st->out_pos = 0;
	if (st->finished) {
		*flags |=
			NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (submit_trailers(st) < 0)
			return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
		return (ssize_t)n;
	}
	if (n == 0) {
		st->waiting = true;
		return NGHTTP2_ERR_DEFERRED;
	}
	c->ops->drained(c->ctx, st);
	return (ssize_t)n;
}

static void stream_resume(struct h2_stream *st)
{
	if (st->waiting) {
		st->waiting = false;
		if (nghttp2_session_resume_data(st->conn->session, st->id) < 0)
			stream_reset(st);
	}
	conn_kick(st->conn);
}

void h2_respond(struct h2_stream *st, unsigned status,
		const struct h2_header *h, size_t n, bool end)
{
	nghttp2_data_provider body = { .source.ptr = st,
				       .read_callback = on_pull };
	nghttp2_nv nv[HEADERS_OUT_MAX];
	char text[12];

	(void)snprintf(text, sizeof(text), "%u", status);
	nv[0] = make_nv(":status", text);
	if (n > HEADERS_OUT_MAX - 1)
		n = HEADERS_OUT_MAX - 1;
	for (size_t i = 0; i < n; i++)
		nv[i + 1] = make_nv(h[i].name, h[i].value);
	if (nghttp2_submit_response(st->conn->session, st->id, nv, n + 1,
				    end ? NULL : &body) < 0)
		stream_reset(st);
	conn_kick(st->conn);
}

void h2_send(struct h2_stream *st, struct buf *b)
{
	buf_release(&st->out);
	st->out = *b;
	st->out_pos = 0;
	memset(b, 0, sizeof(*b));
	stream_resume(st);
}

void h2_finish(struct h2_stream *st, const struct h2_header *h, size_t n)
{
	for (size_t i = 0; i < n && i < TRAILERS_MAX; i++) {
		(void)buf_add(&st->trailers, h[i].name, strlen(h[i].name) + 1);
		(void)buf_add(&st->trailers, h[i].value,
			      strlen(h[i].value) + 1);
	}
	if (st->trailers.failed) {
		stream_reset(st);
		return;
	}
	st->finished = true;
	stream_resume(st);
}

const struct h2_request *h2_stream_request(const struct h2_stream *st)
{
	return &st->rq;
}

void h2_stream_set_user(struct h2_stream *st, void *user)
{
	st->user = user;
}

void *h2_stream_user(const struct h2_stream *st)
{
	return st->user;
}

/* ---- the socket ---- */

/* What nghttp2 wants to send, as far as the buffer goes. */
static void fill_out(struct h2_conn *c)
{
	c->out_pos = c->out_len = 0;
	while (OUT_CAP - c->out_len >= FRAME_ROOM) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(c->session, &p);

		if (n == 0)
			return;
		if (n < 0 || (size_t)n > OUT_CAP - c->out_len) {
			c->broken = true;
			return;
		}
		memcpy(c->out + c->out_len, p, (size_t)n);
		c->out_len += (size_t)n;
	}
}

static void conn_flush(struct h2_conn *c)
{
	size_t budget = WRITE_BUDGET;

	c->blocked = false;
	while (!c->broken && budget) {
		ssize_t n;

		if (c->out_pos == c->out_len)
			fill_out(c);
		if (c->broken || c->out_len == 0)
			return;
		n = send(c->fd, c->out + c->out_pos, c->out_len - c->out_pos,
			 MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			c->blocked = true;
			return;
		}
		if (n < 0) {
			c->broken = true;
			return;
		}
		c->out_pos += (size_t)n;
		budget -= (size_t)n < budget ? (size_t)n : budget;
	}
}

static void conn_read(struct h2_conn *c)
{
	uint8_t in[READ_CHUNK];
	ssize_t n = recv(c->fd, in, sizeof(in), 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		c->broken = true;
		return;
	}
	n = nghttp2_session_mem_recv(c->session, in, (size_t)n);
	if (n < 0) {
		log_debug("connection refused: err='%s'",
			  nghttp2_strerror((int)n));
		c->broken = true;
	}
}

/* The last thing every event does: @c may be gone afterwards. */
static void conn_settle(struct h2_conn *c)
{
	uint32_t events = 0;

	if (!c->broken && c->out_len == c->out_pos &&
	    !nghttp2_session_want_read(c->session) &&
	    !nghttp2_session_want_write(c->session))
		c->broken = true; /* ended, in good order or by an error */
	if (c->broken) {
		h2_close(c);
		return;
	}
	if (!c->blocked)
		events |= EPOLLIN;
	if (c->blocked || c->out_pos < c->out_len ||
	    nghttp2_session_want_write(c->session))
		events |= EPOLLOUT;
	if (sd_event_source_set_io_events(c->io, events) < 0)
		h2_close(c);
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *userdata)
{
	struct h2_conn *c = userdata;

	(void)src;
	(void)fd;
	if (c->blocked && revents & (EPOLLHUP | EPOLLERR))
		c->broken = true;
	else if (!c->blocked && revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		conn_read(c);
	/* Also after an error of the peer: its GOAWAY says what was wrong. */
	if (!c->broken)
		conn_flush(c);
	conn_settle(c);
	return 0;
}

static int on_kick(sd_event_source *src, void *userdata)
{
	struct h2_conn *c = userdata;

	(void)src;
	if (!c->broken)
		conn_flush(c);
	conn_settle(c);
	return 0;
}

static int on_preface_timeout(sd_event_source *src, uint64_t usec,
			      void *userdata)
{
	(void)src;
	(void)usec;
	log_debug("connection closed: reason='no HTTP/2 within ten seconds'");
	h2_close(userdata);
	return 0;
}

/* ---- life ---- */

static int session_new(struct h2_conn *c)
{
	static const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX },
	};
	nghttp2_session_callbacks *cb;
	nghttp2_option *opt;
	int r;

	if (nghttp2_session_callbacks_new(&cb) < 0)
		return -ENOMEM;
	if (nghttp2_option_new(&opt) < 0) {
		nghttp2_session_callbacks_del(cb);
		return -ENOMEM;
	}
	/* Closed streams are not kept for the sake of a priority tree. */
	nghttp2_option_set_no_closed_streams(opt, 1);
	nghttp2_session_callbacks_set_on_begin_headers_callback(
		cb, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(cb,
							       on_stream_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(
		cb, on_invalid_frame);
	r = nghttp2_session_server_new2(&c->session, cb, c, opt);
	nghttp2_option_del(opt);
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

static void conn_free(struct h2_conn *c)
{
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->kick);
	sd_event_source_disable_unref(c->preface);
	/* nghttp2 does not call on_stream_close from here. */
	nghttp2_session_del(c->session);
	while (!list_empty(&c->streams))
		stream_free(list_first(&c->streams, struct h2_stream, node));
	(void)close(c->fd);
	free(c);
}

int h2_open(sd_event *event, int fd, const struct h2_ops *ops, void *ctx,
	    struct h2_conn **ret)
{
	struct h2_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)close(fd);
		return -ENOMEM;
	}
	c->fd = fd;
	c->ops = ops;
	c->ctx = ctx;
	list_init(&c->streams);
	r = session_new(c);
	if (r == 0)
		r = sd_event_add_io(event, &c->io, fd, EPOLLIN, on_io, c);
	if (r >= 0) /* enabled once: sends our SETTINGS */
		r = sd_event_add_defer(event, &c->kick, on_kick, c);
	if (r >= 0)
		r = sd_event_add_time_relative(
			event, &c->preface, CLOCK_MONOTONIC, PREFACE_TIMEOUT_US,
			0, on_preface_timeout, c);
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void h2_close(struct h2_conn *c)
{
	if (!c)
		return;
	/* The streams first: their owners may still ask for the connection. */
	while (!list_empty(&c->streams)) {
		struct h2_stream *st =
			list_first(&c->streams, struct h2_stream, node);

		(void)nghttp2_session_set_stream_user_data(c->session, st->id,
							   NULL);
		stream_free(st);
	}
	c->ops->conn_closed(c->ctx, c);
	conn_free(c);
}

void h2_shutdown(struct h2_conn *c)
{
	int32_t last = nghttp2_session_get_last_proc_stream_id(c->session);

	if (nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, last,
				  NGHTTP2_NO_ERROR, NULL, 0) < 0)
		c->broken = true;
	conn_kick(c);
}
