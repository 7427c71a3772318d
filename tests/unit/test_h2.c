/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin/h2 alone, on a socket pair: what its owner is told, and what a peer
 * can make it hold. The frames are written by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "plugin/h2.h"

enum frame {
	DATA,
	HEADERS,
	RST_STREAM = 3,
	SETTINGS,
	PING = 6,
	GOAWAY,
	WINDOW_UPDATE
};
#define END_STREAM 1
#define ACK 1
#define END_HEADERS 4

struct fixture {
	sd_event *event;
	struct h2_conn *conn;
	int fd; /* the peer's */
	struct h2_request rq;
	struct h2_stream *stream; /* the last */
	unsigned n_requests, n_ends, n_drained, n_closed;
	size_t n_data;
	bool gone;
	uint8_t in[1 << 20];
	size_t n_in;
};

static void on_request(void *ctx, struct h2_stream *st)
{
	struct fixture *f = ctx;

	f->n_requests++;
	f->stream = st;
	f->rq = *h2_stream_request(st);
}

static void on_data(void *ctx, struct h2_stream *st, const uint8_t *p,
		    size_t len)
{
	struct fixture *f = ctx;

	(void)st;
	(void)p;
	f->n_data += len;
}

static void on_end(void *ctx, struct h2_stream *st)
{
	(void)st;
	((struct fixture *)ctx)->n_ends++;
}

static void on_drained(void *ctx, struct h2_stream *st)
{
	(void)st;
	((struct fixture *)ctx)->n_drained++;
}

static void on_stream_closed(void *ctx, struct h2_stream *st)
{
	struct fixture *f = ctx;

	f->n_closed++;
	if (f->stream == st)
		f->stream = NULL;
}

static void on_conn_closed(void *ctx, struct h2_conn *c)
{
	struct fixture *f = ctx;

	assert_ptr_equal(f->conn, c);
	f->conn = NULL;
	f->gone = true;
}

static const struct h2_ops ops = {
	on_request, on_data,          on_end,
	on_drained, on_stream_closed, on_conn_closed
};

/* Until nothing happens any more. */
static void settle(struct fixture *f)
{
	for (;;) {
		int r = sd_event_run(f->event, 0);

		assert_true(r >= 0);
		if (r == 0)
			return;
	}
}

static void peer_write(struct fixture *f, const void *p, size_t len)
{
	assert_int_equal(send(f->fd, p, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void peer_frame(struct fixture *f, enum frame type, unsigned flags,
		       uint32_t id, const void *p, size_t len)
{
	uint8_t h[9] = { (uint8_t)(len >> 16), (uint8_t)(len >> 8),
			 (uint8_t)len,         (uint8_t)type,
			 (uint8_t)flags,       (uint8_t)(id >> 24),
			 (uint8_t)(id >> 16),  (uint8_t)(id >> 8),
			 (uint8_t)id };

	peer_write(f, h, sizeof(h));
	if (len)
		peer_write(f, p, len);
}

static void peer_hello(struct fixture *f)
{
	static const char magic[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

	peer_write(f, magic, sizeof(magic) - 1);
	peer_frame(f, SETTINGS, 0, 0, NULL, 0);
	settle(f);
}

/* A literal header field without indexing (RFC 7541 section 6.2.2). */
static void add_field(struct buf *b, const char *name, const char *value)
{
	size_t n = strlen(name), v = strlen(value);
	uint8_t byte = 0;

	assert_true(n < 127 && v < 254);
	(void)buf_add(b, &byte, 1);
	byte = (uint8_t)n;
	(void)buf_add(b, &byte, 1);
	(void)buf_adds(b, name);
	if (v < 127) {
		byte = (uint8_t)v;
		(void)buf_add(b, &byte, 1);
	} else {
		(void)buf_add(b, "\x7f", 1);
		byte = (uint8_t)(v - 127);
		(void)buf_add(b, &byte, 1);
	}
	(void)buf_adds(b, value);
}

static void add_request(struct buf *b, const char *path)
{
	add_field(b, ":method", "POST");
	add_field(b, ":scheme", "http");
	add_field(b, ":path", path);
	add_field(b, ":authority", "localhost");
}

static void peer_request(struct fixture *f, uint32_t id, unsigned flags)
{
	struct buf b = { 0 };

	add_request(&b, "/a/b");
	add_field(&b, "content-type", "application/grpc");
	peer_frame(f, HEADERS, flags | END_HEADERS, id, b.p, b.len);
	buf_release(&b);
	settle(f);
}

static void peer_read(struct fixture *f)
{
	ssize_t n;

	do {
		n = recv(f->fd, f->in + f->n_in, sizeof(f->in) - f->n_in,
			 MSG_DONTWAIT);
		if (n > 0)
			f->n_in += (size_t)n;
		settle(f);
	} while (n > 0);
}

/* The @nth frame of @type (and stream @id) that has come; NULL: none. */
static const uint8_t *find_frame(struct fixture *f, enum frame type,
				 uint32_t id, unsigned nth)
{
	size_t off = 0;

	while (off + 9 <= f->n_in) {
		const uint8_t *p = f->in + off;
		size_t len = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];

		if (p[3] == type && p[8] == id && nth-- == 0)
			return p;
		off += 9 + len;
	}
	return NULL;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fds[2];

	assert_non_null(f);
	assert_true(sd_event_new(&f->event) >= 0);
	assert_int_equal(socketpair(AF_UNIX,
				    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
				    0, fds),
			 0);
	f->fd = fds[1];
	assert_int_equal(h2_open(f->event, fds[0], &ops, f, &f->conn), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	h2_close(f->conn);
	assert_true(f->gone);
	assert_int_equal(f->n_closed, f->n_requests);
	sd_event_unref(f->event);
	if (f->fd >= 0)
		(void)close(f->fd);
	free(f);
	return 0;
}

static void request_is_told_with_its_headers(void **state)
{
	struct fixture *f = *state;

	peer_hello(f);
	peer_request(f, 1, 0);
	assert_int_equal(f->n_requests, 1);
	assert_string_equal(f->rq.method, "POST");
	assert_string_equal(f->rq.path, "/a/b");
	assert_string_equal(f->rq.content_type, "application/grpc");
	assert_string_equal(f->rq.timeout, "");
	assert_int_equal(f->n_ends, 0);
	peer_frame(f, DATA, 0, 1, "abc", 3);
	peer_frame(f, DATA, END_STREAM, 1, "de", 2);
	settle(f);
	assert_int_equal(f->n_data, 5);
	assert_int_equal(f->n_ends, 1);
	assert_int_equal(f->n_closed, 0);
}

static void long_values_are_cut(void **state)
{
	struct fixture *f = *state;
	struct buf b = { 0 };
	char path[201] = "/";

	memset(path + 1, 'p', 199);
	add_request(&b, path);
	add_field(&b, "grpc-timeout", "1234567890123456789S");
	peer_hello(f);
	peer_frame(f, HEADERS, END_HEADERS | END_STREAM, 1, b.p, b.len);
	buf_release(&b);
	settle(f);
	assert_int_equal(f->n_requests, 1);
	assert_int_equal(strlen(f->rq.path), sizeof(f->rq.path) - 1);
	assert_string_equal(f->rq.timeout, "123456789012345");
}

static void too_many_headers_reset_their_stream_only(void **state)
{
	struct fixture *f = *state;
	struct buf b = { 0 };

	add_request(&b, "/");
	for (int i = 0; i < 500; i++)
		add_field(&b, "x", "y"); /* 34 each, by RFC 9113's count */
	peer_hello(f);
	peer_frame(f, HEADERS, END_HEADERS, 1, b.p, b.len);
	buf_release(&b);
	settle(f);
	peer_read(f);
	assert_int_equal(f->n_requests, 0);
	assert_non_null(find_frame(f, RST_STREAM, 1, 0));
	peer_request(f, 3, END_STREAM);
	assert_int_equal(f->n_requests, 1);
	assert_false(f->gone);
}

static void respond_send_finish_gives_headers_data_trailers(void **state)
{
	static const struct h2_header h = { "content-type", "text/plain" };
	static const struct h2_header t[] = { { "grpc-status", "0" },
					      { "grpc-message", "fine" } };
	struct fixture *f = *state;
	struct buf b = { 0 };
	const uint8_t *p;

	peer_hello(f);
	peer_request(f, 1, END_STREAM);
	h2_respond(f->stream, 200, &h, 1, false);
	settle(f);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(buf_adds(&b, i ? "def" : "abc"), 0);
		h2_send(f->stream, &b);
		assert_null(b.p);
		settle(f);
		assert_int_equal(f->n_drained, i + 1);
	}
	h2_finish(f->stream, t, 2);
	settle(f);
	assert_int_equal(f->n_closed, 1);
	peer_read(f);
	assert_non_null(find_frame(f, HEADERS, 1, 0));
	p = find_frame(f, DATA, 1, 0);
	assert_non_null(p);
	assert_memory_equal(p + 9, "abc", 3);
	p = find_frame(f, DATA, 1, 1);
	assert_non_null(p);
	assert_memory_equal(p + 9, "def", 3);
	p = find_frame(f, HEADERS, 1, 1);
	assert_non_null(p);
	assert_int_equal(p[4] & END_STREAM, END_STREAM);
	assert_null(find_frame(f, RST_STREAM, 1, 0));
}

static void early_answer_tells_the_peer_to_stop(void **state)
{
	struct fixture *f = *state;
	const uint8_t *p;

	peer_hello(f);
	peer_request(f, 1, 0);
	h2_respond(f->stream, 415, NULL, 0, true);
	settle(f);
	peer_read(f);
	p = find_frame(f, RST_STREAM, 1, 0);
	assert_non_null(p);
	assert_memory_equal(p + 9, "\0\0\0\0", 4); /* NO_ERROR */
	assert_int_equal(f->n_closed, 1);
	/* what was on its way is ignored */
	peer_frame(f, DATA, END_STREAM, 1, "abc", 3);
	settle(f);
	assert_int_equal(f->n_data, 0);
	assert_false(f->gone);
}

static void peer_that_does_not_read_is_not_read(void **state)
{
	struct fixture *f = *state;
	uint8_t ping[17] = { 0, 0, 8, PING };
	size_t n_sent = 0;
	uint64_t end = now_ms() + 3000;

	peer_hello(f);
	/* Each would be answered. Were they all read, this would not end. */
	while (now_ms() < end) {
		ssize_t n = send(f->fd, ping, sizeof(ping), MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN && n_sent > 0) {
			settle(f);
			n = send(f->fd, ping, sizeof(ping), MSG_NOSIGNAL);
			if (n < 0)
				break;
		}
		n_sent++;
	}
	assert_true(now_ms() < end);
	assert_false(f->gone);
	peer_read(f); /* now it does, and gets what it asked for */
	assert_int_equal(f->n_in % sizeof(ping), (9 + 18 + 9 + 13) % 17);
	assert_true(f->n_in / sizeof(ping) >= n_sent);
}

static void frame_beyond_its_limit_ends_the_connection(void **state)
{
	struct fixture *f = *state;
	uint8_t h[9] = { 1, 0, 0, DATA, 0, 0, 0, 0, 1 }; /* 64 KiB */

	peer_hello(f);
	peer_request(f, 1, 0);
	peer_write(f, h, sizeof(h));
	settle(f);
	peer_read(f);
	assert_true(f->gone);
	assert_int_equal(f->n_closed, 1);
	assert_non_null(find_frame(f, GOAWAY, 0, 0));
}

static void window_overrun_ends_stream_or_connection(void **state)
{
	struct fixture *f = *state;

	peer_hello(f);
	peer_request(f, 1, END_STREAM);
	/* two increments that exceed 2^31 - 1 together */
	peer_frame(f, WINDOW_UPDATE, 0, 1, "\x7f\xff\xff\xff", 4);
	peer_frame(f, WINDOW_UPDATE, 0, 1, "\x7f\xff\xff\xff", 4);
	settle(f);
	peer_read(f);
	assert_int_equal(f->n_closed, 1);
	assert_non_null(find_frame(f, RST_STREAM, 1, 0));
}

static void half_a_frame_waits_and_goes_with_the_peer(void **state)
{
	struct fixture *f = *state;

	peer_hello(f);
	peer_write(f, "\0\0\5\0\0", 5);
	settle(f);
	assert_false(f->gone);
	(void)close(f->fd);
	f->fd = -1;
	settle(f);
	assert_true(f->gone);
}

static void shutdown_ends_after_the_last_stream(void **state)
{
	struct fixture *f = *state;

	peer_hello(f);
	peer_request(f, 1, END_STREAM);
	h2_shutdown(f->conn);
	settle(f);
	peer_read(f);
	assert_non_null(find_frame(f, GOAWAY, 0, 0));
	peer_request(f, 3, END_STREAM); /* too late: not told */
	assert_int_equal(f->n_requests, 1);
	assert_false(f->gone);
	h2_respond(f->stream, 200, NULL, 0, true);
	settle(f);
	assert_true(f->gone);
}

static void close_tells_of_every_stream(void **state)
{
	struct fixture *f = *state;

	peer_hello(f);
	for (uint32_t id = 1; id < 20; id += 2)
		peer_request(f, id, id % 4 == 1 ? END_STREAM : 0);
	assert_int_equal(f->n_requests, 10);
	h2_close(f->conn);
	assert_int_equal(f->n_closed, 10);
	assert_true(f->gone);
}

#define test_case(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test_case(request_is_told_with_its_headers),
		test_case(long_values_are_cut),
		test_case(too_many_headers_reset_their_stream_only),
		test_case(respond_send_finish_gives_headers_data_trailers),
		test_case(early_answer_tells_the_peer_to_stop),
		test_case(peer_that_does_not_read_is_not_read),
		test_case(frame_beyond_its_limit_ends_the_connection),
		test_case(window_overrun_ends_stream_or_connection),
		test_case(half_a_frame_waits_and_goes_with_the_peer),
		test_case(shutdown_ends_after_the_last_stream),
		test_case(close_tells_of_every_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
