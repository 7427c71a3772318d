/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finished bodies for who reads them again. What has the name of a body is
 * looked at, not what is open: that is what the next process will find, and what
 * somebody may have put there.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "snapshotter/body_priv.h"
#include "verity/stream.h"

int body_open_anew(struct body *b)
{
	owned(mem) struct retired *old = malloc(sizeof(*old));
	struct closing c = { .fd = { -1, -1, -1 } };

	if (!old)
		return -ENOMEM;
	lock_take(&b->bs->lock);
	if (b->n_pins)
		body_retire_locked(b, take_ptr(&old));
	else
		c = body_detach_fds(b);
	lock_drop(&b->bs->lock);
	body_close_all(&c);
	return 0;
}

/* What the file must be. 0, -EAGAIN, -EBADMSG, -errno as below. */
static int want_of(struct body *b, struct body_scrub *s)
{
	struct digest leaves = { 0 };
	bool sealed;
	int r = body_expected_digest(b, &leaves);

	if (r == -EINVAL)
		return -EAGAIN;
	lock_take(&b->lock);
	sealed = b->header.phase == STATE_SEALED;
	s->want = sealed ? b->header.seal : leaves;
	lock_drop(&b->lock);
	if (sealed && (r == -EIO || r == 0)) {
		s->leaves_bad = r < 0 || !digest_equal(&leaves, &s->want);
		return 0;
	}
	return r == -EIO || r == -ENOENT ? -EBADMSG : r;
}

int body_scrub_begin(struct body *b, uint64_t only_ino, struct body_scrub *ret)
{
	struct body_scrub s = { .size = b->id.size };
	owned(fd) int fd = -1;
	struct stat st;
	int r;

	if (body_get_state(b) != BODY_COMPLETE &&
	    body_get_state(b) != BODY_SEALED)
		return -EAGAIN;
	fd = body_open_file(b, "", O_RDONLY);
	if (fd == -ENOENT)
		return only_ino ? -EAGAIN : -EBADMSG;
	if (fd < 0)
		return fd;
	if (only_ino && (fstat(fd, &st) < 0 || st.st_ino != only_ino))
		return -EAGAIN;
	r = want_of(b, &s);
	if (r < 0)
		return r;
	s.fd = take_fd(&fd);
	*ret = s;
	return 0;
}

/* The leaves of [@off, @off + @len), from the data. */
static int renew(struct body *b, const struct body_fds *f, uint64_t off,
		 uint8_t *p, size_t len, struct digest *leaves)
{
	int r = stream_read(f->data, p, len, off);

	if (r == 0)
		r = leaves_hash(p, len, leaves);
	if (r < 0)
		return r;
	lock_take(&b->lock);
	if (body_get_state(b) != BODY_SEALED)
		r = -EAGAIN;
	else
		r = state_write_leaves(f->state, b->id.n_extents,
				       off / LEAF_BLOCK, leaves_count(len),
				       leaves);
	lock_drop(&b->lock);
	return r;
}

int body_renew_leaves(struct body *b)
{
	struct digest leaves[BODY_PIECE / LEAF_BLOCK], is;
	owned(mem) uint8_t *p = malloc(BODY_PIECE);
	struct body_fds f;
	int r = p ? body_pin(b, false, &f) : -ENOMEM;

	if (r < 0)
		return r;
	if (!f.sealed)
		r = -EAGAIN;
	for (uint64_t off = 0; r == 0 && off < b->id.size; off += BODY_PIECE) {
		uint64_t left = b->id.size - off;

		r = renew(b, &f, off, p,
			  left < BODY_PIECE ? (size_t)left : BODY_PIECE,
			  leaves);
	}
	if (r == 0 && fdatasync(f.state) < 0)
		r = -errno;
	body_unpin(b, false);
	if (r == 0)
		r = body_expected_digest(b, &is);
	if (r == 0 && !digest_equal(&is, &b->header.seal))
		r = -EBADMSG;
	return r;
}
