/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: a thread pool whose results come back to the loop; see worker.h. */
#include "plugin/worker.h"

struct workers {
	struct loop *loop;
	struct pool *pool;
};

static void deliver(struct loop_post *p)
{
	struct work *w = container_of(p, struct work, post);

	w->done(w);
}

static void run_job(struct job *j)
{
	struct work *w = container_of(j, struct work, job);

	w->run(w);
	/* From here on the loop thread may reuse or free *w. */
	loop_post(w->workers->loop, &w->post);
}

int workers_new(struct loop *l, unsigned n_max, struct workers **ret)
{
	struct workers *ws = calloc(1, sizeof(*ws));
	int r;

	if (!ws)
		return -ENOMEM;
	ws->loop = l;
	r = pool_new("rpc", 1, n_max, &ws->pool);
	if (r < 0) {
		free(ws);
		return r;
	}
	*ret = ws;
	return 0;
}

void workers_free(struct workers *ws)
{
	if (!ws)
		return;
	pool_free(ws->pool);
	free(ws);
}

int work_submit(struct workers *ws, struct work *w)
{
	w->workers = ws;
	w->job.run = run_job;
	w->post.fn = deliver;
	return pool_add(ws->pool, &w->job);
}
