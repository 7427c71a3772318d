/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two ends of helper.h: helper.c in the daemon, helper_main.c in
 * the process. */
#ifndef VERITY_HELPER_PRIV_H
#define VERITY_HELPER_PRIV_H

#include "verity/helper.h"

/* The first message of every helper. */
struct helper_hello {
	struct helper_msg m;
	int32_t cgroup_error; /* 0: cgroup is its folder, else it says why */
	char cgroup[252]; /* NUL padded, may fill all */
};

#endif
