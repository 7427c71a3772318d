/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading, writing and completing bodies. The rules that make it crash-proof,
 * without an fsync per extent:
 *
 *  1. NAME.state (verity/state.h) has its header in one sector and is allocated
 *     in full at creation, so that a bit or leaf never meets a full disk.
 *  2. Order of writes: data, leaves, bit. Killed anywhere, what has its bit has
 *     its leaves.
 *  3. Before an extent is merged into a block that a landed one touches, the
 *     block as it is must match its leaf; the new leaf would vouch for damage
 *     otherwise. A mismatch is read again under the lock (a writer may be at
 *     work on that block), then settled: see body_settle.c. A short read is a
 *     mismatch. So a torn write is seen, and costs its neighbours nothing.
 *  4. After a power cut stale data and a stale leaf can match, in blocks that
 *     extents share. So the header has the boot id of its last writer; under
 *     another boot, while PARTIAL, every landed extent that shares a block is
 *     hashed whole before its first use, and before COMPLETE. The header gets
 *     the new boot id when none is left.
 *  5. COMPLETE: fdatasync of the data, of the state, phase byte, fdatasync. From
 *     then on the file is frozen: no writer is left or comes, and damage is
 *     repaired in another file that takes its name (body_seal.c).
 *  6. Writing what has landed does nothing.
 *  7. A body's lock is held over pread and pwrite of its two files and over no
 *     other call that blocks; the two exceptions are repairs in body_settle.c
 *     (a file cut short gets its size back, a finished body is demoted).
 *  8. What the kernel has sealed with the digest in the header is read without
 *     leaves; a read error of the kernel is a mismatch.
 *
 * Readers take no lock. They look at the bits, read leaves and data, compare,
 * and look whether a bit was cleared meanwhile (generation): settling may give a
 * block a new leaf in spite of a bad extent in it, whose bit is gone by then.
 */
#include "snapshotter/body.h"

#include <string.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "snapshotter/body_priv.h"
#include "verity/stream.h"

/* Read and hashed at once: it is in the processor's cache then. */
#define HASH_PIECE (256u << 10)
#define FEW_BLOCKS 8 /* read through a buffer on the stack, in one call */
#define ATTEMPTS 4 /* a disk that changes its mind more often gets -EIO */

int body_extent(const struct body *b, const struct body_layout *lay,
		uint32_t bit, struct body_extent *ret)
{
	struct body_extent x;
	int r = lay->extent(lay->ctx, bit, &x);

	if (r < 0)
		return r;
	if (x.len == 0 || x.off > b->id.size || x.len > b->id.size - x.off)
		return -EUCLEAN;
	*ret = x;
	return 0;
}

bool body_has(struct body *b, uint32_t bit)
{
	return bit < b->id.n_extents && bit_get(b->bits, bit);
}

uint32_t body_n_landed(struct body *b)
{
	return atomic_load(&b->n_landed);
}

enum body_state body_get_state(struct body *b)
{
	return (enum body_state)atomic_load(&b->state);
}

static int mismatch_or_error(int r)
{
	return r == -ENODATA || r == -EIO ? BODY_MISMATCH : r;
}

/* Compares the blocks in @p (the last may be short) with their leaves. */
static int compare(const uint8_t *p, size_t len, const struct digest *leaves)
{
	while (len) {
		size_t n = len < LEAF_BLOCK ? len : LEAF_BLOCK;
		struct digest d;
		int r = leaf_hash(p, n, &d);

		if (r < 0)
			return r;
		if (!digest_equal(&d, leaves++))
			return BODY_MISMATCH;
		p += n;
		len -= n;
	}
	return 0;
}

/* A few blocks of which the caller wants a part. */
static int read_few(struct body *b, const struct body_fds *f, uint64_t off,
		    void *p, size_t len, const struct digest *leaves)
{
	uint8_t blocks[FEW_BLOCKS * LEAF_BLOCK];
	const uint64_t begin = off - off % LEAF_BLOCK;
	const uint64_t last = (off + len - 1) / LEAF_BLOCK;
	size_t n = last * LEAF_BLOCK + block_len(b, last) - begin;
	int r = stream_read_part(f->data, blocks, n, begin);

	if (r == 0)
		r = compare(blocks, n, leaves);
	if (r == 0)
		memcpy(p, blocks + (off - begin), len);
	stream_count_part(f->data, &b->n_part_bytes, n);
	return r;
}

/* The kernel has looked already. */
static int read_sealed(struct body *b, const struct body_fds *f, uint64_t off,
		       void *p, size_t len)
{
	int r;

	if (leaves_count(off + len) - off / LEAF_BLOCK > FEW_BLOCKS)
		return stream_read(f->data, p, len, off);
	r = stream_read_part(f->data, p, len, off);
	stream_count_part(f->data, &b->n_part_bytes, len);
	return r;
}

int body_read_checked(struct body *b, const struct body_fds *f, uint64_t off,
		      void *p, size_t len)
{
	struct digest leaves[BODY_PIECE / LEAF_BLOCK + 1];
	const uint64_t first = off / LEAF_BLOCK;
	const uint64_t end = leaves_count(off + len);
	uint8_t *to = p;
	int r;

	if (f->sealed)
		return mismatch_or_error(read_sealed(b, f, off, p, len));
	r = state_read_leaves(f->state, b->id.n_extents, first, end - first,
			      leaves);
	while (r == 0 && len) {
		const struct digest *leaf = leaves + (off / LEAF_BLOCK - first);
		size_t n = len;

		if (end - off / LEAF_BLOCK <= FEW_BLOCKS) {
			r = read_few(b, f, off, to, n, leaf);
		} else if (off % LEAF_BLOCK) {
			n = LEAF_BLOCK - off % LEAF_BLOCK;
			r = read_few(b, f, off, to, n, leaf);
		} else {
			if (n > HASH_PIECE)
				n = HASH_PIECE;
			else if (off + len != b->id.size)
				n -= n % LEAF_BLOCK;
			r = stream_read(f->data, to, n, off);
			if (r == 0)
				r = compare(to, n, leaf);
		}
		to += n;
		off += n;
		len -= n;
	}
	return mismatch_or_error(r);
}

/* Have all extents of the range landed, and can their bits be trusted? */
static int check_present(struct body *b, const struct body_layout *lay,
			 uint64_t off, size_t len)
{
	uint32_t bit;
	int r;

	if (atomic_load(&b->n_landed) == b->id.n_extents &&
	    atomic_load(&b->n_unsure) == 0)
		return 0;
	r = lay->find(lay->ctx, off, &bit);
	if (r == -ENOENT)
		return 0; /* padding at the end */
	for (; r == 0 && bit < b->id.n_extents; bit++) {
		struct body_extent x;

		r = body_extent(b, lay, bit, &x);
		if (r < 0 || x.off >= off + len)
			break;
		if (!bit_get(b->bits, bit))
			return -EAGAIN;
		r = body_make_sure(b, bit, &x);
	}
	return r;
}

/* The smallest run of blocks that holds all mismatches of the range. */
static int find_damage_locked(struct body *b, const struct body_fds *f,
			      uint64_t off, size_t len, uint64_t *first,
			      uint64_t *end)
{
	uint8_t block[LEAF_BLOCK];
	uint64_t stop = leaves_count(off + len);

	*first = *end = 0;
	for (uint64_t i = off / LEAF_BLOCK; i < stop; i++) {
		int r = body_read_checked(b, f, i * LEAF_BLOCK, block,
					  block_len(b, i));

		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (*first == *end)
			*first = i;
		*end = i + 1;
	}
	return 0;
}

/* A finished body that has lost holes only: nobody would come to write it, and
 * it needs another file all the same. */
static int make_good(struct body *b)
{
	struct body_fds f;
	int r;

	if (!atomic_load(&b->frozen) || body_get_state(b) != BODY_PARTIAL ||
	    atomic_load(&b->n_landed) != b->id.n_extents)
		return 0;
	r = body_pin(b, true, &f);
	if (r == 0)
		body_unpin(b, true);
	return r;
}

/* A mismatch outside of the lock: most likely a writer was there. 0: @p is good
 * now. BODY_MISMATCH: settled, look at the bits again. */
static int read_again(struct body *b, const struct body_layout *lay,
		      uint64_t off, void *p, size_t len)
{
	unsigned generation = atomic_load(&b->generation);
	bool write = !atomic_load(&b->frozen);
	struct body_fds f;
	uint64_t first = 0, end = 0;
	bool damaged;
	int r = body_pin(b, write, &f);

	if (r < 0)
		return r;
	lock_take(&b->lock);
	r = body_read_checked(b, &f, off, p, len);
	damaged = r == BODY_MISMATCH;
	if (damaged) {
		metrics_add(METRIC_VERIFICATION_FAILURES, METRIC_BAD_BODY, 1);
		r = find_damage_locked(b, &f, off, len, &first, &end);
	}
	lock_drop(&b->lock);
	while (r == 0 && first < end) {
		owned(near) struct near near = { 0 };

		r = near_gather(b, lay, first, end, &near);
		if (r < 0)
			break;
		lock_take(&b->lock);
		r = body_settle_locked(b, &f, &near);
		lock_drop(&b->lock);
		first = near.end;
	}
	body_unpin(b, write);
	body_report_damage(b, generation);
	if (r == 0 && damaged)
		r = make_good(b);
	return r == 0 && damaged ? BODY_MISMATCH : r;
}

static int read_once(struct body *b, const struct body_layout *lay,
		     uint64_t off, uint8_t *p, size_t len)
{
	unsigned generation = atomic_load(&b->generation);
	struct body_fds f;
	int r = check_present(b, lay, off, len);

	if (r < 0)
		return r;
	r = body_pin(b, false, &f);
	if (r < 0)
		return r;
	while (r == 0 && len) {
		/* Pieces end at a block, so that only the range's own ends are
		 * read through a buffer. */
		size_t n = BODY_PIECE - off % LEAF_BLOCK;

		if (n > len)
			n = len;
		r = body_read_checked(b, &f, off, p, n);
		if (r == BODY_MISMATCH)
			r = read_again(b, lay, off, p, n);
		p += n;
		off += n;
		len -= n;
	}
	body_unpin(b, false);
	/* An addition, because it comes after the reads on every processor. */
	if (r == 0 && generation != atomic_fetch_add(&b->generation, 0))
		r = BODY_MISMATCH;
	return r;
}

int body_read(struct body *b, const struct body_layout *lay, uint64_t off,
	      void *p, size_t len)
{
	int r = BODY_MISMATCH;

	if (off > b->id.size || len > b->id.size - off)
		return -EINVAL;
	if (body_get_state(b) == BODY_BAD)
		return -EIO;
	if (len == 0)
		return 0;
	for (int i = 0; i < ATTEMPTS && r == BODY_MISMATCH; i++)
		r = read_once(b, lay, off, p, len);
	/* Gone behind our back, and no fd was open: as if all were damaged. */
	if (r == -ENOENT && atomic_load(&b->frozen))
		r = body_lose_all(b, lay) < 0 ? -EIO : -EAGAIN;
	return r == BODY_MISMATCH || r == -ENOENT ? -EIO : r;
}

/* A block of which an extent covers only a part. */
struct edge {
	bool used;
	uint64_t block;
	struct near near; /* filled in when first needed */
	bool blank; /* nothing landed in it: written whole */
	uint8_t data[LEAF_BLOCK]; /* as it will be */
};

struct write {
	const struct body_extent *x;
	const uint8_t *p;
	uint32_t bit;
	uint64_t first; /* block */
	size_t n; /* blocks */
	struct digest *leaves; /* of blocks [first, first + n) */
	struct edge edge[2];
	struct edge *wants_near; /* why BODY_NEED_NEAR */
};

static void write_release(struct write *w)
{
	for (size_t i = 0; i < ARRAY_LEN(w->edge); i++)
		near_release(&w->edge[i].near);
	free(w->leaves);
}

static void owned_write(struct write *w)
{
	write_release(w);
}

/* Finds the edges, and hashes all other blocks while no lock is held. */
static int write_prepare(const struct body *b, struct write *w)
{
	const struct body_extent *x = w->x;
	uint64_t end = x->off + x->len;
	uint64_t inner = x->off, inner_end = end; /* whole blocks */

	w->first = x->off / LEAF_BLOCK;
	w->n = leaves_count(end) - w->first;
	w->leaves = malloc(w->n * sizeof(*w->leaves));
	if (!w->leaves)
		return -ENOMEM;
	if (x->off % LEAF_BLOCK) {
		w->edge[0].used = true;
		w->edge[0].block = w->first;
		inner = (w->first + 1) * LEAF_BLOCK;
	}
	if (end % LEAF_BLOCK && end != b->id.size) {
		inner_end = end - end % LEAF_BLOCK;
		w->edge[1].block = end / LEAF_BLOCK;
		w->edge[1].used = !w->edge[0].used ||
				  w->edge[1].block != w->edge[0].block;
	}
	if (inner >= inner_end)
		return 0;
	return leaves_hash(w->p + (inner - x->off), inner_end - inner,
			   w->leaves + (inner / LEAF_BLOCK - w->first));
}

/* What the block holds now. 0: matches its leaf, so that it may be merged. */
static int read_old(struct body *b, const struct body_fds *f, struct edge *e)
{
	return body_read_checked(b, f, e->block * LEAF_BLOCK, e->data,
				 block_len(b, e->block));
}

/* Rule 3. On 0 e->data is what the merge begins with. */
static int vouch_for_old_locked(struct body *b, const struct body_fds *f,
				struct write *w, struct edge *e)
{
	int r = read_old(b, f, e);

	e->blank = false;
	if (r != BODY_MISMATCH)
		return r;
	if (e->near.first == e->near.end) {
		w->wants_near = e;
		return BODY_NEED_NEAR;
	}
	if (near_any_landed(b, &e->near)) {
		r = body_settle_locked(b, f, &e->near);
		if (r == 0)
			r = read_old(b, f, e);
		if (r != BODY_MISMATCH)
			return r;
		if (near_any_landed(b, &e->near))
			return -EIO;
	}
	memset(e->data, 0, sizeof(e->data));
	e->blank = true;
	return 0;
}

static int merge_locked(struct body *b, const struct body_fds *f,
			struct write *w, struct edge *e)
{
	const struct body_extent *x = w->x;
	uint64_t begin = e->block * LEAF_BLOCK;
	uint64_t from = begin > x->off ? begin : x->off;
	uint64_t to = begin + block_len(b, e->block);
	int r = vouch_for_old_locked(b, f, w, e);

	if (r)
		return r;
	if (to > x->off + x->len)
		to = x->off + x->len;
	memcpy(e->data + (from - begin), w->p + (from - x->off), to - from);
	return leaf_hash(e->data, block_len(b, e->block),
			 &w->leaves[e->block - w->first]);
}

int body_store_bits_locked(struct body *b, const struct body_fds *f, uint32_t i,
			   const uint32_t *with)
{
	_Atomic(uint8_t) *bits = b->bits + (size_t)i * STATE_SECTOR_BYTES;
	uint8_t sector[STATE_SECTOR_BYTES] = { 0 };
	size_t len = bit_sector_bytes(b, i);

	for (size_t k = 0; k < len; k++)
		sector[k] =
			atomic_load_explicit(&bits[k], memory_order_relaxed);
	if (with)
		sector[*with % STATE_SECTOR_BITS / 8] |=
			(uint8_t)(1u << *with % 8);
	return state_write_bits(f->state, i, sector);
}

static int set_bit_locked(struct body *b, const struct body_fds *f,
			  uint32_t bit)
{
	int r = body_store_bits_locked(b, f, bit / STATE_SECTOR_BITS, &bit);

	if (r < 0)
		return r;
	atomic_fetch_or(&b->bits[bit / 8], (uint8_t)(1u << bit % 8));
	atomic_fetch_add(&b->n_landed, 1);
	return fault_point("body_bit_written");
}

static int write_locked(struct body *b, const struct body_fds *f,
			struct write *w)
{
	const struct body_extent *x = w->x;
	int r = 0;

	if (bit_get(b->bits, w->bit))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(w->edge); i++) {
		if (!w->edge[i].used)
			continue;
		r = merge_locked(b, f, w, &w->edge[i]);
		if (r)
			return r;
	}
	/* A blank edge is written whole: its leaf covers all of it, and a
	 * sector that could not be read can be written. */
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(w->edge); i++) {
		struct edge *e = &w->edge[i];

		if (e->used && e->blank)
			r = stream_write(f->write, e->data,
					 block_len(b, e->block),
					 e->block * LEAF_BLOCK, b->id.size);
	}
	if (r == 0)
		r = stream_write(f->write, w->p, x->len, x->off, b->id.size);
	if (r == 0)
		r = fault_point("body_data_written");
	if (r == 0)
		r = state_write_leaves(f->state, b->id.n_extents, w->first,
				       w->n, w->leaves);
	if (r == 0)
		r = fault_point("body_leaves_written");
	return r < 0 ? r : set_bit_locked(b, f, w->bit);
}

int body_write(struct body *b, const struct body_layout *lay, uint32_t bit,
	       const void *p, size_t len)
{
	struct body_extent x;
	struct write w __attribute__((
		cleanup(owned_write))) = { .x = &x, .p = p, .bit = bit };
	unsigned generation = atomic_load(&b->generation);
	struct body_fds f;
	int r;

	if (bit >= b->id.n_extents)
		return -EINVAL;
	if (bit_get(b->bits, bit))
		return 0;
	r = body_extent(b, lay, bit, &x);
	if (r == 0 && len != x.len)
		r = -EINVAL;
	if (r == 0)
		r = write_prepare(b, &w);
	if (r == 0)
		r = body_pin(b, true, &f);
	if (r < 0)
		return r;
	do {
		lock_take(&b->lock);
		r = write_locked(b, &f, &w);
		lock_drop(&b->lock);
		if (r == BODY_NEED_NEAR) {
			struct edge *e = w.wants_near;
			int g = near_gather(b, lay, e->block, e->block + 1,
					    &e->near);

			r = g < 0 ? g : BODY_NEED_NEAR;
		}
	} while (r == BODY_NEED_NEAR);
	body_unpin(b, true);
	body_report_damage(b, generation);
	return r;
}

static int make_all_sure(struct body *b, const struct body_layout *lay)
{
	if (atomic_load(&b->n_unsure) == 0)
		return 0;
	for (uint32_t bit = 0; bit < b->id.n_extents; bit++) {
		struct body_extent x;
		int r = body_extent(b, lay, bit, &x);

		if (r == 0)
			r = body_make_sure(b, bit, &x);
		if (r < 0)
			return r;
	}
	return 0;
}

/* fdatasync of @fd, which never succeeds again once it has failed. */
static int sync_file(struct body *b, int fd)
{
	if (atomic_load(&b->sync_failed))
		return -EIO;
	if (fdatasync(fd) < 0) {
		int r = -errno;

		atomic_store(&b->sync_failed, true);
		return r;
	}
	return 0;
}

static int mark_complete_locked(struct body *b, const struct body_fds *f,
				unsigned generation)
{
	struct state_header h = b->header;
	int r;

	if (generation != atomic_load(&b->generation))
		return -EAGAIN;
	h.phase = STATE_COMPLETE;
	h.frozen = true;
	memcpy(h.boot, b->bs->boot, sizeof(h.boot));
	r = state_write_header(f->state, &h);
	if (r == 0)
		b->header = h;
	return r;
}

/* Rule 5, with the lock held only where the header is written. */
static int complete_pinned(struct body *b, const struct body_fds *f,
			   unsigned generation)
{
	int r = sync_file(b, f->data);

	if (r == 0)
		r = sync_file(b, f->state);
	if (r == 0)
		r = fault_point("body_synced");
	if (r < 0)
		return r;
	lock_take(&b->lock);
	r = mark_complete_locked(b, f, generation);
	lock_drop(&b->lock);
	if (r == 0)
		r = fault_point("body_marked_complete");
	if (r == 0)
		r = sync_file(b, f->state);
	if (r < 0)
		return r;
	lock_take(&b->lock);
	if (b->header.phase == STATE_COMPLETE) {
		atomic_store(&b->frozen, true);
		atomic_store(&b->state, BODY_COMPLETE);
	} else {
		r = -EAGAIN; /* found damaged meanwhile */
	}
	lock_drop(&b->lock);
	return r;
}

static int complete_once(struct body *b, const struct body_layout *lay)
{
	unsigned generation = atomic_load(&b->generation);
	struct body_fds f;
	int r;

	if (atomic_load(&b->n_landed) != b->id.n_extents)
		return -EAGAIN;
	r = make_all_sure(b, lay);
	if (r == 0)
		r = body_pin(b, true, &f);
	if (r < 0)
		return r;
	r = complete_pinned(b, &f, generation);
	/* What is to be sealed from the page cache is dropped then. */
	if (r == 0 && !(atomic_load(&b->bs->keep_cached) &&
			b->id.size <= stream_cached_max()))
		stream_drop(f.data);
	body_unpin(b, true);
	return r;
}

int body_complete(struct body *b, const struct body_layout *lay)
{
	int r = -EAGAIN;

	if (body_get_state(b) != BODY_PARTIAL)
		return body_get_state(b) == BODY_BAD ? -EIO : 0;
	/* Again where an extent was lost and has landed anew meanwhile: nobody
	 * else would come and ask. */
	for (int i = 0; i < ATTEMPTS && r == -EAGAIN; i++)
		r = complete_once(b, lay);
	return r;
}
