/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC client for tests in one thread with the server's loop: client_turn()
 * lets both do a little. Only for cmocka tests, whose assertions it uses.
 */
#ifndef TESTS_LIB_H2_CLIENT_H
#define TESTS_LIB_H2_CLIENT_H

#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/io.h"
#include "plugin/loop.h"

#define CLIENT_WAIT_MS 20000
#define SNAPSHOTS "/containerd.services.snapshots.v1.Snapshots/"

struct client {
	struct loop *loop;
	int fd;
	nghttp2_session *session;
	bool deaf; /* does not read the socket */
	bool slow; /* gives no flow control window back by itself */
	bool goaway, closed;
};

/* One call. Lives until .closed. */
struct reply {
	struct client *client;
	int32_t id;
	int http, grpc; /* statuses; -1: not seen */
	char message[800], content_type[64];
	struct buf data, request;
	size_t sent;
	bool hang; /* the request does not end by itself */
	bool closed;
	uint32_t error; /* of RST_STREAM */
};

static ssize_t client_send(nghttp2_session *s, const uint8_t *p, size_t len,
			   int flags, void *userdata)
{
	struct client *c = userdata;
	ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)s;
	(void)flags;
	if (n < 0)
		return errno == EAGAIN ? NGHTTP2_ERR_WOULDBLOCK
				       : NGHTTP2_ERR_CALLBACK_FAILURE;
	return n;
}

static int client_header(nghttp2_session *s, const nghttp2_frame *f,
			 const uint8_t *name, size_t name_len,
			 const uint8_t *value, size_t value_len, uint8_t flags,
			 void *userdata)
{
	struct reply *r =
		nghttp2_session_get_stream_user_data(s, f->hd.stream_id);
	char v[800] = "";

	(void)flags;
	(void)userdata;
	(void)name_len;
	if (!r || value_len >= sizeof(v))
		return 0;
	memcpy(v, value, value_len);
	if (strcmp((const char *)name, ":status") == 0)
		r->http = (int)strtol(v, NULL, 10);
	else if (strcmp((const char *)name, "grpc-status") == 0)
		r->grpc = (int)strtol(v, NULL, 10);
	else if (strcmp((const char *)name, "grpc-message") == 0)
		memcpy(r->message, v, value_len + 1);
	else if (strcmp((const char *)name, "content-type") == 0)
		(void)snprintf(r->content_type, sizeof(r->content_type), "%s",
			       v);
	return 0;
}

static int client_data(nghttp2_session *s, uint8_t flags, int32_t id,
		       const uint8_t *p, size_t len, void *userdata)
{
	struct reply *r = nghttp2_session_get_stream_user_data(s, id);

	(void)flags;
	(void)userdata;
	return r ? buf_add(&r->data, p, len) : 0;
}

static int client_stream_close(nghttp2_session *s, int32_t id, uint32_t error,
			       void *userdata)
{
	struct reply *r = nghttp2_session_get_stream_user_data(s, id);

	(void)userdata;
	if (r) {
		r->closed = true;
		r->error = error;
	}
	return 0;
}

static int client_frame(nghttp2_session *s, const nghttp2_frame *f,
			void *userdata)
{
	struct client *c = userdata;

	(void)s;
	if (f->hd.type == NGHTTP2_GOAWAY)
		c->goaway = true;
	return 0;
}

static inline void client_close(struct client *c)
{
	if (c->fd >= 0)
		(void)close(c->fd);
	c->fd = -1;
	nghttp2_session_del(c->session);
	c->session = NULL;
}

/* @fd: connected to the server. Consumed. */
static inline void client_open(struct client *c, struct loop *loop, int fd,
			       bool slow)
{
	nghttp2_session_callbacks *cb;
	nghttp2_option *opt;

	memset(c, 0, sizeof(*c));
	c->loop = loop;
	c->fd = fd;
	c->slow = slow;
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(nghttp2_session_callbacks_new(&cb), 0);
	assert_int_equal(nghttp2_option_new(&opt), 0);
	nghttp2_option_set_no_auto_window_update(opt, slow);
	nghttp2_session_callbacks_set_send_callback(cb, client_send);
	nghttp2_session_callbacks_set_on_header_callback(cb, client_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb,
								  client_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(
		cb, client_stream_close);
	nghttp2_session_callbacks_set_on_frame_recv_callback(cb, client_frame);
	assert_int_equal(nghttp2_session_client_new2(&c->session, cb, c, opt),
			 0);
	nghttp2_option_del(opt);
	nghttp2_session_callbacks_del(cb);
	assert_int_equal(nghttp2_submit_settings(c->session, 0, NULL, 0), 0);
}

static inline void client_turn(struct client *c)
{
	uint8_t in[16384];
	ssize_t n;

	if (c->session && !c->closed) {
		if (nghttp2_session_send(c->session) < 0)
			c->closed = true;
		while (!c->deaf && !c->closed) {
			n = recv(c->fd, in, sizeof(in), MSG_DONTWAIT);
			if (n < 0 && errno == EAGAIN)
				break;
			if (n <= 0 || nghttp2_session_mem_recv(c->session, in,
							       (size_t)n) < 0)
				c->closed = true;
		}
		if (!c->closed && nghttp2_session_send(c->session) < 0)
			c->closed = true;
	}
	assert_int_equal(loop_turn(c->loop, 1), 0);
}

/* Turns until @cond holds; fails the test after a while. */
#define client_until(c, cond)                                              \
	do {                                                               \
		uint64_t end_ = now_ms() + CLIENT_WAIT_MS;                 \
		while (!(cond)) {                                          \
			client_turn(c);                                    \
			if (now_ms() > end_)                               \
				fail_msg("%s:%d: still not: %s", __FILE__, \
					 __LINE__, #cond);                 \
		}                                                          \
	} while (0)

static ssize_t client_pull(nghttp2_session *s, int32_t id, uint8_t *p,
			   size_t cap, uint32_t *flags,
			   nghttp2_data_source *source, void *userdata)
{
	struct reply *r = source->ptr;
	size_t n = r->request.len - r->sent;

	(void)s;
	(void)id;
	(void)userdata;
	if (n > cap)
		n = cap;
	if (n)
		memcpy(p, r->request.p + r->sent, n);
	r->sent += n;
	if (r->sent < r->request.len)
		return (ssize_t)n;
	if (!r->hang)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	else if (n == 0)
		return NGHTTP2_ERR_DEFERRED;
	return (ssize_t)n;
}

static inline nghttp2_nv client_nv(const char *name, const char *value)
{
	return (nghttp2_nv){ (uint8_t *)(uintptr_t)name,
			     (uint8_t *)(uintptr_t)value, strlen(name),
			     strlen(value), 0 };
}

struct client_headers {
	const char *method, *path, *content_type, *timeout;
};

/* Starts a request whose body is r->request. */
static inline void client_start(struct client *c, struct reply *r,
				const struct client_headers *h)
{
	nghttp2_data_provider body = { .source.ptr = r,
				       .read_callback = client_pull };
	nghttp2_nv nv[8];
	size_t n = 0;

	r->client = c;
	r->http = r->grpc = -1;
	nv[n++] = client_nv(":method", h->method ? h->method : "POST");
	nv[n++] = client_nv(":scheme", "http");
	nv[n++] = client_nv(":path", h->path);
	nv[n++] = client_nv(":authority", "localhost");
	nv[n++] = client_nv("te", "trailers");
	if (h->timeout)
		nv[n++] = client_nv("grpc-timeout", h->timeout);
	nv[n++] =
		client_nv("content-type", h->content_type ? h->content_type
							  : "application/grpc");
	r->id = nghttp2_submit_request(c->session, NULL, nv, n, &body, r);
	assert_true(r->id > 0);
}

static inline void request_prefix(struct reply *r, size_t len)
{
	uint8_t prefix[5] = { 0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
			      (uint8_t)(len >> 8), (uint8_t)len };

	assert_int_equal(buf_add(&r->request, prefix, 5), 0);
}

/* Starts a call of @method with one message. */
static inline void client_call(struct client *c, struct reply *r,
			       const char *method, const void *msg,
			       const char *timeout)
{
	const ProtobufCMessage *m = msg;
	size_t len = protobuf_c_message_get_packed_size(m);
	char path[128];
	struct client_headers h = { .path = path, .timeout = timeout };

	memset(r, 0, sizeof(*r));
	(void)snprintf(path, sizeof(path), SNAPSHOTS "%s", method);
	request_prefix(r, len);
	assert_int_equal(buf_reserve(&r->request, len), 0);
	r->request.len +=
		protobuf_c_message_pack(m, r->request.p + r->request.len);
	client_start(c, r, &h);
}

static inline void reply_release(struct reply *r)
{
	if (r->client && r->client->session && !r->closed)
		(void)nghttp2_session_set_stream_user_data(r->client->session,
							   r->id, NULL);
	buf_release(&r->data);
	buf_release(&r->request);
}

#endif
