/* SPDX-License-Identifier: Apache-2.0 */
/* What status asks of bodies. Changes nothing. */
#include <fcntl.h>

#include "snapshotter/body_priv.h"

bool bodies_exists(struct bodies *bs, const struct body_id *id)
{
	char path[BODY_PATH_MAX];

	body_path(id, ".state", path);
	return faccessat(bs->rootfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t body_bytes_landed(struct body *b, const struct body_layout *lay)
{
	uint64_t sum = 0;

	if (body_get_state(b) != BODY_PARTIAL)
		return b->id.size;
	for (uint32_t bit = 0; bit < b->id.n_extents; bit++) {
		struct body_extent x;

		if (bit_get(b->bits, bit) && body_extent(b, lay, bit, &x) == 0)
			sum += x.len;
	}
	return sum;
}
