/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshotter without disk and network, for tests of plugin/: it defines the
 * functions of snapshotter/snapshotter.h. To be included by one source file of
 * a program. What a call does is chosen by its key:
 *
 *	park		Prepare waits for expire() or fake_ready()
 *	park-NNN	... or NNN milliseconds
 *	park-at-once	... calls ready() before it returns
 *	block		Stat waits in its worker for fake_unblock()
 *	sleep-NNN	Stat takes so many milliseconds
 *	fail-N		fails with enum err_kind N
 *	anything else	Prepare keeps key and labels, Stat gives them back
 */
#ifndef TESTS_LIB_FAKE_SNAPSHOTTER_H
#define TESTS_LIB_FAKE_SNAPSHOTTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "snapshotter/snapshotter.h"

#define FAKE_ROWS_MAX 256

struct snapshotter {
	pthread_mutex_t lock; /* guards rows, parked, blocked */
	pthread_cond_t unblock;
	bool blocked;
	struct snap rows[FAKE_ROWS_MAX];
	size_t n_rows;
	struct prepare_op *parked; /* the last one */
	unsigned budget_ms;
	unsigned n_listed; /* rows of List, */
	const char *listed_value; /* and their label; NULL: short */
	const char *message; /* of fail-N */
	atomic_uint n_begun, n_finished, n_expired, n_stats;
};

struct prepare_op {
	struct snapshotter *s;
	void (*ready)(void *ctx);
	void *ctx;
	atomic_bool called;
	atomic_uint refs; /* finish(), and a thread that waits */
	unsigned delay_ms;
	char key[64];
};

static inline void fake_init(struct snapshotter *s)
{
	memset(s, 0, sizeof(*s));
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->unblock, NULL);
	s->blocked = true;
	s->budget_ms = 20000;
	s->message = "no such snapshot";
}

static inline void fake_release(struct snapshotter *s)
{
	for (size_t i = 0; i < s->n_rows; i++) {
		free(s->rows[i].name);
		labels_release(&s->rows[i].labels);
	}
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_cond_destroy(&s->unblock);
}

static inline void fake_unblock(struct snapshotter *s)
{
	(void)pthread_mutex_lock(&s->lock);
	s->blocked = false;
	(void)pthread_cond_broadcast(&s->unblock);
	(void)pthread_mutex_unlock(&s->lock);
}

static inline void fake_op_unref(struct prepare_op *op)
{
	if (atomic_fetch_sub(&op->refs, 1) == 1)
		free(op);
}

static inline void fake_op_ready(struct prepare_op *op)
{
	if (!atomic_exchange(&op->called, true))
		op->ready(op->ctx);
}

/* What a layer does when it has become ready. */
static inline void fake_ready(struct snapshotter *s)
{
	struct prepare_op *op;

	(void)pthread_mutex_lock(&s->lock);
	op = s->parked;
	(void)pthread_mutex_unlock(&s->lock);
	fake_op_ready(op);
}

static inline void fake_sleep(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static inline int fake_fail(struct snapshotter *s, const char *key,
			    struct err *e)
{
	if (strncmp(key, "fail-", 5) != 0)
		return 0;
	return err_set(e, (enum err_kind)strtoul(key + 5, NULL, 10), "%s",
		       s->message);
}

static void *fake_wait(void *arg)
{
	struct prepare_op *op = arg;

	fake_sleep(op->delay_ms);
	fake_op_ready(op);
	fake_op_unref(op);
	return NULL;
}

static inline int fake_mounts(const char *key, struct mount_list *ret)
{
	struct mount_entry *m = calloc(1, sizeof(*m));

	if (!m)
		return -1;
	m->type = strdup("bind");
	m->source = strdup(key);
	m->options = calloc(2, sizeof(char *));
	if (m->options) {
		m->options[0] = strdup("rw");
		m->options[1] = strdup("rbind");
		m->n_options = 2;
	}
	ret->v = m;
	ret->n = 1;
	return 0;
}

static inline int fake_keep(struct snapshotter *s, const char *key,
			    const struct labels *l)
{
	int r = -1;

	(void)pthread_mutex_lock(&s->lock);
	if (s->n_rows < FAKE_ROWS_MAX &&
	    labels_copy(l, &s->rows[s->n_rows].labels) == 0) {
		s->rows[s->n_rows++].name = strdup(key);
		r = 0;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int fake_park(struct snapshotter *s, const char *key,
			    void (*ready)(void *ctx), void *ctx,
			    struct prepare_op **ret_op)
{
	struct prepare_op *op = calloc(1, sizeof(*op));
	pthread_t t;

	if (!op)
		return -1;
	op->s = s;
	op->ready = ready;
	op->ctx = ctx;
	(void)snprintf(op->key, sizeof(op->key), "%s", key);
	atomic_store(&op->refs, 1);
	atomic_fetch_add(&s->n_begun, 1);
	(void)pthread_mutex_lock(&s->lock);
	s->parked = op;
	(void)pthread_mutex_unlock(&s->lock);
	*ret_op = op;
	if (strcmp(key, "park-at-once") == 0) {
		fake_op_ready(op);
	} else if (key[4] == '-') {
		op->delay_ms = (unsigned)strtoul(key + 5, NULL, 10);
		atomic_fetch_add(&op->refs, 1);
		if (pthread_create(&t, NULL, fake_wait, op) == 0)
			(void)pthread_detach(t);
	}
	return 1;
}

int snapshotter_prepare(struct snapshotter *s, const struct prepare_req *rq,
			void (*ready)(void *ctx), void *ctx,
			struct mount_list *ret, struct prepare_op **ret_op,
			struct err *e)
{
	if (fake_fail(s, rq->key, e) < 0)
		return -1;
	if (strncmp(rq->key, "park", 4) == 0)
		return fake_park(s, rq->key, ready, ctx, ret_op);
	if (fake_keep(s, rq->key, rq->labels) < 0)
		return err_set(e, ERR_NO_SPACE, "the fake is full");
	return fake_mounts(rq->key, ret);
}

void snapshotter_prepare_expire(struct prepare_op *op)
{
	atomic_fetch_add(&op->s->n_expired, 1);
	fake_op_ready(op);
}

int snapshotter_prepare_finish(struct prepare_op *op, struct mount_list *ret,
			       struct err *e)
{
	int r;

	(void)e;
	atomic_fetch_add(&op->s->n_finished, 1);
	r = fake_mounts(op->key, ret);
	fake_op_unref(op);
	return r;
}

unsigned snapshotter_prepare_budget_ms(const struct snapshotter *s)
{
	return s->budget_ms;
}

int snapshotter_mounts(struct snapshotter *s, const char *sn, const char *key,
		       struct mount_list *ret, struct err *e)
{
	(void)sn;
	if (fake_fail(s, key, e) < 0)
		return -1;
	return fake_mounts(key, ret);
}

/* Records what it was called with as a label of a row named @name. */
int snapshotter_commit(struct snapshotter *s, const char *sn, const char *name,
		       const char *key, const char *parent,
		       const struct labels *l, struct err *e)
{
	struct labels copy = { 0 };
	int r;

	(void)sn;
	if (fake_fail(s, key, e) < 0)
		return -1;
	r = labels_copy(l, &copy);
	if (r == 0)
		r = labels_set(&copy, "committed-key", key);
	if (r == 0)
		r = labels_set(&copy, "committed-parent",
			       parent ? parent : "(null)");
	if (r == 0)
		r = fake_keep(s, name, &copy);
	labels_release(&copy);
	return r;
}

int snapshotter_remove(struct snapshotter *s, const char *sn, const char *key,
		       struct err *e)
{
	(void)sn;
	return fake_fail(s, key, e);
}

static inline void fake_stat_slowly(struct snapshotter *s, const char *key)
{
	if (strcmp(key, "block") == 0) {
		(void)pthread_mutex_lock(&s->lock);
		while (s->blocked)
			(void)pthread_cond_wait(&s->unblock, &s->lock);
		(void)pthread_mutex_unlock(&s->lock);
	} else if (strncmp(key, "sleep-", 6) == 0) {
		fake_sleep((unsigned)strtoul(key + 6, NULL, 10));
	}
}

int snapshotter_stat(struct snapshotter *s, const char *sn, const char *key,
		     struct snap *ret, struct err *e)
{
	int r = 0;

	(void)sn;
	atomic_fetch_add(&s->n_stats, 1);
	fake_stat_slowly(s, key);
	if (fake_fail(s, key, e) < 0)
		return -1;
	ret->name = strdup(key);
	ret->parent = strdup("the parent");
	ret->kind = SNAP_KIND_COMMITTED;
	ret->created = (struct snap_time){ 1700000000, 123456789 };
	ret->updated = (struct snap_time){ -62135596800, 0 };
	(void)pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < s->n_rows; i++)
		if (strcmp(s->rows[i].name, key) == 0)
			r = labels_copy(&s->rows[i].labels, &ret->labels);
	(void)pthread_mutex_unlock(&s->lock);
	return r;
}

/* Gives back the labels, and the paths as labels "path 0", "path 1". */
int snapshotter_update(struct snapshotter *s, const char *sn, const char *name,
		       const struct labels *l, const char *const *paths,
		       size_t n_paths, struct snap *ret, struct err *e)
{
	int r;

	(void)sn;
	if (fake_fail(s, name, e) < 0)
		return -1;
	ret->name = strdup(name);
	ret->parent = strdup("");
	ret->kind = SNAP_KIND_ACTIVE;
	r = labels_copy(l, &ret->labels);
	for (size_t i = 0; i < n_paths && r == 0; i++) {
		char text[32];

		(void)snprintf(text, sizeof(text), "path %zu", i);
		r = labels_set(&ret->labels, text, paths[i]);
	}
	return r;
}

int snapshotter_list(struct snapshotter *s, const char *sn,
		     const char *const *filters, size_t n_filters,
		     uint64_t *cursor, unsigned max,
		     int (*fn)(void *ctx, const struct snap *sp), void *ctx,
		     struct err *e)
{
	bool breaks = n_filters && strcmp(filters[0], "late-failure") == 0;
	int n = 0;

	(void)sn;
	if (n_filters && fake_fail(s, filters[0], e) < 0)
		return -1;
	while (n < (int)max && *cursor < s->n_listed) {
		char name[64], no_parent[] = "", key[] = "a", value[] = "b";
		struct label label = { key, value };
		struct snap sp = { .name = name,
				   .parent = no_parent,
				   .kind = SNAP_KIND_COMMITTED,
				   .labels = { &label, 1 } };

		if (breaks && *cursor >= 150)
			return err_set(e, ERR_CORRUPT, "row 150 is bad");
		if (s->listed_value)
			label.value = (char *)(uintptr_t)s->listed_value;
		(void)snprintf(name, sizeof(name), "snapshot %06u",
			       (unsigned)(*cursor)++);
		n++;
		if (fn(ctx, &sp))
			break;
	}
	return n;
}

int snapshotter_usage(struct snapshotter *s, const char *sn, const char *key,
		      uint64_t *ret_size, uint64_t *ret_inodes, struct err *e)
{
	(void)sn;
	if (fake_fail(s, key, e) < 0)
		return -1;
	*ret_size = UINT64_MAX;
	*ret_inodes = 7;
	return 0;
}

int snapshotter_cleanup(struct snapshotter *s, const char *sn, struct err *e)
{
	return fake_fail(s, sn, e);
}

/* As the real ones; here so that a test needs neither store nor mounts. */
void mount_list_release(struct mount_list *m)
{
	for (size_t i = 0; i < m->n; i++) {
		for (size_t j = 0; j < m->v[i].n_options; j++)
			free(m->v[i].options[j]);
		free(m->v[i].options);
		free(m->v[i].type);
		free(m->v[i].source);
	}
	free(m->v);
	memset(m, 0, sizeof(*m));
}

void snap_release(struct snap *sp)
{
	free(sp->name);
	free(sp->parent);
	labels_release(&sp->labels);
	memset(sp, 0, sizeof(*sp));
}

#endif
