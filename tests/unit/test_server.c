/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin/server and plugin/call, with a real loop, real workers, a real socket
 * and a fake snapshotter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "plugin/grpc.h"
#include "plugin/server.h"
#include "proto/snapshots.pb-c.h"
#include "tests/lib/fake_snapshotter.h"
#include "tests/lib/h2_client.h"

#define PB(x) Containerd__Services__Snapshots__V1__##x
#define pb_type(x) (&containerd__services__snapshots__v1__##x##__descriptor)
#define pb_init(x, p) containerd__services__snapshots__v1__##x##__init(p)

#define N_WORKERS 4
#define GRACE_MS 300

/* What each test has: a server, and one client on a connection to it. */
struct fixture {
	struct loop *loop;
	struct workers *workers;
	struct snapshotter fake;
	struct server *server;
	struct sockaddr_un addr;
	socklen_t addr_len;
	struct client client;
};

static int connect_to(struct fixture *f)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&f->addr, f->addr_len),
			 0);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;
	struct server_opts o;

	assert_non_null(f);
	fake_init(&f->fake);
	assert_int_equal(loop_new(&f->loop, &e), 0);
	assert_int_equal(workers_new(f->loop, N_WORKERS, &f->workers), 0);
	o = (struct server_opts){ .loop = f->loop,
				  .workers = f->workers,
				  .snapshotter = &f->fake };
	o.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(o.listen_fd >= 0);
	/* An abstract name that the kernel chooses: nothing to clean up. */
	f->addr.sun_family = AF_UNIX;
	assert_int_equal(bind(o.listen_fd, (struct sockaddr *)&f->addr,
			      sizeof(sa_family_t)),
			 0);
	f->addr_len = sizeof(f->addr);
	assert_int_equal(getsockname(o.listen_fd, (struct sockaddr *)&f->addr,
				     &f->addr_len),
			 0);
	assert_int_equal(listen(o.listen_fd, 64), 0);
	assert_int_equal(server_open(&o, &f->server, &e), 0);
	client_open(&f->client, f->loop, connect_to(f), false);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_unblock(&f->fake);
	client_close(&f->client);
	server_close(f->server, GRACE_MS);
	workers_free(f->workers);
	loop_free(f->loop);
	assert_int_equal(f->fake.n_finished, f->fake.n_begun);
	fake_release(&f->fake);
	free(f);
	return 0;
}

static void start_stat(struct client *c, struct reply *r, char *key,
		       const char *timeout)
{
	PB(StatSnapshotRequest) rq;

	pb_init(stat_snapshot_request, &rq);
	rq.key = key;
	client_call(c, r, "Stat", &rq, timeout);
}

static void start_prepare(struct client *c, struct reply *r, char *key,
			  const char *timeout)
{
	PB(PrepareSnapshotRequest) rq;

	pb_init(prepare_snapshot_request, &rq);
	rq.key = key;
	client_call(c, r, "Prepare", &rq, timeout);
}

/* Stat of @key gives @code at once. */
static void stat_gives(struct client *c, const char *key, int code)
{
	struct reply r;
	char k[64];

	(void)snprintf(k, sizeof(k), "%s", key);
	start_stat(c, &r, k, NULL);
	client_until(c, r.closed);
	assert_int_equal(r.http, 200);
	assert_int_equal(r.grpc, code);
	reply_release(&r);
}

/* The only message of @r; to be freed. */
static void *message(const struct reply *r, const ProtobufCMessageDescriptor *d)
{
	void *m;

	assert_int_equal(r->http, 200);
	assert_string_equal(r->content_type, "application/grpc");
	assert_int_equal(r->grpc, GRPC_OK);
	assert_true(r->data.len >= GRPC_PREFIX_LEN);
	m = protobuf_c_message_unpack(d, NULL, r->data.len - GRPC_PREFIX_LEN,
				      r->data.p + GRPC_PREFIX_LEN);
	assert_non_null(m);
	return m;
}

static void unary_call_answers(void **state)
{
	struct fixture *f = *state;
	PB(StatSnapshotResponse) * m;
	struct reply r;
	char key[] = "ns/1/extract-1 sha256:abc";

	start_stat(&f->client, &r, key, NULL);
	client_until(&f->client, r.closed);
	m = message(&r, pb_type(stat_snapshot_response));
	assert_string_equal(m->info->name, key);
	assert_string_equal(r.message, "");
	assert_int_equal(r.error, 0);
	assert_int_equal(server_n_calls(f->server), 0);
	assert_int_equal(server_n_conns(f->server), 1);
	protobuf_c_message_free_unpacked(&m->base, NULL);
	reply_release(&r);
}

static void error_message_is_percent_encoded(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	char key[] = "fail-2";

	f->fake.message = "nothing called '100%'\nhere \xd1\x8f";
	start_stat(&f->client, &r, key, NULL);
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_NOT_FOUND);
	assert_string_equal(r.message, "nothing called '100%25'%0Ahere %D1%8F");
	assert_int_equal(r.data.len, 0);
	assert_int_equal(r.error, 0);
	reply_release(&r);
}

static void two_hundred_calls_run_on_one_connection(void **state)
{
	struct fixture *f = *state;
	static struct reply r[200];
	static char keys[200][16];

	for (int i = 0; i < 200; i++) {
		(void)snprintf(keys[i], sizeof(keys[i]),
			       i % 4 ? "k%d" : "sleep-5", i);
		start_stat(&f->client, &r[i], keys[i], NULL);
	}
	for (int i = 0; i < 200; i++) {
		PB(StatSnapshotResponse) * m;

		client_until(&f->client, r[i].closed);
		m = message(&r[i], pb_type(stat_snapshot_response));
		assert_string_equal(m->info->name, keys[i]);
		protobuf_c_message_free_unpacked(&m->base, NULL);
		reply_release(&r[i]);
	}
	assert_int_equal(f->fake.n_stats, 200);
}

static void parked_prepares_do_not_delay_stat(void **state)
{
	struct fixture *f = *state;
	static struct reply r[64];
	char key[] = "park";

	for (int i = 0; i < 64; i++)
		start_prepare(&f->client, &r[i], key, NULL);
	client_until(&f->client, f->fake.n_begun == 64);
	/* four workers, and none of them waits */
	stat_gives(&f->client, "x", GRPC_OK);
	assert_int_equal(f->fake.n_finished, 0);
	assert_int_equal(server_n_calls(f->server), 64);
	server_close(f->server, 5000);
	f->server = NULL;
	assert_int_equal(f->fake.n_expired, 64);
	for (int i = 0; i < 64; i++) {
		client_until(&f->client, r[i].closed);
		assert_int_equal(r[i].grpc, GRPC_OK);
		reply_release(&r[i]);
	}
}

static void prepare_answers_when_its_layer_is_ready(void **state)
{
	struct fixture *f = *state;
	struct reply by_thread, by_us;
	char timed[] = "park-30", park[] = "park";

	start_prepare(&f->client, &by_thread, timed, NULL);
	client_until(&f->client, by_thread.closed);
	assert_int_equal(by_thread.grpc, GRPC_OK);
	start_prepare(&f->client, &by_us, park, NULL);
	client_until(&f->client, f->fake.n_begun == 2);
	assert_false(by_us.closed);
	fake_ready(&f->fake);
	client_until(&f->client, by_us.closed);
	assert_int_equal(by_us.grpc, GRPC_OK);
	assert_int_equal(f->fake.n_finished, 2);
	assert_int_equal(f->fake.n_expired, 0);
	reply_release(&by_thread);
	reply_release(&by_us);
}

static void prepare_that_is_ready_at_once_answers(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	char key[] = "park-at-once";

	start_prepare(&f->client, &r, key, NULL);
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_OK);
	assert_int_equal(f->fake.n_finished, 1);
	assert_int_equal(f->fake.n_expired, 0);
	reply_release(&r);
}

static void prepare_budget_ends_the_wait(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	char key[] = "park";
	uint64_t begin = now_ms();

	f->fake.budget_ms = 60;
	start_prepare(&f->client, &r, key, NULL);
	client_until(&f->client, r.closed);
	assert_true(now_ms() - begin >= 60);
	assert_int_equal(r.grpc, GRPC_OK);
	assert_int_equal(f->fake.n_expired, 1);
	reply_release(&r);
}

static void deadline_answers_while_the_work_goes_on(void **state)
{
	struct fixture *f = *state;
	struct reply blocked, parked;
	char block[] = "block", park[] = "park";

	start_stat(&f->client, &blocked, block, "50m");
	start_prepare(&f->client, &parked, park, "50m");
	client_until(&f->client, blocked.closed && parked.closed);
	assert_int_equal(blocked.grpc, GRPC_DEADLINE_EXCEEDED);
	assert_int_equal(parked.grpc, GRPC_DEADLINE_EXCEEDED);
	assert_string_equal(blocked.message, "deadline exceeded");
	/* the op is given back, the stat is still in its worker */
	client_until(&f->client, f->fake.n_finished == 1);
	client_until(&f->client, server_n_calls(f->server) == 1);
	fake_unblock(&f->fake);
	client_until(&f->client, server_n_calls(f->server) == 0);
	reply_release(&blocked);
	reply_release(&parked);
}

static void deadline_in_time_does_nothing(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	char key[] = "sleep-20";

	start_stat(&f->client, &r, key, "10S");
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_OK);
	reply_release(&r);
}

static void cancelled_call_frees_its_op(void **state)
{
	struct fixture *f = *state;
	struct reply r;
	char key[] = "park";

	start_prepare(&f->client, &r, key, NULL);
	client_until(&f->client, f->fake.n_begun == 1);
	assert_int_equal(nghttp2_submit_rst_stream(f->client.session, 0, r.id,
						   NGHTTP2_CANCEL),
			 0);
	client_until(&f->client, server_n_calls(f->server) == 0);
	assert_int_equal(f->fake.n_expired, 1);
	assert_int_equal(f->fake.n_finished, 1);
	stat_gives(&f->client, "x", GRPC_OK);
	reply_release(&r);
}

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

/* A Prepare with one label of @len bytes. */
static void prepare_big(struct client *c, struct reply *r, char *key,
			size_t len)
{
	PB(PrepareSnapshotRequest) rq;
	PB(PrepareSnapshotRequest__LabelsEntry) label, *labels = &label;
	char name[] = "big", *value = malloc(len + 1);

	assert_non_null(value);
	memset(value, 'v', len);
	value[len] = '\0';
	pb_init(prepare_snapshot_request, &rq);
	pb_init(prepare_snapshot_request__labels_entry, &label);
	label.key = name;
	label.value = value;
	rq.key = key;
	rq.labels = &labels;
	rq.n_labels = 1;
	client_call(c, r, "Prepare", &rq, NULL);
	free(value);
}

static void messages_of_sixteen_mib_go_both_ways(void **state)
{
	struct fixture *f = *state;
	PB(StatSnapshotResponse) * m;
	struct reply r;
	char key[] = "big", over[] = "over";
	size_t len = GRPC_MESSAGE_MAX - 256;

	prepare_big(&f->client, &r, key, len);
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_OK);
	reply_release(&r);
	start_stat(&f->client, &r, key, NULL);
	client_until(&f->client, r.closed);
	m = message(&r, pb_type(stat_snapshot_response));
	assert_int_equal(strlen(m->info->labels[0]->value), len);
	protobuf_c_message_free_unpacked(&m->base, NULL);
	reply_release(&r);

	prepare_big(&f->client, &r, over, GRPC_MESSAGE_MAX);
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_RESOURCE_EXHAUSTED);
	assert_true(r.sent < r.request.len); /* told early */
	reply_release(&r);
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

/* Counts what is in the messages of a List. */
static unsigned count_listed(const struct reply *r)
{
	size_t off = 0;
	unsigned n = 0;

	while (off + GRPC_PREFIX_LEN <= r->data.len) {
		const uint8_t *p = r->data.p + off;
		size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 |
			     (size_t)p[3] << 8 | p[4];
		PB(ListSnapshotsResponse) * m;

		m = containerd__services__snapshots__v1__list_snapshots_response__unpack(
			NULL, len, p + GRPC_PREFIX_LEN);
		assert_non_null(m);
		for (size_t i = 0; i < m->n_info; i++) {
			char want[32];

			(void)snprintf(want, sizeof(want), "snapshot %06u",
				       n++);
			assert_string_equal(m->info[i]->name, want);
		}
		assert_true(m->n_info <= 100);
		protobuf_c_message_free_unpacked(&m->base, NULL);
		off += GRPC_PREFIX_LEN + len;
	}
	assert_int_equal(off, r->data.len);
	return n;
}

static void list_streams_ten_thousand(void **state)
{
	struct fixture *f = *state;
	PB(ListSnapshotsRequest) rq;
	struct reply r;

	f->fake.n_listed = 10000;
	pb_init(list_snapshots_request, &rq);
	client_call(&f->client, &r, "List", &rq, NULL);
	client_until(&f->client, r.closed);
	assert_int_equal(r.grpc, GRPC_OK);
	assert_int_equal(count_listed(&r), 10000);
	reply_release(&r);
	f->fake.n_listed = 0;
	client_call(&f->client, &r, "List", &rq, NULL);
	client_until(&f->client, r.closed);
	assert_int_equal(r.http, 200);
	assert_int_equal(r.grpc, GRPC_OK);
	assert_int_equal(r.data.len, 0);
	reply_release(&r);
}

static void list_waits_for_a_slow_reader(void **state)
{
	struct fixture *f = *state;
	PB(ListSnapshotsRequest) rq;
	struct client slow;
	struct reply r;
	size_t consumed = 0;

	f->fake.n_listed = 10000;
	client_open(&slow, f->loop, connect_to(f), true);
	pb_init(list_snapshots_request, &rq);
	client_call(&slow, &r, "List", &rq, NULL);
	/* The window of a connection is 65535 bytes and is not given back. */
	client_until(&slow, r.data.len == 65535);
	for (int i = 0; i < 50; i++)
		client_turn(&slow);
	assert_int_equal(r.data.len, 65535);
	assert_int_equal(server_n_calls(f->server), 1);
	stat_gives(&f->client, "x", GRPC_OK); /* another connection */
	while (!r.closed) {
		size_t have = r.data.len;

		assert_int_equal(nghttp2_session_consume(slow.session, r.id,
							 have - consumed),
				 0);
		consumed = have;
		client_until(&slow, r.data.len > have || r.closed);
	}
	assert_int_equal(r.grpc, GRPC_OK);
	assert_int_equal(count_listed(&r), 10000);
	reply_release(&r);
	client_close(&slow);
	client_until(&f->client, server_n_conns(f->server) == 1);
}

static void stat_works_during_an_open_list(void **state)
{
	struct fixture *f = *state;
	PB(ListSnapshotsRequest) rq;
	struct client slow;
	struct reply list, stat;
	char key[] = "x";

	f->fake.n_listed = 10000;
	client_open(&slow, f->loop, connect_to(f), true);
	pb_init(list_snapshots_request, &rq);
	client_call(&slow, &list, "List", &rq, NULL);
	client_until(&slow, list.data.len > 20000);
	/* the same connection: room for the answer, not for the List */
	assert_int_equal(
		nghttp2_session_consume_connection(slow.session, list.data.len),
		0);
	start_stat(&slow, &stat, key, NULL);
	client_until(&slow, stat.closed);
	assert_int_equal(stat.grpc, GRPC_OK);
	assert_false(list.closed);
	reply_release(&stat);
	reply_release(&list);
	client_close(&slow);
}

static void list_ends_with_an_error(void **state)
{
	struct fixture *f = *state;
	PB(ListSnapshotsRequest) rq;
	char filter[] = "late-failure", *filters[] = { filter };
	struct reply r;

	f->fake.n_listed = 250;
	pb_init(list_snapshots_request, &rq);
	rq.filters = filters;
	rq.n_filters = 1;
	client_call(&f->client, &r, "List", &rq, NULL);
	client_until(&f->client, r.closed);
	assert_int_equal(count_listed(&r), 100);
	assert_int_equal(r.grpc, GRPC_DATA_LOSS);
	assert_string_equal(r.message, "row 150 is bad");
	reply_release(&r);
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

#define test_case(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test_case(unary_call_answers),
		test_case(error_message_is_percent_encoded),
		test_case(two_hundred_calls_run_on_one_connection),
		test_case(parked_prepares_do_not_delay_stat),
		test_case(prepare_answers_when_its_layer_is_ready),
		test_case(prepare_that_is_ready_at_once_answers),
		test_case(prepare_budget_ends_the_wait),
		test_case(deadline_answers_while_the_work_goes_on),
		test_case(deadline_in_time_does_nothing),
		test_case(cancelled_call_frees_its_op),
		test_case(vanished_client_leaves_nothing),
		test_case(messages_of_sixteen_mib_go_both_ways),
		test_case(requests_together_are_bounded),
		test_case(list_streams_ten_thousand),
		test_case(list_waits_for_a_slow_reader),
		test_case(stat_works_during_an_open_list),
		test_case(list_ends_with_an_error),
		test_case(bad_requests_get_their_own_answers),
		test_case(calls_are_bounded_when_streams_are_reset),
		test_case(garbage_ends_only_its_own_connection),
		test_case(connections_are_bounded),
		test_case(close_lets_running_calls_end),
		test_case(close_cuts_off_after_the_grace_time),
	};

	/* SIGTERM, which ends a test that hangs, is blocked by the loop. */
	(void)alarm(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
