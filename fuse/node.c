/* SPDX-License-Identifier: Apache-2.0 */
/* Names of layers; see node.h. */
#include "fuse/node.h"

int node_parse_seq(const char *name, uint32_t *ret)
{
	uint64_t v = 0;
	size_t i;

	if (name[0] == '0' && name[1] != '\0')
		return -ENOENT;
	for (i = 0; name[i]; i++) {
		if (name[i] < '0' || name[i] > '9' || i == 10)
			return -ENOENT;
		v = v * 10 + (uint64_t)(name[i] - '0');
	}
	/* seq + 1 is the upper half of a node id */
	if (i == 0 || v >= UINT32_MAX)
		return -ENOENT;
	*ret = (uint32_t)v;
	return 0;
}
