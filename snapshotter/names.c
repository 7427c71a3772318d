/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that knows image names; see names.h. It asks containerd for all of
 * them when it connects, and afterwards for those that events name; it asks the
 * store when rows of lazy layers have changed. Only results leave it.
 *
 * Three clocks: a moment after an event, so that what belongs together is
 * published together; a retry for what was not to be had; and a full look now
 * and then, so that a lost event is no lasting error. containerd does not say
 * when it begins to tell events, so the first full look has a second soon.
 */
#include "snapshotter/names.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "snapshotter/names_priv.h"

#define CONNECT_EVERY_MS 500
#define GATHER_MS 4
#define SECOND_LOOK_MS 500
#define FULL_LOOK_MS 30000
#define RETRY_MIN_MS 250
#define RETRY_MAX_MS 15000

/* ---- results ---- */

static void read_chains(struct names *n)
{
	struct lazy_chain *chains;
	struct names_entry *en, *tmp;
	struct err e = ERR_INIT;
	size_t n_chains;

	if (store_lazy_chains(n->store, &chains, &n_chains, &e) < 0) {
		log_limited(LOG_LEVEL_WARN, NULL,
			    "lazy layers not read for names: err='%s'", e.msg);
		return;
	}
	free(n->chains);
	n->chains = chains;
	n->n_chains = n_chains;
	htab_each (n->entries, en, tmp)
		en->dirty = true;
}

static void entry_show(struct names *n, struct names_entry *en, const char *ns)
{
	const struct names_facts f = { .ns = ns,
				       .name = names_entry_name(en),
				       .target = en->has_target ? &en->target
								: NULL,
				       .content = en->content,
				       .chains = n->chains,
				       .n_chains = n->n_chains };
	struct names_image *im = names_image_new(&f);

	if (!im)
		return; /* stays as it was, and dirty */
	en->dirty = false;
	if (en->shown && names_image_equal(en->shown, im)) {
		names_image_unref(im);
		return;
	}
	names_image_unref(en->shown);
	en->shown = im;
	n->changed = true;
}

/* 0, or -1: containerd cannot be asked. All that could be done is done. */
static int look_at_dirty(struct names *n, struct err *e)
{
	struct names_entry *en, *tmp;
	bool incomplete = false;
	int r = 0;

	htab_each (n->entries, en, tmp) {
		owned(mem) char *ns = NULL;

		if (!en->dirty)
			continue;
		ns = strndup(en->key, strcspn(en->key, "/"));
		if (!ns)
			continue;
		if (r == 0 && n->ctd && en->content && !en->content->known)
			r = content_resolve(&n->contents, en->content, n->ctd,
					    ns, e);
		entry_show(n, en, ns);
		incomplete |= en->dirty || (en->content && !en->content->known);
	}
	if (!incomplete)
		return r;
	if (!n->next_retry) {
		n->next_retry = now_ms() + n->retry_ms;
		n->retry_ms = n->retry_ms < RETRY_MAX_MS / 2 ? n->retry_ms * 2
							     : RETRY_MAX_MS;
	}
	return r;
}

static int by_name(const void *a, const void *b)
{
	const struct names_image *x = *(const struct names_image *const *)a;
	const struct names_image *y = *(const struct names_image *const *)b;
	int r = strcmp(x->ns, y->ns);

	return r ? r : strcmp(x->name, y->name);
}

static void publish(struct names *n)
{
	const struct names_image **images;
	const struct names_set *old;
	struct names_set *set;
	struct names_entry *en, *tmp;
	size_t i = 0;

	if (!n->changed)
		return;
	set = names_set_new(HASH_COUNT(n->entries), &images);
	if (!set)
		return; /* with the next change, or the next look */
	htab_each (n->entries, en, tmp) {
		if (!en->shown)
			continue;
		names_image_ref(en->shown);
		images[i++] = en->shown;
	}
	set->n = i;
	if (i)
		qsort(images, i, sizeof(const struct names_image *), by_name);
	n->changed = false;
	lock_take(&n->lock);
	old = n->set;
	n->set = names_set_ref(set);
	lock_drop(&n->lock);
	names_set_unref(old);
	if (n->ops)
		n->ops->changed(n->ctx, set);
	names_set_unref(set);
}

/* ---- the thread ---- */

static void set_state(struct names *n, bool connected, const char *why)
{
	bool news;

	lock_take(&n->lock);
	news = n->connected != connected || strcmp(n->why, why) != 0;
	n->connected = connected;
	(void)snprintf(n->why, sizeof(n->why), "%s", why);
	lock_drop(&n->lock);
	if (!news)
		return;
	if (connected)
		log_info("containerd tells image names: address='%s'",
			 n->address);
	else
		log_info("containerd cannot be asked for image names: err='%s'",
			 why);
}

static void disconnect(struct names *n, const char *why)
{
	ctd_close(n->ctd);
	n->ctd = NULL;
	set_state(n, false, why);
}

/* Not connected: now and then containerd is looked for. -1: the end. */
static int wait_alone(struct names *n)
{
	struct pollfd pfd[] = { { .fd = n->stop_fd, .events = POLLIN },
				{ .fd = n->kick_fd, .events = POLLIN } };

	(void)poll(pfd, ARRAY_LEN(pfd), CONNECT_EVERY_MS);
	return pfd[0].revents ? -1 : 0;
}

static void take_kicks(struct names *n)
{
	eventfd_t count;

	if (eventfd_read(n->kick_fd, &count) < 0)
		return;
	read_chains(n);
	n->retry_ms = RETRY_MIN_MS;
}

static void try_connect(struct names *n)
{
	struct err e = ERR_INIT;

	if (ctd_open(n->address, n->stop_fd, &names_events, n, &n->ctd, &e) <
	    0) {
		set_state(n, false, e.msg);
		return;
	}
	names_drop_pending(n);
	n->look_at_all = true;
	n->next_look = now_ms() + SECOND_LOOK_MS;
	n->retry_ms = RETRY_MIN_MS;
}

/* What the clocks say; how long may be waited for something else. */
static unsigned take_clocks(struct names *n)
{
	uint64_t now = now_ms(), next;
	struct names_entry *en, *tmp;

	if (now >= n->next_look) {
		n->look_at_all = true;
		n->next_look = now + FULL_LOOK_MS;
	}
	if (n->next_retry && now >= n->next_retry) {
		n->next_retry = 0;
		htab_each (n->entries, en, tmp)
			en->dirty |= !en->shown ||
				     (en->content && !en->content->known);
		return 0;
	}
	if (n->look_at_all)
		return 0;
	next = n->next_look;
	if (n->next_retry && n->next_retry < next)
		next = n->next_retry;
	return (unsigned)(next - now);
}

static bool has_work(const struct names *n)
{
	return n->look_at_all || n->pending;
}

/* Connected: one wait, and what follows from it. -1: the connection ends. */
static int serve(struct names *n, struct err *e)
{
	unsigned wait_ms = take_clocks(n);
	uint64_t until;

	if (wait_ms && !has_work(n) &&
	    ctd_wait(n->ctd, n->kick_fd, wait_ms, e) < 0)
		return -1;
	/* What comes within a moment is published together. */
	until = now_ms() + GATHER_MS;
	while (n->pending && now_ms() < until)
		if (ctd_wait(n->ctd, -1, 1, e) < 0)
			return -1;
	if (n->pending)
		n->retry_ms = RETRY_MIN_MS;
	take_kicks(n);
	(void)take_clocks(n);
	if (n->look_at_all && names_look_at_everything(n, e) < 0)
		return -1;
	if (names_look_at_pending(n, e) < 0)
		return -1;
	return look_at_dirty(n, e);
}

static bool is_stopping(const struct names *n)
{
	struct pollfd pfd = { .fd = n->stop_fd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

static void *names_main(void *arg)
{
	struct names *n = arg;

	(void)pthread_setname_np(pthread_self(), "vs-names");
	read_chains(n);
	while (!is_stopping(n)) {
		struct err e = ERR_INIT;

		if (!n->ctd)
			try_connect(n);
		if (!n->ctd) {
			take_kicks(n);
			(void)look_at_dirty(n, &e); /* asks nobody */
			publish(n);
			if (wait_alone(n) < 0)
				break;
			continue;
		}
		if (serve(n, &e) < 0) {
			if (is_stopping(n))
				break;
			/* What was found before that is true all the same. */
			publish(n);
			disconnect(n, e.msg);
			(void)wait_alone(n);
			continue;
		}
		publish(n);
		set_state(n, true, "");
	}
	return NULL;
}

/* ---- life ---- */

static int start(struct names *n, struct err *e)
{
	sigset_t all, old;
	int r;

	n->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	n->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->stop_fd < 0 || n->kick_fd < 0)
		return err_sys(e, -errno, "image names");
	store_set_watch(n->store, n->kick_fd);
	/* Signals are for the loop thread only. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&n->thread, NULL, names_main, n);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		return err_sys(e, r, "image names");
	n->runs = true;
	return 0;
}

int names_open(const struct names_opts *o, struct names **ret, struct err *e)
{
	struct names *n = calloc(1, sizeof(*n));
	const struct names_image **images;

	if (!n)
		return err_sys(e, -ENOMEM, "image names");
	n->stop_fd = n->kick_fd = -1;
	n->store = o->store;
	n->ops = o->ops;
	n->ctx = o->ctx;
	n->retry_ms = RETRY_MIN_MS;
	lock_init(&n->lock, RANK_LEAF);
	image_platform_node(&n->contents.node);
	n->address = strdup(o->containerd);
	n->set = names_set_new(0, &images);
	(void)snprintf(n->why, sizeof(n->why), "not asked yet");
	if (!n->address || !n->set)
		(void)err_sys(e, -ENOMEM, "image names");
	else if (start(n, e) == 0) {
		*ret = n;
		return 0;
	}
	names_close(n);
	return -1;
}

void names_close(struct names *n)
{
	struct names_entry *en, *tmp;

	if (!n)
		return;
	if (n->runs) {
		(void)eventfd_write(n->stop_fd, 1);
		(void)pthread_join(n->thread, NULL);
	}
	if (n->kick_fd >= 0) {
		store_set_watch(n->store, -1);
		(void)close(n->kick_fd);
	}
	if (n->stop_fd >= 0)
		(void)close(n->stop_fd);
	ctd_close(n->ctd);
	names_drop_pending(n);
	htab_each (n->entries, en, tmp)
		names_entry_drop(n, en);
	names_set_unref(n->set);
	free(n->chains);
	free(n->address);
	lock_release(&n->lock);
	free(n);
}

/* ---- questions ---- */

const struct names_set *names_get(struct names *n)
{
	const struct names_set *set;

	lock_take(&n->lock);
	set = names_set_ref(n->set);
	lock_drop(&n->lock);
	return set;
}

static void add_member(struct buf *b, const char *name, const char *value)
{
	(void)buf_addf(b, "\"%s\":", name);
	(void)buf_add_json(b, value);
	(void)buf_adds(b, ",");
}

static void image_json(const struct names_image *im, struct buf *b)
{
	(void)buf_adds(b, "{");
	add_member(b, "namespace", im->ns);
	add_member(b, "name", im->name);
	add_member(b, "host", im->host);
	add_member(b, "repository", im->repository);
	add_member(b, "suffix", im->suffix);
	add_member(b, "digest",
		   digest_is_zero(&im->target) ? ""
					       : digest_str(&im->target).s);
	add_member(b, "manifest",
		   digest_is_zero(&im->manifest) ? ""
						 : digest_str(&im->manifest).s);
	(void)buf_addf(b, "\"lazy\":%s,\"n_layers\":%zu,\"layers\":[",
		       im->layers ? "true" : "false", im->n_layers);
	for (size_t i = 0; im->layers && i < im->n_layers; i++)
		(void)buf_addf(b, "%s%u", i ? "," : "", im->layers[i]);
	(void)buf_adds(b, "],\"reason\":");
	(void)buf_add_json(b, im->reason);
	(void)buf_adds(b, "}");
}

int names_json(struct names *n, struct buf *out)
{
	const struct names_set *set = names_get(n);
	bool connected;
	char why[sizeof(n->why)];

	lock_take(&n->lock);
	connected = n->connected;
	memcpy(why, n->why, sizeof(why));
	lock_drop(&n->lock);
	(void)buf_adds(out, "{\"containerd\":{");
	add_member(out, "address", n->address);
	(void)buf_addf(out, "\"connected\":%s,\"reason\":",
		       connected ? "true" : "false");
	(void)buf_add_json(out, why);
	(void)buf_adds(out, "},\"images\":[");
	for (size_t i = 0; i < set->n; i++) {
		(void)buf_adds(out, i ? "," : "");
		image_json(set->images[i], out);
	}
	(void)buf_adds(out, "]}\n");
	names_set_unref(set);
	return out->failed ? -ENOMEM : 0;
}
