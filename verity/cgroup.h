/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup of its own for a helper process, so that the page cache that it
 * fills is taken from itself and not from its neighbours.
 *
 * v1: a child of our memory cgroup, memory.limit_in_bytes. v2: a child of our
 * cgroup, memory.high, where the cgroup was delegated to us (systemd's
 * Delegate=) or is the root. v2 allows a group with controllers no processes of
 * its own: all that are in ours move to its child "daemon" (as with
 * DelegateSubgroup=daemon) first.
 * Source: Linux Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst;
 * systemd.io/CGROUP_DELEGATION.
 */
#ifndef VERITY_CGROUP_H
#define VERITY_CGROUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/*
 * cgroup_enter() - move the calling process into its own cgroup
 *
 * @name: of the child; @memory: bytes
 * @ret: on success the folder, else why there is none (one line)
 * 0 or -errno. Blocks on cgroupfs only. Single thread.
 */
int cgroup_enter(const char *name, uint64_t memory, char *ret, size_t size)
	must_check;

/* Removes the folder that cgroup_enter() gave, once nobody is in it. */
void cgroup_remove(const char *path);

#endif
