/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/methods and plugin/wire: bytes in, calls of snapshotter/, bytes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plugin/methods.h"
#include "proto/snapshots.pb-c.h"
#include "rpc/wire.h"
#include "tests/lib/fake_snapshotter.h"

#define PREFIX "/containerd.services.snapshots.v1.Snapshots/"
#define PB(x) Containerd__Services__Snapshots__V1__##x
#define pb_type(x) (&containerd__services__snapshots__v1__##x##__descriptor)
#define pb_init(x, p) containerd__services__snapshots__v1__##x##__init(p)

static struct snapshotter fake;

static void note_ready(void *ctx)
{
	(*(unsigned *)ctx)++;
}

static struct method_call begin(const char *method)
{
	struct method_call c = { .snapshotter = &fake, .ready = note_ready };
	char path[128];

	(void)snprintf(path, sizeof(path), PREFIX "%s", method);
	c.method = method_find(path);
	assert_non_null(c.method);
	return c;
}

static enum method_next step_raw(struct method_call *c, const void *p,
				 size_t len)
{
	assert_int_equal(buf_add(&c->request, p, len), 0);
	return method_step(c);
}

static enum method_next step(struct method_call *c, const void *msg)
{
	const ProtobufCMessage *m = msg;
	size_t n = protobuf_c_message_get_packed_size(m);

	assert_int_equal(buf_reserve(&c->request, n + 1), 0);
	c->request.len = protobuf_c_message_pack(m, c->request.p);
	return method_step(c);
}

/* The message at @*off of the answer; to be freed. */
static void *answer(const struct method_call *c,
		    const ProtobufCMessageDescriptor *d, size_t *off)
{
	const uint8_t *p = c->out.p + *off;
	size_t len;
	void *m;

	assert_int_equal(c->status.code, GRPC_OK);
	assert_true(c->out.len >= *off + GRPC_PREFIX_LEN);
	assert_int_equal(p[0], 0);
	len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 |
	      p[4];
	assert_true(c->out.len >= *off + GRPC_PREFIX_LEN + len);
	m = protobuf_c_message_unpack(d, NULL, len, p + GRPC_PREFIX_LEN);
	assert_non_null(m);
	*off += GRPC_PREFIX_LEN + len;
	return m;
}

static void end(struct method_call *c, void *m)
{
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	method_call_release(c);
}

/* @method refuses @len bytes at @p, saying @why. */
static void refuses(const char *method, const void *p, size_t len,
		    const char *why)
{
	struct method_call c = begin(method);

	assert_int_equal(step_raw(&c, p, len), METHOD_END);
	assert_int_equal(c.status.code, GRPC_INVALID_ARGUMENT);
	if (!strstr(c.status.msg, why))
		fail_msg("'%s' does not say '%s'", c.status.msg, why);
	assert_int_equal(c.out.len, 0);
	end(&c, NULL);
}

static void method_find_knows_ten_paths(void **state)
{
	static const char *const names[] = { "Prepare", "View",   "Mounts",
					     "Commit",  "Remove", "Stat",
					     "Update",  "List",   "Usage",
					     "Cleanup" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct method_call c = begin(names[i]);

		assert_string_equal(method_name(c.method), names[i]);
	}
	assert_null(method_find(PREFIX "prepare"));
	assert_null(method_find(PREFIX "Prepare/"));
	assert_null(method_find(PREFIX));
	assert_null(method_find(""));
	assert_null(method_find("/grpc.health.v1.Health/Check"));
}

static void grpc_code_of_maps_every_kind(void **state)
{
	static const enum grpc_code want[] = {
		[ERR_NONE] = GRPC_OK,
		[ERR_INVALID] = GRPC_INVALID_ARGUMENT,
		[ERR_NOT_FOUND] = GRPC_NOT_FOUND,
		[ERR_EXISTS] = GRPC_ALREADY_EXISTS,
		[ERR_PRECONDITION] = GRPC_FAILED_PRECONDITION,
		[ERR_CORRUPT] = GRPC_DATA_LOSS,
		[ERR_UNAVAILABLE] = GRPC_UNAVAILABLE,
		[ERR_DENIED] = GRPC_PERMISSION_DENIED,
		[ERR_UNSUPPORTED] = GRPC_FAILED_PRECONDITION,
		[ERR_NO_SPACE] = GRPC_RESOURCE_EXHAUSTED,
		[ERR_CANCELLED] = GRPC_CANCELLED,
		[ERR_INTERNAL] = GRPC_INTERNAL,
	};

	(void)state;
	for (size_t i = ERR_INVALID; i < ARRAY_LEN(want); i++) {
		struct method_call c = begin("Stat");
		PB(StatSnapshotRequest) rq;
		char key[16];

		assert_int_equal(grpc_code_of((enum err_kind)i), want[i]);
		(void)snprintf(key, sizeof(key), "fail-%zu", i);
		pb_init(stat_snapshot_request, &rq);
		rq.key = key;
		assert_int_equal(step(&c, &rq), METHOD_END);
		assert_int_equal(c.status.code, want[i]);
		assert_string_equal(c.status.msg, "no such snapshot");
		end(&c, NULL);
	}
}

/* a label entry {1: "k", 2: "v"} as field 4 of Prepare */
#define LABEL_K_V "\x22\x06\x0a\x01k\x12\x01v"
#define KEY "\x12\x01x"

static void step_refuses_bytes_that_are_no_message(void **state)
{
	(void)state;
	refuses("Stat", "\x0a", 1, "cut in a length");
	refuses("Stat", "\x80", 1, "cut in a tag");
	refuses("Stat", "\x0a\x05xyz", 5, "reaches beyond");
	refuses("Stat", "\x0a\xff\xff\xff\xff\x7f", 6, "reaches beyond");
	refuses("Stat", "\x0a\xff\xff\xff\xff\xff\x01", 7, "cut in a length");
	refuses("Stat", "\x02x", 2, "field number");
	refuses("Stat", "\x08\x01", 2, "'snapshotter' has wire type 0");
	refuses("Stat", "\x0b\x0c", 2, "'snapshotter' has wire type 3");
	refuses("Stat", "\x7b\x7c", 2, "unknown wire type");
	refuses("Stat",
		"\x12\x03"
		"a\0b",
		5, "'key' contains a NUL");
	refuses("Stat", "\x12\x02\xc0\x80", 4, "'key' is not UTF-8");
	refuses("Stat", "\x12\x03\xed\xa0\x80", 5, "'key' is not UTF-8");
	refuses("Stat", "\x12\x01\xc3", 3, "'key' is not UTF-8");
	refuses("Stat", "\x12\x04\xf4\x90\x80\x80", 6, "'key' is not UTF-8");
	refuses("Prepare", KEY "\x22\x05\x0a\x03k\0k", 10,
		"'key' contains a NUL");
	refuses("Prepare", KEY "\x22\x03\x0a\x09k", 8, "reaches beyond");
}

static void step_refuses_what_no_snapshot_can_be_called(void **state)
{
	char *long_key = calloc(1, 5000);

	(void)state;
	assert_non_null(long_key);
	memset(long_key, 'k', 5000);
	memcpy(long_key, "\x12\x81\x20", 3); /* 4097 bytes follow */
	refuses("Stat", long_key, 3 + 4097, "key is longer");
	memcpy(long_key, "\x1a\x81\x20", 3);
	memcpy(long_key + 3 + 4097, KEY, 3);
	refuses("Prepare", long_key, 3 + 4097 + 3, "parent is longer");
	free(long_key);
	refuses("Stat", "", 0, "key is empty");
	refuses("Commit", "\x1a\x01x", 3, "name is empty");
	refuses("Update", "", 0, "info is missing");
	refuses("Update", "\x12\x00", 2, "name is empty");
	refuses("Prepare", KEY LABEL_K_V LABEL_K_V, 3 + 16, "occurs twice");
	refuses("Prepare", KEY "\x22\x03\x12\x01v", 8, "label is empty");
}

static void wire_check_bounds_the_number_of_fields(void **state)
{
	size_t len = 2 * (WIRE_FIELDS_MAX + 1);
	uint8_t *p = malloc(len);
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(p);
	for (size_t i = 0; i < len; i += 2)
		memcpy(p + i, "\x22\x00", 2);
	assert_int_equal(
		wire_check(pb_type(prepare_snapshot_request), p, len, &e), -1);
	assert_non_null(strstr(e.msg, "too many fields"));
	assert_int_equal(
		wire_check(pb_type(prepare_snapshot_request), p, len - 2, &e),
		0);
	free(p);
}

/* What passes is what protobuf-c can take: else memory would seem to be short. */
static void wire_check_bounds_the_bytes_of_a_length(void **state)
{
	static const uint8_t ok[] = "\x12\x80\x80\x80\x80\x00";
	static const uint8_t long_one[] = "\x12\x80\x80\x80\x80\x80\x00";
	ProtobufCMessage *m = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(wire_unpack(pb_type(prepare_snapshot_request), ok,
				     sizeof(ok) - 1, &m, &e),
			 0);
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(wire_check(pb_type(prepare_snapshot_request), long_one,
				    sizeof(long_one) - 1, &e),
			 -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_non_null(strstr(e.msg, "cut in a length"));
}

static void prepare_skips_unknown_fields_and_empty_labels(void **state)
{
	static const char rq[] =
		KEY LABEL_K_V "\x22\x03\x0a\x01g" /* a label without value */
			      "\xf8\x01\x05" /* field 31: a number, */
			      "\xfd\x01"
			      "1234" /* four bytes, */
			      "\xf9\x01"
			      "12345678" /* eight bytes, */
			      "\xfa\x01\x02\0\xff"; /* anything */
	struct method_call c = begin("Prepare");
	PB(PrepareSnapshotResponse) * m;
	size_t off = 0;

	(void)state;
	assert_int_equal(step_raw(&c, rq, sizeof(rq) - 1), METHOD_END);
	m = answer(&c, pb_type(prepare_snapshot_response), &off);
	assert_int_equal(m->n_mounts, 1);
	assert_string_equal(m->mounts[0]->type, "bind");
	assert_string_equal(m->mounts[0]->source, "x");
	assert_string_equal(m->mounts[0]->target, "");
	assert_int_equal(m->mounts[0]->n_options, 2);
	assert_string_equal(m->mounts[0]->options[1], "rbind");
	assert_int_equal(fake.rows[fake.n_rows - 1].labels.n, 1);
	end(&c, m);
}

static void prepare_parks_and_finishes(void **state)
{
	struct method_call c = begin("View");
	PB(ViewSnapshotRequest) rq;
	PB(ViewSnapshotResponse) * m;
	char key[] = "park";
	unsigned n_ready = 0;
	size_t off = 0;

	(void)state;
	c.ready_ctx = &n_ready;
	pb_init(view_snapshot_request, &rq);
	rq.key = key;
	assert_int_equal(step(&c, &rq), METHOD_PARKED);
	assert_non_null(c.op);
	assert_int_equal(n_ready, 0);
	snapshotter_prepare_expire(c.op);
	assert_int_equal(n_ready, 1);
	assert_int_equal(method_step(&c), METHOD_END);
	assert_null(c.op);
	m = answer(&c, pb_type(view_snapshot_response), &off);
	assert_string_equal(m->mounts[0]->source, "park");
	end(&c, m);
}

static void commit_passes_parent_only_when_given(void **state)
{
	char name[] = "n", key[] = "k", parent[] = "p";
	size_t row = fake.n_rows;

	(void)state;
	for (int with = 0; with < 2; with++, row++) {
		struct method_call c = begin("Commit");
		PB(CommitSnapshotRequest) rq;
		size_t off = 0;

		pb_init(commit_snapshot_request, &rq);
		rq.name = name;
		rq.key = key;
		if (with)
			rq.parent = parent;
		assert_int_equal(step(&c, &rq), METHOD_END);
		end(&c, answer(&c, &google__protobuf__empty__descriptor, &off));
		assert_string_equal(
			labels_get(&fake.rows[row].labels, "committed-parent"),
			with ? "p" : "(null)");
		assert_string_equal(
			labels_get(&fake.rows[row].labels, "committed-key"),
			"k");
	}
}

static void stat_packs_all_of_info(void **state)
{
	struct method_call c = begin("Stat");
	PB(StatSnapshotRequest) rq;
	PB(StatSnapshotResponse) * m;
	char key[] = "x"; /* kept by an earlier test, with its label */
	size_t off = 0;

	(void)state;
	pb_init(stat_snapshot_request, &rq);
	rq.key = key;
	assert_int_equal(step(&c, &rq), METHOD_END);
	m = answer(&c, pb_type(stat_snapshot_response), &off);
	assert_string_equal(m->info->name, "x");
	assert_string_equal(m->info->parent, "the parent");
	assert_int_equal(m->info->kind, 3);
	assert_int_equal(m->info->created_at->seconds, 1700000000);
	assert_int_equal(m->info->created_at->nanos, 123456789);
	assert_true(m->info->updated_at->seconds == -62135596800);
	assert_int_equal(m->info->n_labels, 1);
	assert_string_equal(m->info->labels[0]->key, "k");
	assert_string_equal(m->info->labels[0]->value, "v");
	end(&c, m);
}

static void update_passes_mask_and_zero_time(void **state)
{
	struct method_call c = begin("Update");
	PB(UpdateSnapshotRequest) rq;
	PB(UpdateSnapshotResponse) * m;
	PB(Info) info;
	Google__Protobuf__Timestamp zero = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
	Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
	char name[] = "n", p0[] = "labels", p1[] = "labels.a.b/c";
	char *paths[] = { p0, p1 };
	size_t off = 0;

	(void)state;
	pb_init(info, &info);
	zero.seconds = -62135596800;
	info.name = name;
	info.created_at = &zero;
	mask.paths = paths;
	mask.n_paths = 2;
	pb_init(update_snapshot_request, &rq);
	rq.info = &info;
	rq.update_mask = &mask;
	assert_int_equal(step(&c, &rq), METHOD_END);
	m = answer(&c, pb_type(update_snapshot_response), &off);
	assert_int_equal(m->info->kind, 2);
	assert_int_equal(m->info->n_labels, 2);
	assert_string_equal(m->info->labels[0]->value, "labels");
	assert_string_equal(m->info->labels[1]->value, "labels.a.b/c");
	end(&c, m);
}

static void usage_does_not_wrap(void **state)
{
	struct method_call c = begin("Usage");
	PB(UsageRequest) rq;
	PB(UsageResponse) * m;
	char key[] = "k";
	size_t off = 0;

	(void)state;
	pb_init(usage_request, &rq);
	rq.key = key;
	assert_int_equal(step(&c, &rq), METHOD_END);
	m = answer(&c, pb_type(usage_response), &off);
	assert_true(m->size == INT64_MAX);
	assert_int_equal(m->inodes, 7);
	end(&c, m);
}

/* All of a List: how many steps it takes, and rows and labels in it. */
struct listed {
	unsigned n_pages, n_messages, n_rows, n_labels;
	size_t longest;
};

static struct listed list_all(void)
{
	struct method_call c = begin("List");
	struct listed l = { 0 };
	PB(ListSnapshotsRequest) rq;
	enum method_next next;

	pb_init(list_snapshots_request, &rq);
	for (next = step(&c, &rq); c.out.len; next = method_step(&c)) {
		size_t off = 0;

		l.n_pages++;
		if (c.out.len > l.longest)
			l.longest = c.out.len;
		while (off < c.out.len) {
			PB(ListSnapshotsResponse) * m;

			m = answer(&c, pb_type(list_snapshots_response), &off);
			assert_true(m->n_info >= 1 && m->n_info <= METHOD_PAGE);
			l.n_messages++;
			l.n_rows += (unsigned)m->n_info;
			for (size_t i = 0; i < m->n_info; i++)
				l.n_labels += (unsigned)m->info[i]->n_labels;
			protobuf_c_message_free_unpacked(&m->base, NULL);
		}
		buf_release(&c.out);
		if (next == METHOD_END)
			break;
	}
	assert_int_equal(next, METHOD_END);
	assert_int_equal(c.status.code, GRPC_OK);
	end(&c, NULL);
	return l;
}

static void list_gives_pages_of_one_hundred(void **state)
{
	struct listed l;

	(void)state;
	fake.n_listed = 250;
	l = list_all();
	assert_int_equal(l.n_rows, 250);
	assert_int_equal(l.n_labels, 250);
	assert_int_equal(l.n_pages, 3);
	assert_int_equal(l.n_messages, 3);
}

/* Rows whose only label has @len bytes. */
static struct listed list_big(unsigned n_rows, size_t len)
{
	char *value = malloc(len + 1);
	struct listed l;

	assert_non_null(value);
	memset(value, 'v', len);
	value[len] = '\0';
	fake.n_listed = n_rows;
	fake.listed_value = value;
	l = list_all();
	fake.listed_value = NULL;
	free(value);
	return l;
}

static void list_bounds_a_page_in_bytes(void **state)
{
	struct listed l = list_big(50, 300000);

	(void)state;
	assert_int_equal(l.n_rows, 50);
	assert_int_equal(l.n_labels, 50);
	assert_true(l.longest < 1400000);
	assert_true(l.n_messages > l.n_pages);
	l = list_big(3, 15 << 20);
	assert_int_equal(l.n_rows, 3);
	assert_int_equal(l.n_labels, 3);
	assert_int_equal(l.n_pages, 3);
}

static void list_leaves_out_labels_that_fit_no_message(void **state)
{
	struct listed l = list_big(3, 17 << 20);

	(void)state;
	assert_int_equal(l.n_rows, 3);
	assert_int_equal(l.n_labels, 0);
	assert_int_equal(l.n_messages, 1);
}

static void list_ends_with_the_error_of_a_page(void **state)
{
	struct method_call c = begin("List");
	PB(ListSnapshotsRequest) rq;
	char filter[] = "late-failure";
	char *filters[] = { filter };

	(void)state;
	fake.n_listed = 250;
	pb_init(list_snapshots_request, &rq);
	rq.filters = filters;
	rq.n_filters = 1;
	assert_int_equal(step(&c, &rq), METHOD_MORE);
	buf_release(&c.out);
	assert_int_equal(method_step(&c), METHOD_END);
	assert_int_equal(c.status.code, GRPC_DATA_LOSS);
	assert_int_equal(c.out.len, 0);
	end(&c, NULL);
}

static void list_of_nothing_has_no_message(void **state)
{
	struct method_call c = begin("List");
	PB(ListSnapshotsRequest) rq;

	(void)state;
	fake.n_listed = 0;
	pb_init(list_snapshots_request, &rq);
	assert_int_equal(step(&c, &rq), METHOD_END);
	assert_int_equal(c.status.code, GRPC_OK);
	assert_int_equal(c.out.len, 0);
	end(&c, NULL);
}

static void the_other_methods_answer_empty(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "Remove", "Cleanup",
						     "Mounts" };
		struct method_call c = begin(names[i]);
		const ProtobufCMessageDescriptor *d =
			i < 2 ? &google__protobuf__empty__descriptor
			      : pb_type(mounts_response);
		size_t off = 0;

		assert_int_equal(
			step_raw(&c, i == 1 ? "" : KEY, i == 1 ? 0 : 3),
			METHOD_END);
		end(&c, answer(&c, d, &off));
	}
}

static int setup(void **state)
{
	(void)state;
	fake_init(&fake);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_release(&fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(method_find_knows_ten_paths),
		cmocka_unit_test(grpc_code_of_maps_every_kind),
		cmocka_unit_test(step_refuses_bytes_that_are_no_message),
		cmocka_unit_test(step_refuses_what_no_snapshot_can_be_called),
		cmocka_unit_test(wire_check_bounds_the_number_of_fields),
		cmocka_unit_test(wire_check_bounds_the_bytes_of_a_length),
		cmocka_unit_test(prepare_skips_unknown_fields_and_empty_labels),
		cmocka_unit_test(prepare_parks_and_finishes),
		cmocka_unit_test(commit_passes_parent_only_when_given),
		cmocka_unit_test(stat_packs_all_of_info),
		cmocka_unit_test(update_passes_mask_and_zero_time),
		cmocka_unit_test(usage_does_not_wrap),
		cmocka_unit_test(list_gives_pages_of_one_hundred),
		cmocka_unit_test(list_bounds_a_page_in_bytes),
		cmocka_unit_test(list_leaves_out_labels_that_fit_no_message),
		cmocka_unit_test(list_ends_with_the_error_of_a_page),
		cmocka_unit_test(list_of_nothing_has_no_message),
		cmocka_unit_test(the_other_methods_answer_empty),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
