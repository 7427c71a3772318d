/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be sealed of a layer, and how each kind of file is. A body has its
 * record in its state file (body_seal.c); the record of index and map is the
 * digest in the layer's row, which they have from the start.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/seal.h"
#include "verity/kernel.h"
#include "verity/stream.h"

static const char *file_name(uint32_t what)
{
	return what == SEAL_INDEX ? "index" : "map";
}

static const struct digest *file_digest(const struct layer *l, uint32_t what)
{
	return what == SEAL_INDEX ? &l->row.index_digest : &l->row.map_digest;
}

/* 1: sealed, as it must be. 0: not; *ret_fd is open. */
static int open_unsealed(struct layer *l, uint32_t what, int *ret_fd)
{
	owned(fd) int fd = openat(l->dirfd, file_name(what),
				  O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct digest d;

	if (fd < 0)
		return -errno;
	if (kernel_measure(fd, &d) == 0 &&
	    digest_equal(&d, file_digest(l, what)))
		return 1;
	stream_hint(fd);
	*ret_fd = take_fd(&fd);
	return 0;
}

static bool file_is_sealed(struct layer *l, uint32_t what)
{
	owned(fd) int fd = -1;

	return open_unsealed(l, what, &fd) == 1;
}

unsigned layer_seal_scan(struct layer *l,
			 void (*fn)(void *ctx, uint32_t seq, uint32_t what),
			 void *ctx)
{
	bool complete = atomic_load(&l->complete);
	unsigned n = 0;

	for (uint32_t what = SEAL_MAP; what <= SEAL_INDEX; what++) {
		if (file_is_sealed(l, what))
			continue;
		fn(ctx, l->row.seq, what);
		n++;
	}
	for (uint32_t i = 0; i < l->n_bodies; i++) {
		struct body *b;

		if (layer_find_body(l, i, &b) != 1)
			continue;
		if (body_get_state(b) == BODY_COMPLETE) {
			fn(ctx, l->row.seq, i);
			n++;
		} else if (body_get_state(b) != BODY_SEALED) {
			complete = false; /* damaged since it was */
		}
	}
	atomic_store(&l->sealed, complete && n == 0);
	return n;
}

static int begin_file(struct layer *l, uint32_t what, struct seal_target *ret)
{
	owned(fd) int fd = -1;
	struct stat st;
	int r = open_unsealed(l, what, &fd);

	if (r != 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct seal_target){ .fd = take_fd(&fd),
				     .size = (uint64_t)st.st_size,
				     .want = *file_digest(l, what) };
	return 0;
}

int layer_seal_begin(struct layer *l, uint32_t what, struct seal_target *ret)
{
	struct body_seal s;
	struct body *b;
	int r;

	if (what == SEAL_INDEX || what == SEAL_MAP)
		return begin_file(l, what, ret);
	if (what >= l->n_bodies)
		return -EINVAL;
	r = layer_find_body(l, what, &b);
	if (r != 1)
		return r < 0 ? r : 1;
	r = body_seal_begin(b, &s);
	if (r == -EALREADY || r == -EAGAIN)
		return 1; /* whoever completes it will ask */
	if (r < 0)
		return r;
	*ret = (struct seal_target){ .fd = s.fd,
				     .size = s.size,
				     .want = s.want,
				     .body = b,
				     .generation = s.generation };
	return 0;
}

int layer_seal_end(struct seal_target *t)
{
	struct body_seal s = { .fd = t->fd,
			       .size = t->size,
			       .want = t->want,
			       .generation = t->generation };

	return t->body ? body_seal_end(t->body, &s) : 0;
}

/* Index or map: never repaired, see layer_open.c. */
static int reject_file(struct layer *l)
{
	struct err e = ERR_INIT;

	if (vfile_check(l->index_file) == 0 && vfile_check(l->map_file) == 0)
		return -EBADMSG; /* of the file that is open nothing is wrong */
	if (layer_is_damaged(l) && layer_record_damage(l, &e) < 0) {
		log_err("damage not recorded: seq=%u err='%s'", l->row.seq,
			e.msg);
		return -EIO;
	}
	return 1;
}

int layer_seal_reject(struct layer *l, uint32_t what)
{
	int r;

	if (what == SEAL_INDEX || what == SEAL_MAP)
		return reject_file(l);
	r = layer_reject_body(l, what);
	return r == -EAGAIN ? 1 : r;
}
