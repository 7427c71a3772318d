/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP transfer; see transfer.h. Everything a server says is bounded here:
 * 64 KiB of header lines in all, numbers with overflow checks, strings without
 * control characters. Runs on the network thread only.
 */
#include "snapshotter/transfer.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/io.h"

#define HEADER_MAX (64 * 1024)
#define CONNECT_MS 10000
#define DEADLINE_MS 60000
#define BUFFER_MIN (16 * 1024)
#define BUFFER_MAX (256 * 1024)
#define CA_BUNDLE_MAX (8 * 1024 * 1024)

/* Decimal digits at *@s, which is moved behind them. */
static bool take_number(const char **s, uint64_t *ret)
{
	const char *p = *s;
	uint64_t n = 0;

	if (!isdigit((unsigned char)*p))
		return false;
	for (; isdigit((unsigned char)*p); p++)
		if (__builtin_mul_overflow(n, 10u, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			return false;
	*s = p;
	*ret = n;
	return true;
}

/* Source: RFC 9110 section 14.4, with "*" for either half. */
bool http_content_range(const char *s, struct http_response *resp)
{
	uint64_t first = UINT64_MAX, last = UINT64_MAX, total = UINT64_MAX;

	if (strncasecmp(s, "bytes ", 6) != 0)
		return false;
	s += 6;
	if (*s == '*') {
		s++;
	} else {
		if (!take_number(&s, &first) || *s++ != '-' ||
		    !take_number(&s, &last) || last < first)
			return false;
	}
	if (*s++ != '/')
		return false;
	if (*s == '*')
		s++;
	else if (!take_number(&s, &total))
		return false;
	if (*s || (first != UINT64_MAX && last >= total))
		return false;
	resp->range_first = first;
	resp->range_last = last;
	resp->range_total = total;
	return true;
}

static void forget_response(struct transfer *t)
{
	free(t->content_type);
	free(t->location);
	buf_release(&t->www_authenticate);
	t->content_type = t->location = NULL;
	memset(&t->resp, 0, sizeof(t->resp));
	t->resp.content_length = UINT64_MAX;
	t->resp.range_first = t->resp.range_last = UINT64_MAX;
	t->resp.range_total = UINT64_MAX;
}

static void keep_string(struct transfer *t, char **slot, const char *value)
{
	free(*slot);
	*slot = strdup(value);
	t->oom = t->oom || !*slot;
}

static void take_retry_after(struct transfer *t, const char *value)
{
	time_t when, now = time(NULL);
	uint64_t n;

	if (!take_number(&value, &n) || *value) {
		when = curl_getdate(value, NULL);
		if (when <= now)
			return;
		n = (uint64_t)when - (uint64_t)now;
	}
	t->resp.retry_after_s = n < INT_MAX ? (unsigned)n : INT_MAX;
}

static void take_field(struct transfer *t, const char *name, const char *value)
{
	const char *s = value;
	uint64_t n;

	if (strcasecmp(name, "content-length") == 0) {
		if (take_number(&s, &n) && !*s)
			t->resp.content_length = n;
	} else if (strcasecmp(name, "content-range") == 0) {
		(void)http_content_range(value, &t->resp);
	} else if (strcasecmp(name, "content-type") == 0) {
		keep_string(t, &t->content_type, value);
	} else if (strcasecmp(name, "content-encoding") == 0) {
		if (strcasecmp(value, "identity") != 0)
			t->resp.encoded = true;
	} else if (strcasecmp(name, "location") == 0) {
		keep_string(t, &t->location, value);
	} else if (strcasecmp(name, "www-authenticate") == 0) {
		if (t->www_authenticate.len)
			(void)buf_adds(&t->www_authenticate, ", ");
		(void)buf_adds(&t->www_authenticate, value);
		t->oom = t->oom || t->www_authenticate.failed;
	} else if (strcasecmp(name, "retry-after") == 0) {
		take_retry_after(t, value);
	}
}

/* The blank line came. false: stop. */
static bool end_of_header(struct transfer *t)
{
	struct http_req *r = t->req;
	long status = 0;

	(void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200) {
		forget_response(t);
		return true;
	}
	t->have_header = true;
	t->resp.status = status;
	t->resp.content_type = t->content_type;
	t->resp.location = t->location;
	t->resp.www_authenticate = (const char *)t->www_authenticate.p;
	if (t->oom) {
		(void)err_set(&t->err, ERR_INTERNAL, "out of memory");
		return false;
	}
	if (r->on_header && r->on_header(r, &t->resp, &t->err) != 0) {
		if (t->err.kind == ERR_NONE)
			(void)err_set(&t->err, ERR_CANCELLED,
				      "stopped by its reader");
		return false;
	}
	return true;
}

size_t transfer_header_line(char *p, size_t one, size_t len, void *ctx)
{
	struct transfer *t = ctx;
	owned(mem) char *line = NULL;
	char *value;
	size_t n = len;

	(void)one;
	t->active_ms = now_ms();
	if (t->have_header)
		return len; /* trailers */
	t->n_header += len;
	if (t->n_header > HEADER_MAX) {
		(void)err_set(&t->err, ERR_UNAVAILABLE,
			      "%s: more than %d bytes of headers", t->url.host,
			      HEADER_MAX);
		return 0;
	}
	while (n && (p[n - 1] == '\r' || p[n - 1] == '\n'))
		n--;
	if (n == 0)
		return end_of_header(t) ? len : 0;
	if (n >= 5 && memcmp(p, "HTTP/", 5) == 0) {
		forget_response(t);
		return len;
	}
	line = strndup(p, n);
	if (!line) {
		t->oom = true;
		return len;
	}
	value = strchr(line, ':');
	if (!value)
		return len;
	*value++ = '\0';
	value += strspn(value, " \t");
	for (n = strlen(value); n && strchr(" \t", value[n - 1]); n--)
		value[n - 1] = '\0';
	take_field(t, line, value);
	return len;
}

static size_t on_body(char *p, size_t one, size_t len, void *ctx)
{
	struct transfer *t = ctx;
	struct http_req *r = t->req;

	(void)one;
	t->active_ms = now_ms();
	t->n_body += len;
	if (len == 0 || !r->on_data || r->on_data(r, p, len) == 0)
		return len;
	if (t->err.kind == ERR_NONE)
		(void)err_set(&t->err, ERR_CANCELLED, "stopped by its reader");
	return 0;
}

/* Connected, TLS done, about to send: from here silence counts. */
static int on_connected(void *ctx, char *ip, char *local_ip, int port,
			int local_port)
{
	struct transfer *t = ctx;

	(void)ip, (void)local_ip, (void)port, (void)local_port;
	t->active_ms = now_ms();
	return CURL_PREREQFUNC_OK;
}

int transfer_new(struct http_req *req, struct transfer **ret, struct err *e)
{
	struct transfer *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(e, ERR_INTERNAL, "out of memory");
	list_init(&t->node);
	t->req = req;
	t->deadline_ms = req->started_ms +
			 (req->deadline_ms ? req->deadline_ms : DEADLINE_MS);
	forget_response(t);
	r = url_parse(NULL, req->url, &t->url);
	if (r < 0) {
		transfer_free(t);
		return r == -ENOMEM
			       ? err_set(e, ERR_INTERNAL, "out of memory")
			       : err_set(e, ERR_INVALID, "not an http URL");
	}
	*ret = t;
	return 0;
}

void transfer_free(struct transfer *t)
{
	if (!t)
		return;
	curl_easy_cleanup(t->easy);
	curl_slist_free_all(t->headers);
	forget_response(t);
	url_release(&t->url);
	free(t);
}

static int add_header(struct transfer *t, const char *text)
{
	struct curl_slist *l = curl_slist_append(t->headers, text);

	if (!l)
		return -ENOMEM;
	t->headers = l;
	return 0;
}

static int add_headers(struct transfer *t)
{
	const struct http_req *r = t->req;
	char range[64] = "";
	int ret;

	/* Ranges are of the stored bytes: no encoding on the way. */
	ret = add_header(t, "Accept-Encoding: identity");
	if (r->suffix_len)
		(void)snprintf(range, sizeof(range), "Range: bytes=-%" PRIu64,
			       r->suffix_len);
	else if (r->range_off != HTTP_NO_RANGE && r->range_len)
		(void)snprintf(range, sizeof(range),
			       "Range: bytes=%" PRIu64 "-%" PRIu64,
			       r->range_off, r->range_off + r->range_len - 1);
	else if (r->range_off != HTTP_NO_RANGE)
		(void)snprintf(range, sizeof(range),
			       "Range: bytes=%" PRIu64 "-", r->range_off);
	if (ret == 0 && range[0])
		ret = add_header(t, range);
	for (const char *const *h = r->headers; ret == 0 && h && *h; h++)
		ret = add_header(t, *h);
	return ret;
}

/* Remembers the first failure of a chain of settings. */
#define SET(opt, value)                                                \
	do {                                                           \
		if (c == CURLE_OK)                                     \
			c = curl_easy_setopt(t->easy, (opt), (value)); \
	} while (0)

/*
 * A private CA in addition to those of the system: curl takes one bundle, and
 * beside it a folder that it looks into as needed. Where it has no such folder,
 * the system's bundle is put behind ours.
 */
static CURLcode add_ca(struct transfer *t)
{
	const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
	owned(mem) char *system = NULL;
	struct curl_blob blob = { .flags = CURL_BLOB_COPY };
	struct buf all = { 0 };
	CURLcode c = CURLE_OK;

	(void)buf_adds(&all, t->req->ca_pem);
	if (v->age >= CURLVERSION_SEVENTH && !v->capath && v->cainfo &&
	    read_file_at(AT_FDCWD, v->cainfo, CA_BUNDLE_MAX, &system, NULL) ==
		    0)
		(void)buf_adds(&all, system);
	if (all.failed)
		c = CURLE_OUT_OF_MEMORY;
	blob.data = all.p;
	blob.len = all.len;
	SET(CURLOPT_CAINFO_BLOB, &blob);
	buf_release(&all);
	return c;
}

static CURLcode set_tls(struct transfer *t)
{
	const struct http_req *r = t->req;
	CURLcode c = CURLE_OK;

	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (r->ca_file)
		SET(CURLOPT_CAINFO, r->ca_file);
	if (r->ca_pem && c == CURLE_OK)
		c = add_ca(t);
	if (r->client_cert)
		SET(CURLOPT_SSLCERT, r->client_cert);
	if (r->client_key)
		SET(CURLOPT_SSLKEY, r->client_key);
	if (r->skip_verify) {
		SET(CURLOPT_SSL_VERIFYPEER, 0L);
		SET(CURLOPT_SSL_VERIFYHOST, 0L);
	}
	return c;
}

static CURLcode set_limits(struct transfer *t)
{
	const struct http_req *r = t->req;
	unsigned connect_ms = r->connect_timeout_ms;
	uint64_t buffer = BUFFER_MAX;
	CURLcode c = CURLE_OK;

	if (!connect_ms)
		connect_ms = r->impatient ? CONNECT_MS / 2 : CONNECT_MS;
	if (r->range_off != HTTP_NO_RANGE && r->range_len &&
	    r->range_len < buffer)
		buffer = r->range_len > BUFFER_MIN ? r->range_len : BUFFER_MIN;
	SET(CURLOPT_BUFFERSIZE, (long)buffer);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
	SET(CURLOPT_MAXAGE_CONN, 60L);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Else removing a request waits for its resolver thread. The library
	 * at run time may be older than the headers: no failure. */
	(void)curl_easy_setopt(t->easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	return c;
}

static CURLcode set_request(struct transfer *t, bool http2)
{
	const struct http_req *r = t->req;
	CURLcode c = CURLE_OK;

	SET(CURLOPT_URL, t->url.text);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	SET(CURLOPT_HTTP_VERSION,
	    http2 ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
	if (http2) /* rather one connection than one each */
		SET(CURLOPT_PIPEWAIT, 1L);
	SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	SET(CURLOPT_USERAGENT, "verity-snapshotter/" VERSION);
	SET(CURLOPT_HTTPHEADER, t->headers);
	/* As Go programs do: a proxy is for what is elsewhere, and its variable
	 * may be in capitals for http, too (curl fears CGI programs). */
	if (host_is_loopback(t->url.host))
		SET(CURLOPT_NOPROXY, "*");
	else if (!t->url.https && !getenv("http_proxy") && getenv("HTTP_PROXY"))
		SET(CURLOPT_PROXY, getenv("HTTP_PROXY"));
	if (r->method == HTTP_HEAD)
		SET(CURLOPT_NOBODY, 1L);
	if (r->method == HTTP_POST)
		SET(CURLOPT_POSTFIELDS, r->body ? r->body : "");
	SET(CURLOPT_PRIVATE, t);
	SET(CURLOPT_ERRORBUFFER, t->curl_text);
	SET(CURLOPT_HEADERFUNCTION, transfer_header_line);
	SET(CURLOPT_HEADERDATA, t);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, t);
	SET(CURLOPT_PREREQFUNCTION, on_connected);
	SET(CURLOPT_PREREQDATA, t);
	return c;
}

int transfer_prepare(struct transfer *t, CURLSH *share, bool http2)
{
	CURLcode c = CURLE_OUT_OF_MEMORY;

	t->easy = curl_easy_init();
	if (t->easy && add_headers(t) == 0) {
		c = set_request(t, http2);
		if (c == CURLE_OK)
			c = set_limits(t);
		if (c == CURLE_OK)
			c = set_tls(t);
		if (share)
			SET(CURLOPT_SHARE, share);
	}
	if (c == CURLE_OK)
		return 0;
	return err_set(&t->err, ERR_INTERNAL, "%s: %s", t->url.host,
		       curl_easy_strerror(c));
}

void transfer_set_result(struct transfer *t, CURLcode code)
{
	enum err_kind kind = ERR_UNAVAILABLE;

	if (code == CURLE_OK || t->err.kind != ERR_NONE)
		return;
	if (code == CURLE_OUT_OF_MEMORY)
		kind = ERR_INTERNAL;
	(void)err_set(&t->err, kind, "%s:%u: %s", t->url.host, t->url.port,
		      t->curl_text[0] ? t->curl_text
				      : curl_easy_strerror(code));
}
