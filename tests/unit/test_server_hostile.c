/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin/server and plugin/call: clients that vanish, flood or send garbage, what
 * is bounded, and the end of a server that is busy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/lib/server_world.h"

static void vanished_client_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct reply stat, prepare, list, half;
	struct client other;
	PB(ListSnapshotsRequest) rq;
	char block[] = "block", park[] = "park";
	struct client_headers h = { .path = SNAPSHOTS "Stat" };

	f->fake.n_listed = 100000;
	client_open(&other, f->loop, connect_to(f), true);
	start_stat(&other, &stat, block, NULL);
	start_prepare(&other, &prepare, park, NULL);
	pb_init(list_snapshots_request, &rq);
	client_call(&other, &list, "List", &rq, NULL);
	memset(&half, 0, sizeof(half));
	request_prefix(&half, 1000);
	half.hang = true;
	client_start(&other, &half, &h);
	client_until(&other, f->fake.n_begun == 1 && f->fake.n_stats == 1 &&
				     list.data.len > 60000);
	assert_int_equal(server_n_calls(f->server), 4);
	reply_release(&stat);
	reply_release(&prepare);
	reply_release(&list);
	reply_release(&half);
	client_close(&other);
	client_until(&f->client, server_n_calls(f->server) == 1);
	assert_int_equal(server_n_conns(f->server), 1);
	assert_int_equal(f->fake.n_finished, 1);
	fake_unblock(&f->fake);
	client_until(&f->client, server_n_calls(f->server) == 0);
	stat_gives(&f->client, "x", GRPC_OK);
}

static void requests_together_are_bounded(void **state)
{
	struct fixture *f = *state;
	static struct reply r[10];
	struct client_headers h = { .path = SNAPSHOTS "Stat" };
	unsigned n_refused = 0, n_sent = 0;
	char *bytes = calloc(1, 15 << 20);

	assert_non_null(bytes);
	for (int i = 0; i < 10; i++) { /* none of them ends */
		memset(&r[i], 0, sizeof(r[i]));
		request_prefix(&r[i], 16 << 20);
		assert_int_equal(buf_add(&r[i].request, bytes, 15 << 20), 0);
		r[i].hang = true;
		client_start(&f->client, &r[i], &h);
	}
	free(bytes);
	do {
		client_turn(&f->client);
		n_refused = n_sent = 0;
		for (int i = 0; i < 10; i++) {
			n_refused += r[i].grpc == GRPC_RESOURCE_EXHAUSTED;
			n_sent += r[i].sent == r[i].request.len;
		}
	} while (n_refused == 0 || n_refused + n_sent < 10);
	assert_true(n_refused >= 1 && n_refused <= 3);
	stat_gives(&f->client, "x", GRPC_OK);
	for (int i = 0; i < 10; i++)
		reply_release(&r[i]);
}

/* A request with these headers and body gives HTTP @http, status @grpc. */
static void gives(struct fixture *f, const struct client_headers *h,
		  const char *body, size_t len, int http, int grpc)
{
	struct reply r = { 0 };

	assert_int_equal(buf_add(&r.request, body, len), 0);
	client_start(&f->client, &r, h);
	client_until(&f->client, r.closed);
	assert_int_equal(r.http, http);
	assert_int_equal(r.grpc, grpc);
	reply_release(&r);
}

static void bad_requests_get_their_own_answers(void **state)
{
	struct fixture *f = *state;
	struct client_headers h = { .path = SNAPSHOTS "Prune" };
	static const char ok[] = "\0\0\0\0\3\x12\1x";

	gives(f, &h, ok, 8, 200, GRPC_UNIMPLEMENTED);
	h.path = "/grpc.health.v1.Health/Check";
	gives(f, &h, ok, 8, 200, GRPC_UNIMPLEMENTED);
	h.path = SNAPSHOTS "Stat";
	gives(f, &h, ok, 8, 200, GRPC_OK);
	gives(f, &h, ok, 7, 200, GRPC_INTERNAL); /* cut */
	gives(f, &h, ok, 0, 200, GRPC_UNIMPLEMENTED); /* no message */
	gives(f, &h, "\1\0\0\0\1x", 6, 200, GRPC_UNIMPLEMENTED);
	gives(f, &h, "\0\xff\xff\xff\xff", 5, 200, GRPC_RESOURCE_EXHAUSTED);
	gives(f, &h, "\0\0\0\0\1\x12", 6, 200, GRPC_INVALID_ARGUMENT);
	h.timeout = "5x";
	gives(f, &h, ok, 8, 200, GRPC_INVALID_ARGUMENT);
	h.timeout = "0n";
	gives(f, &h, "\0\0\0\0\x0c\x12\x0asleep-1000", 17, 200,
	      GRPC_DEADLINE_EXCEEDED);
	h.timeout = NULL;
	h.method = "GET";
	gives(f, &h, ok, 8, 405, -1);
	h.method = NULL;
	h.content_type = "application/json";
	gives(f, &h, ok, 8, 415, -1);
	h.content_type = "application/grpc+proto";
	gives(f, &h, ok, 8, 200, GRPC_OK);
	assert_int_equal(server_n_conns(f->server), 1);
}

static void calls_are_bounded_when_streams_are_reset(void **state)
{
	struct fixture *f = *state;
	char key[] = "block";

	/* Opens, asks, resets: each leaves a call in the queue. An nghttp2
	 * that counts resets ends the connection; then we come again. */
	for (int i = 0; i < 3000; i++) {
		struct reply r;

		if (f->client.closed) {
			client_close(&f->client);
			client_open(&f->client, f->loop, connect_to(f), false);
		}
		start_stat(&f->client, &r, key, NULL);
		(void)nghttp2_session_send(f->client.session);
		(void)nghttp2_submit_rst_stream(f->client.session, 0, r.id,
						NGHTTP2_CANCEL);
		reply_release(&r);
		client_turn(&f->client);
		assert_true(server_n_calls(f->server) <= 2000);
	}
	assert_int_equal(server_n_calls(f->server), 2000);
	fake_unblock(&f->fake);
	client_until(&f->client, server_n_calls(f->server) == 0);
	client_close(&f->client);
	client_open(&f->client, f->loop, connect_to(f), false);
	stat_gives(&f->client, "x", GRPC_OK);
}

/* Has the server closed its end of @fd? Reads what it sent before. */
static bool at_end(int fd)
{
	char in[256];
	ssize_t n;

	do
		n = recv(fd, in, sizeof(in), MSG_DONTWAIT);
	while (n > 0);
	return n == 0 || errno != EAGAIN;
}

static void garbage_ends_only_its_own_connection(void **state)
{
	static const char *const garbage[] = {
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\377\377\377\377\377\377\377\377\377",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"PRI * HT",
	};
	struct fixture *f = *state;
	uint8_t noise[4096];
	uint32_t seed = 1;

	for (size_t i = 0; i < ARRAY_LEN(garbage); i++) {
		int fd = connect_to(f);
		size_t len = strlen(garbage[i]);

		assert_int_equal(write(fd, garbage[i], len), (ssize_t)len);
		if (i >= 2) { /* half: nothing happens until it goes away */
			stat_gives(&f->client, "x", GRPC_OK);
		} else {
			client_until(&f->client, at_end(fd));
		}
		(void)close(fd);
		client_until(&f->client, server_n_conns(f->server) == 1);
	}
	for (int i = 0; i < 50; i++) {
		int fd = connect_to(f);
		const char *magic = garbage[2];

		for (size_t j = 0; j < sizeof(noise); j++) {
			seed = seed * 1664525 + 1013904223;
			noise[j] = (uint8_t)(seed >> 24);
		}
		(void)!write(fd, magic, strlen(magic));
		(void)!write(fd, noise, sizeof(noise));
		client_turn(&f->client);
		(void)close(fd);
	}
	client_until(&f->client, server_n_conns(f->server) == 1);
	stat_gives(&f->client, "x", GRPC_OK);
}

static void connections_are_bounded(void **state)
{
	struct fixture *f = *state;
	int fds[64];

	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = connect_to(f);
		client_turn(&f->client);
		assert_true(server_n_conns(f->server) <= 32);
	}
	assert_int_equal(server_n_conns(f->server), 32);
	stat_gives(&f->client, "x", GRPC_OK);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		(void)close(fds[i]);
	client_until(&f->client, server_n_conns(f->server) == 1);
}

static void out_of_descriptors_is_waited_out(void **state)
{
	struct fixture *f = *state;
	struct rlimit old, low;
	int fd = connect_to(f);
	clock_t cpu;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3; /* below what is open: accept4() gives EMFILE */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	cpu = clock();
	for (uint64_t end = now_ms() + 400; now_ms() < end;)
		assert_int_equal(loop_turn(f->loop, 20), 0);
	cpu = clock() - cpu;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(server_n_conns(f->server), 0);
	assert_true(cpu < CLOCKS_PER_SEC / 5); /* it does not spin */
	client_until(&f->client, server_n_conns(f->server) == 2);
	stat_gives(&f->client, "x", GRPC_OK);
	(void)close(fd);
}

static void close_lets_running_calls_end(void **state)
{
	struct fixture *f = *state;
	struct reply parked, slow;
	char park[] = "park", sleep[] = "sleep-100";

	start_prepare(&f->client, &parked, park, NULL);
	start_stat(&f->client, &slow, sleep, NULL);
	client_until(&f->client, f->fake.n_begun == 1 && f->fake.n_stats == 1);
	server_close(f->server, 5000);
	f->server = NULL;
	assert_int_equal(f->fake.n_finished, 1);
	client_until(&f->client, f->client.closed);
	assert_true(f->client.goaway);
	assert_int_equal(parked.grpc, GRPC_OK);
	assert_int_equal(slow.grpc, GRPC_OK);
	reply_release(&parked);
	reply_release(&slow);
}

static void close_cuts_off_after_the_grace_time(void **state)
{
	struct fixture *f = *state;
	struct reply half = { 0 }, slow;
	struct client_headers h = { .path = SNAPSHOTS "Stat" };
	char sleep[] = "sleep-400";
	uint64_t begin;

	half.hang = true;
	client_start(&f->client, &half, &h);
	start_stat(&f->client, &slow, sleep, NULL);
	client_until(&f->client, f->fake.n_stats == 1);
	begin = now_ms();
	server_close(f->server, 50);
	f->server = NULL;
	/* the connection is gone, but the worker was waited for */
	assert_true(now_ms() - begin >= 300);
	client_until(&f->client, f->client.closed);
	assert_int_equal(slow.grpc, -1);
	reply_release(&half);
	reply_release(&slow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		test_case(vanished_client_leaves_nothing),
		test_case(requests_together_are_bounded),
		test_case(bad_requests_get_their_own_answers),
		test_case(calls_are_bounded_when_streams_are_reset),
		test_case(garbage_ends_only_its_own_connection),
		test_case(connections_are_bounded),
		test_case(out_of_descriptors_is_waited_out),
		test_case(close_lets_running_calls_end),
		test_case(close_cuts_off_after_the_grace_time),
	};

	/* SIGTERM, which ends a test that hangs, is blocked by the loop. */
	(void)alarm(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
