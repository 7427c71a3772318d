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

/*
 * The open table: one slot for each open file, in a memfd, so that it can
 * outlive the process. A handle is a slot number; 0 means that the table was
 * full, which costs nothing but the count. Slots hold what only the kernel
 * would know otherwise, and no counters: a RELEASE that is sent again after a
 * take-over finds its slot free.
 *
 * FREE -> OPEN -> RELEASING -> FREE, the last step after the reply to RELEASE.
 * Any thread; takes a lock of rank RANK_NODE.
 */
enum open_state { OPEN_FREE, OPEN_OPEN, OPEN_RELEASING };

#define OPEN_MAGIC UINT64_C(0x31304e504f5356) /* "VSOPN01" */
#define OPEN_VERSION 1

struct open_header { /* padded to 4096 bytes */
	uint64_t magic;
	uint32_t version;
	uint32_t n_slots; /* slots in the file, number 0 included */
	uint32_t n_used; /* slots that were ever taken are below */
	uint32_t first_free; /* 0: none below n_used */
};

struct open_slot {
	uint64_t unique; /* of the OPEN, without the resend bit */
	uint64_t node;
	int32_t backing; /* 0: no backing file */
	uint32_t next_free; /* FREE only */
	uint32_t mode; /* OPEN_MODE_* */
	uint32_t state; /* enum open_state; stored last */
};
_Static_assert(sizeof(struct open_slot) == 32, "part of a memfd");

#define OPEN_MODE_CACHED 0

struct open_table;

int open_table_new(uint32_t n_slots, struct open_table **ret) must_check;
void open_table_free(struct open_table *t);

/* 0: no slot is free */
uint32_t open_table_take(struct open_table *t, uint64_t unique, uint64_t node);
/* false: not this file's slot, or released before; then nothing is to do */
bool open_table_releasing(struct open_table *t, uint64_t slot, uint64_t node);
/* After the reply, for a slot that open_table_releasing() accepted. */
void open_table_released(struct open_table *t, uint64_t slot);

uint32_t open_table_n_open(struct open_table *t);

#endif
