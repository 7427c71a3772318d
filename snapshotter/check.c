/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the registry of an image whether it answers, for verityctl doctor: with
 * the hosts, credentials and proxies that a layer would be fetched with, which
 * only the daemon has.
 */
#include <string.h>

#include "base/io.h"
#include "snapshotter/decide.h"
#include "snapshotter/layer.h"
#include "snapshotter/lazy.h"
#include "snapshotter/registry.h"
#include "snapshotter/snapshotter_priv.h"

#define DEADLINE_MS 10000

static int parse(const char *image, struct image_ref *ret, struct err *e)
{
	const char *digest = strchr(image, '@');

	if (image_ref_parse(image, ret, e) < 0)
		return -1;
	/* A digest stands where a tag does: it is longer, and fits all the
	 * same. */
	if (digest)
		(void)snprintf(ret->tag, sizeof(ret->tag), "%s", digest + 1);
	else if (!ret->tag[0])
		(void)snprintf(ret->tag, sizeof(ret->tag), "latest");
	return 0;
}

static void ask(struct host_job *j)
{
	struct registry_question *q =
		container_of(j, struct registry_question, job);
	uint64_t began = now_ms();
	struct image_ref ref;

	q->by[0] = '\0';
	if (parse(q->image, &ref, &q->e) == 0 &&
	    registry_check(q->registry, &ref, DEADLINE_MS, q->by, sizeof(q->by),
			   &q->e) == 0)
		q->e.kind = ERR_NONE;
	q->ms = (unsigned)(now_ms() - began);
	q->done(q);
}

int snapshotter_ask_registry(struct snapshotter *s, struct registry_question *q,
			     struct err *e)
{
	const struct decide_env *env = lazy_decide_env(s->lazy);
	struct image_ref ref;
	int r;

	if (parse(q->image, &ref, e) < 0)
		return -1;
	(void)snprintf(q->host, sizeof(q->host), "%s", ref.host);
	q->registry = env->registry;
	q->job.run = ask;
	r = layers_add_job(env->layers, ref.host, &q->job);
	return r < 0 ? err_sys(e, r, "ask a registry") : 0;
}
