/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facade: each RPC in terms of store, folders and mounts. Rows are the
 * truth; folders follow them (created before, removed behind).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "snapshotter/filter.h"
#include "snapshotter/snapshotter_priv.h"
#include "snapshotter/usage.h"

#define LIST_PAGE 128 /* rows read under the store's lock at a time */

/* ---- opening ---- */

static int make_folders(struct snapshotter *s, struct err *e)
{
	/* Not for others: setuid files of images lie below. */
	static const char *const names[] = { "s", "layer", "body" };
	int r = mkdir_exact(s->rootfd, ".", 0700);

	if (r < 0)
		return err_sys(e, r, "state directory '%s'", s->root);
	/* Not even stat: a dead view may still be mounted there. */
	if (mkdirat(s->rootfd, "l", 0700) < 0 && errno != EEXIST)
		return err_sys(e, -errno, "folder '%s/l'", s->root);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		r = mkdir_exact(s->rootfd, names[i], 0700);
		if (r < 0)
			return err_sys(e, r, "folder '%s/%s'", s->root,
				       names[i]);
	}
	return 0;
}

static int open_root(struct snapshotter *s, const struct snapshotter_opts *o,
		     struct err *e)
{
	int r;

	if (!mounts_root_is_usable(o->root))
		return err_set(
			e, ERR_INVALID,
			"state directory '%s': must be absolute, without any of : , \\ \" (mount options cannot carry them)",
			o->root);
	r = mkdir_parents(o->root, 0700);
	if (r < 0)
		return err_sys(e, r, "state directory '%s'", o->root);
	r = mkdir_parents(o->run, 0711);
	if (r < 0)
		return err_sys(e, r, "run directory '%s'", o->run);
	s->root = realpath(o->root, NULL);
	if (!s->root)
		return err_sys(e, -errno, "state directory '%s'", o->root);
	s->rootfd = open_dir(AT_FDCWD, s->root);
	if (s->rootfd < 0)
		return err_sys(e, s->rootfd, "state directory '%s'", s->root);
	return 0;
}

static int open_lazy(struct snapshotter *s, const struct snapshotter_opts *o,
		     struct err *e)
{
	struct lazy_opts lo = { .o = o,
				.owner = s,
				.root = s->root,
				.rootfd = s->rootfd,
				.store = s->store,
				.trash = s->trash };

	if (lazy_open(&lo, &s->lazy, e) < 0)
		return -1;
	return 0;
}

static int open_all(struct snapshotter *s, const struct snapshotter_opts *o,
		    struct err *e)
{
	if (open_root(s, o, e) < 0)
		return -1;
	/* Before anything is changed: a second daemon gets no further. */
	if (store_open(s->root, &s->store, e) < 0 || make_folders(s, e) < 0 ||
	    trash_open(s->rootfd, &s->trash, e) < 0)
		return -1;
	if (trash_orphans(s->trash, s->store, e) < 0)
		return -1;
	return open_lazy(s, o, e);
}

int snapshotter_open(const struct snapshotter_opts *o, struct snapshotter **ret,
		     struct err *e)
{
	struct snapshotter *s = calloc(1, sizeof(*s));

	if (!s)
		return err_sys(e, -ENOMEM, "snapshotter");
	s->rootfd = -1;
	s->prepare_budget_s = o->prepare_budget_s;
	if (open_all(s, o, e) < 0) {
		snapshotter_close(s);
		return -1;
	}
	s->env = (struct mounts_env){ .root = s->root,
				      .index_off = mounts_probe_index_off() };
	*ret = s;
	return 0;
}

void snapshotter_close(struct snapshotter *s)
{
	if (!s)
		return;
	lazy_close(s->lazy);
	trash_close(s->trash);
	store_close(s->store);
	if (s->rootfd >= 0)
		(void)close(s->rootfd);
	free(s->root);
	free(s);
}

/* ---- Prepare and View ---- */

/*
 * containerd was told that we can take layers without their parents ("rebase",
 * an entry that our configuration must not have): the chain could not be put
 * together again, so better say it at once.
 */
static int refuse_rebase(const struct prepare_req *rq, struct err *e)
{
	if (*rq->parent || !labels_get(rq->labels, LABEL_PARENT_CHAIN_ID))
		return 0;
	return err_set(
		e, ERR_PRECONDITION,
		"layer without its parent: remove \"rebase\" from the capabilities of this plugin in containerd's configuration");
}

int snapshotter_prepare(struct snapshotter *s, const struct prepare_req *rq,
			void (*ready)(void *ctx), void *ctx,
			struct mount_list *ret, struct prepare_op **ret_op,
			struct err *e)
{
	int r;

	if (refuse_rebase(rq, e) < 0)
		return -1;
	r = decide_prepare(lazy_decide_env(s->lazy), rq, ready, ctx, ret_op, e);
	return r != 0 ? r : snapshotter_create(s, rq, ret, e);
}

void snapshotter_prepare_expire(struct prepare_op *op)
{
	decide_expire(op);
}

int snapshotter_prepare_finish(struct prepare_op *op, struct mount_list *ret,
			       struct err *e)
{
	struct snapshotter *s = decide_owner(op);
	const struct prepare_req *rq;
	int r = decide_finish(op, &rq, e);

	if (r == 0)
		r = snapshotter_create(s, rq, ret, e);
	decide_free(op);
	return r;
}

unsigned snapshotter_prepare_budget_ms(const struct snapshotter *s)
{
	return s->prepare_budget_s * 1000;
}

/* ---- the other calls ---- */

int snapshotter_mounts(struct snapshotter *s, const char *sn, const char *key,
		       struct mount_list *ret, struct err *e)
{
	owned(mem) struct snap_link *chain = NULL;
	size_t n = 0;

	lazy_refresh_broken(s->lazy);
	if (store_chain(s->store, sn, key, &chain, &n, e) < 0)
		return -1;
	if (mounts_make(&s->env, chain, n, ret, e) < 0)
		return err_wrap(e, "snapshot '%s'", key);
	return 0;
}

int snapshotter_commit(struct snapshotter *s, const char *sn, const char *name,
		       const char *key, const char *parent,
		       const struct labels *l, struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	uint64_t size = 0, inodes = 0;

	/* containerd holds its database's lock meanwhile, so the walk comes
	 * before our transaction and never waits for another one. */
	if (store_get(s->store, sn, key, &sp, e) < 0)
		return -1;
	if (sp.kind == SNAP_KIND_ACTIVE &&
	    usage_scan(s->rootfd, sp.id, &size, &inodes, e) < 0)
		return -1;
	return store_commit(s->store, sn, name, key, parent, l, size, inodes,
			    e);
}

int snapshotter_remove(struct snapshotter *s, const char *sn, const char *key,
		       struct err *e)
{
	owned(snap) struct snap sp = { 0 };
	char path[40];
	int r;

	if (store_remove(s->store, sn, key, &sp, e) < 0)
		return -1;
	if (sp.seq != NO_LAYER) {
		lazy_kick(s->lazy); /* no folder; perhaps an unused layer */
		return 0;
	}
	(void)snprintf(path, sizeof(path), "s/%" PRIu64, sp.id);
	r = trash_add(s->trash, path);
	if (r < 0) /* The row is gone: containerd must not hear of this. */
		log_warn("folder stays until the next start: path=%s err='%s'",
			 path, strerror(-r));
	return 0;
}

int snapshotter_stat(struct snapshotter *s, const char *sn, const char *key,
		     struct snap *ret, struct err *e)
{
	return store_get(s->store, sn, key, ret, e);
}

int snapshotter_update(struct snapshotter *s, const char *sn, const char *name,
		       const struct labels *l, const char *const *paths,
		       size_t n_paths, struct snap *ret, struct err *e)
{
	return store_update(s->store, sn, name, l, paths, n_paths, ret, e);
}

struct listing {
	const struct filters *filters;
	uint64_t last_id;
	unsigned n, max;
	int (*fn)(void *ctx, const struct snap *sp);
	void *ctx;
	bool stop;
};

static int list_one(void *ctx, const struct snap *sp)
{
	struct listing *l = ctx;

	l->last_id = sp->id;
	if (!filters_match(l->filters, sp))
		return 0;
	l->n++;
	l->stop = l->fn(l->ctx, sp) || l->n == l->max;
	return l->stop;
}

int snapshotter_list(struct snapshotter *s, const char *sn,
		     const char *const *filters, size_t n_filters,
		     uint64_t *cursor, unsigned max,
		     int (*fn)(void *ctx, const struct snap *sp), void *ctx,
		     struct err *e)
{
	owned(filters) struct filters *f = NULL;
	struct listing l = {
		.last_id = *cursor, .max = max, .fn = fn, .ctx = ctx
	};
	int r = 1;

	if (filters_parse(filters, n_filters, &f, e) < 0)
		return -1;
	l.filters = f;
	while (r > 0 && !l.stop) {
		r = store_list(s->store, sn, filters_ref(f), l.last_id,
			       LIST_PAGE, list_one, &l, e);
		if (r < 0)
			return -1;
	}
	*cursor = l.last_id;
	return (int)l.n;
}

int snapshotter_usage(struct snapshotter *s, const char *sn, const char *key,
		      uint64_t *ret_size, uint64_t *ret_inodes, struct err *e)
{
	owned(snap) struct snap sp = { 0 };

	if (store_get(s->store, sn, key, &sp, e) < 0)
		return -1;
	return usage_of(s->rootfd, &sp, ret_size, ret_inodes, e);
}

int snapshotter_cleanup(struct snapshotter *s, const char *sn, struct err *e)
{
	(void)sn;
	(void)e;
	trash_kick(s->trash);
	lazy_kick(s->lazy);
	return 0;
}

/* ---- scrub ---- */

/* The number at @p; what follows it, or NULL. */
static const char *parse_seq(const char *p, uint32_t *ret)
{
	unsigned long long v;
	char *end;

	if (*p < '0' || *p > '9')
		return NULL;
	errno = 0;
	v = strtoull(p, &end, 10);
	if (errno || v >= UINT32_MAX || (*end && *end != ' '))
		return NULL;
	*ret = (uint32_t)v;
	return end + strspn(end, " ");
}

int snapshotter_scrub(struct snapshotter *s, const char *what, uint64_t *ret,
		      struct err *e)
{
	const bool all = !strcmp(what, "all");
	const char *p = what;
	uint64_t ticket = 0;

	for (uint32_t seq; !all && (p == what || *p);) {
		p = parse_seq(p, &seq);
		if (!p)
			return err_set(
				e, ERR_INVALID,
				"scrub wants \"all\" or numbers of layers");
	}
	p = what;
	do {
		uint32_t seq = UINT32_MAX;

		if (!all)
			p = parse_seq(p, &seq);
		ticket = lazy_scrub(s->lazy, seq);
	} while (ticket && !all && *p);
	if (!ticket)
		return err_set(e, ERR_UNAVAILABLE,
			       "nothing can be scrubbed now (see the log)");
	*ret = ticket;
	return 0;
}

/* ---- status ---- */

uint64_t snapshotter_view_flags(const struct snapshotter *s)
{
	return lazy_view_flags(s->lazy);
}

int snapshotter_names_json(struct snapshotter *s, struct buf *out)
{
	return lazy_names_json(s->lazy, out);
}

int snapshotter_status_json(struct snapshotter *s, struct buf *out)
{
	struct err e = ERR_INIT;
	uint64_t n = 0;

	if (store_count(s->store, &n, &e) < 0) {
		log_warn("snapshots not counted: err='%s'", e.msg);
		return err_errno(&e);
	}
	(void)buf_addf(out, "\"snapshots\":%" PRIu64 ",", n);
	return lazy_status_json(s->lazy, out);
}
