/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a body that is complete: the kernel seals its file, and where
 * it turns out to be damaged another file takes its place.
 *
 * The record of a seal is the header of the state file, and nothing else: phase
 * SEALED with the digest. It is written once the kernel's digest is durable and
 * equals the one that follows from the leaves. It counts only while the file
 * that is there measures the same; else the body is merely complete, its blocks
 * are checked by their leaves, and it is to be sealed again. state.db has no
 * copy: bodies are opened by FUSE threads, which must not wait for it, and two
 * records could differ.
 *
 * Death at any step of a replacement leaves the old file or the new one under
 * the name, never half of one: the header says PARTIAL and frozen until the new
 * one has the name, and frozen only makes the next process replace it again.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/body_priv.h"
#include "verity/kernel.h"
#include "verity/stream.h"

/* ---- the digest ---- */

static int add_all_leaves(struct body *b, const struct body_fds *f,
			  struct leaf_tree *tree)
{
	uint64_t n_all = leaves_count(b->id.size);
	struct digest leaves[256];

	for (uint64_t i = 0; i < n_all; i += ARRAY_LEN(leaves)) {
		size_t n = n_all - i < ARRAY_LEN(leaves) ? (size_t)(n_all - i)
							 : ARRAY_LEN(leaves);
		int r = state_read_leaves(f->state, b->id.n_extents, i, n,
					  leaves);

		if (r == 0)
			r = leaf_tree_add(tree, leaves, n);
		if (r < 0)
			return r;
	}
	return 0;
}

int body_expected_digest(struct body *b, struct digest *ret)
{
	owned(leaf_tree) struct leaf_tree *tree = NULL;
	enum body_state state = body_get_state(b);
	struct body_fds f;
	int r;

	if (state != BODY_COMPLETE && state != BODY_SEALED)
		return -EINVAL;
	r = leaf_tree_new(b->id.size, &tree);
	if (r == 0)
		r = body_pin(b, false, &f);
	if (r < 0)
		return r;
	r = add_all_leaves(b, &f, tree);
	body_unpin(b, false);
	return r < 0 ? r : leaf_tree_end(tree, ret);
}

bool body_fd_is_sealed(int fd, const struct digest *seal)
{
	struct digest d;

	return kernel_measure(fd, &d) == 0 && digest_equal(&d, seal);
}

/* ---- sealing ---- */

/* Steps with every damage and every new file. */
static unsigned generation(struct body *b)
{
	return atomic_load(&b->generation) + atomic_load(&b->n_replaced);
}

int body_seal_begin(struct body *b, struct body_seal *ret)
{
	owned(fd) int fd = -1;
	struct body_seal s;
	int r;

	s.generation = generation(b);
	switch (body_get_state(b)) {
	case BODY_SEALED:
		return -EALREADY;
	case BODY_COMPLETE:
		break;
	default:
		return -EAGAIN;
	}
	r = body_expected_digest(b, &s.want);
	if (r < 0)
		return r == -EINVAL ? -EAGAIN : r;
	fd = body_open_file(b, "", O_RDONLY);
	if (fd < 0)
		return fd;
	s.fd = take_fd(&fd);
	s.size = b->id.size;
	*ret = s;
	return 0;
}

static int record_locked(struct body *b, const struct body_fds *f,
			 const struct body_seal *s)
{
	struct state_header h = b->header;
	int r;

	if (body_get_state(b) != BODY_COMPLETE ||
	    s->generation != generation(b))
		return -EAGAIN;
	h.phase = STATE_SEALED;
	h.frozen = true;
	h.seal = s->want;
	r = state_write_header(f->state, &h);
	if (r == 0)
		b->header = h;
	return r;
}

/* Durable first, then believed. */
static int record(struct body *b, const struct body_fds *f,
		  const struct body_seal *s)
{
	int r;

	lock_take(&b->lock);
	r = record_locked(b, f, s);
	lock_drop(&b->lock);
	if (r == 0)
		r = fault_point("body_marked_sealed");
	if (r == 0 && fdatasync(f->state) < 0)
		r = -errno;
	if (r < 0)
		return r;
	lock_take(&b->lock);
	if (b->header.phase == STATE_SEALED) {
		atomic_store(&b->frozen, true);
		atomic_store(&b->state, BODY_SEALED);
	} else {
		r = -EAGAIN; /* found damaged meanwhile */
	}
	lock_drop(&b->lock);
	return r;
}

int body_seal_end(struct body *b, const struct body_seal *s)
{
	owned(mem) struct retired *old = malloc(sizeof(*old));
	struct body_fds f;
	int r = old ? body_pin(b, false, &f) : -ENOMEM;

	if (r < 0)
		return r;
	r = record(b, &f, s);
	if (r == 0) {
		lock_take(&b->bs->lock);
		b->seal = s->want;
		body_retire_locked(b, take_ptr(&old));
		lock_drop(&b->bs->lock);
	}
	body_unpin(b, false);
	return r == 0 ? fault_point("body_sealed") : r;
}

/* ---- damage ---- */

/* Reading is what finds damage and settles it. */
static int read_all(struct body *b, const struct body_layout *lay)
{
	owned(mem) void *p = malloc(BODY_PIECE);
	int r = p ? 0 : -ENOMEM;

	for (uint32_t bit = 0; r == 0 && bit < b->id.n_extents; bit++) {
		struct body_extent x;

		r = body_extent(b, lay, bit, &x);
		for (uint32_t at = 0; r == 0 && at < x.len; at += BODY_PIECE)
			r = body_read(b, lay, x.off + at, p,
				      x.len - at < BODY_PIECE ? x.len - at
							      : BODY_PIECE);
		if (r == -EAGAIN || r == -EIO)
			r = 0; /* lost, or another extent's affair */
	}
	return r;
}

int body_reject(struct body *b, const struct body_layout *lay)
{
	struct body_fds f;
	int r = body_open_anew(b);

	if (r == 0)
		r = read_all(b, lay);
	if (r == 0)
		r = body_pin(b, false, &f);
	if (r == -ENOENT) /* read_all() has made nothing of it, or cannot */
		return body_get_state(b) == BODY_PARTIAL ? -EAGAIN : -EIO;
	if (r < 0)
		return r;
	lock_take(&b->lock);
	r = body_demote_locked(b, &f);
	lock_drop(&b->lock);
	body_unpin(b, false);
	return r < 0 ? r : body_complete(b, lay);
}

/* ---- another file ---- */

struct copy {
	struct body *b;
	int from, to, state;
	uint8_t data[BODY_PIECE];
	struct digest leaves[BODY_PIECE / LEAF_BLOCK];
};

/* Blocks [@i, @i + @n) of the piece at @off, which match their leaves. */
static int copy_run(struct copy *c, uint64_t off, size_t i, size_t n)
{
	uint64_t at = off + i * LEAF_BLOCK;
	uint64_t left = c->b->id.size - at;
	size_t len = left < n * LEAF_BLOCK ? (size_t)left : n * LEAF_BLOCK;

	return n == 0 ? 0
		      : stream_write(c->to, c->data + i * LEAF_BLOCK, len, at,
				     c->b->id.size);
}

/* What cannot be read at once is read by block. 1: none of block @i. */
static int read_block(struct copy *c, uint64_t off, size_t i)
{
	uint64_t block = off / LEAF_BLOCK + i;
	uint8_t *p = c->data + i * LEAF_BLOCK;
	int r = stream_read(c->from, p, block_len(c->b, block),
			    block * LEAF_BLOCK);

	return r == -EIO || r == -ENODATA ? 1 : r;
}

static int copy_piece(struct copy *c, uint64_t off, size_t len)
{
	size_t n = leaves_count(len), run = 0, i = 0;
	bool whole = stream_read(c->from, c->data, len, off) == 0;
	int r = state_read_leaves(c->state, c->b->id.n_extents,
				  off / LEAF_BLOCK, n, c->leaves);

	for (; r == 0 && i < n; i++) {
		struct digest d;
		int bad = whole ? 0 : read_block(c, off, i);

		if (bad == 0)
			r = leaf_hash(c->data + i * LEAF_BLOCK,
				      block_len(c->b, off / LEAF_BLOCK + i),
				      &d);
		if (bad < 0)
			r = bad;
		if (r == 0 && (bad || !digest_equal(&d, &c->leaves[i]))) {
			r = copy_run(c, off, run, i - run);
			run = i + 1;
		}
	}
	return r < 0 ? r : copy_run(c, off, run, i - run);
}

static int copy_blocks(struct body *b, int from, int state, int to)
{
	owned(mem) struct copy *c = malloc(sizeof(*c));
	int r = 0;

	if (!c)
		return -ENOMEM;
	c->b = b;
	c->from = from;
	c->state = state;
	c->to = to;
	if (ftruncate(to, (off_t)b->id.size) < 0)
		return -errno;
	for (uint64_t off = 0; r == 0 && from >= 0 && off < b->id.size;
	     off += BODY_PIECE) {
		uint64_t left = b->id.size - off;

		r = copy_piece(c, off,
			       left < BODY_PIECE ? (size_t)left : BODY_PIECE);
	}
	if (r == 0 && fdatasync(to) < 0)
		r = -errno;
	return r;
}

/* The new file gets the name of the old one, durably. */
static int publish(struct body *b, const char *tmp)
{
	char path[BODY_PATH_MAX], *slash;
	int r;

	body_path(&b->id, "", path);
	if (renameat(b->bs->rootfd, tmp, b->bs->rootfd, path) < 0)
		return -errno;
	r = fault_point("body_replaced");
	slash = strrchr(path, '/');
	*slash = '\0';
	return r < 0 ? r : fsync_dir(b->bs->rootfd, path);
}

/* From now on it may be written to. Not synced: whoever finds the old header
 * copies once more. */
static int thaw(struct body *b, int state)
{
	struct state_header h;
	int r;

	lock_take(&b->lock);
	h = b->header;
	h.frozen = false;
	r = h.phase == STATE_PARTIAL ? state_write_header(state, &h) : -EAGAIN;
	if (r == 0) {
		b->header = h;
		atomic_store(&b->frozen, false);
		atomic_fetch_add(&b->n_replaced, 1);
	}
	lock_drop(&b->lock);
	return r;
}

int body_replace(struct body *b)
{
	char tmp[BODY_PATH_MAX];
	owned(fd) int from = -1;
	owned(fd) int state = -1;
	owned(fd) int to = -1;
	int r;

	from = body_open_file(b, "", O_RDONLY);
	if (from < 0 && from != -ENOENT)
		return from;
	state = body_open_file(b, ".state", O_RDWR);
	if (state < 0)
		return state;
	body_path(&b->id, ".tmp", tmp);
	if (unlinkat(b->bs->rootfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	to = openat(b->bs->rootfd, tmp,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	r = copy_blocks(b, from, state, to);
	if (r == 0)
		r = fault_point("body_copied");
	if (r < 0) {
		(void)unlinkat(b->bs->rootfd, tmp, 0);
		return r;
	}
	r = publish(b, tmp);
	return r < 0 ? r : thaw(b, state);
}
