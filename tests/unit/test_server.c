/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin/server and plugin/call with clients that behave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/server_world.h"

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
		test_case(messages_of_sixteen_mib_go_both_ways),
		test_case(list_streams_ten_thousand),
		test_case(list_waits_for_a_slow_reader),
		test_case(stat_works_during_an_open_list),
		test_case(list_ends_with_an_error),
	};

	/* SIGTERM, which ends a test that hangs, is blocked by the loop. */
	(void)alarm(240);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
