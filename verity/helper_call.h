/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a helper process (verity/helper.h), each asked by a thread that
 * waits for its answer. Any number at a time.
 */
#ifndef VERITY_HELPER_CALL_H
#define VERITY_HELPER_CALL_H

#include <stdatomic.h>

#include "verity/helper.h"

/* How questions and answers begin. An answer has the number of its question,
 * and the type that comes next to the question's. */
struct helper_head {
	struct helper_msg m;
	uint64_t id; /* of helper_call() */
};

struct helper_caller;

/* Starts the helper; see helper_new(). */
int helper_caller_new(const char *role, uint64_t memory,
		      struct helper_caller **ret) must_check;
void helper_caller_free(struct helper_caller *c); /* nobody is waiting */

/*
 * helper_call() - ask, and wait
 *
 * @q: version and type are filled in; @fd: goes along, borrowed; -1: none
 * @stop: looked at every 0.1 s
 * @ret: on success the answer, of exactly @ret_len bytes
 * 0; -EPIPE: there is no helper, or it died; -ECANCELED: *@stop; -EPROTO: an
 * answer of another length; -errno.
 */
int helper_call(struct helper_caller *c, struct helper_head *q, size_t len,
		int fd, const atomic_bool *stop, struct helper_head *ret,
		size_t ret_len) must_check;

void helper_caller_get_status(struct helper_caller *c,
			      struct helper_status *ret);

DEFINE_OWNED(helper_caller, struct helper_caller *, helper_caller_free)

#endif
