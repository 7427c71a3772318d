/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c, registry_answer.c: references, ranges, failures, sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/lib/regworld.h"

/* ---- references ---- */

static void image_ref_parse_accepts(void **state)
{
#define SHA       \
	"sha256:" \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	static const struct {
		const char *s, *host, *repo, *tag;
	} good[] = {
		{ "alpine", "docker.io", "library/alpine", "" },
		{ "alpine:3.18", "docker.io", "library/alpine", "3.18" },
		{ "me/app", "docker.io", "me/app", "" },
		{ "index.docker.io/library/a:b", "docker.io", "library/a",
		  "b" },
		{ "docker.io/library/alpine:3@" SHA, "docker.io",
		  "library/alpine", "3" },
		{ "localhost/x", "localhost", "x", "" },
		{ "localhost:5000/a/b/c:T_1.2-x", "localhost:5000", "a/b/c",
		  "T_1.2-x" },
		{ "Registry.Example.COM/a", "registry.example.com", "a", "" },
		{ "[::1]:5000/a@" SHA, "[::1]:5000", "a", "" },
		{ "[fe80:0:0:1::2]/a", "[fe80:0:0:1::2]", "a", "" },
		{ "r.io/a__b/c---d/e.f_g", "r.io", "a__b/c---d/e.f_g", "" },
		{ "ghcr.io/a/b:1@sha512:00112233445566778899aabbccddeeff",
		  "ghcr.io", "a/b", "1" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct image_ref ref;
		struct err e = ERR_INIT;

		assert_int_equal(image_ref_parse(good[i].s, &ref, &e), 0);
		assert_string_equal(ref.host, good[i].host);
		assert_string_equal(ref.repo, good[i].repo);
		assert_string_equal(ref.tag, good[i].tag);
	}
}

static void image_ref_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"/",
		"r.io/",
		"r.io/A",
		"r.io/../etc",
		"r.io/a/../b",
		"r.io/a//b",
		"r.io/a/",
		"r.io/a:",
		"r.io/a:-x",
		"r.io/a:b:c",
		"r.io/a@sha256:12",
		"r.io/a@",
		"r.io/a___b",
		"r.io/a..b",
		"r.io/-a",
		"r.io/a?x=1",
		"r.io/a#x",
		"r.io/a%2e",
		"r.io/a b",
		"r.io/a\r\nX: y",
		"user@r.io/a",
		"r.io:0/a",
		"r.io:65536/a",
		"r.io:x/a",
		"r.io:/a",
		"-r.io/a",
		"r..io/a",
		"r.io./a",
		"[::1/a",
		"[]:5000/a",
		"[::1]x/a",
		"[fe80::1%eth0]/a",
		"http://r.io/a",
	};
	char huge[2000];
	struct image_ref ref;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (image_ref_parse(bad[i], &ref, &e) != -1)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(e.kind, ERR_INVALID);
	}
	memset(huge, 'a', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	assert_int_equal(image_ref_parse(huge, &ref, &e), -1);
	huge[300] = '\0';
	assert_int_equal(image_ref_parse(huge, &ref, &e), -1);
}

/* ---- ranges ---- */

static void blob_read_gives_exactly_the_range(void **state)
{
	struct world *w = *state;
	struct registry_stats st;

	assert_reads(w, 0, 1);
	assert_int_equal(blob_size(w->blob), REG_BIG);
	assert_reads(w, 1000, 300000);
	assert_reads(w, REG_BIG - 1, 1);
	assert_reads(w, 0, REG_BIG);
	assert_int_equal(
		regserver_matches(&main_srv, "range", "bytes=1000-300999"), 1);
	assert_int_equal(regserver_matches(&main_srv, "encoding", "identity"),
			 4);
	assert_int_equal(regserver_matches(&main_srv, "agent",
					   "verity-snapshotter/" VERSION),
			 4);
	registry_stats(w->reg, &st);
	assert_int_equal(st.n_requests, 4);
	assert_int_equal(st.n_token_requests, 0);
	assert_int_equal(st.bytes, 1 + 300000 + 1 + REG_BIG);
}

static void blob_fetch_refuses_ranges_beyond_the_blob(void **state)
{
	struct world *w = *state;
	struct blob_req q = { .blob = w->blob };

	assert_int_equal(blob_fetch(&q, &w->e), -1);
	assert_int_equal(w->e.kind, ERR_INVALID);
	q.off = UINT64_MAX - 4;
	q.len = 10;
	assert_int_equal(blob_fetch(&q, &w->e), -1);
	blob_set_size(w->blob, REG_BIG);
	q.off = REG_BIG;
	q.len = 1;
	assert_int_equal(blob_fetch(&q, &w->e), -1);
	assert_int_equal(regserver_count(&main_srv, "requests"), 0);
}

static void blob_read_tail_needs_no_size(void **state)
{
	struct world *w = *state;
	struct blob *small = blob_at(w, &main_srv, &data.small);
	size_t len = 0;

	assert_int_equal(
		blob_read_tail(w->blob, w->buf, 100, &len, 5000, &w->e), 0);
	assert_int_equal(len, 100);
	assert_memory_equal(w->buf, data.p + REG_BIG - 100, 100);
	assert_int_equal(blob_size(w->blob), REG_BIG);
	assert_int_equal(regserver_matches(&main_srv, "range", "bytes=-100"),
			 1);
	/* more than there is */
	assert_int_equal(blob_read_tail(small, w->buf, 5000, &len, 5000, &w->e),
			 0);
	assert_int_equal(len, REG_SMALL);
	assert_memory_equal(w->buf, data.p, REG_SMALL);
	/* the size is known by now */
	assert_int_equal(blob_read_tail(small, w->buf, 10, &len, 5000, &w->e),
			 0);
	assert_int_equal(regserver_matches(&main_srv, "range", "bytes=990-999"),
			 1);
	blob_unref(small);
}

static void blob_read_tail_does_without_suffix_ranges(void **state)
{
	static const char *const faults[] = {
		"{\"match\":\"/blobs/\",\"fault\":\"no-suffix\"}",
		"{\"match\":\"/blobs/\",\"fault\":\"no-suffix:400\"}",
		"{\"match\":\"/blobs/\",\"fault\":\"no-suffix:501\"}",
		"{\"match\":\"/blobs/\",\"fault\":\"200\",\"count\":1}",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		struct blob *b = blob_at(w, &main_srv, &data.big);
		size_t len = 0;
		int r;

		regserver_admin(&main_srv, "{\"clear\":true,\"reset\":true}");
		regserver_admin(&main_srv, faults[i]);
		r = blob_read_tail(b, w->buf, 51, &len, 5000, &w->e);
		if (r < 0)
			print_error("%s\n", w->e.msg);
		assert_int_equal(r, 0);
		assert_int_equal(len, 51);
		assert_memory_equal(w->buf, data.p + REG_BIG - 51, 51);
		assert_int_equal(
			regserver_matches(&main_srv, "range", "bytes=0-0"), 1);
		blob_unref(b);
	}
}

static void whole_answers_count_only_for_whole_blobs(void **state)
{
	struct world *w = *state;
	struct blob *small = blob_at(w, &main_srv, &data.small);
	size_t len;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":\"200\"}");
	assert_fails(w, ERR_CORRUPT, "200 to a range");
	assert_reads(w, 0, REG_BIG);
	assert_int_equal(blob_read_tail(small, w->buf, 4096, &len, 5000, &w->e),
			 0);
	assert_int_equal(len, REG_SMALL);
	assert_memory_equal(w->buf, data.p, REG_SMALL);
	blob_unref(small);
}

static void wrong_ranges_are_refused_and_forgotten(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"wrong-content-range\",\"count\":1}");
	assert_fails(w, ERR_CORRUPT, "another range");
	/* A lie about the size is believed only until the next answer. */
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"wrong-total\",\"count\":1}");
	assert_reads(w, 0, 100);
	assert_int_equal(blob_size(w->blob), REG_BIG + 1);
	assert_fails(w, ERR_CORRUPT, "size is not what it was");
	assert_reads(w, 0, 100);
	assert_int_equal(blob_size(w->blob), REG_BIG);
	/* A size that the manifest told stays. */
	blob_set_size(w->blob, REG_BIG);
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"wrong-total\",\"count\":1}");
	assert_fails(w, ERR_CORRUPT, "size is not what it was");
	assert_reads(w, 0, 100);
}

static void lengths_are_held_to_the_promise(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"chunked\","
			"\"count\":1}");
	assert_reads(w, 5, 200000);
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"long:70000\",\"count\":1}");
	/* What was promised has come; it is verified behind us. */
	assert_reads(w, 5, 20);
	assert_reads(w, 5, 20);
}

/* ---- failures that go away, and others ---- */

static void short_answers_are_continued(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"short:1000\",\"count\":2}");
	assert_reads(w, 100, 10000);
	assert_int_equal(
		regserver_matches(&main_srv, "range", "bytes=100-10099"), 1);
	assert_int_equal(
		regserver_matches(&main_srv, "range", "bytes=1100-10099"), 1);
	assert_int_equal(
		regserver_matches(&main_srv, "range", "bytes=2100-10099"), 1);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"short:10\"}");
	assert_fails(w, ERR_UNAVAILABLE, "ended after 30 of 8192");
	assert_memory_equal(w->buf, data.p + 4096, 30);
}

static void silence_ends_a_try(void **state)
{
	struct world *w = *state;
	uint64_t t = now_ms();

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"silent\",\"count\":1}");
	assert_reads(w, 0, 500);
	assert_true(now_ms() - t >= SILENCE_MS);
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"stall:300\",\"count\":1}");
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_matches(&main_srv, "range", "bytes=300-499"),
			 1);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"silent\"}");
	assert_fails(w, ERR_UNAVAILABLE, "silent");
}

static void deadline_ends_everything(void **state)
{
	struct world *w = *state;
	uint64_t t = now_ms();

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"slow:20000\"}");
	assert_int_equal(blob_read(w->blob, 0, w->buf, 100000, 400, &w->e), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
	assert_in_range(now_ms() - t, 390, 15000);
}

static void resets_are_tried_again(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"reset\",\"count\":2}");
	assert_reads(w, 0, 500);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"reset\"}");
	assert_fails(w, ERR_UNAVAILABLE, "127.0.0.1");
}

static void nobody_listens(void **state)
{
	struct world *w = *state;
	struct regserver nobody = { .port = 1 };

	blob_unref(w->blob);
	w->blob = blob_at(w, &nobody, &data.big);
	assert_fails(w, ERR_UNAVAILABLE, "onnect");
}

static void server_errors_are_tried_three_times(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:500\",\"count\":2}");
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_count(&main_srv, "requests"), 3);
	regserver_admin(&main_srv, "{\"clear\":true,\"reset\":true}");
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:500\"}");
	assert_fails(w, ERR_UNAVAILABLE, "answers 500");
	assert_int_equal(regserver_count(&main_srv, "requests"), 3);
}

static void retry_after_is_honoured(void **state)
{
	struct world *w = *state;
	uint64_t t = now_ms();

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:429:1\",\"count\":1}");
	assert_reads(w, 0, 500);
	assert_in_range(now_ms() - t, 1000, 30000);
	/* Longer than we have: said at once. */
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:503:60\"}");
	t = now_ms();
	assert_fails(w, ERR_UNAVAILABLE, "not before 60 s");
	assert_true(now_ms() - t < 30000);
}

static void final_answers_are_not_asked_for_again(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:403\",\"count\":1}");
	assert_fails(w, ERR_DENIED, "403");
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:401\",\"count\":1}");
	assert_fails(w, ERR_DENIED, "401");
	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:404\",\"count\":1}");
	assert_fails(w, ERR_UNAVAILABLE, "answers 404");
	assert_int_equal(regserver_count(&main_srv, "requests"), 3);
	assert_reads(w, 0, 500);
}

static void another_source_steps_in(void **state)
{
	struct world *w = *state;
	struct image_ref other = ref_at(&other_srv);

	assert_int_equal(blob_add_source(w->blob, &other), 0);
	assert_int_equal(blob_add_source(w->blob, &other), 0);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:404\"}");
	assert_reads(w, 0, 500);
	assert_reads(w, 500, 500);
	assert_int_equal(regserver_count(&main_srv, "requests"), 1);
	assert_int_equal(regserver_count(&other_srv, "requests"), 2);
	regserver_admin(&other_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:403\"}");
	assert_fails(w, ERR_UNAVAILABLE, "answers 404");
}

static void ipv6_hosts_are_spoken_to(void **state)
{
	static const char *const args[] = { "--bind", "::1", NULL };
	struct world *w = *state;
	struct regserver six;
	struct image_ref ref;
	char text[64];

	if (access("/proc/net/if_inet6", F_OK) < 0)
		skip();
	assert_int_equal(regserver_start(&six, &data, args), 0);
	(void)snprintf(text, sizeof(text), "[::1]:%d/" REG_REPO, six.port);
	assert_int_equal(image_ref_parse(text, &ref, &w->e), 0);
	blob_unref(w->blob);
	assert_int_equal(blob_new(w->reg, &ref, &data.big, &w->blob), 0);
	assert_reads(w, 5, 100000);
	regserver_stop(&six);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(image_ref_parse_accepts),
		cmocka_unit_test(image_ref_parse_refuses),
		T(blob_read_gives_exactly_the_range),
		T(blob_fetch_refuses_ranges_beyond_the_blob),
		T(blob_read_tail_needs_no_size),
		T(blob_read_tail_does_without_suffix_ranges),
		T(whole_answers_count_only_for_whole_blobs),
		T(wrong_ranges_are_refused_and_forgotten),
		T(lengths_are_held_to_the_promise),
		T(short_answers_are_continued),
		T(silence_ends_a_try),
		T(deadline_ends_everything),
		T(resets_are_tried_again),
		T(nobody_listens),
		T(server_errors_are_tried_three_times),
		T(retry_after_is_honoured),
		T(final_answers_are_not_asked_for_again),
		T(another_source_steps_in),
		T(ipv6_hosts_are_spoken_to),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
