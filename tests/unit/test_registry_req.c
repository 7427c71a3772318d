/* SPDX-License-Identifier: Apache-2.0 */
/* registry_req.c, registry_token.c: redirects, credentials, many at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "tests/lib/regworld.h"

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
	assert_fails(w, ERR_DENIED, w->config);
	assert_fails(w, ERR_DENIED, "docker login");
	write_config(w, "{\"auths\": nonsense");
	assert_fails(w, ERR_DENIED, "config.json");
	write_auth(w, "auth", "bWU6d3Jvbmc=");
	assert_fails(w, ERR_DENIED, "config.json' are refused");
	assert_fails(w, ERR_DENIED, "user and password");
	write_auth(w, "auth", "bWU6cHc=");
	assert_reads(w, 0, 10);
	assert_reads(w, 10, 10);
	assert_int_equal(regserver_count(&main_srv, "token_requests"), 0);
}

/* A file that is of no use is no reason not to ask. */
static void a_broken_config_means_anonymous(void **state)
{
	struct world *w = *state;

	write_config(w, "{\"auths\": 5}");
	regserver_admin(&main_srv, "{\"auth\":\"bearer\"}");
	assert_reads(w, 0, 10);
	regserver_admin(&main_srv, "{\"auth\":\"basic:me:pw\"}");
	assert_fails(w, ERR_DENIED, "'auths' is not an object");
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

static void async_wait_first(struct async *a)
{
	uint64_t until = now_ms() + 10000;
	int r = 0;

	lock_take(&a->lock);
	while (!a->n_done && r == 0)
		r = cond_wait_until(&a->cond, &a->lock, until);
	lock_drop(&a->lock);
	assert_int_equal(a->n_done, 1);
}

static void async_wait(struct async *a)
{
	async_wait_first(a);
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
		assert_true(now_ms() - t < 1500);
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

/* done() once for each, whichever of the two comes first. */
static void cancel_races_with_the_answer(void **state)
{
	struct world *w = *state;
	struct async a[6];
	int n_cancelled = 0;

	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < ARRAY_LEN(a); i++)
			async_start(&a[i], w->blob, i * 1000, 1000);
		/* Cancel behind the first answer, the second .. the last. */
		for (size_t i = 0; i < (size_t)round % 7; i++)
			async_wait_first(&a[i]);
		for (size_t i = 0; i < ARRAY_LEN(a); i++)
			blob_cancel(&a[i].q);
		for (size_t i = 0; i < ARRAY_LEN(a); i++) {
			async_wait(&a[i]);
			if (a[i].e.kind == ERR_NONE)
				assert_int_equal(a[i].n_bytes, 1000);
			else
				assert_int_equal(a[i].e.kind, ERR_CANCELLED);
			n_cancelled += a[i].e.kind == ERR_CANCELLED;
		}
	}
	assert_in_range(n_cancelled, 1, 40 * ARRAY_LEN(a) - 1);
	assert_reads(w, 0, 1000);
}

static int stop_reading(struct blob_req *q, uint64_t off, const void *p,
			size_t len)
{
	struct async *a = q->ctx;

	(void)off, (void)p;
	a->n_bytes += len;
	return -1;
}

struct canceller {
	struct blob_req q;
	atomic_bool done, stop;
};

static void canceller_done(struct blob_req *q, const struct err *e)
{
	struct canceller *c = q->ctx;

	(void)e;
	atomic_store(&c->done, true);
}

static int canceller_data(struct blob_req *q, uint64_t off, const void *p,
			  size_t len)
{
	(void)q, (void)off, (void)p, (void)len;
	return 0;
}

static void *cancel_all_the_time(void *arg)
{
	struct canceller *c = arg;

	while (!atomic_load(&c->stop))
		blob_cancel(&c->q);
	return NULL;
}

/* A request that is cancelled while blob_fetch() has not returned. */
static void cancel_races_with_the_start(void **state)
{
	struct world *w = *state;
	struct canceller c = { .q = { .blob = w->blob,
				      .len = 1000,
				      .on_data = canceller_data,
				      .done = canceller_done } };
	pthread_t t;

	c.q.ctx = &c;
	assert_int_equal(pthread_create(&t, NULL, cancel_all_the_time, &c), 0);
	for (unsigned i = 0; i < 3000; i++) {
		atomic_store(&c.done, false);
		assert_int_equal(blob_fetch(&c.q, &w->e), 0);
		for (uint64_t end = now_ms() + 60000; !atomic_load(&c.done);)
			assert_true(now_ms() < end);
	}
	atomic_store(&c.stop, true);
	assert_int_equal(pthread_join(t, NULL), 0);
}

static void readers_may_stop(void **state)
{
	struct world *w = *state;
	struct registry_stats stats;
	struct async a;

	async_start_with(&a, w->blob, 0, 100000, stop_reading);
	async_wait(&a);
	assert_int_equal(a.e.kind, ERR_CANCELLED);
	assert_true(a.n_bytes > 0 && a.n_bytes <= 100000);
	/* Ours: the server may yet see what a former test has cancelled. */
	registry_stats(w->reg, &stats);
	assert_int_equal(stats.n_requests, 1);
}

/* ---- TLS ---- */

/* A certificate for 127.0.0.1 that nobody trusts. */
static bool make_certificate(char *cert, char *key)
{
	char *const argv[] = {
		(char[]){ "openssl" },
		(char[]){ "req" },
		(char[]){ "-x509" },
		(char[]){ "-newkey" },
		(char[]){ "ec" },
		(char[]){ "-pkeyopt" },
		(char[]){ "ec_paramgen_curve:prime256v1" },
		(char[]){ "-nodes" },
		(char[]){ "-subj" },
		(char[]){ "/CN=test" },
		(char[]){ "-addext" },
		(char[]){ "subjectAltName=IP:127.0.0.1" },
		(char[]){ "-keyout" },
		key,
		(char[]){ "-out" },
		cert,
		NULL,
	};
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		int fd = open("/dev/null", O_WRONLY);

		(void)dup2(fd, 2);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void redirect_main_to_tls(const struct regserver *tls)
{
	char order[256];

	(void)snprintf(order, sizeof(order),
		       "{\"match\":\"/blobs/\",\"fault\":"
		       "\"redirect:https://127.0.0.1:%d{path}\"}",
		       tls->port);
	regserver_admin(&main_srv, order);
}

static void use_ca(struct world *w, const char *ca)
{
	struct registry_opts ro = { .fetcher = w->fetcher,
				    .docker_config = w->config,
				    .ca_file = ca,
				    .backoff_ms = 10 };

	/* Nothing runs: the fetcher may live on. */
	blob_unref(w->blob);
	registry_free(w->reg);
	assert_int_equal(registry_new(&ro, &w->reg), 0);
	w->blob = blob_at(w, &main_srv, &data.big);
}

static void tls_is_checked_and_not_left(void **state)
{
	static const char script_text[] =
		"[{\"match\":\"/blobs/\",\"skip\":1,\"fault\":"
		"\"redirect:http://192.0.2.1/x\"}]";
	struct world *w = *state;
	char cert[96], key[96], script[96];
	const char *const args[] = { "--tls",    cert,   key,
				     "--script", script, NULL };
	struct regserver tls;

	(void)snprintf(cert, sizeof(cert), "%s/cert", data.dir);
	(void)snprintf(key, sizeof(key), "%s/key", data.dir);
	(void)snprintf(script, sizeof(script), "%s/script", data.dir);
	assert_true(make_certificate(cert, key));
	assert_int_equal(write_file_atomic(AT_FDCWD, script, script_text,
					   sizeof(script_text) - 1, 0644),
			 0);
	assert_int_equal(regserver_start(&tls, &data, args), 0);
	redirect_main_to_tls(&tls);
	assert_fails(w, ERR_UNAVAILABLE, "certificate");
	use_ca(w, cert);
	assert_reads(w, 0, 100000);
	/* Its second answer leads away from TLS. */
	assert_fails(w, ERR_CORRUPT, "from https to http");
	regserver_stop(&tls);
}

static void hosts_elsewhere_are_spoken_to_in_tls(void **state)
{
	static const struct image_ref plain = { .host = "localhost",
						.repo = "a" };
	struct world *w = *state;

	/* Port 443 even here; nobody listens there in a test. */
	blob_unref(w->blob);
	assert_int_equal(blob_new(w->reg, &plain, &data.big, &w->blob), 0);
	assert_int_equal(read_at(w, 0, 10), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(w->e.msg, "localhost:443"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(redirects_leave_the_token_behind),
		T(stale_urls_are_resolved_anew_once),
		T(redirects_have_an_end),
		T(bearer_tokens_are_fetched_and_kept),
		T(expiring_tokens_are_replaced_in_time),
		T(credentials_go_to_the_token_server),
		T(identity_tokens_are_traded_in),
		T(basic_needs_a_password),
		T(a_broken_config_means_anonymous),
		T(concurrent_requests_share_a_token_and_a_redirect),
		T(failed_resolving_lets_others_try),
		T(blob_cancel_is_quick_in_every_state),
		T(fetcher_free_ends_all_reads),
		T(cancel_races_with_the_answer),
		T(cancel_races_with_the_start),
		T(readers_may_stop),
		T(tls_is_checked_and_not_left),
		T(hosts_elsewhere_are_spoken_to_in_tls),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
