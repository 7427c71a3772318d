/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's end of the sealer; see sealer.h. */
#include "verity/sealer.h"

#include "base/lock.h"
#include "verity/sealer_priv.h"

struct sealer {
	struct helper *helper;
	struct lock lock; /* leaf; guards what follows */
	struct list jobs; /* submitted, not answered */
	uint64_t next_id;
};

static struct seal_job *take_job(struct sealer *s, uint64_t id)
{
	struct seal_job *found = NULL;
	struct list *p;

	lock_take(&s->lock);
	list_each (p, &s->jobs) {
		struct seal_job *j = list_entry(p, struct seal_job, node);

		if (j->id == id)
			found = j;
	}
	if (found)
		list_remove(&found->node);
	lock_drop(&s->lock);
	return found;
}

/* Answers to what was not asked, or not by this process, are nobody's. */
static void take_message(void *ctx, const struct helper_msg *m, size_t len)
{
	const struct sealer_answer *a = (const void *)m;
	struct seal_result res;
	struct seal_job *j;

	if (m->type != SEALER_ANSWER || len != sizeof(*a))
		return;
	j = take_job(ctx, a->id);
	if (!j)
		return;
	res = (struct seal_result){ .err = a->err > 0 ? -EPROTO : a->err,
				    .digest = a->digest,
				    .ms = a->ms,
				    .bytes_read = a->bytes_read };
	j->done(j, &res);
}

static void end_all(struct sealer *s, int err)
{
	const struct seal_result res = { .err = err };
	struct list jobs;

	list_init(&jobs);
	lock_take(&s->lock);
	list_splice(&jobs, &s->jobs);
	lock_drop(&s->lock);
	while (!list_empty(&jobs)) {
		struct seal_job *j = list_first(&jobs, struct seal_job, node);

		list_remove(&j->node);
		j->done(j, &res);
	}
}

static void lose_jobs(void *ctx)
{
	end_all(ctx, -EPIPE);
}

int sealer_new(uint64_t memory, struct sealer **ret)
{
	struct sealer *s = calloc(1, sizeof(*s));
	struct helper_opts o = { .role = SEALER_ROLE,
				 .memory = memory,
				 .message = take_message,
				 .lost = lose_jobs,
				 .ctx = s };
	int r;

	if (!s)
		return -ENOMEM;
	lock_init(&s->lock, RANK_LEAF);
	list_init(&s->jobs);
	r = helper_new(&o, &s->helper);
	if (r < 0) {
		lock_release(&s->lock);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void sealer_free(struct sealer *s)
{
	if (!s)
		return;
	helper_free(s->helper);
	end_all(s, -ECANCELED);
	lock_release(&s->lock);
	free(s);
}

int sealer_submit(struct sealer *s, struct seal_job *j, int fd)
{
	struct sealer_request rq = { .m = { HELPER_VERSION, SEALER_REQUEST },
				     .size = j->size,
				     .cached = j->cached };
	int r;

	list_init(&j->node);
	lock_take(&s->lock);
	j->id = rq.id = ++s->next_id;
	list_push(&s->jobs, &j->node);
	lock_drop(&s->lock);
	r = helper_send(s->helper, &rq.m, sizeof(rq), fd);
	/* Not sent, and yet lost with the process: done() was called. */
	if (r < 0 && !take_job(s, rq.id))
		r = 0;
	return r;
}

void sealer_get_status(struct sealer *s, struct helper_status *ret)
{
	helper_get_status(s->helper, ret);
}
