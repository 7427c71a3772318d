/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the hosts of each registry, and how fresh it is; see
 * registry_priv.h. A thread of their own looks at the files: a credential
 * helper that hangs is no reason to wait for hosts.toml.
 *
 * A job has the fields of its entry to itself while the entry is busy.
 */
#include <string.h>

#include "base/htab.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/registry_priv.h"

#define FRESH_MS 1000
#define KNOWN_MAX 512

struct known_hosts {
	UT_hash_handle hh;
	struct registry *reg;
	char name[sizeof(((struct image_ref *)0)->host)];
	struct host_list *list; /* a reference; NULL before the first look */
	uint64_t looked_ms;
	struct list waiters;

	bool busy; /* the rest belongs to a look under way */
	struct job job;
	struct fetch_task back;
	struct host_list *fresh; /* NULL: nothing has changed, or failed */
	struct err err;
};

void net_wake(struct list *waiters, const struct err *e)
{
	struct list woken;

	/* A waiter may come back with another question: not in this round. */
	list_init(&woken);
	list_splice(&woken, waiters);
	while (!list_empty(&woken)) {
		struct net_waiter *w =
			list_first(&woken, struct net_waiter, node);

		list_remove(&w->node);
		w->ready(w, e);
	}
}

static void known_free(struct known_hosts *k)
{
	hosts_unref(k->list);
	hosts_unref(k->fresh);
	free(k);
}

void known_hosts_free(struct registry *r)
{
	struct known_hosts *k, *tmp;

	htab_each (r->hosts, k, tmp) {
		HASH_DEL(r->hosts, k);
		known_free(k);
	}
}

/* Whoever pulls from more registries than this looks at files more often. */
static void purge(struct registry *r)
{
	struct known_hosts *k, *tmp;

	if (HASH_COUNT(r->hosts) < KNOWN_MAX)
		return;
	htab_each (r->hosts, k, tmp) {
		if (k->busy)
			continue;
		lock_take(&r->lock);
		HASH_DEL(r->hosts, k);
		lock_drop(&r->lock);
		known_free(k);
	}
}

bool hosts_all_fail_locked(const struct registry *r, const char *name)
{
	const struct known_hosts *k;

	HASH_FIND_STR(r->hosts, name, k);
	if (!k || !k->list)
		return false;
	for (size_t i = 0; i < k->list->n; i++)
		if (k->list->v[i].health.n_failed == 0)
			return false;
	return k->list->n > 0;
}

static struct known_hosts *find_or_add(struct registry *r, const char *name)
{
	struct known_hosts *k;
	bool added;

	HASH_FIND_STR(r->hosts, name, k);
	if (k)
		return k;
	purge(r);
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->reg = r;
	(void)snprintf(k->name, sizeof(k->name), "%s", name);
	list_init(&k->waiters);
	list_init(&k->back.node);
	lock_take(&r->lock);
	HASH_ADD_STR(r->hosts, name, k);
	added = HTAB_ADDED(k);
	lock_drop(&r->lock);
	if (!added) {
		free(k);
		return NULL;
	}
	return k;
}

/* Job thread. */
static void look(struct job *job)
{
	struct known_hosts *k = container_of(job, struct known_hosts, job);

	k->fresh = NULL;
	memset(&k->err, 0, sizeof(k->err));
	if (!k->list || hosts_stale(k->list))
		(void)!hosts_load(k->reg->hosts_dirs, k->name, &k->fresh,
				  &k->err);
	/* Refused: the network thread has ended, and with it all who wait. */
	(void)!fetch_task_add(k->reg->fetcher, &k->back, 0);
}

static void tell(const struct known_hosts *k)
{
	const struct host_list *l = k->list;

	if (l->error)
		log_warn("registry not usable: registry=%s reason='%s'",
			 k->name, l->error);
	else if (l->file)
		log_info(
			"hosts of a registry: registry=%s file='%s' first='%s' count=%zu",
			k->name, l->file, l->v[0].base, l->n);
}

static void have_looked(struct fetch_task *t, bool stopping)
{
	struct known_hosts *k = container_of(t, struct known_hosts, back);
	struct host_list *old = NULL;
	struct err e = k->err;

	k->busy = false;
	k->looked_ms = now_ms();
	if (k->fresh) {
		old = k->list;
		lock_take(&k->reg->lock);
		k->list = take_ptr(&k->fresh);
		lock_drop(&k->reg->lock);
		tell(k);
	} else if (k->list) {
		memset(&e, 0, sizeof(e)); /* the old list is better than none */
	}
	hosts_unref(old);
	if (stopping)
		(void)err_set(&e, ERR_CANCELLED, "stopping");
	net_wake(&k->waiters, &e);
}

int hosts_get(struct registry *r, const char *name, struct host_list **ret,
	      struct net_waiter *w, struct err *e)
{
	struct known_hosts *k = find_or_add(r, name);

	if (!k)
		return err_set(e, ERR_INTERNAL, "out of memory");
	if (k->busy) {
		list_push(&k->waiters, &w->node);
		return 0;
	}
	if (k->list && now_ms() < k->looked_ms + FRESH_MS) {
		*ret = k->list;
		return 1;
	}
	k->job.run = look;
	list_init(&k->job.node);
	k->back.run = have_looked;
	k->busy = true;
	if (pool_add(r->files, &k->job) < 0) {
		k->busy = false;
		return err_set(e, ERR_CANCELLED, "stopping");
	}
	list_push(&k->waiters, &w->node);
	return 0;
}

/* ---- status ---- */

static void host_json(const struct host *h, uint64_t now, struct buf *out)
{
	const struct host_health *hh = &h->health;
	bool bad = hh->n_failed > 0;

	(void)buf_adds(out, "{\"url\":");
	(void)buf_add_json(out, h->base);
	(void)buf_addf(out, ",\"mirror\":%s,\"state\":\"%s\",\"reason\":",
		       h->is_mirror ? "true" : "false", bad ? "bad" : "ok");
	(void)buf_add_json(out, bad ? hh->why : "");
	(void)buf_addf(
		out, ",\"failures\":%u,\"wrong_bytes\":%u,\"left_s\":%llu}",
		hh->n_failed, hh->n_wrong,
		bad && hh->bad_until_ms > now
			? (unsigned long long)(hh->bad_until_ms - now + 999) /
				  1000
			: 0ull);
}

static void known_json(const struct known_hosts *k, struct buf *out)
{
	const struct host_list *l = k->list;
	uint64_t now = now_ms();

	(void)buf_adds(out, "{\"registry\":");
	(void)buf_add_json(out, k->name);
	(void)buf_adds(out, ",\"config\":");
	(void)buf_add_json(out, l->file ? l->file : "");
	(void)buf_adds(out, ",\"error\":");
	(void)buf_add_json(out, l->error ? l->error : "");
	(void)buf_adds(out, ",\"hosts\":[");
	for (size_t i = 0; i < l->n; i++) {
		if (i)
			(void)buf_adds(out, ",");
		host_json(&l->v[i], now, out);
	}
	(void)buf_adds(out, "]}");
}

int registry_status_json(struct registry *r, struct buf *out)
{
	struct known_hosts *k, *tmp;
	bool first = true;

	(void)buf_adds(out, "[");
	lock_take(&r->lock);
	htab_each (r->hosts, k, tmp) {
		if (!k->list)
			continue;
		if (!first)
			(void)buf_adds(out, ",");
		known_json(k, out);
		first = false;
	}
	lock_drop(&r->lock);
	(void)buf_adds(out, "]");
	return out->failed ? -ENOMEM : 0;
}
