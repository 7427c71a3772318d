/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open table: one slot for each open file, in a memfd, so that it can
 * outlive the process. A handle is a slot number. Slots hold what only the
 * kernel would know otherwise, and no counters: a RELEASE that is sent again
 * after a take-over finds its slot free.
 *
 * FREE -> OPEN -> RELEASING -> FREE, the last step after the reply to RELEASE.
 *
 * The kernel allows one mode for an inode at a time, and one backing file, for
 * as long as somebody has it open or mapped; another is EIO for the opener. So
 * beside the slots, and derived from them, there is a record for each inode
 * that might be passed through: the first OPEN decides, those that come while
 * it does wait for it (without a thread), those that come later join.
 *
 * Any thread; takes a lock of rank RANK_NODE and never blocks.
 * Source: Linux fs/fuse/iomode.c, passthrough.c, backing.c (6.18).
 */
#ifndef FUSE_OPENS_H
#define FUSE_OPENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/list.h"

enum open_state { OPEN_FREE, OPEN_OPEN, OPEN_RELEASING };

enum open_mode {
	OPEN_CACHED, /* READs come to us, the kernel keeps the pages */
	OPEN_PASSTHROUGH, /* the kernel reads the backing file */
	/* The backing file has turned out bad and has a successor, which the
	 * kernel refuses while somebody has the inode open: read(2) comes to
	 * us, mappings go to the old file. */
	OPEN_HEALED,
};

#define OPENS_MAGIC UINT64_C(0x32304e504f5356) /* "VSOPN02" */
#define OPENS_VERSION 2
#define OPENS_STORE_BYTES 40

struct opens_header { /* padded to 4096 bytes */
	uint64_t magic;
	uint32_t version;
	uint32_t n_slots; /* slots in the file, number 0 included */
	uint32_t n_used; /* slots that were ever taken are below */
	uint32_t first_free; /* 0: none below n_used */
	char store[OPENS_STORE_BYTES]; /* uuid of the store, as text */
	uint32_t dev_major, dev_minor; /* of the mount */
	uint32_t next_seq; /* no layer of the view had this seq, or a higher */
	int32_t low_backing; /* all backing ids below are closed */
};

struct opens_slot {
	uint64_t unique; /* of the OPEN, without the resend bit */
	uint64_t node;
	int32_t backing; /* 0: no backing file */
	uint32_t next_free; /* FREE only */
	uint32_t mode; /* enum open_mode */
	uint32_t state; /* enum open_state; stored last */
};
_Static_assert(sizeof(struct opens_header) == 80, "part of a memfd");
_Static_assert(sizeof(struct opens_slot) == 32, "part of a memfd");

struct opens;

int opens_new(uint32_t n_slots, struct opens **ret) must_check;
void opens_free(struct opens *t);

/* Which mount and store the table belongs to, for whoever takes it over. */
void opens_identify(struct opens *t, const char *store, unsigned dev_major,
		    unsigned dev_minor);
/* A layer with this seq has been shown. */
void opens_note_seq(struct opens *t, uint32_t seq);

/* One OPEN. The caller's, until it is answered. */
struct open_call {
	uint64_t unique, node;
	/* the answer */
	enum open_mode mode;
	int32_t backing;
	uint32_t slot;
	bool stale; /* the kernel may still have pages of a cached open */
	/* private */
	struct list list;
};

enum opens_step {
	OPENS_ANSWER, /* the answer is filled in */
	OPENS_DECIDE, /* the caller finds out, and calls opens_decided() */
	OPENS_WAIT, /* whoever decides gets this call from opens_decided() */
};

/*
 * opens_begin() - take a slot for an OPEN
 * @c:     unique and node are set
 * @fixed: the inode is cached for ever: small
 * enum opens_step; -ENFILE: no slot is free; -ENOMEM.
 */
int opens_begin(struct opens *t, struct open_call *c, bool fixed) must_check;

/*
 * opens_decided() - what becomes of the inode, after OPENS_DECIDE
 * @backing: with OPEN_PASSTHROUGH, the kernel's id (> 0), which the table owns
 *           until opens_released() hands it back
 * @file:    inode number of the backing file, for opens_backed()
 * @ret:     all calls that can be answered now, @c among them (open_call.list)
 *
 * The slots are in the table when it returns, before any reply.
 */
void opens_decided(struct opens *t, struct open_call *c, enum open_mode mode,
		   int32_t backing, uint64_t file, struct list *ret);

/* false: not this file's slot, or released before; then nothing is to do */
bool opens_releasing(struct opens *t, uint64_t slot, uint64_t node) must_check;
/*
 * opens_released() - after the reply, for a slot that opens_releasing() took
 * Returns a backing id that nobody uses any more and that the caller closes,
 * telling opens_backing_closed() afterwards; or 0.
 */
int32_t opens_released(struct opens *t, uint64_t slot) must_check;
void opens_backing_closed(struct opens *t);

/* Inodes that are open in one mode. */
struct opens_inode {
	uint64_t node;
	uint64_t file; /* inode number of the backing file, 0: cached */
};

/* The inodes that are in OPEN_PASSTHROUGH, or those that could be and are in
 * OPEN_CACHED, or in OPEN_HEALED. The caller's to free. */
int opens_inodes(struct opens *t, enum open_mode mode, struct opens_inode **ret,
		 size_t *ret_n) must_check;

/* From now on opens of this inode, as long as it stays open, are OPEN_HEALED.
 * @file: as opens_inodes() had it; another: nothing happens. */
void opens_heal(struct opens *t, uint64_t node, uint64_t file);

struct opens_stats {
	uint32_t n_open; /* files that the kernel holds open */
	uint32_t n_mode[3]; /* of them, by enum open_mode of their inode */
	uint32_t n_backing; /* ids */
	uint64_t n_passthrough_total; /* opens, since the start */
};
void opens_stats(struct opens *t, struct opens_stats *ret);

/* What whoever takes over would find. Constant but for what others do. */
const struct opens_header *opens_header(const struct opens *t);
const struct opens_slot *opens_slot(const struct opens *t, uint32_t i);

#endif
