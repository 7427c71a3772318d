/* SPDX-License-Identifier: Apache-2.0 */
/* What the file system of the state directory can do. Tried, never guessed
 * from names or versions. */
#ifndef VERITY_PROBE_H
#define VERITY_PROBE_H

#include <stdbool.h>

#include "base/cleanup.h"

struct probe {
	int verity_error; /* of sealing a file here: 0 or -errno */
	bool dontcache; /* stream_try() found RWF_DONTCACHE here */
};

/*
 * probe_dir() - try both with a file of a few bytes, which is removed again
 *
 * 0, or -errno when the file could not even be made.
 */
int probe_dir(int dirfd, struct probe *ret) must_check;

#endif
