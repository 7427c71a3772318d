/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot takes on disk, without its parents. */
#ifndef SNAPSHOTTER_USAGE_H
#define SNAPSHOTTER_USAGE_H

#include <stdint.h>

#include "base/err.h"
#include "snapshotter/store.h"

/* Levels of folders that are counted. Images stay below 50; a container can
 * make as many as the disk has inodes. One open file each. */
#define USAGE_DEPTH_MAX 256

/*
 * usage_scan() - walk s/<id>/fs of an active snapshot
 * @rootfd: the state directory, borrowed
 *
 * As containerd's overlay snapshotter: blocks, each hard-linked inode once,
 * the folder itself included. Takes as long as the tree is large. Folders more
 * than USAGE_DEPTH_MAX levels down are left out, with a warning.
 */
int usage_scan(int rootfd, uint64_t id, uint64_t *ret_size,
	       uint64_t *ret_inodes, struct err *e) must_check;

/* Active: scanned now. Committed: what was recorded. View: nothing. */
int usage_of(int rootfd, const struct snap *sp, uint64_t *ret_size,
	     uint64_t *ret_inodes, struct err *e) must_check;

#endif
