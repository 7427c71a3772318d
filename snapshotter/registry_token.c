/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: one for each repository at each host, kept until shortly before it
 * expires, and fetched once however many requests wait for it. Credentials are
 * looked up by the name of the host that is asked, mirror or not, and go to
 * the token server that this host names, and to no other.
 *
 * All of it runs on the network thread, except load_cred(), which a job thread
 * runs for a token marked busy: until its task is back, nobody else touches the
 * fields it fills in.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/htab.h"
#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/auth.h"
#include "snapshotter/registry_priv.h"

#define TOKEN_DEADLINE_MS 15000
#define TOKEN_BODY_MAX (64 * 1024)
#define TOKENS_MAX 512

struct token {
	UT_hash_handle hh;
	struct registry *reg;
	char *key; /* of the place: base and repository */
	char repo[sizeof(((struct image_ref *)0)->repo)];
	char scope[300];
	/* Where it is for, and how to speak to its server; a reference to the
	 * list. Refreshed with each fetch. */
	struct host_list *list;
	const struct host *host;
	struct url at;

	char *header; /* "Authorization: ...", or NULL */
	uint64_t good_until_ms;
	unsigned generation;
	struct auth_challenge ch; /* scheme AUTH_NONE: never challenged */
	struct list waiters;

	bool busy; /* the rest belongs to a fetch under way */
	struct job job;
	struct fetch_task back;
	struct auth_cred cred;
	struct err note; /* why there are no credentials */
	struct url server;
	struct http_req http;
	char *url, *form, *basic;
	const char **headers;
	struct buf body;
};

void grant_release(struct grant *g)
{
	secret_free(g->header);
	g->header = NULL;
	g->generation = 0;
}

static void end_fetch(struct token *t)
{
	auth_cred_release(&t->cred);
	url_release(&t->server);
	secret_free(t->url);
	secret_free(t->form);
	secret_free(t->basic);
	if (t->body.p)
		explicit_bzero(t->body.p, t->body.len);
	buf_release(&t->body);
	free(take_ptr(&t->headers));
	t->url = t->form = t->basic = NULL;
}

static void token_free(struct token *t)
{
	end_fetch(t);
	secret_free(t->header);
	hosts_unref(t->list);
	url_release(&t->at);
	free(t->key);
	free(t);
}

void tokens_free(struct registry *r)
{
	struct token *t, *tmp;

	htab_each (r->tokens, t, tmp) {
		HASH_DEL(r->tokens, t);
		token_free(t);
	}
}

/* Room for another: those that expired go, or else all that are not in use. */
static void purge(struct registry *r)
{
	struct token *t, *tmp;

	for (int all = 0; all < 2 && HASH_COUNT(r->tokens) >= TOKENS_MAX; all++)
		htab_each (r->tokens, t, tmp) {
			if (t->busy || (!all && t->good_until_ms > now_ms()))
				continue;
			HASH_DEL(r->tokens, t);
			token_free(t);
		}
}

static int make_key(const struct place *p, char **ret)
{
	return asprintf(ret, "%s/%s", p->host->base, p->src->ref.repo) < 0
		       ? -ENOMEM
		       : 0;
}

static struct token *find(struct registry *r, const char *key)
{
	struct token *t;

	HASH_FIND_STR(r->tokens, key, t);
	return t;
}

/* What the token is for, as it is configured now. */
static int set_place(struct token *t, const struct place *p)
{
	int r = url_parse(NULL, p->url.text, &t->at);

	if (r < 0)
		return r;
	hosts_unref(t->list);
	t->list = hosts_ref(p->list);
	t->host = p->host;
	return 0;
}

/* Consumes @key. */
static struct token *add(struct registry *r, const struct place *p, char *key)
{
	struct token *t;

	purge(r);
	t = calloc(1, sizeof(*t));
	if (!t) {
		free(key);
		return NULL;
	}
	t->reg = r;
	t->key = key;
	(void)snprintf(t->repo, sizeof(t->repo), "%s", p->src->ref.repo);
	(void)snprintf(t->scope, sizeof(t->scope), "repository:%s:pull",
		       p->src->ref.repo);
	list_init(&t->waiters);
	list_init(&t->back.node);
	HASH_ADD_KEYPTR(hh, r->tokens, t->key, strlen(t->key), t);
	if (!HTAB_ADDED(t)) {
		token_free(t);
		return NULL;
	}
	return t;
}

static void wake_waiters(struct token *t, const struct err *e)
{
	t->busy = false;
	end_fetch(t);
	net_wake(&t->waiters, e);
}

static void fail(struct token *t, enum err_kind kind, const char *what)
{
	struct err e = ERR_INIT;

	/* Why we came without credentials may be the reason. */
	if (kind == ERR_DENIED && t->note.kind != ERR_NONE)
		(void)err_set(&e, kind, "%s (%.120s)", what, t->note.msg);
	else
		(void)err_set(&e, kind, "%s", what);
	wake_waiters(t, &e);
}

/* @value: "Basic ..." or "Bearer ..." without CR or LF. */
static void succeed(struct token *t, const char *scheme, const char *value,
		    uint64_t good_until_ms)
{
	static const struct err none = ERR_INIT;
	struct buf b = { 0 };

	(void)buf_addf(&b, "Authorization: %s%s", scheme, value);
	if (b.failed) {
		buf_release(&b);
		fail(t, ERR_INTERNAL, "out of memory");
		return;
	}
	secret_free(t->header);
	t->header = (char *)b.p;
	t->generation++;
	t->good_until_ms = good_until_ms;
	wake_waiters(t, &none);
}

static int token_data(struct http_req *http, const void *p, size_t len)
{
	struct token *t = http->ctx;

	if (t->body.len + len > TOKEN_BODY_MAX)
		return -1;
	return buf_add(&t->body, p, len);
}

static void take_token(struct token *t)
{
	struct auth_token tok;
	struct err e = ERR_INIT;
	char msg[300];
	uint64_t life_ms, margin_ms;

	if (auth_token_parse((const char *)t->body.p, t->body.len, &tok, &e) <
	    0) {
		(void)snprintf(msg, sizeof(msg), "token server '%.80s': %.100s",
			       t->server.host, e.msg);
		fail(t, ERR_UNAVAILABLE, msg);
		return;
	}
	/* Not used in its last moments: it has to arrive before it expires. */
	life_ms = (uint64_t)tok.expires_s * 1000;
	margin_ms = life_ms / 4 < 10000 ? life_ms / 4 : 10000;
	succeed(t, "Bearer ", tok.token, now_ms() + life_ms - margin_ms);
	secret_free(tok.token);
}

static void token_done(struct http_req *http, const struct http_response *resp,
		       const struct err *e)
{
	struct token *t = http->ctx;
	enum err_kind kind = e->kind;
	char msg[300];

	if (kind == ERR_NONE && resp->status == 200) {
		take_token(t);
		return;
	}
	if (kind == ERR_NONE) {
		kind = resp->status == 401 || resp->status == 403
			       ? ERR_DENIED
			       : ERR_UNAVAILABLE;
		(void)snprintf(msg, sizeof(msg),
			       "token server '%.80s' answers %ld%s",
			       t->server.host, resp->status,
			       t->cred.user ? ""
					    : " to a request without "
					      "credentials");
	} else if (t->body.len && kind == ERR_CANCELLED) {
		kind = ERR_UNAVAILABLE;
		(void)snprintf(msg, sizeof(msg),
			       "token server '%.80s' talks too much",
			       t->server.host);
	} else {
		(void)snprintf(msg, sizeof(msg), "token server: %.150s",
			       e->msg);
	}
	fail(t, kind, msg);
}

/*
 * A password does not travel in the clear, except on one machine, or to the
 * server that is configured for http: nobody else hears of it then. What came
 * over plain http may not say where else to send it.
 */
static bool may_send_cred(const struct token *t)
{
	if (t->server.https && (t->at.https || host_is_loopback(t->at.host)))
		return true;
	if (!t->at.https && host_is_loopback(t->at.host))
		return host_is_loopback(t->server.host);
	return url_same_origin(&t->at, &t->server);
}

/* Headers from the configuration go to the host that they stand for. */
static int make_headers(struct token *t)
{
	char **more =
		url_same_origin(&t->at, &t->server) ? t->host->headers : NULL;
	size_t n = 0;

	while (more && more[n])
		n++;
	t->headers = calloc(n + 2, sizeof(*t->headers));
	if (!t->headers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		t->headers[i] = more[i];
	t->headers[n] = t->basic;
	return 0;
}

/* A GET with name and password, or a POST of an identity token. */
static int form_request(struct token *t)
{
	struct buf b = { 0 };
	char *basic;
	int r;

	if (t->cred.user && t->cred.identity)
		return auth_token_form(&t->ch, t->scope, &t->cred, &t->form);
	r = auth_token_url(&t->ch, t->scope, &t->url);
	if (r < 0 || !t->cred.user)
		return r;
	r = auth_basic(&t->cred, &basic);
	if (r < 0)
		return r;
	(void)buf_addf(&b, "Authorization: %s", basic);
	secret_free(basic);
	if (b.failed)
		return -ENOMEM;
	t->basic = (char *)b.p;
	return 0;
}

static void ask_server(struct token *t)
{
	static const char bad[] = "the registry names no usable token server";
	static const char unsafe[] =
		"credentials are not sent to the token server it names";
	int r = url_parse(NULL, t->ch.realm, &t->server);

	if (r < 0 || (t->at.https && !t->server.https)) {
		fail(t, ERR_DENIED, bad);
		return;
	}
	if (t->cred.user && !may_send_cred(t)) {
		fail(t, ERR_DENIED, unsafe);
		return;
	}
	if (form_request(t) < 0 || make_headers(t) < 0) {
		fail(t, ERR_INTERNAL, "out of memory");
		return;
	}
	memset(&t->http, 0, sizeof(t->http));
	t->http.url = t->form ? t->server.text : t->url;
	t->http.method = t->form ? HTTP_POST : HTTP_GET;
	t->http.body = t->form;
	t->http.headers = t->headers;
	t->http.range_off = HTTP_NO_RANGE;
	t->http.ca_file = t->reg->ca_file;
	t->http.ca_pem = t->host->ca_pem;
	t->http.client_cert = t->host->client_cert;
	t->http.client_key = t->host->client_key;
	t->http.skip_verify = t->host->skip_verify;
	t->http.connect_timeout_ms = t->host->dial_ms;
	t->http.deadline_ms = TOKEN_DEADLINE_MS;
	t->http.urgent = true;
	t->http.on_data = token_data;
	t->http.done = token_done;
	t->http.ctx = t;
	atomic_fetch_add(&t->reg->n_token_requests, 1);
	metrics_add(METRIC_TOKEN_REQUESTS, 0, 1);
	fetch_start(t->reg->fetcher, &t->http);
}

/* Names the file that was looked at, and what puts it right. */
static void fail_without_cred(struct token *t)
{
	char path[PATH_MAX], msg[300];

	if (t->note.kind != ERR_NONE) {
		fail(t, ERR_DENIED, "wants a user and password");
		return;
	}
	auth_config_name(t->reg->docker_config, path, sizeof(path));
	(void)snprintf(msg, sizeof(msg),
		       "wants a user and password, '%.100s' has none for it: "
		       "docker login %.80s",
		       path, t->host->name);
	fail(t, ERR_DENIED, msg);
}

/* Back on the network thread, with or without credentials. */
static void have_cred(struct fetch_task *task, bool stopping)
{
	struct token *t = container_of(task, struct token, back);
	owned(secret) char *basic = NULL;

	if (stopping) {
		fail(t, ERR_CANCELLED, "stopping");
	} else if (t->ch.scheme == AUTH_BEARER) {
		ask_server(t);
	} else if (!t->cred.user) {
		fail_without_cred(t);
	} else if (t->cred.identity) {
		fail(t, ERR_DENIED,
		     "wants a password, and there is an identity token only");
	} else if (auth_basic(&t->cred, &basic) < 0) {
		fail(t, ERR_INTERNAL, "out of memory");
	} else {
		/* Good until it is refused: then the file is read again. */
		succeed(t, "", basic, UINT64_MAX);
	}
}

/* Job thread. */
static void load_cred(struct job *job)
{
	struct token *t = container_of(job, struct token, job);

	memset(&t->note, 0, sizeof(t->note));
	if (auth_load(t->reg->docker_config, t->host->name, t->repo, &t->cred,
		      &t->note) < 0)
		log_limited(LOG_LEVEL_WARN, t->host->name,
			    "no credentials: registry=%s reason='%s'",
			    t->host->name, t->note.msg);
	/* Refused: the network thread has ended, and with it all who wait. */
	(void)!fetch_task_add(t->reg->fetcher, &t->back, 0);
}

static int start_fetch(struct token *t, const struct place *p,
		       struct net_waiter *w, struct err *e)
{
	if (set_place(t, p) < 0)
		return err_set(e, ERR_INTERNAL, "out of memory");
	t->job.run = load_cred;
	list_init(&t->job.node);
	t->back.run = have_cred;
	t->busy = true;
	if (pool_add(t->reg->jobs, &t->job) < 0) {
		t->busy = false;
		return err_set(e, ERR_CANCELLED, "stopping");
	}
	list_push(&t->waiters, &w->node);
	return 0;
}

int token_get(struct registry *r, const struct place *p, struct grant *ret,
	      struct net_waiter *w, struct err *e)
{
	owned(mem) char *key = NULL;
	struct token *t;

	grant_release(ret);
	if (make_key(p, &key) < 0) {
		key = NULL;
		return err_set(e, ERR_INTERNAL, "out of memory");
	}
	t = find(r, key);
	if (!t)
		return 1;
	if (t->busy) {
		list_push(&t->waiters, &w->node);
		return 0;
	}
	if (t->header && now_ms() < t->good_until_ms) {
		ret->header = strdup(t->header);
		if (!ret->header)
			return err_set(e, ERR_INTERNAL, "out of memory");
		ret->generation = t->generation;
		return 1;
	}
	/* What it will ask for is known: no need to be refused first. */
	if (t->ch.scheme != AUTH_NONE)
		return start_fetch(t, p, w, e);
	return 1;
}

int token_refused(struct registry *r, const struct place *p,
		  const struct grant *used, const char *challenge,
		  struct net_waiter *w, struct err *e)
{
	struct token *t = NULL;
	struct err why = ERR_INIT;
	char *key;

	if (make_key(p, &key) == 0) {
		t = find(r, key);
		if (t)
			free(key);
		else
			t = add(r, p, key);
	}
	if (!t)
		return err_set(e, ERR_INTERNAL, "out of memory");
	if (t->busy) {
		list_push(&t->waiters, &w->node);
		return 0;
	}
	if (t->header && t->generation != used->generation &&
	    now_ms() < t->good_until_ms)
		return 1;
	secret_free(take_ptr(&t->header));
	if (!challenge)
		return err_set(e, ERR_DENIED,
			       "401 without saying what it wants");
	if (auth_challenge_parse(challenge, &t->ch, &why) < 0)
		return err_set(e, ERR_DENIED, "401: %.150s", why.msg);
	return start_fetch(t, p, w, e);
}
