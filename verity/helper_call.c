/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that wait for their answer; see helper_call.h. */
#include "verity/helper_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/list.h"
#include "base/lock.h"

#define STOP_POLL_MS 100u

/* On the stack of who waits. */
struct asked {
	struct list node;
	uint64_t id;
	uint32_t type; /* of the answer */
	struct helper_head *ret;
	size_t len; /* of it */
	bool is_done;
	int err;
};

struct helper_caller {
	struct helper *helper;
	struct lock lock; /* leaf; guards what follows */
	struct cond answered;
	struct list open; /* asked, not answered */
	uint64_t next_id;
};

static struct asked *find_locked(struct helper_caller *c, uint64_t id)
{
	struct list *p;

	list_each (p, &c->open) {
		struct asked *a = list_entry(p, struct asked, node);

		if (a->id == id)
			return a;
	}
	return NULL;
}

static void finish_locked(struct helper_caller *c, struct asked *a, int err)
{
	list_remove(&a->node);
	a->is_done = true;
	a->err = err;
	cond_broadcast(&c->answered);
}

/* Answers to what was not asked, or not by this process, are nobody's. */
static void take_message(void *ctx, const struct helper_msg *m, size_t len)
{
	const struct helper_head *h = (const void *)m;
	struct helper_caller *c = ctx;
	struct asked *a;

	if (len < sizeof(*h))
		return;
	lock_take(&c->lock);
	a = find_locked(c, h->id);
	if (a && a->type == m->type) {
		if (len == a->len)
			memcpy(a->ret, m, len);
		finish_locked(c, a, len == a->len ? 0 : -EPROTO);
	}
	lock_drop(&c->lock);
}

static void lose_all(void *ctx)
{
	struct helper_caller *c = ctx;

	lock_take(&c->lock);
	while (!list_empty(&c->open))
		finish_locked(c, list_first(&c->open, struct asked, node),
			      -EPIPE);
	lock_drop(&c->lock);
}

int helper_caller_new(const char *role, uint64_t memory,
		      struct helper_caller **ret)
{
	struct helper_caller *c = calloc(1, sizeof(*c));
	struct helper_opts o = { .role = role,
				 .memory = memory,
				 .message = take_message,
				 .lost = lose_all,
				 .ctx = c };
	int r;

	if (!c)
		return -ENOMEM;
	r = cond_init(&c->answered);
	if (r < 0) {
		free(c);
		return r;
	}
	lock_init(&c->lock, RANK_LEAF);
	list_init(&c->open);
	r = helper_new(&o, &c->helper);
	if (r < 0) {
		helper_caller_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void helper_caller_free(struct helper_caller *c)
{
	if (!c)
		return;
	helper_free(c->helper);
	cond_release(&c->answered);
	lock_release(&c->lock);
	free(c);
}

int helper_call(struct helper_caller *c, struct helper_head *q, size_t len,
		int fd, const atomic_bool *stop, struct helper_head *ret,
		size_t ret_len)
{
	struct asked a = { .type = q->m.type + 1, .ret = ret, .len = ret_len };
	int r;

	list_init(&a.node);
	q->m.version = HELPER_VERSION;
	lock_take(&c->lock);
	a.id = q->id = ++c->next_id;
	list_push(&c->open, &a.node);
	lock_drop(&c->lock);
	/* Not sent, and yet lost with the process: the same answer. */
	r = helper_send(c->helper, &q->m, len, fd);
	lock_take(&c->lock);
	while (r == 0 && !a.is_done && !atomic_load(stop))
		(void)cond_wait_until(&c->answered, &c->lock,
				      now_ms() + STOP_POLL_MS);
	if (r == 0)
		r = a.is_done ? a.err : -ECANCELED;
	list_remove(&a.node);
	lock_drop(&c->lock);
	return r;
}

void helper_caller_get_status(struct helper_caller *c,
			      struct helper_status *ret)
{
	helper_get_status(c->helper, ret);
}
