/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/grpc: framing, timeouts, percent-encoding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "rpc/grpc.h"

static void reader_takes_a_message_byte_by_byte(void **state)
{
	static const uint8_t in[] = { 0, 0, 0, 0, 3, 'a', 'b', 'c' };
	struct grpc_reader r = { 0 };
	struct grpc_status st = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(in); i++) {
		assert_int_equal(grpc_reader_end(&r, &st), -1);
		assert_int_equal(grpc_reader_feed(&r, in + i, 1, &st), 0);
	}
	assert_int_equal(grpc_reader_end(&r, &st), 0);
	assert_int_equal(r.msg.len, 3);
	assert_memory_equal(r.msg.p, "abc", 3);
	grpc_reader_release(&r);
}

static void reader_takes_an_empty_message(void **state)
{
	static const uint8_t in[GRPC_PREFIX_LEN];
	struct grpc_reader r = { 0 };
	struct grpc_status st = { 0 };

	(void)state;
	assert_int_equal(grpc_reader_feed(&r, in, sizeof(in), &st), 0);
	assert_int_equal(grpc_reader_end(&r, &st), 0);
	assert_int_equal(r.msg.len, 0);
	grpc_reader_release(&r);
}

static void reader_refuses(const void *p, size_t len, enum grpc_code code)
{
	struct grpc_reader r = { 0 };
	struct grpc_status st = { 0 };

	if (grpc_reader_feed(&r, p, len, &st) == 0)
		assert_int_equal(grpc_reader_end(&r, &st), -1);
	assert_int_equal(st.code, code);
	assert_true(st.msg[0] != '\0');
	grpc_reader_release(&r);
}

static void reader_feed_refuses_what_is_not_one_plain_message(void **state)
{
	(void)state;
	reader_refuses("\1\0\0\0\1x", 6, GRPC_UNIMPLEMENTED);
	reader_refuses("\2\0\0\0\1x", 6, GRPC_INTERNAL);
	reader_refuses("\0\1\0\0\1", 5, GRPC_RESOURCE_EXHAUSTED);
	reader_refuses("\0\377\377\377\377", 5, GRPC_RESOURCE_EXHAUSTED);
	reader_refuses("\0\0\0\0\1xy", 7, GRPC_UNIMPLEMENTED);
	reader_refuses("\0\0\0\0\0\0\0\0\0\0", 10, GRPC_UNIMPLEMENTED);
	reader_refuses("\0\0\0\0\2x", 6, GRPC_INTERNAL);
	reader_refuses("\0\0", 2, GRPC_INTERNAL);
	reader_refuses("", 0, GRPC_UNIMPLEMENTED);
}

static void reader_does_not_allocate_what_is_only_announced(void **state)
{
	static const uint8_t in[] = { 0, 1, 0, 0, 0, 'x' }; /* 16 MiB */
	struct grpc_reader r = { 0 };
	struct grpc_status st = { 0 };

	(void)state;
	assert_int_equal(grpc_reader_feed(&r, in, sizeof(in), &st), 0);
	assert_true(r.msg.cap < 4096);
	grpc_reader_release(&r);
}

static void frame_end_writes_the_length(void **state)
{
	struct buf b = { 0 };
	size_t first, second;

	(void)state;
	first = grpc_frame_begin(&b);
	(void)buf_adds(&b, "hello");
	assert_int_equal(grpc_frame_end(&b, first), 0);
	second = grpc_frame_begin(&b);
	assert_int_equal(grpc_frame_end(&b, second), 0);
	assert_int_equal(b.len, 15);
	assert_memory_equal(b.p, "\0\0\0\0\5hello\0\0\0\0\0", 15);
	second = grpc_frame_begin(&b);
	assert_int_equal(buf_reserve(&b, GRPC_MESSAGE_MAX + 1), 0);
	b.len += GRPC_MESSAGE_MAX + 1;
	assert_int_equal(grpc_frame_end(&b, second), -EMSGSIZE);
	b.failed = true;
	assert_int_equal(grpc_frame_end(&b, second), -ENOMEM);
	buf_release(&b);
}

static void is_content_type_knows_grpc_with_protobuf_only(void **state)
{
	(void)state;
	assert_true(grpc_is_content_type("application/grpc"));
	assert_true(grpc_is_content_type("application/grpc+proto"));
	assert_true(grpc_is_content_type("application/grpc;charset=utf-8"));
	assert_false(grpc_is_content_type("application/grpc-web"));
	assert_false(grpc_is_content_type("application/grpc+json"));
	assert_false(grpc_is_content_type("application/json"));
	assert_false(grpc_is_content_type(""));
}

static void timeout_parse_knows_all_units(void **state)
{
	static const struct {
		const char *s;
		uint64_t us;
	} good[] = {
		{ "1H", 3600000000 }, { "2M", 120000000 },
		{ "3S", 3000000 },    { "4m", 4000 },
		{ "5u", 5 },          { "1n", 1 },
		{ "1000n", 1 },       { "1001n", 2 },
		{ "0S", 0 },          { "99999999H", 359999996400000000 },
	};
	static const char *const bad[] = { "",    "S",    "1",   "1s",
					   "1Sx", "-1S",  "+1S", " 1S",
					   "1 S", "1.5S", "1h",  "100000000n" };
	uint64_t us;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(grpc_timeout_parse(good[i].s, &us), 0);
		assert_int_equal(us, good[i].us);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(grpc_timeout_parse(bad[i], &us), -EINVAL);
}

static void encodes(const char *s, const char *want)
{
	char out[GRPC_ENCODED_MAX];

	grpc_percent_encode(s, out, sizeof(out));
	assert_string_equal(out, want);
}

static void percent_encode_leaves_printable_ascii_alone(void **state)
{
	(void)state;
	encodes("", "");
	encodes("snapshot \"a/b\" ~", "snapshot \"a/b\" ~");
	encodes("100%", "100%25");
	encodes("a\nb\tc\x7f", "a%0Ab%09c%7F");
	encodes(" a b ", "%20a b%20");
	encodes("\xd1\x8f", "%D1%8F");
	encodes("\xff", "%FF");
}

static void percent_encode_cuts_at_a_whole_character(void **state)
{
	char out[8];

	(void)state;
	/* a message that was cut when it was written */
	encodes("x\xe2\x82", "x");
	encodes("x\xf0\x9f\x98", "x");
	encodes("x\xd1", "x");
	encodes("x\xe2\x82\xac", "x%E2%82%AC");
	grpc_percent_encode("ab\n\n", out, sizeof(out));
	assert_string_equal(out, "ab%0A");
	grpc_percent_encode("\n", out, 1);
	assert_string_equal(out, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reader_takes_a_message_byte_by_byte),
		cmocka_unit_test(reader_takes_an_empty_message),
		cmocka_unit_test(
			reader_feed_refuses_what_is_not_one_plain_message),
		cmocka_unit_test(
			reader_does_not_allocate_what_is_only_announced),
		cmocka_unit_test(frame_end_writes_the_length),
		cmocka_unit_test(is_content_type_knows_grpc_with_protobuf_only),
		cmocka_unit_test(timeout_parse_knows_all_units),
		cmocka_unit_test(percent_encode_leaves_printable_ascii_alone),
		cmocka_unit_test(percent_encode_cuts_at_a_whole_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
