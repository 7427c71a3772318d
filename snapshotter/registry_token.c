/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: one for each repository, kept until shortly before it expires, and
 * fetched once however many requests wait for it. Credentials are looked up by
 * the registry's name and go to the server that this registry names, and to
 * no other.
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
#include "snapshotter/auth.h"
#include "snapshotter/registry_priv.h"

#define TOKEN_DEADLINE_MS 15000
#define TOKEN_BODY_MAX (64 * 1024)
#define TOKENS_MAX 512

struct token {
	UT_hash_handle hh;
	struct registry *reg;
	char key[sizeof(((struct image_ref *)0)->host) +
		 sizeof(((struct image_ref *)0)->repo)];
	char host[sizeof(((struct image_ref *)0)->host)];
	char scope[300];
	bool plain; /* the registry is a loopback host without TLS */

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
	const char *headers[3];
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
	t->url = t->form = t->basic = NULL;
}

static void token_free(struct token *t)
{
	end_fetch(t);
	secret_free(t->header);
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

static struct token *find(struct registry *r, const struct source *s)
{
	char key[sizeof(r->tokens->key)];
	struct token *t;

	(void)snprintf(key, sizeof(key), "%s/%s", s->ref.host, s->ref.repo);
	HASH_FIND_STR(r->tokens, key, t);
	return t;
}

static struct token *find_or_add(struct registry *r, const struct source *s)
{
	struct token *t = find(r, s);

	if (t)
		return t;
	purge(r);
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->reg = r;
	(void)snprintf(t->key, sizeof(t->key), "%s/%s", s->ref.host,
		       s->ref.repo);
	(void)snprintf(t->host, sizeof(t->host), "%s", s->ref.host);
	(void)snprintf(t->scope, sizeof(t->scope), "repository:%s:pull",
		       s->ref.repo);
	t->plain = !s->url.https;
	list_init(&t->waiters);
	list_init(&t->back.node);
	HASH_ADD_STR(r->tokens, key, t);
	if (!HTAB_ADDED(t)) {
		free(t);
		return NULL;
	}
	return t;
}

static void wake_waiters(struct token *t, const struct err *e)
{
	struct list woken;

	t->busy = false;
	end_fetch(t);
	/* A waiter may come back with another question: not in this round. */
	list_init(&woken);
	list_splice(&woken, &t->waiters);
	while (!list_empty(&woken)) {
		struct token_waiter *w =
			list_first(&woken, struct token_waiter, node);

		list_remove(&w->node);
		w->ready(w, e);
	}
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

/* A GET with name and password, or a POST of an identity token. */
static int form_request(struct token *t)
{
	struct buf b = { 0 };
	char *basic;
	int r;

	t->headers[0] = t->headers[1] = NULL;
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
	t->headers[0] = t->basic;
	return 0;
}

static void ask_server(struct token *t)
{
	static const char bad[] = "the registry names no usable token server";
	int r = url_parse(NULL, t->ch.realm, &t->server);

	/* A password does not travel in the clear; on one machine it may. */
	if (r < 0 || (!t->server.https &&
		      !(t->plain && host_is_loopback(t->server.host)))) {
		fail(t, ERR_DENIED, bad);
		return;
	}
	if (form_request(t) < 0) {
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
	t->http.deadline_ms = TOKEN_DEADLINE_MS;
	t->http.urgent = true;
	t->http.on_data = token_data;
	t->http.done = token_done;
	t->http.ctx = t;
	atomic_fetch_add(&t->reg->n_token_requests, 1);
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
	if (auth_config_path(t->reg->docker_config, path, sizeof(path)) < 0)
		(void)snprintf(path, sizeof(path), "~/.docker/config.json");
	(void)snprintf(msg, sizeof(msg),
		       "wants a user and password, '%.100s' has none for it: "
		       "docker login %.80s",
		       path, t->host);
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
	if (auth_load(t->reg->docker_config, t->host, &t->cred, &t->note) < 0)
		log_limited(LOG_LEVEL_WARN, t->host,
			    "no credentials: registry=%s reason='%s'", t->host,
			    t->note.msg);
	/* Refused: the network thread has ended, and with it all who wait. */
	(void)!fetch_task_add(t->reg->fetcher, &t->back, 0);
}

static int start_fetch(struct token *t, struct token_waiter *w, struct err *e)
{
	t->job.run = load_cred;
	t->back.run = have_cred;
	t->busy = true;
	if (pool_add(t->reg->jobs, &t->job) < 0) {
		t->busy = false;
		return err_set(e, ERR_CANCELLED, "stopping");
	}
	list_push(&t->waiters, &w->node);
	return 0;
}

int token_get(struct registry *r, const struct source *s, struct grant *ret,
	      struct token_waiter *w, struct err *e)
{
	struct token *t = find(r, s);

	grant_release(ret);
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
		return start_fetch(t, w, e);
	return 1;
}

int token_refused(struct registry *r, const struct source *s,
		  const struct grant *used, const char *challenge,
		  struct token_waiter *w, struct err *e)
{
	struct token *t = find_or_add(r, s);
	struct err why = ERR_INIT;

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
	return start_fetch(t, w, e);
}

void token_wait_cancel(struct token_waiter *w)
{
	list_remove(&w->node);
}
