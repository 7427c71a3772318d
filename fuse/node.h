/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel knows our files by: node ids, which are a pure function of
 * layer and inode, and handles, which are slots of the open table.
 *
 * A node id holds no pointer and no count, so FORGET means nothing to us, and a
 * later process gives the same ids. A layer's seq is never used twice, so the
 * generation is always 0.
 */
#ifndef FUSE_NODE_H
#define FUSE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

#define NODE_ROOT UINT64_C(1) /* the root of the session, FUSE_ROOT_ID */
#define NODE_ROOT_INO 1 /* its st_ino; layers start above */

/* seq + 1 must fit 32 bits, see node_parse_seq(). */
static inline uint64_t node_id(uint32_t seq, uint32_t nid)
{
	return ((uint64_t)seq + 1) << 32 | nid;
}

static inline bool node_is_root(uint64_t node)
{
	return node == NODE_ROOT;
}

/* Of a node that is not the root. */
static inline uint32_t node_seq(uint64_t node)
{
	return (uint32_t)(node >> 32) - 1;
}

static inline uint32_t node_nid(uint64_t node)
{
	return (uint32_t)node;
}

/*
 * node_parse_seq() - the seq that a name in the root stands for
 *
 * Decimal, no sign, no leading zeros: each layer has exactly one name, else
 * one inval_entry would not make it vanish. -ENOENT for all other names.
 */
int node_parse_seq(const char *name, uint32_t *ret) must_check;

#endif
