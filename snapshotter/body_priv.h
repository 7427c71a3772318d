/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the body module, shared by its files only:
 *	bodies.c       the table of open bodies
 *	body_fds.c     their fds, a bounded number of them
 *	body_files.c   creation, opening, removal on disk
 *	body.c         the rules; reading, writing, completing
 *	body_settle.c  what happens when a block does not match its leaf
 *	body_backing.c what the kernel may read without us
 *	body_seal.c    a complete body becomes a verity file; a damaged one is
 *	               replaced
 *	body_scrub.c   what those need who read finished bodies again
 */
#ifndef SNAPSHOTTER_BODY_PRIV_H
#define SNAPSHOTTER_BODY_PRIV_H

#include <stdatomic.h>

#include "base/htab.h"
#include "base/list.h"
#include "base/lock.h"
#include "snapshotter/body.h"
#include "verity/leaves.h"
#include "verity/state.h"

#define BODY_PATH_MAX 96
#define BODY_FANOUT "body"
#define BODY_PIECE (1u << 20) /* bytes read and checked at once */

/* Beside 0 and -errno: some block did not match its leaf. */
#define BODY_MISMATCH 1
/* Beside those: the neighbours of an extent's edge must be known first. */
#define BODY_NEED_NEAR 2

struct body_key {
	struct digest ckey;
	uint32_t seq; /* 0 for large files */
};

/* fds taken out of a body under the lock, to be closed without it. */
struct closing {
	int fd[3];
	bool drop; /* fd[0]: what reads and writes have left in the page cache */
};

/* fds that some reader may still be using; closed with the body's last pin. */
struct retired {
	struct list node;
	struct closing c;
};

struct bodies {
	int rootfd; /* borrowed */
	atomic_bool keep_cached; /* what is complete is sealed soon */
	atomic_bool damaged; /* on_damage() is to be called */
	void (*on_damage)(void *ctx); /* constant, as is its argument */
	void *on_damage_ctx;
	char boot[STATE_BOOT_LEN + 1]; /* of this process */
	struct lock lock; /* RANK_BODIES; guards all below */
	struct cond idle; /* some body is not busy any more */
	struct body *table;
	struct list
		closable; /* bodies with open fds and no pin, oldest first */
	unsigned n_open; /* bodies with open fds */
	unsigned open_max; /* more are closed; constant */
	struct spill *spill; /* has a lock of its own */
};

struct body {
	struct bodies *bs;
	struct body_id id;

	/* Guarded by bs->lock. */
	struct body_key key;
	UT_hash_handle hh;
	unsigned n_refs;
	bool busy; /* being loaded or unlinked: look again when it is not */
	struct list closable;
	unsigned n_pins, n_write_pins;
	int data_fd, state_fd; /* both -1, or both open */
	int write_fd; /* of the data; closed once COMPLETE */
	bool data_sealed; /* the kernel checks what is read from data_fd */
	struct digest seal; /* that data_fd must have then; zero: none */
	bool replacing; /* others wait for a new file */
	struct list retired; /* struct retired.node */

	/* Changed only under lock, which is also held over writes to the
	 * files; readers of bits and numbers take no lock. */
	struct lock lock; /* RANK_BODY */
	_Atomic(uint8_t) *bits; /* as on disk */
	/* Bits landed under another boot, not yet hashed whole; NULL: none. */
	_Atomic(uint8_t) *unsure;
	atomic_uint n_landed, n_unsure;
	/* Steps whenever a bit is cleared: who has looked at bits before
	 * reading looks at this afterwards. */
	atomic_uint generation;
	atomic_uint n_replaced; /* by another file */
	atomic_int state; /* enum body_state */
	struct state_header header; /* as on disk; guarded by lock */
	atomic_bool frozen; /* header.frozen */
	atomic_bool sync_failed;
	atomic_uint n_part_bytes; /* read by stream_read_part(); wraps */
};

/* Borrowed between body_pin() and body_unpin(). */
struct body_fds {
	int data, state;
	int write; /* -1 unless pinned for writing, or when it is finished */
	bool sealed; /* the kernel checks data: leaves are not needed */
};

/*
 * body_fds.c
 * A finished body has no writer. One that was finished and is damaged gets
 * another file first (body_replace()).
 */
int body_pin(struct body *b, bool write, struct body_fds *ret) must_check;
void body_unpin(struct body *b, bool write);
/* Who pins the body from now on opens its files anew. @r: consumed */
void body_retire_locked(struct body *b, struct retired *r);
struct closing body_detach_fds(struct body *b); /* with bs->lock */
void body_close_all(const struct closing *c);
/* What returned @r is worth trying again: fds had run out, and some were
 * closed. @tries: counts. */
bool bodies_relieve(struct bodies *bs, int r, unsigned *tries);
unsigned bodies_open_max(void);
int body_open_file(struct body *b, const char *suffix, int flags) must_check;

/* body_files.c */
void body_fanout_path(const struct body_id *id, char ret[BODY_PATH_MAX]);
void body_path(const struct body_id *id, const char *suffix,
	       char ret[BODY_PATH_MAX]);
int body_load(struct body *b, const struct body_layout *lay) must_check;
int body_unlink_files(struct bodies *bs, const struct body_id *id) must_check;

/* body.c */
static inline bool bit_get(_Atomic(uint8_t) *bits, uint32_t bit)
{
	return atomic_load_explicit(&bits[bit / 8], memory_order_acquire) >>
		       bit % 8 &
	       1;
}

static inline size_t bitmap_bytes(const struct body *b)
{
	return ((size_t)b->id.n_extents + 7) / 8;
}

/* How much of the bitmap is in its sector @i. */
static inline size_t bit_sector_bytes(const struct body *b, uint32_t i)
{
	size_t left = bitmap_bytes(b) - (size_t)i * STATE_SECTOR_BYTES;

	return left < STATE_SECTOR_BYTES ? left : STATE_SECTOR_BYTES;
}

static inline size_t block_len(const struct body *b, uint64_t block)
{
	uint64_t left = b->id.size - block * LEAF_BLOCK;

	return left < LEAF_BLOCK ? (size_t)left : LEAF_BLOCK;
}

/* lay->extent, with the answer's bounds checked. -EUCLEAN. */
int body_extent(const struct body *b, const struct body_layout *lay,
		uint32_t bit, struct body_extent *ret) must_check;

/*
 * body_read_checked() - read [off, off + len) and compare with the leaves
 *
 * @len: 1..BODY_PIECE. 0, BODY_MISMATCH (also a short read, or a sector that
 * cannot be read), -errno. With b->lock held a mismatch is no race.
 */
int body_read_checked(struct body *b, const struct body_fds *f, uint64_t off,
		      void *p, size_t len) must_check;

/* Writes bitmap sector @i to the disk; @with: one bit that is set there only,
 * NULL: none. b->lock held. */
int body_store_bits_locked(struct body *b, const struct body_fds *f, uint32_t i,
			   const uint32_t *with) must_check;

/* body_settle.c */

/* The extents that touch blocks [first, end), from the layout. */
struct near {
	struct near_extent {
		uint32_t bit;
		struct body_extent x;
	} * v;
	size_t n;
	uint64_t first, end; /* first == end: nothing gathered */
};

void near_release(struct near *near);
static inline unused_arg void owned_near(struct near *near)
{
	near_release(near);
}

/* Without any lock. @ret->end may be less than @end, but is beyond @first. */
int near_gather(struct body *b, const struct body_layout *lay, uint64_t first,
		uint64_t end, struct near *ret) must_check;
bool near_any_landed(struct body *b, const struct near *near);

/*
 * body_settle_locked() - decide by the extents' own digests what is still good
 *
 * Keeps the bits of the good ones and gives their blocks new leaves; clears the
 * others. 0 or -errno. b->lock held, pinned for writing.
 */
int body_settle_locked(struct body *b, const struct body_fds *f,
		       const struct near *near) must_check;

/* The file of a finished body has gone: all of it is lost. 0 or -errno. No lock
 * held. */
int body_lose_all(struct body *b, const struct body_layout *lay) must_check;

/* Logs that bits were cleared since @generation; without b->lock. */
void body_report_damage(struct body *b, unsigned generation);

/* A body that is not finished (any more), durably. b->lock held. */
int body_demote_locked(struct body *b, const struct body_fds *f) must_check;

/* body_scrub.c */

/* Who pins the body from now on opens its files by name. 0 or -ENOMEM. */
int body_open_anew(struct body *b) must_check;

/* body_seal.c */

/* Does the kernel enforce @seal for @fd? */
bool body_fd_is_sealed(int fd, const struct digest *seal);

/*
 * body_replace() - another file with the blocks that match their leaf
 *
 * The rest of it is zeros. Takes its name; the old one stays with who has it
 * open. No lock held; the caller keeps others from writing.
 */
int body_replace(struct body *b) must_check;

/* body_settle.c */

/* Hash @x whole if it may be stale after a power cut (rule 4). 0; -EAGAIN: it
 * was, its bit is gone. Takes b->lock. */
int body_make_sure(struct body *b, uint32_t bit, const struct body_extent *x)
	must_check;

#endif
