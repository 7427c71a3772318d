/* SPDX-License-Identifier: Apache-2.0 */
/* registry_hosts.c, registry_place.c: several hosts for one registry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/regworld.h"

#define NAME "r.test" /* has no address: only its hosts are asked */

/* hosts.toml of @registry; %M and %O stand for the two servers' addresses. */
static void put_hosts(struct world *w, const char *registry, const char *text)
{
	owned(buf) struct buf b = { 0 };
	char path[256];

	for (; *text; text++) {
		if (*text != '%') {
			(void)buf_add(&b, text, 1);
			continue;
		}
		(void)buf_addf(&b, "127.0.0.1:%d",
			       *++text == 'M' ? main_srv.port : other_srv.port);
	}
	(void)snprintf(path, sizeof(path), "%s/%s", w->hosts, registry);
	assert_int_equal(mkdir_parents(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/%s/hosts.toml", w->hosts,
		       registry);
	assert_int_equal(write_file_atomic(AT_FDCWD, path, b.p, b.len, 0644),
			 0);
}

static struct blob *blob_of(struct world *w, const char *registry)
{
	struct image_ref ref = { .repo = REG_REPO };
	struct blob *b;

	(void)snprintf(ref.host, sizeof(ref.host), "%s", registry);
	assert_int_equal(blob_new(w->reg, &ref, &data.big, &b), 0);
	return b;
}

/* The world's blob is at NAME, whose hosts are in @text. */
static void use_hosts(struct world *w, const char *text)
{
	put_hosts(w, NAME, text);
	blob_unref(w->blob);
	w->blob = blob_of(w, NAME);
}

static void assert_asked(int64_t n_main, int64_t n_other)
{
	assert_int_equal(regserver_count(&main_srv, "requests"), n_main);
	assert_int_equal(regserver_count(&other_srv, "requests"), n_other);
}

static const char mirror_and_server[] = "server = 'http://%M'\n"
					"[host.'http://%O']\n";

static void mirrors_are_asked_first_and_told_for_whom(void **state)
{
	struct world *w = *state;

	use_hosts(w, mirror_and_server);
	assert_reads(w, 100, 5000);
	assert_reads(w, 9000, 5000);
	assert_asked(0, 2);
	assert_int_equal(regserver_matches(&other_srv, "query", "ns=" NAME), 2);
	/* So is a server that has another name than the registry. */
	regserver_admin(&other_srv, "{\"fault\":\"status:404\"}");
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_matches(&main_srv, "query", "ns=" NAME), 1);
	blob_unref(w->blob);
	w->blob = blob_at(w, &main_srv, &data.big);
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_matches(&main_srv, "query", ""), 1);
}

static void what_a_mirror_lacks_is_remembered(void **state)
{
	static const char *const faults[] = { "status:404", "status:403",
					      "status:401", "200",
					      "wrong-content-range" };
	struct world *w = *state;
	char order[128];

	put_hosts(w, NAME, mirror_and_server);
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		blob_unref(w->blob);
		w->blob = blob_of(w, NAME);
		regserver_admin(&main_srv, "{\"reset\":true}");
		regserver_admin(&other_srv, "{\"clear\":true,\"reset\":true}");
		(void)snprintf(order, sizeof(order),
			       "{\"match\":\"/blobs/\",\"fault\":\"%s\"}",
			       faults[i]);
		regserver_admin(&other_srv, order);
		assert_reads(w, 100, 5000);
		assert_reads(w, 9000, 5000);
		assert_asked(2, 1);
	}
}

static void hosts_that_fail_are_left_by_all_blobs(void **state)
{
	static const char *const faults[] = { "silent", "reset", "status:503",
					      "status:429:60", "stall:100" };
	struct world *w = *state;
	char order[128];

	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		/* another text: what was learned of the hosts is forgotten */
		char text[128];
		struct blob *second;

		(void)snprintf(text, sizeof(text), "%s# %zu\n",
			       mirror_and_server, i);
		(void)snprintf(order, sizeof(order), "r%zu.test", i);
		put_hosts(w, order, text);
		blob_unref(w->blob);
		w->blob = blob_of(w, order);
		second = blob_of(w, order);
		regserver_admin(&main_srv, "{\"reset\":true}");
		regserver_admin(&other_srv, "{\"clear\":true,\"reset\":true}");
		(void)snprintf(order, sizeof(order),
			       "{\"match\":\"/blobs/\",\"fault\":\"%s\"}",
			       faults[i]);
		regserver_admin(&other_srv, order);
		assert_reads(w, 100, 5000);
		assert_reads(w, 9000, 5000);
		assert_asked(2, 1);
		blob_unref(w->blob);
		w->blob = second;
		assert_reads(w, 100, 5000);
		assert_asked(3, 1);
	}
	/* The last one had begun its answer: not one byte came twice. */
	assert_int_equal(
		regserver_matches(&main_srv, "range", "bytes=200-5099"), 1);
}

static void a_host_that_failed_is_still_better_than_none(void **state)
{
	struct world *w = *state;

	use_hosts(w, mirror_and_server);
	regserver_admin(&other_srv, "{\"match\":\"/blobs/\",\"count\":1,"
				    "\"fault\":\"reset\"}");
	assert_reads(w, 100, 5000);
	assert_asked(1, 1);
	regserver_admin(&main_srv,
			"{\"match\":\"/blobs/\",\"fault\":\"status:404\"}");
	assert_reads(w, 100, 5000);
	assert_asked(2, 2);
}

static void the_registry_has_the_last_word(void **state)
{
	struct world *w = *state;

	use_hosts(w, mirror_and_server);
	regserver_admin(&other_srv, "{\"fault\":\"status:404\"}");
	regserver_admin(&main_srv, "{\"fault\":\"status:403\"}");
	assert_int_equal(read_at(w, 0, 100), -1);
	assert_int_equal(w->e.kind, ERR_DENIED);
	assert_non_null(strstr(w->e.msg, NAME));
	assert_non_null(strstr(w->e.msg, "403"));
}

/* ---- lies ---- */

struct wait {
	struct blob_req q;
	atomic_bool done;
};

static int take(struct blob_req *q, uint64_t off, const void *p, size_t len)
{
	(void)q, (void)off, (void)p, (void)len;
	return 0;
}

static void finished(struct blob_req *q, const struct err *e)
{
	struct wait *x = q->ctx;

	assert_int_equal(e->kind, ERR_NONE);
	atomic_store(&x->done, true);
}

static void fetch_one(struct world *w, struct wait *x, uint64_t off,
		      uint64_t len)
{
	memset(x, 0, sizeof(*x));
	x->q = (struct blob_req){ .blob = w->blob,
				  .off = off,
				  .len = len,
				  .on_data = take,
				  .done = finished,
				  .ctx = x };
	assert_int_equal(blob_fetch(&x->q, &w->e), 0);
	while (!atomic_load(&x->done))
		(void)usleep(1000);
}

static void wrong_bytes_are_traced_to_who_sent_them(void **state)
{
	struct world *w = *state;
	struct wait x;

	use_hosts(w, mirror_and_server);
	/* The mirror gives up after 1000 bytes: the rest is the registry's. */
	regserver_admin(&other_srv, "{\"match\":\"/blobs/\",\"count\":1,"
				    "\"fault\":\"short:1000\"}");
	fetch_one(w, &x, 0, 5000);
	assert_asked(1, 1);
	assert_int_equal(x.q.n_parts, 2);
	assert_int_equal(x.q.parts[1].off, 1000);
	blob_blame(&x.q, 1000, 4000);
	/* The mirror had failed, too, but may be good again sooner. */
	assert_reads(w, 0, 500);
	assert_asked(1, 2);
	blob_blame(&x.q, 0, 1000);
	assert_reads(w, 0, 500);
	assert_asked(2, 2);
}

static void distrust_ends_when_all_are_blamed(void **state)
{
	struct world *w = *state;

	use_hosts(w, mirror_and_server);
	assert_false(blob_distrust(w->blob)); /* nobody has said anything */
	assert_reads(w, 0, 500);
	assert_true(blob_distrust(w->blob));
	assert_false(blob_distrust(w->blob));
	assert_reads(w, 0, 500);
	assert_asked(1, 1);
	assert_false(blob_distrust(w->blob));
	assert_reads(w, 0, 500);
}

static void manifests_are_verified(void **state)
{
	struct world *w = *state;
	struct image_ref ref = { .host = NAME, .repo = REG_REPO };
	struct digest wrong = data.small;
	char *p = NULL, order[300];
	size_t len = 0;

	use_hosts(w, mirror_and_server);
	assert_int_equal(registry_read_manifest(w->reg, &ref, &data.small,
						1 << 20, 5000, &p, &len, &w->e),
			 0);
	assert_int_equal(len, REG_SMALL);
	free(p);
	/* The mirror answers with another one. */
	(void)snprintf(order, sizeof(order),
		       "{\"match\":\"/manifests/\",\"count\":1,"
		       "\"fault\":\"redirect:/v2/" REG_REPO "/manifests/%s?\"}",
		       digest_str(&data.big).s);
	regserver_admin(&other_srv, order);
	assert_int_equal(registry_read_manifest(w->reg, &ref, &data.small,
						2 << 20, 5000, &p, &len, &w->e),
			 0);
	assert_int_equal(len, REG_SMALL);
	free(p);
	assert_int_equal(regserver_count(&main_srv, "requests"), 1);
	wrong.b[0] ^= 1;
	assert_int_equal(registry_read_manifest(w->reg, &ref, &wrong, 1 << 20,
						5000, &p, &len, &w->e),
			 -1);
}

/* ---- what is told to whom ---- */

static void headers_and_tokens_stay_where_they_belong(void **state)
{
	struct world *w = *state;
	char text[256];

	/* A password for each, under its own name. */
	(void)snprintf(text, sizeof(text),
		       "{\"auths\":{\"127.0.0.1:%d\":{\"auth\":\"bTptYWlu\"},"
		       "\"127.0.0.1:%d\":{\"auth\":\"bzpvdGhlcg==\"}}}",
		       main_srv.port, other_srv.port);
	write_config(w, text);
	use_hosts(w, mirror_and_server);
	regserver_admin(&other_srv, "{\"auth\":\"basic:o:other\"}");
	regserver_admin(&main_srv, "{\"auth\":\"basic:m:main\"}");
	assert_reads(w, 0, 500);
	assert_asked(0, 2); /* 401, and again with the password */
	/* Where the mirror sends us, its password is not sent. */
	(void)snprintf(text, sizeof(text),
		       "{\"match\":\"/blobs/\",\"fault\":"
		       "\"redirect:http://127.0.0.1:%d{path}\"}",
		       main_srv.port);
	regserver_admin(&other_srv, text);
	regserver_admin(&main_srv, "{\"auth\":null,\"reset\":true}");
	blob_unref(w->blob);
	w->blob = blob_of(w, NAME);
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Basic"), 0);
	assert_int_equal(regserver_matches(&main_srv, "auth", ""), 1);
}

static void a_configured_authorization_is_used_as_it_is(void **state)
{
	struct world *w = *state;
	char text[160];

	use_hosts(w, "server = 'http://%M'\n[host.'http://%O'.header]\n"
		     "Authorization = 'Basic bzpvdGhlcg=='\n");
	regserver_admin(&other_srv, "{\"auth\":\"basic:o:other\"}");
	assert_reads(w, 0, 500);
	assert_asked(0, 1);
	(void)snprintf(text, sizeof(text),
		       "{\"match\":\"/blobs/\",\"fault\":"
		       "\"redirect:http://127.0.0.1:%d{path}\"}",
		       main_srv.port);
	regserver_admin(&other_srv, text);
	blob_unref(w->blob);
	w->blob = blob_of(w, NAME);
	assert_reads(w, 0, 500);
	assert_int_equal(regserver_matches(&main_srv, "auth", "Basic"), 0);
}

/* ---- files ---- */

static void read_until(struct world *w, int result)
{
	uint64_t end = now_ms() + 30000;

	while (read_at(w, 0, 500) != result) {
		assert_true(now_ms() < end);
		(void)usleep(50000);
	}
}

static void changes_count_without_a_restart(void **state)
{
	struct world *w = *state;
	struct blob *other;
	struct buf b = { 0 };
	char text[64];

	use_hosts(w, "server = 'http://%M\n");
	assert_int_equal(read_at(w, 0, 500), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(w->e.msg, NAME "/hosts.toml:1: "));
	/* Another registry does not care. */
	other = w->blob;
	w->blob = blob_at(w, &main_srv, &data.big);
	assert_reads(w, 0, 500);
	blob_unref(w->blob);
	w->blob = other;
	assert_int_equal(registry_status_json(w->reg, &b), 0);
	assert_non_null(strstr((char *)b.p, "\"error\":\"/"));
	b.len = 0;
	put_hosts(w, NAME, mirror_and_server);
	read_until(w, 0);
	assert_int_equal(regserver_count(&other_srv, "requests"), 1);
	put_hosts(w, NAME, "server = 'http://%M'\n");
	for (uint64_t end = now_ms() + 30000;
	     regserver_count(&main_srv, "requests") < 2;) {
		assert_true(now_ms() < end);
		assert_reads(w, 0, 500);
		(void)usleep(50000);
	}
	b.len = 0;
	assert_int_equal(registry_status_json(w->reg, &b), 0);
	assert_null(strstr((char *)b.p, "\"error\":\"/"));
	(void)snprintf(text, sizeof(text), "127.0.0.1:%d/v2", other_srv.port);
	assert_null(strstr((char *)b.p, text));
	buf_release(&b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(mirrors_are_asked_first_and_told_for_whom),
		T(what_a_mirror_lacks_is_remembered),
		T(hosts_that_fail_are_left_by_all_blobs),
		T(a_host_that_failed_is_still_better_than_none),
		T(the_registry_has_the_last_word),
		T(wrong_bytes_are_traced_to_who_sent_them),
		T(distrust_ends_when_all_are_blamed),
		T(manifests_are_verified),
		T(headers_and_tokens_stay_where_they_belong),
		T(a_configured_authorization_is_used_as_it_is),
		T(changes_count_without_a_restart),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
