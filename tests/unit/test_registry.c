/* SPDX-License-Identifier: Apache-2.0 */
/* registry*.c against the scripted registry: references, ranges, retries,
 * redirects, tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "snapshotter/registry.h"
#include "tests/lib/regserver.h"

#define SILENCE_MS 300

static struct regdata data;
static struct regserver main_srv, other_srv;

/* What each test starts with; the servers stay, their scripts go. */
struct world {
	struct fetcher *fetcher;
	struct registry *reg;
	struct blob *blob; /* the big one, at main_srv */
	struct err e;
	uint8_t buf[REG_BIG];
	char config[96];
};

static struct image_ref ref_at(const struct regserver *s)
{
	struct image_ref ref = { .repo = REG_REPO };

	(void)snprintf(ref.host, sizeof(ref.host), "127.0.0.1:%d", s->port);
	return ref;
}

static struct blob *blob_at(struct world *w, const struct regserver *s,
			    const struct digest *d)
{
	struct image_ref ref = ref_at(s);
	struct blob *b;

	assert_int_equal(blob_new(w->reg, &ref, d, &b), 0);
	return b;
}

static int group_setup(void **state)
{
	(void)state;
	/* Fail here and not in each test when there is no python3. */
	if (regdata_make(&data) < 0 ||
	    regserver_start(&main_srv, &data, NULL) < 0 ||
	    regserver_start(&other_srv, &data, NULL) < 0)
		return -1;
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	regserver_stop(&main_srv);
	regserver_stop(&other_srv);
	regdata_drop(&data);
	return 0;
}

static int setup(void **state)
{
	static const char fresh[] =
		"{\"clear\":true,\"reset\":true,\"revoke\":true,"
		"\"auth\":null,\"expires_in\":300}";
	struct fetcher_opts fo = { .silence_ms = SILENCE_MS };
	struct registry_opts ro = { .backoff_ms = 10 };
	struct world *w = calloc(1, sizeof(*w));

	if (!w || fetcher_new(&fo, &w->fetcher) < 0)
		return -1;
	(void)snprintf(w->config, sizeof(w->config), "%s/config.json",
		       data.dir);
	(void)unlink(w->config);
	ro.fetcher = w->fetcher;
	ro.docker_config = w->config;
	if (registry_new(&ro, &w->reg) < 0)
		return -1;
	w->blob = blob_at(w, &main_srv, &data.big);
	regserver_admin(&main_srv, fresh);
	regserver_admin(&other_srv, fresh);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	fetcher_free(w->fetcher);
	blob_unref(w->blob);
	registry_free(w->reg);
	free(w);
	return 0;
}

static void write_config(struct world *w, const char *text)
{
	assert_int_equal(write_file_atomic(AT_FDCWD, w->config, text,
					   strlen(text), 0600),
			 0);
}

/* "auths" entry for main_srv; user:password as base64 in @auth */
static void write_auth(struct world *w, const char *field, const char *value)
{
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "{\"auths\":{\"127.0.0.1:%d\":{\"%s\":\"%s\"}}}",
		       main_srv.port, field, value);
	write_config(w, text);
}

static int read_at(struct world *w, uint64_t off, size_t len)
{
	memset(&w->e, 0, sizeof(w->e));
	memset(w->buf, 0, sizeof(w->buf));
	return blob_read(w->blob, off, w->buf, len, 5000, &w->e);
}

static void assert_reads(struct world *w, uint64_t off, size_t len)
{
	int r = read_at(w, off, len);

	if (r < 0)
		print_error("%s: %s\n", err_kind_name(w->e.kind), w->e.msg);
	assert_int_equal(r, 0);
	assert_memory_equal(w->buf, data.p + off, len);
}

static void assert_fails(struct world *w, enum err_kind kind, const char *text)
{
	assert_int_equal(read_at(w, 4096, 8192), -1);
	if (w->e.kind != kind || !strstr(w->e.msg, text))
		print_error("%s: %s\n", err_kind_name(w->e.kind), w->e.msg);
	assert_int_equal(w->e.kind, kind);
	assert_non_null(strstr(w->e.msg, text));
	/* Every message says whose fault it is. */
	assert_non_null(strstr(w->e.msg, "127.0.0.1:"));
}

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
				   "\"long:7\",\"count\":1}");
	assert_fails(w, ERR_CORRUPT, "more bytes than promised");
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
	assert_in_range(now_ms() - t, 390, 2000);
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
	assert_in_range(now_ms() - t, 1000, 3000);
	/* Longer than we have: said at once. */
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:503:60\"}");
	t = now_ms();
	assert_fails(w, ERR_UNAVAILABLE, "not before 60 s");
	assert_true(now_ms() - t < 1000);
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

/* ---- redirects ---- */

static void redirect_main_to_other(const char *suffix)
{
	char order[256];

	(void)snprintf(order, sizeof(order),
		       "{\"match\":\"/blobs/\",\"fault\":"
		       "\"redirect:http://127.0.0.1:%d{path}%s\"}",
		       other_srv.port, suffix);
	regserver_admin(&main_srv, order);
}

static void redirects_leave_the_token_behind(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	redirect_main_to_other("?sig=s3cret");
	/* The fault comes before the 401: ask for a token first. */
	regserver_admin(&main_srv, "{\"clear\":true}");
	assert_reads(w, 0, 10);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Bearer"), 1);
	redirect_main_to_other("?sig=s3cret");
	blob_unref(w->blob);
	w->blob = blob_at(w, &main_srv, &data.big);
	assert_reads(w, 7, 5000);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Bearer"), 2);
	assert_int_equal(regserver_count(&other_srv, "requests"), 1);
	assert_int_equal(regserver_matches(&other_srv, "auth", ""), 1);
	/* Where it led is remembered. */
	assert_reads(w, 5007, 5000);
	assert_reads(w, 10007, 5000);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Bearer"), 2);
	assert_int_equal(regserver_matches(&other_srv, "query", "sig=s3cret"),
			 3);
	assert_int_equal(regserver_matches(&other_srv, "auth", ""), 3);
}

static void stale_urls_are_resolved_anew_once(void **state)
{
	struct world *w = *state;

	redirect_main_to_other("?sig=s3cret");
	assert_reads(w, 0, 10);
	assert_int_equal(regserver_count(&main_srv, "requests"), 1);
	regserver_admin(&other_srv, "{\"match\":\"/blobs/\",\"fault\":"
				    "\"status:403\",\"count\":1}");
	assert_reads(w, 10, 10);
	assert_int_equal(regserver_count(&main_srv, "requests"), 2);
	assert_int_equal(regserver_count(&other_srv, "requests"), 3);
	regserver_admin(&other_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:403\"}");
	assert_fails(w, ERR_DENIED, "answers 403");
	assert_null(strstr(w->e.msg, "s3cret"));
	assert_int_equal(regserver_count(&main_srv, "requests"), 3);
	assert_int_equal(regserver_count(&other_srv, "requests"), 5);
}

static void redirects_have_an_end(void **state)
{
	static const struct {
		const char *target, *says;
	} bad[] = {
		{ "{path}", "too many redirects" },
		{ "ftp://127.0.0.1/x", "unusable" },
		{ "file:///etc/passwd", "unusable" },
		{ "http://u:p@127.0.0.1/x", "unusable" },
	};
	struct world *w = *state;
	char order[256];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		regserver_admin(&main_srv, "{\"clear\":true,\"reset\":true}");
		(void)snprintf(order, sizeof(order),
			       "{\"fault\":\"redirect:%s|302\","
			       "\"match\":\"/blobs/\"}",
			       bad[i].target);
		regserver_admin(&main_srv, order);
		assert_fails(w, ERR_CORRUPT, bad[i].says);
	}
	regserver_admin(&main_srv, "{\"clear\":true}");
	assert_reads(w, 0, 10);
}

/* ---- credentials ---- */

static void bearer_tokens_are_fetched_and_kept(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	assert_reads(w, 0, 10);
	assert_reads(w, 10, 10);
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 1);
	assert_int_equal(regserver_matches(&main_srv, "status", "401"), 1);
	/* Taken back: one 401, one new token. */
	regserver_admin(&main_srv, "{\"revoke\":true}");
	assert_reads(w, 20, 10);
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 2);
	assert_int_equal(regserver_matches(&main_srv, "status", "401"), 2);
}

static void expiring_tokens_are_replaced_in_time(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"bearer\",\"expires_in\":1}");
	assert_reads(w, 0, 10);
	(void)usleep(800000);
	assert_reads(w, 10, 10);
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 2);
	assert_int_equal(regserver_matches(&main_srv, "status", "401"), 1);
}

static void credentials_go_to_the_token_server(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"bearer:me:pw\"}");
	assert_fails(w, ERR_DENIED, "without credentials");
	write_auth(w, "auth", "bWU6d3Jvbmc="); /* me:wrong */
	assert_fails(w, ERR_DENIED, "answers 401");
	assert_null(strstr(w->e.msg, "wrong"));
	/* The file is read again each time. */
	write_auth(w, "auth", "bWU6cHc="); /* me:pw */
	assert_reads(w, 0, 10);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Bearer"), 1);
}

static void identity_tokens_are_traded_in(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"bearer:x:refresh&me+%\"}");
	write_auth(w, "identitytoken", "refresh&me+%");
	assert_reads(w, 0, 10);
	assert_int_equal(regserver_matches(&main_srv, "method", "POST"), 1);
}

static void basic_needs_a_password(void **state)
{
	struct world *w = *state;

	regserver_admin(&main_srv, "{\"auth\":\"basic:me:pw\"}");
	assert_fails(w, ERR_DENIED, "we have none");
	write_config(w, "{\"auths\": nonsense");
	assert_fails(w, ERR_DENIED, "config.json");
	write_auth(w, "auth", "bWU6d3Jvbmc=");
	assert_fails(w, ERR_DENIED, "in spite of");
	write_auth(w, "auth", "bWU6cHc=");
	assert_reads(w, 0, 10);
	assert_reads(w, 10, 10);
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 0);
}

/* ---- many at once ---- */

struct async {
	struct blob_req q;
	struct lock lock; /* guards n_done */
	struct cond cond;
	struct err e;
	uint64_t n_bytes;
	int n_done;
};

static int async_data(struct blob_req *q, uint64_t off, const void *p,
		      size_t len)
{
	struct async *a = q->ctx;

	if (off != q->off + a->n_bytes || memcmp(p, data.p + off, len) != 0)
		return -1;
	a->n_bytes += len;
	return 0;
}

static void async_done(struct blob_req *q, const struct err *e)
{
	struct async *a = q->ctx;

	lock_take(&a->lock);
	a->e = *e;
	a->n_done++;
	cond_signal(&a->cond);
	lock_drop(&a->lock);
}

static void async_start_with(struct async *a, struct blob *b, uint64_t off,
			     uint64_t len,
			     int (*on_data)(struct blob_req *q, uint64_t off,
					    const void *p, size_t len))
{
	memset(a, 0, sizeof(*a));
	lock_init(&a->lock, RANK_LEAF);
	assert_int_equal(cond_init(&a->cond), 0);
	a->q.blob = b;
	a->q.off = off;
	a->q.len = len;
	a->q.deadline_ms = 5000;
	a->q.on_data = on_data;
	a->q.done = async_done;
	a->q.ctx = a;
	assert_int_equal(blob_fetch(&a->q, NULL), 0);
}

static void async_start(struct async *a, struct blob *b, uint64_t off,
			uint64_t len)
{
	async_start_with(a, b, off, len, async_data);
}

static void async_wait(struct async *a)
{
	uint64_t until = now_ms() + 10000;
	int r = 0;

	lock_take(&a->lock);
	while (!a->n_done && r == 0)
		r = cond_wait_until(&a->cond, &a->lock, until);
	lock_drop(&a->lock);
	assert_int_equal(a->n_done, 1);
	cond_release(&a->cond);
	lock_release(&a->lock);
}

static void concurrent_requests_share_a_token_and_a_redirect(void **state)
{
	struct world *w = *state;
	struct async a[12];

	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	regserver_admin(&main_srv, "{\"match\":\"/token\",\"fault\":"
				   "\"delay:100\"}");
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_start(&a[i], w->blob, i * 20000, 20000);
	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		async_wait(&a[i]);
		assert_int_equal(a[i].e.kind, ERR_NONE);
		assert_int_equal(a[i].n_bytes, 20000);
	}
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 1);
	assert_int_equal(regserver_matches(&main_srv, "status", "401"), 1);

	/* Blobs of one repository find out for themselves, but wait for the
	 * same token. */
	regserver_admin(&main_srv, "{\"revoke\":true}");
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_start(&a[i], w->blob, i * 20000, 20000);
	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		async_wait(&a[i]);
		assert_int_equal(a[i].e.kind, ERR_NONE);
	}
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 2);

	regserver_admin(&main_srv, "{\"auth\":null,\"reset\":true}");
	redirect_main_to_other("?sig=x");
	blob_unref(w->blob);
	w->blob = blob_at(w, &main_srv, &data.big);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_start(&a[i], w->blob, i * 20000, 20000);
	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		async_wait(&a[i]);
		assert_int_equal(a[i].e.kind, ERR_NONE);
	}
	assert_int_equal(regserver_count(&main_srv, "requests"), 1);
	assert_int_equal(regserver_count(&other_srv, "requests"), 12);
}

static void failed_resolving_lets_others_try(void **state)
{
	struct world *w = *state;
	struct async a[4];

	regserver_admin(&main_srv, "{\"match\":\"/blobs/\",\"fault\":"
				   "\"status:404\",\"count\":1}");
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_start(&a[i], w->blob, i * 20000, 20000);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_wait(&a[i]);
	assert_int_equal(a[0].e.kind, ERR_UNAVAILABLE);
	for (size_t i = 1; i < ARRAY_LEN(a); i++)
		assert_int_equal(a[i].e.kind, ERR_NONE);
}

static void blob_cancel_is_quick_in_every_state(void **state)
{
	static const char *const faults[] = {
		"{\"match\":\"/blobs/\",\"fault\":\"silent\"}",
		"{\"match\":\"/blobs/\",\"fault\":\"status:429:3\"}",
		"{\"match\":\"/token\",\"fault\":\"delay:2000\"}",
	};
	struct world *w = *state;
	struct async a[3];
	uint64_t t;

	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		regserver_admin(&main_srv, "{\"clear\":true}");
		regserver_admin(&main_srv, faults[i]);
		for (size_t j = 0; j < ARRAY_LEN(a); j++)
			async_start(&a[j], w->blob, j * 1000, 1000);
		(void)usleep(100000);
		t = now_ms();
		for (size_t j = 0; j < ARRAY_LEN(a); j++) {
			blob_cancel(&a[j].q);
			blob_cancel(&a[j].q);
		}
		for (size_t j = 0; j < ARRAY_LEN(a); j++) {
			async_wait(&a[j]);
			assert_int_equal(a[j].e.kind, ERR_CANCELLED);
		}
		assert_true(now_ms() - t < 200);
		blob_cancel(&a[0].q); /* over: nothing happens */
	}
}

static void fetcher_free_ends_all_reads(void **state)
{
	struct world *w = *state;
	struct async a[20];
	struct blob_req late = { .blob = w->blob, .len = 1 };

	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	assert_reads(w, 0, 10);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"silent\"}");
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		async_start(&a[i], w->blob, i * 1000, 1000);
	(void)usleep(50000);
	fetcher_free(take_ptr(&w->fetcher));
	for (size_t i = 0; i < ARRAY_LEN(a); i++) {
		async_wait(&a[i]);
		assert_int_equal(a[i].e.kind, ERR_CANCELLED);
	}
	assert_int_equal(blob_fetch(&late, &w->e), -1);
	assert_int_equal(w->e.kind, ERR_CANCELLED);
}

static int stop_reading(struct blob_req *q, uint64_t off, const void *p,
			size_t len)
{
	struct async *a = q->ctx;

	(void)off, (void)p;
	a->n_bytes += len;
	return -1;
}

static void readers_may_stop(void **state)
{
	struct world *w = *state;
	struct async a;

	async_start_with(&a, w->blob, 0, 100000, stop_reading);
	async_wait(&a);
	assert_int_equal(a.e.kind, ERR_CANCELLED);
	assert_true(a.n_bytes > 0 && a.n_bytes <= 100000);
	assert_int_equal(regserver_count(&main_srv, "requests"), 1);
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
		T(redirects_leave_the_token_behind),
		T(stale_urls_are_resolved_anew_once),
		T(redirects_have_an_end),
		T(bearer_tokens_are_fetched_and_kept),
		T(expiring_tokens_are_replaced_in_time),
		T(credentials_go_to_the_token_server),
		T(identity_tokens_are_traded_in),
		T(basic_needs_a_password),
		T(concurrent_requests_share_a_token_and_a_redirect),
		T(failed_resolving_lets_others_try),
		T(blob_cancel_is_quick_in_every_state),
		T(fetcher_free_ends_all_reads),
		T(readers_may_stop),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
