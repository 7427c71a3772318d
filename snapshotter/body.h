/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes at rest. A body is a file of exactly its size plus NAME.state (header,
 * extent bitmap, leaf log). An extent is served only if its bit is set and the
 * leaves of its blocks match what is read: torn writes are seen, and nothing
 * needs an fsync before COMPLETE. The rules that make this crash-proof are at
 * the head of body.c.
 *
 * Locks: a body's own lock (rank 40) is held over pread and pwrite of that
 * body and its state, and nothing else. Any thread except the loop.
 */
#ifndef SNAPSHOTTER_BODY_H
#define SNAPSHOTTER_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"

enum body_state { BODY_PARTIAL, BODY_COMPLETE, BODY_SEALED, BODY_BAD };

struct bodies; /* all bodies of a store */
struct body;

/* Where extent @bit lies in the body and what it must hash to. */
struct body_extent {
	uint64_t off;
	uint32_t len;
	bool hole;
	struct digest digest;
};

/*
 * The owner's knowledge (a layer's map), passed to each call: a body shared by
 * two layers has the same extents in both. Bits are in order of offset; extents
 * do not overlap and touch every 4 KiB block (gaps are smaller). Called with no
 * lock of ours held; 0 or -errno.
 */
struct body_layout {
	int (*extent)(void *ctx, uint32_t bit, struct body_extent *ret);
	/* the bit of the extent that holds or follows byte @off; n_extents, or
	 * -ENOENT: there is none */
	int (*find)(void *ctx, uint64_t off, uint32_t *ret_bit);
	void *ctx;
	bool no_holes; /* a promise that spares creation a look at each */
};

struct body_id {
	struct digest ckey; /* zero: a pack, named by @seq */
	uint32_t seq;
	uint64_t size; /* > 0 */
	uint32_t n_extents;
};

/* @rootfd: the store's root, borrowed. */
int bodies_new(int rootfd, struct bodies **ret) must_check;
void bodies_free(struct bodies *bs);
/* Beside the bodies: what the disk has no room for. */
struct spill *bodies_spill(struct bodies *bs);

/*
 * body_open() - the one object for this body, created on disk when missing
 *
 * A reference; body_put() gives it back. fds are opened at need and closed
 * again when too many are open. A damaged header, or a state without its file,
 * means beginning again with nothing landed. -EUCLEAN: the state file is sound
 * and belongs to another body; -EINVAL: @id is impossible; -ENOENT: the layer
 * has no folder; -ENOSPC, -errno.
 */
int body_open(struct bodies *bs, const struct body_id *id,
	      const struct body_layout *lay, struct body **ret) must_check;
void body_put(struct body *b);

/*
 * body_write() - land one whole extent, whose bytes the caller has verified
 *
 * A landed one is left alone, @p is not looked at then. 0; -EINVAL: @len is not
 * that of the extent; -ENOSPC or -errno: not landed, nothing else is harmed.
 * Not durable before body_complete(), and need not be.
 */
int body_write(struct body *b, const struct body_layout *lay, uint32_t bit,
	       const void *p, size_t len) must_check;

/*
 * body_read() - exactly @len bytes, each block checked against its leaf
 *
 * 0; -EAGAIN: some extent of the range is absent, or has just proved damaged
 * (its bit is gone: fetch it again); -EINVAL: beyond the end; -EIO: the disk
 * gives other bytes each time; -errno. On failure
 * @p holds rubbish that must not be passed on.
 */
int body_read(struct body *b, const struct body_layout *lay, uint64_t off,
	      void *p, size_t len) must_check;

/* Neither blocks nor takes a lock. */
bool body_has(struct body *b, uint32_t bit);
/* Bytes of the extents that have landed; looks at each. A complete pack counts
 * the padding between its files, too. */
uint64_t body_bytes_landed(struct body *b, const struct body_layout *lay);
/* Has this body been created? Blocks on one look at the disk. */
bool bodies_exists(struct bodies *bs, const struct body_id *id);
uint32_t body_n_landed(struct body *b);
enum body_state body_get_state(struct body *b);

/*
 * body_complete() - make a body durable whose extents have all landed
 *
 * 0: COMPLETE, also when it was before. -EAGAIN: not all are there (any more).
 * -EIO for good in this process after a failed sync: the kernel forgets such
 * failures, so a second sync proves nothing. Blocks on the disk.
 */
int body_complete(struct body *b, const struct body_layout *lay) must_check;

/* The fs-verity digest that the finished body must have. -EINVAL unless
 * COMPLETE or SEALED. */
int body_expected_digest(struct body *b, struct digest *ret) must_check;

/*
 * Sealing, by whoever has a sealer. body_seal_begin(): 0; -EALREADY: sealed;
 * -EAGAIN: not complete (any more); -errno. body_seal_end(): the kernel measures
 * s->want for s->fd, durably; 0: SEALED; -EAGAIN: repaired meanwhile, begin
 * anew; -errno. Both block on the disk; the fd is the caller's to close.
 */
struct body_seal {
	int fd; /* read-only, of the caller alone */
	uint64_t size;
	struct digest want; /* from the leaves */
	unsigned generation; /* private */
};
int body_seal_begin(struct body *b, struct body_seal *ret) must_check;
int body_seal_end(struct body *b, const struct body_seal *s) must_check;

/*
 * body_backing_fd() - the file of a body, for the kernel to read without us
 * @unsealed: one that is merely complete will do
 * A read-only fd, the caller's to close; -EAGAIN: not (yet); -errno. Blocks on
 * the disk.
 */
int body_backing_fd(struct body *b, bool unsealed) must_check;

/*
 * body_reject() - the file of a finished body is not what it must be
 *
 * Looks at all of what has its name now and gives it another file with what is
 * good. 0: complete again; -EAGAIN: extents are missing now; -errno. Blocks on
 * the disk, for as long as reading and copying take.
 */
int body_reject(struct body *b, const struct body_layout *lay) must_check;

/*
 * bodies_on_damage() - be told that files which were finished are not any more
 * @fn: from any thread, no lock held; does not block
 * Before the first body is opened.
 */
void bodies_on_damage(struct bodies *bs, void (*fn)(void *ctx), void *ctx);

/*
 * What the file under the name of a finished body must be, for whoever reads it
 * again; the open one may be another by now. body_scrub_begin(): 0; -EAGAIN: not
 * finished, or not the file with the inode number @only_ino (0: any); -EBADMSG:
 * there is no such file, or it cannot be told what it must be: reject it;
 * -errno. The fd is the caller's. body_renew_leaves(): the leaf
 * log of a sealed body anew, from what the kernel vouches for; 0; -EAGAIN: not
 * sealed (any more); -errno. Both block on the disk.
 */
struct body_scrub {
	int fd; /* read-only */
	uint64_t size;
	struct digest want;
	bool leaves_bad; /* of a sealed one: its repair would need them */
};
int body_scrub_begin(struct body *b, uint64_t only_ino, struct body_scrub *ret)
	must_check;
int body_renew_leaves(struct body *b) must_check;

/* What is complete and not larger than stream_cached_max() stays in the page
 * cache: it is sealed soon. Off at first. Switching it off makes that 0 for
 * good: nothing is written through the page cache any more. */
void bodies_keep_cached(struct bodies *bs, bool keep);

/* Remove the files of a body nobody has open, and its fan-out folder if that
 * is empty now. -EBUSY: somebody has it open. Absent files count as removed. */
int bodies_unlink(struct bodies *bs, const struct body_id *id) must_check;

/*
 * The content key of a large file, from its extents in file order (ckey.c has
 * the encoding). -EINVAL: the lengths do not add up to the size.
 */
struct ckey_builder;
int ckey_begin(uint64_t size, struct ckey_builder **ret) must_check;
int ckey_add(struct ckey_builder *k, uint32_t len, const struct digest *d)
	must_check; /* d == NULL: a hole */
int ckey_end(struct ckey_builder *k, struct digest *ret) must_check; /* frees */
void ckey_free(struct ckey_builder *k);

#endif
