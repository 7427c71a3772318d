/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's end of the scrubber; see scrubber.h. */
#include "verity/scrubber_priv.h"

struct helper_caller *scrubber_new(void)
{
	struct helper_caller *c = NULL;

	return helper_caller_new(SCRUBBER_ROLE, SCRUBBER_MEMORY, &c) < 0 ? NULL
									 : c;
}

int scrubber_read(struct helper_caller *s, const struct scrub_job *job,
		  const atomic_bool *stop, struct scrub_result *ret)
{
	struct scrub_request rq = { .h.m.type = SCRUB_REQUEST,
				    .size = job->size,
				    .rate = job->rate,
				    .want = job->want };
	struct scrub_answer a;
	int r = helper_call(s, &rq.h, sizeof(rq), job->fd, stop, &a.h,
			    sizeof(a));

	if (r < 0)
		return r;
	*ret = (struct scrub_result){ .err = a.err > 0 ? -EPROTO : a.err,
				      .sealed = a.sealed,
				      .n_unreadable = a.n_unreadable,
				      .first_unreadable = a.first_unreadable,
				      .bytes = a.bytes };
	return 0;
}
