/* SPDX-License-Identifier: Apache-2.0 */
/* Members cut at every byte, headers with every field, and damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "snapshotter/formats/decode.h"
#include "tests/lib/esgz_blob.h"

enum { BIG = 700 << 10 };

struct got {
	struct buf b;
	size_t stop_at; /* 0: never */
};

static int take(void *ctx, const void *p, size_t n)
{
	struct got *g = ctx;

	assert_true(n > 0);
	assert_int_equal(buf_add(&g->b, p, n), 0);
	return g->stop_at && g->b.len >= g->stop_at ? 7 : 0;
}

/* Bytes that repeat a little and differ a little. */
static uint8_t *pattern(size_t len)
{
	uint8_t *p = malloc(len);
	uint32_t x = 1;

	assert_non_null(p);
	for (size_t i = 0; i < len; i++) {
		x = x * 1103515245 + 12345;
		p[i] = i % 7 < 3 ? (uint8_t)(x >> 24) : (uint8_t)(i / 11);
	}
	return p;
}

static struct decoder *gzip_decoder(void)
{
	struct decoder *d = NULL;

	assert_int_equal(decoder_new(CODEC_GZIP_MEMBER, &d), 0);
	return d;
}

static int feed_in_steps(struct decoder *d, const struct buf *in, size_t step,
			 struct got *g)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < in->len; at += step) {
		size_t n = in->len - at < step ? in->len - at : step;

		r = decoder_feed(d, in->p + at, n, take, g);
	}
	return r;
}

static void feed_gives_members_in_any_pieces(void **state unused_arg)
{
	static const size_t steps[] = { 1, 2, 3, 7, 64, 1000, 4096, 1 << 20 };
	struct decoder *d = gzip_decoder();
	uint8_t *want = pattern(BIG);
	struct buf in = { 0 };

	assert_int_equal(esgz_member(&in, want, 5, 9), 0);
	assert_int_equal(esgz_member(&in, want, 0, 9), 0);
	assert_int_equal(esgz_member(&in, want + 5, 300000, 1), 0);
	assert_int_equal(esgz_member(&in, want + 300005, 1, 0), 0);
	assert_int_equal(esgz_member(&in, want + 300006, BIG - 300006, 0), 0);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct got g = { 0 };

		assert_int_equal(decoder_reset(d, CODEC_GZIP_MEMBER), 0);
		assert_int_equal(feed_in_steps(d, &in, steps[i], &g), 0);
		assert_int_equal(decoder_finish(d), 0);
		assert_int_equal(decoder_n_members(d), 5);
		assert_int_equal(g.b.len, BIG);
		assert_memory_equal(g.b.p, want, BIG);
		buf_release(&g.b);
	}
	buf_release(&in);
	free(want);
	decoder_free(d);
}

static void feed_splits_a_member_at_each_byte(void **state unused_arg)
{
	struct decoder *d = gzip_decoder();
	uint8_t *want = pattern(600);
	struct buf in = { 0 };

	assert_int_equal(esgz_member(&in, want, 300, 9), 0);
	assert_int_equal(esgz_member(&in, want + 300, 300, 6), 0);
	for (size_t cut = 0; cut <= in.len; cut++) {
		struct got g = { 0 };

		assert_int_equal(decoder_reset(d, CODEC_GZIP_MEMBER), 0);
		assert_int_equal(decoder_feed(d, in.p, cut, take, &g), 0);
		assert_int_equal(
			decoder_feed(d, in.p + cut, in.len - cut, take, &g), 0);
		assert_int_equal(decoder_finish(d), 0);
		assert_int_equal(g.b.len, 600);
		assert_memory_equal(g.b.p, want, 600);
		buf_release(&g.b);
	}
	buf_release(&in);
	free(want);
	decoder_free(d);
}

/* A reader waits for these bytes: they must not stay inside the decoder. */
static void feed_gives_all_that_the_input_allows(void **state unused_arg)
{
	struct decoder *d = gzip_decoder();
	uint8_t *want = pattern(BIG);
	struct got g = { 0 };
	struct buf in = { 0 };

	assert_int_equal(esgz_member(&in, want, BIG, 0), 0);
	assert_int_equal(decoder_feed(d, in.p, in.len / 2, take, &g), 0);
	/* stored blocks: almost as many bytes out as in */
	assert_true(g.b.len + 1024 > in.len / 2);
	buf_release(&g.b);
	buf_release(&in);
	free(want);
	decoder_free(d);
}

/* ---- headers ---- */

static void add_header(struct buf *b, uint8_t flags, size_t n_extra,
		       size_t n_name, size_t n_comment)
{
	const uint8_t fixed[] = { 0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 2, 3 };
	uint8_t len[2];

	assert_int_equal(buf_add(b, fixed, sizeof(fixed)), 0);
	if (flags & 4) {
		put_le16(len, (uint16_t)n_extra);
		assert_int_equal(buf_add(b, len, 2), 0);
		for (size_t i = 0; i < n_extra; i++)
			assert_int_equal(buf_add(b, "\x1f", 1), 0);
	}
	for (size_t i = 0; flags & 8 && i <= n_name; i++)
		assert_int_equal(buf_add(b, i < n_name ? "n" : "", 1), 0);
	for (size_t i = 0; flags & 16 && i <= n_comment; i++)
		assert_int_equal(buf_add(b, i < n_comment ? "c" : "", 1), 0);
	if (flags & 2)
		assert_int_equal(buf_add(b, "hc", 2), 0);
}

/* The deflate stream and the trailer of a member of "hello". */
static void add_body(struct buf *b)
{
	struct buf m = { 0 };

	assert_int_equal(esgz_member(&m, "hello", 5, 6), 0);
	assert_int_equal(buf_add(b, m.p + 10, m.len - 10), 0);
	buf_release(&m);
}

static int decode_all(const struct buf *in, size_t step, struct got *g)
{
	struct decoder *d = gzip_decoder();
	int r = feed_in_steps(d, in, step, g);

	if (r == 0)
		r = decoder_finish(d);
	decoder_free(d);
	return r;
}

static void feed_skips_every_header_field(void **state unused_arg)
{
	for (unsigned flags = 0; flags < 32; flags++) {
		for (size_t n = 0; n < 3; n++) {
			static const size_t extra[] = { 0, 5, 65535 };
			struct buf in = { 0 };
			struct got g = { 0 };

			add_header(&in, (uint8_t)flags, extra[n], n,
				   511 * n / 2);
			add_body(&in);
			assert_int_equal(decode_all(&in, n ? 1 << 20 : 1, &g),
					 0);
			assert_int_equal(g.b.len, 5);
			assert_memory_equal(g.b.p, "hello", 5);
			buf_release(&g.b);
			buf_release(&in);
		}
	}
}

static void feed_refuses_endless_names(void **state unused_arg)
{
	static const uint8_t flags[] = { 8, 16 };

	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		struct buf in = { 0 };
		struct got g = { 0 };

		add_header(&in, flags[i], 0, 600, 600);
		add_body(&in);
		assert_int_equal(decode_all(&in, 100, &g), -EBADMSG);
		assert_int_equal(g.b.len, 0);
		buf_release(&in);
	}
}

static void feed_refuses_what_is_no_member(void **state unused_arg)
{
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = { { 0, 0x1e }, { 1, 0x8c }, { 2, 7 }, { 3, 0x20 },
		    { 3, 0x40 }, { 3, 0x80 }, { 10, 7 } /* block type 3 */ };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct buf in = { 0 };
		struct got g = { 0 };

		assert_int_equal(esgz_member(&in, "hello", 5, 6), 0);
		in.p[bad[i].at] = bad[i].value;
		assert_int_equal(decode_all(&in, 1 << 20, &g), -EBADMSG);
		assert_int_equal(g.b.len, 0);
		buf_release(&in);
	}
}

static void feed_checks_the_trailer(void **state unused_arg)
{
	for (size_t i = 1; i <= 8; i++) {
		for (size_t step = 1; step < 64; step += 20) {
			struct buf in = { 0 };
			struct got g = { 0 };

			assert_int_equal(esgz_member(&in, "hello", 5, 6), 0);
			in.p[in.len - i] ^= 1;
			assert_int_equal(decode_all(&in, step, &g), -EBADMSG);
			buf_release(&g.b);
			buf_release(&in);
		}
	}
}

static void feed_refuses_bytes_between_members(void **state unused_arg)
{
	struct buf in = { 0 };
	struct got g = { 0 };

	assert_int_equal(esgz_member(&in, "hello", 5, 6), 0);
	assert_int_equal(buf_add(&in, "\0", 1), 0);
	assert_int_equal(decode_all(&in, 1 << 20, &g), -EBADMSG);
	buf_release(&g.b);
	buf_release(&in);
}

static void finish_refuses_every_truncation(void **state unused_arg)
{
	struct buf in = { 0 };

	assert_int_equal(esgz_member(&in, "hello hello hello", 17, 6), 0);
	for (size_t n = 0; n < in.len; n++) {
		struct buf part = { .p = in.p, .len = n };
		struct got g = { 0 };

		assert_int_equal(decode_all(&part, 4096, &g), -EBADMSG);
		buf_release(&g.b);
	}
	buf_release(&in);
}

static void feed_ends_with_the_callback(void **state unused_arg)
{
	struct decoder *d = gzip_decoder();
	uint8_t *want = pattern(BIG);
	struct got g = { .stop_at = 1000 };
	struct buf in = { 0 };

	assert_int_equal(esgz_member(&in, want, BIG, 6), 0);
	assert_int_equal(decoder_feed(d, in.p, in.len, take, &g), 7);
	assert_true(g.b.len < BIG);
	assert_int_equal(decoder_feed(d, in.p, in.len, take, &g), -EINVAL);
	assert_int_equal(decoder_finish(d), -EBADMSG);
	/* and is as new after a reset */
	g.b.len = 0;
	g.stop_at = 0;
	assert_int_equal(decoder_reset(d, CODEC_GZIP_MEMBER), 0);
	assert_int_equal(decoder_feed(d, in.p, in.len, take, &g), 0);
	assert_int_equal(decoder_finish(d), 0);
	assert_int_equal(g.b.len, BIG);
	buf_release(&g.b);
	buf_release(&in);
	free(want);
	decoder_free(d);
}

/* A thousandfold: the output comes in windows, never at once. */
static void feed_holds_a_bomb_in_one_window(void **state unused_arg)
{
	struct decoder *d = gzip_decoder();
	uint8_t *zeros = calloc(1, 64 << 20);
	struct buf in = { 0 };
	struct got g = { .stop_at = 1 };

	assert_non_null(zeros);
	assert_int_equal(esgz_member(&in, zeros, 64 << 20, 9), 0);
	free(zeros);
	assert_int_equal(decoder_feed(d, in.p, in.len, take, &g), 7);
	assert_true(g.b.len <= 256 << 10);
	buf_release(&g.b);
	buf_release(&in);
	decoder_free(d);
}

static void none_passes_bytes_through(void **state unused_arg)
{
	struct decoder *d = NULL;
	struct got g = { 0 };

	assert_int_equal(decoder_new(CODEC_NONE, &d), 0);
	assert_int_equal(decoder_feed(d, "abc", 3, take, &g), 0);
	assert_int_equal(decoder_feed(d, "", 0, take, &g), 0);
	assert_int_equal(decoder_feed(d, "de", 2, take, &g), 0);
	assert_int_equal(decoder_finish(d), 0);
	assert_int_equal(g.b.len, 5);
	assert_memory_equal(g.b.p, "abcde", 5);
	/* the same decoder serves another codec */
	assert_int_equal(decoder_reset(d, CODEC_GZIP_MEMBER), 0);
	assert_int_equal(decoder_feed(d, "abc", 3, take, &g), -EBADMSG);
	buf_release(&g.b);
	decoder_free(d);
}

static void new_refuses_unknown_codecs(void **state unused_arg)
{
	struct decoder *d = NULL;

	assert_int_equal(decoder_new(CODEC_ZSTD_FRAME, &d), -EOPNOTSUPP);
	assert_int_equal(decoder_new((enum codec)77, &d), -EOPNOTSUPP);
	assert_null(d);
	d = gzip_decoder();
	assert_int_equal(decoder_reset(d, CODEC_GZIP_SPAN), -EOPNOTSUPP);
	decoder_free(d);
	decoder_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(feed_gives_members_in_any_pieces),
		cmocka_unit_test(feed_splits_a_member_at_each_byte),
		cmocka_unit_test(feed_gives_all_that_the_input_allows),
		cmocka_unit_test(feed_skips_every_header_field),
		cmocka_unit_test(feed_refuses_endless_names),
		cmocka_unit_test(feed_refuses_what_is_no_member),
		cmocka_unit_test(feed_checks_the_trailer),
		cmocka_unit_test(feed_refuses_bytes_between_members),
		cmocka_unit_test(finish_refuses_every_truncation),
		cmocka_unit_test(feed_ends_with_the_callback),
		cmocka_unit_test(feed_holds_a_bomb_in_one_window),
		cmocka_unit_test(none_passes_bytes_through),
		cmocka_unit_test(new_refuses_unknown_codecs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
