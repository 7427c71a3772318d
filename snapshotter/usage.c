/* SPDX-License-Identifier: Apache-2.0 */
/* Disk usage of snapshots; see usage.h. */
#include "usage.h"

#include <inttypes.h>

#include "base/fs.h"

int usage_scan(int rootfd, uint64_t id, uint64_t *ret_size,
	       uint64_t *ret_inodes, struct err *e)
{
	struct disk_usage du;
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", id);
	r = disk_usage(rootfd, path, &du);
	if (r < 0)
		return err_sys(e, r, "usage of '%s'", path);
	*ret_size = du.bytes;
	*ret_inodes = du.inodes;
	return 0;
}

int usage_of(int rootfd, const struct snap *sp, uint64_t *ret_size,
	     uint64_t *ret_inodes, struct err *e)
{
	switch (sp->kind) {
	case SNAP_KIND_ACTIVE:
		return usage_scan(rootfd, sp->id, ret_size, ret_inodes, e);
	case SNAP_KIND_COMMITTED:
		*ret_size = sp->size;
		*ret_inodes = sp->inodes;
		return 0;
	case SNAP_KIND_VIEW:
	default:
		*ret_size = 0;
		*ret_inodes = 0;
		return 0;
	}
}
