/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when a block does not match its leaf, and after a power cut:
 * the landed extents are hashed against their own digests, the good ones keep
 * their bit, the others lose it and are fetched again.
 *
 * Neighbours are gathered from the layout before the lock is taken: the layout
 * is immutable, and its callbacks may read other files.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/body_priv.h"
#include "verity/sha256.h"
#include "verity/stream.h"

/* At most so many neighbours at once. One block has fewer: extents have at
 * least one byte. */
#define NEAR_MAX 8192
#define HASH_PIECE (256u << 10)

void near_release(struct near *near)
{
	free(near->v);
	*near = (struct near){ 0 };
}

static int near_add(struct near *near, size_t *cap, uint32_t bit,
		    const struct body_extent *x)
{
	if (near->n == *cap) {
		size_t more = *cap ? *cap * 2 : 16;
		struct near_extent *v = realloc(near->v, more * sizeof(*v));

		if (!v)
			return -ENOMEM;
		near->v = v;
		*cap = more;
	}
	near->v[near->n++] = (struct near_extent){ bit, *x };
	return 0;
}

/* Too many: only whole blocks before the last extent found. */
static void near_cut(struct near *near)
{
	near->end = near->v[near->n - 1].x.off / LEAF_BLOCK;
	while (near->n && near->v[near->n - 1].x.off >= near->end * LEAF_BLOCK)
		near->n--;
}

int near_gather(struct body *b, const struct body_layout *lay, uint64_t first,
		uint64_t end, struct near *ret)
{
	struct near near = { .first = first, .end = end };
	size_t cap = 0;
	uint32_t bit;
	int r = lay->find(lay->ctx, first * LEAF_BLOCK, &bit);

	if (r == -ENOENT) {
		bit = b->id.n_extents;
		r = 0;
	}
	for (; r == 0 && bit < b->id.n_extents; bit++) {
		struct body_extent x;

		r = body_extent(b, lay, bit, &x);
		if (r < 0 || x.off >= end * LEAF_BLOCK)
			break;
		r = near_add(&near, &cap, bit, &x);
		if (near.n == NEAR_MAX) {
			near_cut(&near);
			/* only where the layout breaks its promises */
			r = near.end > first ? 0 : -EUCLEAN;
			break;
		}
	}
	if (r < 0) {
		near_release(&near);
		return r;
	}
	near_release(ret);
	*ret = near;
	return 0;
}

bool near_any_landed(struct body *b, const struct near *near)
{
	for (size_t i = 0; i < near->n; i++) {
		if (bit_get(b->bits, near->v[i].bit))
			return true;
	}
	return false;
}

/* The blocks being settled. All decisions are taken on these bytes, read once:
 * a disk that answers differently each time cannot slip in between. */
struct window {
	uint64_t first, end; /* blocks */
	uint8_t *data;
	bool *unreadable; /* by block */
	bool *kept; /* by block: a good extent touches it */
};

static void window_release(struct window *w)
{
	free(w->data);
	free(w->unreadable);
	free(w->kept);
}

static void owned_window(struct window *w)
{
	window_release(w);
}

static int window_read(struct body *b, const struct body_fds *f,
		       const struct near *near, struct window *w)
{
	size_t n = near->end - near->first;

	w->first = near->first;
	w->end = near->end;
	w->data = calloc(n, LEAF_BLOCK);
	w->unreadable = calloc(n, sizeof(*w->unreadable));
	w->kept = calloc(n, sizeof(*w->kept));
	if (!w->data || !w->unreadable || !w->kept)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint8_t *p = w->data + i * LEAF_BLOCK;
		uint64_t off = (w->first + i) * LEAF_BLOCK;
		size_t len = block_len(b, w->first + i);
		int r = stream_read(f->data, p, len, off);

		/* Cut short: what is missing becomes zeros, to be judged as
		 * such. Never shortens: only here and in body_load(). */
		if (r == -ENODATA && f->write >= 0 &&
		    ftruncate(f->write, (off_t)b->id.size) == 0)
			r = stream_read(f->data, p, len, off);
		if (r == -EIO || (r == -ENODATA && f->write < 0))
			w->unreadable[i] = true;
		else if (r < 0)
			return r;
	}
	return 0;
}

/* The piece of [off, off + len) that begins at @off and lies wholly inside or
 * wholly outside of the window. Inside: *ret_p are its bytes; else NULL. */
static int window_piece(const struct window *w, uint64_t off, uint64_t len,
			const uint8_t **ret_p, size_t *ret_len)
{
	uint64_t begin = w->first * LEAF_BLOCK, end = w->end * LEAF_BLOCK;
	size_t n = len < HASH_PIECE ? (size_t)len : HASH_PIECE;

	*ret_p = NULL;
	if (off >= begin && off < end) {
		size_t in_block = LEAF_BLOCK - off % LEAF_BLOCK;

		if (w->unreadable[off / LEAF_BLOCK - w->first])
			return -EIO;
		*ret_p = w->data + (off - begin);
		*ret_len = n < in_block ? n : in_block;
		return 0;
	}
	if (off < begin && n > begin - off)
		n = begin - off;
	*ret_len = n;
	return 0;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && !memcmp(p, p + 1, len - 1));
}

/* 1: @x holds what it must, 0: not, -errno: cannot be told. */
static int hash_extent(const struct body_fds *f, const struct body_extent *x,
		       const struct window *w)
{
	owned(mem) uint8_t *piece = malloc(HASH_PIECE);
	owned(sha256) struct sha256 *hash = NULL;
	uint64_t off = x->off, left = x->len;
	struct digest d;
	int r = piece ? sha256_new(&hash) : -ENOMEM;

	while (r == 0 && left) {
		const uint8_t *p;
		size_t n;

		r = window_piece(w, off, left, &p, &n);
		if (r == 0 && !p) {
			r = stream_read(f->data, piece, n, off);
			p = piece;
		}
		if (r == -EIO || r == -ENODATA)
			return 0;
		if (r == 0 && x->hole && !all_zero(p, n))
			return 0;
		if (r == 0)
			r = sha256_update(hash, p, n);
		off += n;
		left -= n;
	}
	if (r == 0)
		r = sha256_end(hash, &d);
	if (r < 0)
		return r;
	return x->hole || digest_equal(&d, &x->digest);
}

/* A complete body becomes partial, durably and before anything else: after a
 * power cut a header that still says COMPLETE would vouch for blocks that get
 * new leaves now, in spite of the bad extents in them. The only fdatasync under
 * a body's lock; once in the life of a damaged body. */
int body_demote_locked(struct body *b, const struct body_fds *f)
{
	struct state_header h = b->header;
	int r;

	if (h.phase == STATE_BAD)
		return -EIO;
	if (h.phase == STATE_PARTIAL)
		return 0;
	h.phase = STATE_PARTIAL;
	memset(&h.seal, 0, sizeof(h.seal));
	memcpy(h.boot, b->bs->boot, sizeof(h.boot));
	r = state_write_header(f->state, &h);
	if (r == 0)
		r = fault_point("body_demoted");
	if (r < 0)
		return r;
	b->header = h;
	atomic_store(&b->state, BODY_PARTIAL);
	atomic_store(&b->bs->damaged, true); /* told by body_unpin() */
	return fdatasync(f->state) < 0 ? -errno : 0;
}

/* A hole cannot be fetched: it is written again here and now. In the file that
 * takes the place of a finished one it is whole from the start. */
static int refill_hole(struct body *b, const struct body_fds *f,
		       const struct body_extent *x, const struct window *w)
{
	static const uint8_t zeros[LEAF_BLOCK];
	uint64_t off = x->off, end = x->off + x->len;
	int r = f->write < 0 ? body_demote_locked(b, f) : 0;

	while (r == 0 && f->write >= 0 && off < end) {
		size_t n = end - off < sizeof(zeros) ? (size_t)(end - off)
						     : sizeof(zeros);

		r = stream_write(f->write, zeros, n, off, b->id.size);
		off += n;
	}
	for (uint64_t i = w->first; r == 0 && i < w->end; i++) {
		uint64_t from = i * LEAF_BLOCK, to = from + block_len(b, i);
		uint8_t *p = w->data + (i - w->first) * LEAF_BLOCK;

		if (from < x->off)
			from = x->off;
		if (to > end)
			to = end;
		if (from < to)
			memset(p + from % LEAF_BLOCK, 0, to - from);
		if (from == i * LEAF_BLOCK && to == from + block_len(b, i))
			w->unreadable[i - w->first] = false;
	}
	return r;
}

/* As hash_extent(), but a hole is made good. */
static int judge_locked(struct body *b, const struct body_fds *f,
			const struct body_extent *x, const struct window *w)
{
	int r = hash_extent(f, x, w);

	if (r != 0 || !x->hole)
		return r;
	r = refill_hole(b, f, x, w);
	return r < 0 ? r : 1;
}

static void set_sure_locked(struct body *b, const struct body_fds *f,
			    uint32_t bit)
{
	struct state_header h = b->header;

	if (!b->unsure || !bit_get(b->unsure, bit))
		return;
	atomic_fetch_and(&b->unsure[bit / 8], (uint8_t) ~(1u << bit % 8));
	if (atomic_fetch_sub(&b->n_unsure, 1) != 1)
		return;
	/* The last one: all that is landed was seen or written in this boot.
	 * If it cannot be noted, the next process looks again. */
	memcpy(h.boot, b->bs->boot, sizeof(h.boot));
	if (state_write_header(f->state, &h) == 0)
		b->header = h;
	(void)fault_point("body_boot_adopted");
}

/* The order matters. The generation steps before leaves change: who reads data
 * with a new leaf has to see that the bits have changed, too. The bit stays in
 * doubt until it is gone from the disk: a header with this boot's id would vouch
 * for it. */
static int clear_bit_locked(struct body *b, const struct body_fds *f,
			    uint32_t bit)
{
	int r;

	atomic_fetch_and(&b->bits[bit / 8], (uint8_t) ~(1u << bit % 8));
	atomic_fetch_sub(&b->n_landed, 1);
	atomic_fetch_add(&b->generation, 1);
	r = body_store_bits_locked(b, f, bit / STATE_SECTOR_BITS, NULL);
	if (r == 0)
		set_sure_locked(b, f, bit);
	return r;
}

int body_lose_all(struct body *b, const struct body_layout *lay)
{
	owned(fd) int state = body_open_file(b, ".state", O_RDWR);
	const struct body_fds f = { .data = -1, .state = state, .write = -1 };
	int r;

	if (state < 0)
		return state;
	lock_take(&b->lock);
	r = body_demote_locked(b, &f);
	lock_drop(&b->lock);
	for (uint32_t bit = 0; r == 0 && bit < b->id.n_extents; bit++) {
		struct body_extent x;

		r = body_extent(b, lay, bit, &x);
		if (r < 0 || x.hole) /* which another file has at once */
			continue;
		lock_take(&b->lock);
		if (bit_get(b->bits, bit))
			r = clear_bit_locked(b, &f, bit);
		lock_drop(&b->lock);
	}
	return r;
}

void body_report_damage(struct body *b, unsigned generation)
{
	unsigned n = atomic_load(&b->generation) - generation;
	char path[BODY_PATH_MAX];

	if (!n)
		return;
	body_path(&b->id, "", path);
	log_limited(
		LOG_LEVEL_WARN, path,
		"extents are damaged on disk, fetching them again: body=%s extents=%u",
		path, n);
}

/* Blocks of kept extents whose leaf is not that of the bytes just judged. */
static int renew_leaves(struct body *b, const struct body_fds *f,
			const struct window *w)
{
	for (uint64_t i = w->first; i < w->end; i++) {
		struct digest is, was;
		int r;

		if (!w->kept[i - w->first])
			continue;
		r = leaf_hash(w->data + (i - w->first) * LEAF_BLOCK,
			      block_len(b, i), &is);
		if (r < 0)
			return r;
		if (state_read_leaves(f->state, b->id.n_extents, i, 1, &was) ==
			    0 &&
		    digest_equal(&is, &was))
			continue;
		r = state_write_leaves(f->state, b->id.n_extents, i, 1, &is);
		if (r < 0)
			return r;
	}
	return fault_point("body_leaves_renewed");
}

static void mark_kept(const struct body_extent *x, const struct window *w)
{
	uint64_t first = x->off / LEAF_BLOCK;
	uint64_t end = leaves_count(x->off + x->len);

	for (uint64_t i = w->first; i < w->end; i++) {
		if (i >= first && i < end)
			w->kept[i - w->first] = true;
	}
}

/* Leaves come after all bits: killed in between, the old leaves still do not
 * match, and all of it happens again. */
int body_settle_locked(struct body *b, const struct body_fds *f,
		       const struct near *near)
{
	owned(window) struct window w = { 0 };
	int r = window_read(b, f, near, &w);

	for (size_t i = 0; r >= 0 && i < near->n; i++) {
		const struct near_extent *e = &near->v[i];

		if (!bit_get(b->bits, e->bit))
			continue;
		r = judge_locked(b, f, &e->x, &w);
		if (r == 1) {
			set_sure_locked(b, f, e->bit);
			mark_kept(&e->x, &w);
		} else if (r == 0) {
			r = body_demote_locked(b, f);
			if (r == 0)
				r = clear_bit_locked(b, f, e->bit);
		}
	}
	if (r >= 0)
		r = fault_point("body_bits_cleared");
	return r < 0 ? r : renew_leaves(b, f, &w);
}

static int make_sure_locked(struct body *b, const struct body_fds *f,
			    uint32_t bit, const struct body_extent *x)
{
	const struct window none = { 0 };
	bool alone = x->off % LEAF_BLOCK == 0 &&
		     ((x->off + x->len) % LEAF_BLOCK == 0 ||
		      x->off + x->len == b->id.size);
	int r;

	if (!bit_get(b->bits, bit))
		return -EAGAIN;
	if (!bit_get(b->unsure, bit))
		return 0;
	/* Alone in its blocks, a stale extent does not match its leaves. */
	r = alone ? 1 : judge_locked(b, f, x, &none);
	if (r == 0)
		r = clear_bit_locked(b, f, bit);
	else if (r == 1)
		set_sure_locked(b, f, bit);
	if (r < 0)
		return r;
	return bit_get(b->bits, bit) ? 0 : -EAGAIN;
}

int body_make_sure(struct body *b, uint32_t bit, const struct body_extent *x)
{
	unsigned generation = atomic_load(&b->generation);
	struct body_fds f;
	bool write;
	int r;

	if (!b->unsure || !bit_get(b->unsure, bit))
		return 0;
	write = !atomic_load(&b->frozen);
	r = body_pin(b, write, &f);
	if (r < 0)
		return r;
	lock_take(&b->lock);
	r = make_sure_locked(b, &f, bit, x);
	lock_drop(&b->lock);
	body_unpin(b, write);
	body_report_damage(b, generation);
	return r;
}
