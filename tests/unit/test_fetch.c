/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c and transfer.c: order, limits, deadlines, cancellation, headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "snapshotter/fetch.h"
#include "snapshotter/transfer.h"
#include "tests/lib/regserver.h"

static struct regdata data;
static struct regserver srv;
static char blob_url[256];

static int group_setup(void **state)
{
	(void)state;
	if (regdata_make(&data) < 0 || regserver_start(&srv, &data, NULL) < 0)
		return -1;
	(void)snprintf(blob_url, sizeof(blob_url),
		       "http://127.0.0.1:%d/v2/" REG_REPO "/blobs/%s", srv.port,
		       digest_str(&data.big).s);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	regserver_stop(&srv);
	regdata_drop(&data);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	regserver_admin(&srv, "{\"clear\":true,\"reset\":true}");
	return 0;
}

/* ---- a request and what became of it ---- */

static struct lock lock; /* guards n_done of all, and the order */
static struct cond cond;
static int order;

struct probe {
	struct http_req r;
	struct http_response resp; /* strings are gone */
	struct err e;
	char location[64], challenge[128];
	uint64_t n_body, n_wrong;
	int n_done, order, stop_at_header;
};

static int on_header(struct http_req *r, const struct http_response *resp,
		     struct err *e)
{
	struct probe *p = r->ctx;

	p->resp = *resp;
	(void)snprintf(p->location, sizeof(p->location), "%s",
		       resp->location ? resp->location : "");
	(void)snprintf(p->challenge, sizeof(p->challenge), "%s",
		       resp->www_authenticate ? resp->www_authenticate : "");
	if (p->stop_at_header == 2)
		return err_set(e, ERR_CORRUPT, "not what I want");
	return p->stop_at_header;
}

static int on_data(struct http_req *r, const void *bytes, size_t len)
{
	struct probe *p = r->ctx;
	uint64_t off = r->range_off == HTTP_NO_RANGE ? 0 : r->range_off;

	if (off + p->n_body + len <= REG_BIG)
		p->n_wrong += memcmp(bytes, data.p + off + p->n_body, len) != 0;
	p->n_body += len;
	return 0;
}

static void on_done(struct http_req *r, const struct http_response *resp,
		    const struct err *e)
{
	struct probe *p = r->ctx;

	(void)resp;
	lock_take(&lock);
	p->e = *e;
	p->n_done++;
	p->order = ++order;
	cond_broadcast(&cond);
	lock_drop(&lock);
}

static void probe_init(struct probe *p, const char *url)
{
	memset(p, 0, sizeof(*p));
	p->r.url = url;
	p->r.range_off = HTTP_NO_RANGE;
	p->r.deadline_ms = 5000;
	p->r.on_header = on_header;
	p->r.on_data = on_data;
	p->r.done = on_done;
	p->r.ctx = p;
}

static void probe_wait(struct probe *p)
{
	uint64_t until = now_ms() + 15000;
	int r = 0;

	lock_take(&lock);
	while (!p->n_done && r == 0)
		r = cond_wait_until(&cond, &lock, until);
	lock_drop(&lock);
	assert_int_equal(p->n_done, 1);
}

static void probe_run(struct fetcher *f, struct probe *p)
{
	fetch_start(f, &p->r);
	probe_wait(p);
}

static struct fetcher *new_fetcher(struct fetcher_opts o)
{
	struct fetcher *f;

	assert_int_equal(fetcher_new(&o, &f), 0);
	return f;
}

/* ---- a server that says one thing, to one client ---- */

struct canned {
	pthread_t thread;
	int fd;
	const char *answer;
	size_t n_junk; /* bytes of header lines before it */
	char request[4096];
	char url[64];
};

static void *canned_main(void *arg)
{
	struct canned *c = arg;
	owned(fd) int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
	size_t len = 0;

	while (!strstr(c->request, "\r\n\r\n")) {
		ssize_t n = read(fd, c->request + len,
				 sizeof(c->request) - 1 - len);

		if (n <= 0)
			return NULL;
		len += (size_t)n;
	}
	if (c->n_junk)
		(void)!write_full(fd, "HTTP/1.1 200 OK\r\n", 17);
	for (size_t i = 0; i < c->n_junk; i += 16)
		if (send(fd, "X-Junk: 9876543\n", 16, MSG_NOSIGNAL) < 0)
			break;
	(void)!send(fd, c->answer, strlen(c->answer), MSG_NOSIGNAL);
	return NULL;
}

static void canned_start(struct canned *c, const char *answer)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	size_t n_junk = c->n_junk;

	memset(c, 0, sizeof(*c));
	c->n_junk = n_junk;
	c->answer = answer;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(c->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(c->fd, 1), 0);
	assert_int_equal(getsockname(c->fd, (struct sockaddr *)&a, &n), 0);
	(void)snprintf(c->url, sizeof(c->url), "http://127.0.0.1:%d/x",
		       ntohs(a.sin_port));
	assert_int_equal(pthread_create(&c->thread, NULL, canned_main, c), 0);
}

static void canned_stop(struct canned *c)
{
	(void)pthread_join(c->thread, NULL);
	(void)close(c->fd);
}

/* ---- transfers ---- */

static void fetch_brings_ranges(void **state)
{
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	struct probe p;

	(void)state;
	probe_init(&p, blob_url);
	p.r.range_off = 100;
	p.r.range_len = 300000;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_NONE);
	assert_int_equal(p.resp.status, 206);
	assert_int_equal(p.resp.content_length, 300000);
	assert_int_equal(p.resp.range_first, 100);
	assert_int_equal(p.resp.range_last, 300099);
	assert_int_equal(p.resp.range_total, REG_BIG);
	assert_int_equal(p.n_body, 300000);
	assert_int_equal(p.n_wrong, 0);

	probe_init(&p, blob_url);
	p.r.range_off = REG_BIG - 5;
	probe_run(f, &p);
	assert_int_equal(p.n_body, 5);

	probe_init(&p, blob_url);
	p.r.method = HTTP_HEAD;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_NONE);
	assert_int_equal(p.resp.status, 200);
	assert_int_equal(p.resp.content_length, REG_BIG);
	assert_int_equal(p.n_body, 0);
	fetcher_free(f);
}

static void fetch_sends_what_it_should(void **state)
{
	static const char *const headers[] = { "X-Mine: 1", NULL };
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	struct canned c = { 0 };
	struct probe p;

	(void)state;
	canned_start(&c, "HTTP/1.1 204 No Content\r\n\r\n");
	probe_init(&p, c.url);
	p.r.method = HTTP_POST;
	p.r.body = "a=b";
	p.r.headers = headers;
	p.r.suffix_len = 9;
	probe_run(f, &p);
	canned_stop(&c);
	assert_int_equal(p.resp.status, 204);
	assert_ptr_equal(strstr(c.request, "POST /x HTTP/1.1\r\n"), c.request);
	assert_non_null(strstr(c.request, "\r\nX-Mine: 1\r\n"));
	assert_non_null(strstr(c.request, "\r\nRange: bytes=-9\r\n"));
	assert_non_null(strstr(c.request, "\r\nAccept-Encoding: identity\r\n"));
	assert_non_null(strstr(c.request,
			       "\r\nUser-Agent: verity-snapshotter/" VERSION
			       "\r\n"));
	fetcher_free(f);
}

static void headers_are_read_with_care(void **state)
{
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	struct canned c = { 0 };
	struct probe p;

	(void)state;
	canned_start(&c, "HTTP/1.1 100 Continue\r\nLocation: wrong\r\n\r\n"
			 "HTTP/1.1 401 No\r\nWWW-Authenticate: A b\r\n"
			 "www-authenticate:\tC d \r\nLocation: \r\n"
			 "Content-Range: bytes 5-3/9\r\n"
			 "Content-Encoding: gzip\r\nRetry-After: 77\r\n"
			 "Content-Length: 2\r\n\r\nhi");
	probe_init(&p, c.url);
	probe_run(f, &p);
	canned_stop(&c);
	assert_int_equal(p.e.kind, ERR_NONE);
	assert_int_equal(p.resp.status, 401);
	assert_string_equal(p.challenge, "A b, C d");
	assert_string_equal(p.location, "");
	assert_int_equal(p.resp.range_first, UINT64_MAX);
	assert_true(p.resp.encoded);
	assert_int_equal(p.resp.retry_after_s, 77);
	assert_int_equal(p.n_body, 2);

	c.n_junk = 70 * 1024;
	canned_start(&c, "Content-Length: 0\r\n\r\n");
	probe_init(&p, c.url);
	probe_run(f, &p);
	canned_stop(&c);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(p.e.msg, "headers"));

	c.n_junk = 0;
	canned_start(&c, "SSH-2.0-OpenSSH_9.2\r\n");
	probe_init(&p, c.url);
	probe_run(f, &p);
	canned_stop(&c);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_int_equal(p.n_body, 0);
	fetcher_free(f);
}

static void retry_after_may_be_a_date(void **state)
{
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	char answer[256], date[64];
	time_t when = time(NULL) + 100;
	struct canned c = { 0 };
	struct probe p;
	struct tm tm;

	(void)state;
	assert_non_null(gmtime_r(&when, &tm));
	assert_true(strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT",
			     &tm) > 0);
	(void)snprintf(answer, sizeof(answer),
		       "HTTP/1.1 503 No\r\nRetry-After: %s\r\n"
		       "Content-Length: 0\r\n\r\n",
		       date);
	canned_start(&c, answer);
	probe_init(&p, c.url);
	probe_run(f, &p);
	canned_stop(&c);
	assert_in_range(p.resp.retry_after_s, 90, 100);

	/* Farther away than the seconds can count. */
	canned_start(&c, "HTTP/1.1 503 No\r\n"
			 "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n"
			 "Content-Length: 0\r\n\r\n");
	probe_init(&p, c.url);
	probe_run(f, &p);
	canned_stop(&c);
	assert_int_equal(p.resp.retry_after_s, INT32_MAX);
	fetcher_free(f);
}

static void content_range_is_parsed_exactly(void **state)
{
	static const char *const bad[] = {
		"",
		"bytes",
		"bytes 0-1",
		"bytes 0-1/",
		"bytes 1-0/5",
		"bytes 0-5/5",
		"bytes -5/10",
		"bytes 0-/10",
		"bytes 0-1/2x",
		"bytes 0-1/2, 3-4/5",
		"bytes 0-99999999999999999999/*",
		"octets 0-1/2",
	};
	struct http_response r = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (http_content_range(bad[i], &r))
			fail_msg("'%s' was accepted", bad[i]);
	assert_true(http_content_range("bytes 3-7/10", &r));
	assert_int_equal(r.range_first, 3);
	assert_int_equal(r.range_last, 7);
	assert_int_equal(r.range_total, 10);
	assert_true(http_content_range("bytes 3-7/*", &r));
	assert_int_equal(r.range_total, UINT64_MAX);
	assert_true(http_content_range("Bytes */10", &r));
	assert_int_equal(r.range_first, UINT64_MAX);
	assert_int_equal(r.range_total, 10);
}

static void on_header_can_stop(void **state)
{
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	struct probe p;

	(void)state;
	probe_init(&p, blob_url);
	p.stop_at_header = 1;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_CANCELLED);
	assert_int_equal(p.n_body, 0);
	probe_init(&p, blob_url);
	p.stop_at_header = 2;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_CORRUPT);
	assert_string_equal(p.e.msg, "not what I want");
	fetcher_free(f);
}

/* ---- what fails, and when ---- */

static void failures_have_kinds(void **state)
{
	struct fetcher *f =
		new_fetcher((struct fetcher_opts){ .silence_ms = 200 });
	struct probe p;

	(void)state;
	probe_init(&p, "ftp://127.0.0.1/x");
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_INVALID);
	probe_init(&p, "http://127.0.0.1:1/x");
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(p.e.msg, "127.0.0.1:1"));
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"short:9\"}");
	probe_init(&p, blob_url);
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_int_equal(p.n_body, 9);
	fetcher_free(f);
}

static void silence_and_deadlines_are_kept(void **state)
{
	struct fetcher *f = new_fetcher(
		(struct fetcher_opts){ .silence_ms = 1500, .max_per_host = 1 });
	struct probe p, queued;
	uint64_t t = now_ms();

	(void)state;
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"silent\"}");
	probe_init(&p, blob_url);
	fetch_start(f, &p.r);
	/* A deadline also ends what has not begun. */
	probe_init(&queued, blob_url);
	queued.r.deadline_ms = 100;
	fetch_start(f, &queued.r);
	probe_wait(&queued);
	assert_int_equal(queued.e.kind, ERR_UNAVAILABLE);
	assert_in_range(now_ms() - t, 95, 1490);
	probe_wait(&p);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(p.e.msg, "silent"));
	assert_in_range(now_ms() - t, 1495, 15000);

	/* Slow is not silent; the deadline is what ends it. */
	regserver_admin(&srv, "{\"clear\":true}");
	regserver_admin(&srv,
			"{\"match\":\"/blobs/\",\"fault\":\"slow:2000\"}");
	t = now_ms();
	probe_init(&p, blob_url);
	p.r.deadline_ms = 700;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_UNAVAILABLE);
	assert_null(strstr(p.e.msg, "silent"));
	assert_true(p.n_body > 0);
	assert_in_range(now_ms() - t, 690, 15000);
	fetcher_free(f);
}

/* ---- order and limits ---- */

static int distinct_ports(void)
{
	struct json_object *o = regserver_stats(&srv);
	struct json_object *log = json_object_object_get(o, "log");
	size_t n = json_object_array_length(log);
	int ports = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t a = json_object_get_int64(json_object_object_get(
			json_object_array_get_idx(log, i), "from"));
		bool seen = false;

		for (size_t j = 0; j < i; j++)
			seen = seen ||
			       a == json_object_get_int64(
					    json_object_object_get(
						    json_object_array_get_idx(
							    log, j),
						    "from"));
		ports += !seen;
	}
	(void)json_object_put(o);
	return ports;
}

static void urgent_requests_come_first(void **state)
{
	struct fetcher *f =
		new_fetcher((struct fetcher_opts){ .max_per_host = 1 });
	struct probe p[5];

	(void)state;
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"delay:60\"}");
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		probe_init(&p[i], blob_url);
		p[i].r.range_off = i;
		p[i].r.range_len = 10;
		p[i].r.urgent = i == 3;
		fetch_start(f, &p[i].r);
		if (i == 0)
			(void)usleep(20000); /* it runs */
	}
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		probe_wait(&p[i]);
		assert_int_equal(p[i].e.kind, ERR_NONE);
	}
	assert_true(p[0].order < p[3].order);
	assert_true(p[3].order < p[1].order);
	assert_true(p[1].order < p[2].order);
	assert_true(p[2].order < p[4].order);
	assert_int_equal(distinct_ports(), 1);
	fetcher_free(f);
}

static void a_quarter_is_kept_for_the_urgent(void **state)
{
	struct fetcher *f = new_fetcher(
		(struct fetcher_opts){ .max_per_host = 4, .silence_ms = 400 });
	struct probe slow[6], p;

	(void)state;
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"silent\","
			      "\"count\":3}");
	for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
		probe_init(&slow[i], blob_url);
		slow[i].r.range_off = 0;
		slow[i].r.range_len = 10;
		fetch_start(f, &slow[i].r);
	}
	(void)usleep(50000);
	probe_init(&p, blob_url);
	p.r.urgent = true;
	probe_run(f, &p);
	assert_int_equal(p.e.kind, ERR_NONE);
	for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
		probe_wait(&slow[i]);
		assert_int_equal(slow[i].e.kind,
				 i < 3 ? ERR_UNAVAILABLE : ERR_NONE);
		assert_true(slow[i].order > p.order);
	}
	fetcher_free(f);
}

static void connections_are_few_and_kept(void **state)
{
	struct fetcher *f = new_fetcher(
		(struct fetcher_opts){ .max_per_host = 3, .idle_ms = 150 });
	struct probe p[12];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		probe_init(&p[i], blob_url);
		p[i].r.urgent = true;
		fetch_start(f, &p[i].r);
	}
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		probe_wait(&p[i]);
		assert_int_equal(p[i].n_body, REG_BIG);
		assert_int_equal(p[i].n_wrong, 0);
	}
	assert_in_range(distinct_ports(), 1, 3);
	/* Unused for long enough: closed. */
	regserver_admin(&srv, "{\"reset\":true}");
	for (int i = 0; i < 2; i++) {
		probe_init(&p[0], blob_url);
		probe_run(f, &p[0]);
		(void)usleep(400000);
	}
	assert_int_equal(distinct_ports(), 2);
	fetcher_free(f);
}

/* ---- the end of things ---- */

static void cancel_ends_queued_and_running(void **state)
{
	struct fetcher *f =
		new_fetcher((struct fetcher_opts){ .max_per_host = 1 });
	struct probe running, queued, third;

	(void)state;
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"silent\","
			      "\"count\":1}");
	probe_init(&running, blob_url);
	probe_init(&queued, blob_url);
	probe_init(&third, blob_url);
	fetch_start(f, &running.r);
	(void)usleep(30000);
	fetch_start(f, &queued.r);
	fetch_start(f, &third.r);
	fetch_cancel(f, &queued.r);
	probe_wait(&queued);
	assert_int_equal(queued.e.kind, ERR_CANCELLED);
	fetch_cancel(f, &running.r);
	fetch_cancel(f, &running.r);
	probe_wait(&running);
	assert_int_equal(running.e.kind, ERR_CANCELLED);
	probe_wait(&third);
	assert_int_equal(third.e.kind, ERR_NONE);
	fetch_cancel(f, &third.r);
	assert_int_equal(third.n_done, 1);
	fetcher_free(f);
}

static void free_answers_everybody(void **state)
{
	struct fetcher *f =
		new_fetcher((struct fetcher_opts){ .max_per_host = 2 });
	struct probe p[9];

	(void)state;
	regserver_admin(&srv, "{\"match\":\"/blobs/\",\"fault\":\"silent\"}");
	(void)fetcher_ref(f);
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		probe_init(&p[i], blob_url);
		if (i < 8)
			fetch_start(f, &p[i].r);
		if (i == 4)
			(void)usleep(30000);
	}
	fetcher_free(f);
	/* It has ended, but somebody does not know yet. */
	fetch_start(f, &p[8].r);
	for (size_t i = 0; i < ARRAY_LEN(p); i++) {
		assert_int_equal(p[i].n_done, 1);
		assert_int_equal(p[i].e.kind, ERR_CANCELLED);
	}
	fetcher_unref(f);
}

/* ---- tasks ---- */

struct note {
	struct fetch_task t;
	int order, n_runs;
	bool stopping;
};

static void note_run(struct fetch_task *t, bool stopping)
{
	struct note *n = list_entry(t, struct note, t);

	lock_take(&lock);
	n->order = ++order;
	n->n_runs++;
	n->stopping = stopping;
	cond_broadcast(&cond);
	lock_drop(&lock);
}

static void tasks_run_in_their_order(void **state)
{
	static const unsigned delays[] = { 120, 0, 60, 60, 100000, 100000 };
	struct fetcher *f = new_fetcher((struct fetcher_opts){ 0 });
	struct note n[ARRAY_LEN(delays)];

	(void)state;
	memset(n, 0, sizeof(n));
	(void)fetcher_ref(f);
	for (size_t i = 0; i < ARRAY_LEN(n); i++) {
		list_init(&n[i].t.node);
		n[i].t.run = note_run;
		assert_int_equal(fetch_task_add(f, &n[i].t, delays[i]), 0);
	}
	lock_take(&lock);
	while (!n[0].n_runs)
		cond_wait(&cond, &lock);
	lock_drop(&lock);
	assert_true(n[1].order < n[2].order);
	assert_true(n[2].order < n[3].order);
	assert_true(n[3].order < n[0].order);
	assert_true(fetch_task_remove(f, &n[4].t));
	assert_false(fetch_task_remove(f, &n[4].t));
	fetcher_free(f);
	assert_int_equal(n[4].n_runs, 0);
	assert_int_equal(n[5].n_runs, 1);
	assert_true(n[5].stopping);
	assert_false(n[0].stopping);
	assert_int_equal(fetch_task_add(f, &n[0].t, 0), -ECANCELED);
	fetcher_unref(f);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(fetch_brings_ranges),
		T(fetch_sends_what_it_should),
		T(headers_are_read_with_care),
		T(retry_after_may_be_a_date),
		T(content_range_is_parsed_exactly),
		T(on_header_can_stop),
		T(failures_have_kinds),
		T(silence_and_deadlines_are_kept),
		T(urgent_requests_come_first),
		T(a_quarter_is_kept_for_the_urgent),
		T(connections_are_few_and_kept),
		T(cancel_ends_queued_and_running),
		T(free_answers_everybody),
		T(tasks_run_in_their_order),
	};

	lock_init(&lock, RANK_LEAF);
	if (cond_init(&cond) < 0)
		return 1;
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
