/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network thread; see fetch.h. Requests, cancellations and tasks come in
 * through a locked queue; everything else belongs to the thread alone. What is
 * started in which order is decided here and not by curl, whose own queue knows
 * no urgency: a transfer is handed to curl only when it may connect.
 *
 * The wakeup is an eventfd of ours, so that the multi handle with its
 * connections and buffers can be thrown away when nothing happens for a while.
 * No callback is ever called from within curl, except on_header and on_data.
 */
#include "snapshotter/fetch.h"

#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/htab.h"
#include "base/io.h"
#include "base/lock.h"
#include "snapshotter/transfer.h"

#define MAX_PER_HOST 8
#define MAX_TOTAL 64
#define SILENCE_MS 10000
#define IDLE_MS 60000
#define STACK_BYTES (1024 * 1024)

enum req_state { REQ_QUEUED = 1, REQ_ADMITTED, REQ_DONE };

/* A host while something runs there or waits for it. */
struct host {
	UT_hash_handle hh;
	struct list urgent, ordinary;
	unsigned n_running;
	char key[280]; /* "https://host:port" */
};

struct fetcher {
	struct fetcher_opts opts;
	atomic_uint refs;
	pthread_t thread;
	int wakefd;

	struct lock lock; /* guards these, and node, state and cancelled of
			   * each request */
	struct list incoming, cancels;
	struct list tasks; /* by due_ms */
	bool stopping; /* fetcher_free() was called */
	bool closed; /* nobody looks at the queues any more */

	/* network thread only */
	CURLM *multi;
	CURLSH *share;
	struct host *hosts;
	struct list running;
	atomic_uint n_running, n_waiting; /* others may look */
	uint64_t next_check_ms; /* no deadline passes before */
	uint64_t idle_since_ms;
};

static __thread const struct fetcher *this_thread;

static void wake(struct fetcher *f)
{
	static const uint64_t one = 1;

	/* The thread itself looks at the queues before it sleeps. EAGAIN: it
	 * has been woken often enough. */
	if (this_thread != f)
		(void)!write(f->wakefd, &one, sizeof(one));
}

/* ---- what other threads call ---- */

void fetch_start(struct fetcher *f, struct http_req *r)
{
	static const struct http_response none = {
		.content_length = UINT64_MAX,
		.range_first = UINT64_MAX,
		.range_last = UINT64_MAX,
		.range_total = UINT64_MAX,
	};
	struct err e = ERR_INIT;
	bool closed;

	list_init(&r->node);
	r->transfer = NULL;
	r->cancelled = false;
	r->started_ms = now_ms();
	r->state = REQ_QUEUED;
	lock_take(&f->lock);
	closed = f->closed;
	if (!closed)
		list_push(&f->incoming, &r->node);
	lock_drop(&f->lock);
	if (!closed) {
		wake(f);
		return;
	}
	r->state = REQ_DONE;
	(void)err_set(&e, ERR_CANCELLED, "the network thread has ended");
	r->done(r, &none, &e);
}

void fetch_cancel(struct fetcher *f, struct http_req *r)
{
	bool news = false;

	lock_take(&f->lock);
	if ((r->state == REQ_QUEUED || r->state == REQ_ADMITTED) &&
	    !r->cancelled) {
		r->cancelled = true;
		if (r->state == REQ_ADMITTED)
			list_push(&f->cancels, &r->node);
		news = true;
	}
	lock_drop(&f->lock);
	if (news)
		wake(f);
}

int fetch_task_add(struct fetcher *f, struct fetch_task *t, unsigned delay_ms)
{
	uint64_t due = now_ms() + delay_ms;
	struct list *p;
	bool closed;

	lock_take(&f->lock);
	closed = f->closed;
	list_remove(&t->node);
	t->due_ms = due;
	if (!closed) {
		/* Most are due last: search from the end. */
		for (p = f->tasks.prev; p != &f->tasks; p = p->prev)
			if (list_entry(p, struct fetch_task, node)->due_ms <=
			    due)
				break;
		list_insert_(&t->node, p, p->next);
	}
	lock_drop(&f->lock);
	if (closed)
		return -ECANCELED;
	wake(f);
	return 0;
}

bool fetch_task_remove(struct fetcher *f, struct fetch_task *t)
{
	bool was;

	lock_take(&f->lock);
	was = !list_empty(&t->node);
	list_remove(&t->node);
	lock_drop(&f->lock);
	return was;
}

/* ---- the network thread ---- */

static void host_put(struct fetcher *f, struct host *h)
{
	if (h->n_running || !list_empty(&h->urgent) ||
	    !list_empty(&h->ordinary))
		return;
	HASH_DEL(f->hosts, h);
	free(h);
}

static struct host *host_get(struct fetcher *f, const struct url *u)
{
	char key[sizeof(f->hosts->key)];
	struct host *h;

	(void)snprintf(key, sizeof(key), "%s://%s:%u",
		       u->https ? "https" : "http", u->host, u->port);
	HASH_FIND_STR(f->hosts, key, h);
	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	memcpy(h->key, key, sizeof(key));
	list_init(&h->urgent);
	list_init(&h->ordinary);
	HASH_ADD_STR(f->hosts, key, h);
	if (!HTAB_ADDED(h)) {
		free(h);
		return NULL;
	}
	return h;
}

/* The request is over for us; it belongs to its owner when done() is called. */
static void report(struct fetcher *f, struct http_req *r,
		   const struct http_response *resp, const struct err *e)
{
	lock_take(&f->lock);
	r->state = REQ_DONE;
	list_remove(&r->node);
	lock_drop(&f->lock);
	lock_assert_none();
	r->done(r, resp, e);
}

static void finish(struct fetcher *f, struct transfer *t)
{
	struct host *h = t->host;

	list_remove(&t->node);
	if (t->easy) {
		if (f->multi)
			(void)curl_multi_remove_handle(f->multi, t->easy);
		h->n_running--;
		f->n_running--;
	} else {
		f->n_waiting--;
	}
	host_put(f, h);
	report(f, t->req, &t->resp, &t->err);
	transfer_free(t);
	f->idle_since_ms = now_ms();
}

static void admit(struct fetcher *f, struct http_req *r, bool refuse)
{
	struct http_response none = { 0 };
	struct err e = ERR_INIT;
	struct transfer *t;

	if (refuse) {
		(void)err_set(&e, ERR_CANCELLED, "cancelled");
		report(f, r, &none, &e);
		return;
	}
	if (transfer_new(r, &t, &e) < 0) {
		report(f, r, &none, &e);
		return;
	}
	t->host = host_get(f, &t->url);
	if (!t->host) {
		transfer_free(t);
		(void)err_set(&e, ERR_INTERNAL, "out of memory");
		report(f, r, &none, &e);
		return;
	}
	r->transfer = t;
	f->n_waiting++;
	list_push(r->urgent ? &t->host->urgent : &t->host->ordinary, &t->node);
	if (t->deadline_ms < f->next_check_ms)
		f->next_check_ms = t->deadline_ms;
}

/* One message out of the queues. false: there is none. */
static bool take_message(struct fetcher *f)
{
	struct fetch_task *task = NULL;
	struct http_req *r = NULL;
	bool stopping, cancelled = false, admitted = false;

	lock_take(&f->lock);
	stopping = f->stopping;
	if (!list_empty(&f->incoming)) {
		r = list_first(&f->incoming, struct http_req, node);
		cancelled = r->cancelled;
		r->state = REQ_ADMITTED;
	} else if (!list_empty(&f->cancels)) {
		r = list_first(&f->cancels, struct http_req, node);
		admitted = true;
	} else if (!list_empty(&f->tasks)) {
		task = list_first(&f->tasks, struct fetch_task, node);
		if (!stopping && task->due_ms > now_ms())
			task = NULL;
	}
	if (r)
		list_remove(&r->node);
	if (task)
		list_remove(&task->node);
	lock_drop(&f->lock);

	if (admitted) {
		(void)err_set(&r->transfer->err, ERR_CANCELLED, "cancelled");
		finish(f, r->transfer);
	} else if (r) {
		admit(f, r, cancelled || stopping);
	} else if (task) {
		task->run(task, stopping);
	}
	return r || task;
}

static CURLM *multi_get(struct fetcher *f)
{
	if (f->multi)
		return f->multi;
	f->multi = curl_multi_init();
	if (!f->multi)
		return NULL;
	(void)curl_multi_setopt(f->multi, CURLMOPT_PIPELINING,
				f->opts.http2 ? (long)CURLPIPE_MULTIPLEX
					      : (long)CURLPIPE_NOTHING);
	(void)curl_multi_setopt(f->multi, CURLMOPT_MAXCONNECTS,
				(long)f->opts.max_total);
	/* TLS sessions outlive their transfer; one thread, so no lock. */
	f->share = curl_share_init();
	if (f->share)
		(void)curl_share_setopt(f->share, CURLSHOPT_SHARE,
					CURL_LOCK_DATA_SSL_SESSION);
	return f->multi;
}

static void multi_drop(struct fetcher *f)
{
	if (!f->multi)
		return;
	(void)curl_multi_cleanup(f->multi);
	if (f->share)
		(void)curl_share_cleanup(f->share);
	f->multi = NULL;
	f->share = NULL;
	(void)malloc_trim(0);
}

/* Out of its queue and into curl's hands. */
static void start(struct fetcher *f, struct transfer *t)
{
	CURLM *m = multi_get(f);
	int r = transfer_prepare(t, f->share, f->opts.http2);

	list_remove(&t->node);
	list_push(&f->running, &t->node);
	f->next_check_ms = 0;
	if (t->easy) {
		f->n_waiting--;
		f->n_running++;
		t->host->n_running++;
	}
	if (r == 0 && (!m || curl_multi_add_handle(m, t->easy) != CURLM_OK))
		r = err_set(&t->err, ERR_INTERNAL, "out of memory");
	if (r < 0)
		finish(f, t);
}

static struct transfer *next_of(struct fetcher *f, struct host *h)
{
	unsigned per_host = f->opts.max_per_host, total = f->opts.max_total;

	if (h->n_running >= per_host || f->n_running >= total)
		return NULL;
	if (!list_empty(&h->urgent))
		return list_first(&h->urgent, struct transfer, node);
	if (list_empty(&h->ordinary) ||
	    h->n_running >= per_host - per_host / 4 ||
	    f->n_running >= total - total / 4)
		return NULL;
	return list_first(&h->ordinary, struct transfer, node);
}

static void schedule(struct fetcher *f)
{
	struct host *h, *tmp;
	struct transfer *t;
	bool more = f->n_waiting > 0;

	while (more) {
		more = false;
		htab_each (f->hosts, h, tmp) {
			t = next_of(f, h);
			if (!t)
				continue;
			start(f, t); /* may free h, never another one */
			more = true;
		}
	}
}

static void perform(struct fetcher *f)
{
	int n_running, n_left;
	CURLMsg *m;

	if (!f->multi || f->n_running == 0)
		return;
	(void)curl_multi_perform(f->multi, &n_running);
	while ((m = curl_multi_info_read(f->multi, &n_left))) {
		CURLcode code = m->data.result;
		struct transfer *t = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE,
					(char **)&t);
		transfer_set_result(t, code);
		finish(f, t);
	}
}

/* When @t has waited long enough; an error is set when that is now. */
static uint64_t check_deadline(struct fetcher *f, struct transfer *t,
			       uint64_t now)
{
	unsigned silence =
		t->req->silence_ms ? t->req->silence_ms : f->opts.silence_ms;
	uint64_t due = t->deadline_ms;

	if (t->req->impatient)
		silence /= 2;
	if (t->err.kind != ERR_NONE) /* cancel_all() */
		return due;
	if (now >= due) {
		(void)err_set(
			&t->err, ERR_UNAVAILABLE, "%s:%u: not done in %llu s",
			t->url.host, t->url.port,
			(unsigned long long)(due - t->req->started_ms) / 1000);
		return due;
	}
	if (!t->easy)
		return due;
	/* Curl has a timer for the time until it is connected. Then it may
	 * become silent at once. */
	if (!t->active_ms)
		return now + silence < due ? now + silence : due;
	if (now >= t->active_ms + silence) {
		(void)err_set(&t->err, ERR_UNAVAILABLE,
			      "%s:%u: silent for %u ms", t->url.host,
			      t->url.port, silence);
		t->resp.silent = true;
		return due;
	}
	if (t->active_ms + silence < due)
		due = t->active_ms + silence;
	return due;
}

static uint64_t check_list(struct fetcher *f, struct list *l, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct list *p, *n;

	/* finish() removes its own entry only; callbacks add, never remove. */
	list_each_safe (p, n, l) {
		struct transfer *t = list_entry(p, struct transfer, node);
		uint64_t due = check_deadline(f, t, now);

		if (t->err.kind != ERR_NONE)
			finish(f, t);
		else if (due < next)
			next = due;
	}
	return next;
}

static void check_deadlines(struct fetcher *f)
{
	uint64_t now = now_ms(), next, due;
	struct host *h, *tmp;

	if (now < f->next_check_ms)
		return;
	next = check_list(f, &f->running, now);
	htab_each (f->hosts, h, tmp) {
		/* Held, so that ending its last transfer does not free it. */
		h->n_running++;
		due = check_list(f, &h->urgent, now);
		next = due < next ? due : next;
		due = check_list(f, &h->ordinary, now);
		next = due < next ? due : next;
		h->n_running--;
		host_put(f, h);
	}
	f->next_check_ms = next;
}

static void cancel_all(struct fetcher *f)
{
	struct list *p, *n;
	struct host *h, *tmp;

	list_each_safe (p, n, &f->running)
		(void)err_set(&list_entry(p, struct transfer, node)->err,
			      ERR_CANCELLED, "stopping");
	htab_each (f->hosts, h, tmp) {
		list_each_safe (p, n, &h->urgent)
			(void)err_set(
				&list_entry(p, struct transfer, node)->err,
				ERR_CANCELLED, "stopping");
		list_each_safe (p, n, &h->ordinary)
			(void)err_set(
				&list_entry(p, struct transfer, node)->err,
				ERR_CANCELLED, "stopping");
	}
	f->next_check_ms = 0;
	check_deadlines(f);
}

/* false: the thread may end. */
static bool keep_going(struct fetcher *f)
{
	bool stopping, last = false;

	lock_take(&f->lock);
	stopping = f->stopping;
	lock_drop(&f->lock);
	if (!stopping)
		return true;
	cancel_all(f);
	lock_take(&f->lock);
	last = list_empty(&f->incoming) && list_empty(&f->cancels) &&
	       list_empty(&f->tasks) && !f->n_running && !f->n_waiting;
	f->closed = last;
	lock_drop(&f->lock);
	return !last;
}

/* How long nothing can happen by itself; 0: there are messages. */
static int sleep_ms(struct fetcher *f)
{
	uint64_t until = UINT64_MAX, now = now_ms();

	if (f->n_running || f->n_waiting)
		until = f->next_check_ms;
	else if (f->multi)
		until = f->idle_since_ms + f->opts.idle_ms;
	lock_take(&f->lock);
	if (!list_empty(&f->incoming) || !list_empty(&f->cancels) ||
	    f->stopping) {
		until = now;
	} else if (!list_empty(&f->tasks)) {
		uint64_t due =
			list_first(&f->tasks, struct fetch_task, node)->due_ms;

		until = due < until ? due : until;
	}
	lock_drop(&f->lock);
	if (until == UINT64_MAX)
		return -1;
	if (until <= now)
		return 0;
	return until - now < INT_MAX ? (int)(until - now) : INT_MAX;
}

static void wait_for_work(struct fetcher *f)
{
	int timeout = sleep_ms(f);
	bool woken = false;
	uint64_t junk;

	if (f->multi && f->n_running) {
		struct curl_waitfd w = { .fd = f->wakefd,
					 .events = CURL_WAIT_POLLIN };

		(void)curl_multi_poll(f->multi, &w, 1,
				      timeout < 0 ? 60000 : timeout, NULL);
		woken = w.revents & CURL_WAIT_POLLIN;
	} else {
		struct pollfd p = { .fd = f->wakefd, .events = POLLIN };

		woken = poll(&p, 1, timeout) > 0;
	}
	if (woken)
		(void)!read(f->wakefd, &junk, sizeof(junk));
	if (!f->n_running && !f->n_waiting &&
	    now_ms() >= f->idle_since_ms + f->opts.idle_ms)
		multi_drop(f);
}

static void *network_main(void *arg)
{
	struct fetcher *f = arg;

	this_thread = f;
	(void)pthread_setname_np(pthread_self(), "vs-network");
	while (keep_going(f)) {
		while (take_message(f))
			;
		schedule(f);
		perform(f);
		check_deadlines(f);
		schedule(f);
		wait_for_work(f);
	}
	multi_drop(f);
	return NULL;
}

/* ---- life ---- */

static void init_curl(void)
{
	(void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int spawn(struct fetcher *f)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&f->thread, &attr, network_main, f);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return -r;
}

int fetcher_new(const struct fetcher_opts *o, struct fetcher **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fetcher *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	(void)pthread_once(&once, init_curl);
	f->opts = *o;
	if (!f->opts.max_per_host)
		f->opts.max_per_host = MAX_PER_HOST;
	if (!f->opts.max_total)
		f->opts.max_total = MAX_TOTAL;
	if (!f->opts.silence_ms)
		f->opts.silence_ms = SILENCE_MS;
	if (!f->opts.idle_ms)
		f->opts.idle_ms = IDLE_MS;
	atomic_init(&f->refs, 1);
	lock_init(&f->lock, RANK_POOL);
	list_init(&f->incoming);
	list_init(&f->cancels);
	list_init(&f->tasks);
	list_init(&f->running);
	f->next_check_ms = UINT64_MAX;
	f->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (f->wakefd < 0) {
		r = -errno;
		goto fail;
	}
	r = spawn(f);
	if (r < 0)
		goto fail;
	*ret = f;
	return 0;
fail:
	f->closed = true;
	fetcher_unref(f);
	return r;
}

void fetcher_stats(struct fetcher *f, struct fetcher_stats *ret)
{
	*ret = (struct fetcher_stats){
		.n_running = atomic_load(&f->n_running),
		.n_queued = atomic_load(&f->n_waiting),
		.max_total = f->opts.max_total,
		.max_per_host = f->opts.max_per_host,
	};
}

struct fetcher *fetcher_ref(struct fetcher *f)
{
	atomic_fetch_add(&f->refs, 1);
	return f;
}

void fetcher_unref(struct fetcher *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) != 1)
		return;
	if (f->wakefd >= 0)
		(void)close(f->wakefd);
	lock_release(&f->lock);
	free(f);
}

void fetcher_free(struct fetcher *f)
{
	if (!f)
		return;
	lock_take(&f->lock);
	f->stopping = true;
	lock_drop(&f->lock);
	wake(f);
	(void)pthread_join(f->thread, NULL);
	fetcher_unref(f);
}
