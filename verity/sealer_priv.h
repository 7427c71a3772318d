/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two ends of sealer.h: sealer.c in the daemon, sealer_serve.c in
 * the helper. */
#ifndef VERITY_SEALER_PRIV_H
#define VERITY_SEALER_PRIV_H

#include "verity/sealer.h"

#define SEALER_REQUEST (HELPER_FIRST + 0u) /* to the helper, with an fd */
#define SEALER_ANSWER (HELPER_FIRST + 1u)

struct sealer_request {
	struct helper_msg m;
	uint64_t id, size;
	uint32_t cached, pad;
};

struct sealer_answer {
	struct helper_msg m;
	uint64_t id, bytes_read;
	int32_t err; /* 0 or -errno */
	uint32_t ms;
	struct digest digest;
};

#endif
