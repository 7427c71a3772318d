/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a layer, for the scrubber; see scrub.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/scrub.h"
#include "snapshotter/seal.h"

static const char *file_name(uint32_t what)
{
	return what == SEAL_INDEX ? "index" : "map";
}

static const struct digest *file_digest(const struct layer *l, uint32_t what)
{
	return what == SEAL_INDEX ? &l->row.index_digest : &l->row.map_digest;
}

static struct vfile *file_of(const struct layer *l, uint32_t what)
{
	return what == SEAL_INDEX ? l->index_file : l->map_file;
}

static bool is_file(uint32_t what)
{
	return what == SEAL_INDEX || what == SEAL_MAP;
}

uint32_t layer_n_bodies(const struct layer *l)
{
	return l->n_bodies;
}

struct digest layer_body_name(struct layer *l, uint32_t i)
{
	struct map_body rec = { 0 };

	return map_body(l->map, i, &rec) < 0 ? (struct digest){ 0 } : rec.ckey;
}

static int begin_file(struct layer *l, uint32_t what, uint64_t only_ino,
		      struct scrub_target *ret)
{
	owned(fd) int fd = -1;
	struct stat st;

	if (atomic_load(&l->damage_recorded))
		return 1; /* known, and not to be repaired */
	fd = openat(l->dirfd, file_name(what),
		    O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == ELOOP))
		return only_ino ? 1 : -EBADMSG;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (only_ino && st.st_ino != only_ino)
		return 1;
	*ret = (struct scrub_target){ .fd = take_fd(&fd),
				      .size = vfile_size(file_of(l, what)),
				      .want = *file_digest(l, what) };
	return 0;
}

int layer_scrub_begin(struct layer *l, uint32_t what, uint64_t only_ino,
		      struct scrub_target *ret)
{
	struct body_scrub s;
	struct body *b;
	int r;

	if (is_file(what))
		return begin_file(l, what, only_ino, ret);
	r = layer_find_body(l, what, &b);
	if (r != 1)
		return r < 0 ? r : 1;
	r = body_scrub_begin(b, only_ino, &s);
	if (r == -EAGAIN)
		return 1; /* checked by its leaves at each read, or another */
	if (r < 0)
		return r;
	*ret = (struct scrub_target){ .fd = s.fd,
				      .size = s.size,
				      .want = s.want,
				      .body = b,
				      .leaves_bad = s.leaves_bad };
	return 0;
}

int layer_scrub_beside(struct layer *l, uint32_t what,
		       const struct scrub_target *t)
{
	int r;

	if (is_file(what))
		return vfile_renew_state(l->dirfd, file_name(what), &t->want);
	if (!t->leaves_bad)
		return 0;
	r = body_renew_leaves(t->body);
	return r == -EAGAIN ? 0 : r < 0 ? r : 1;
}

/* Either the open file is bad, too, or only its name has another one. */
static int heal_file(struct layer *l, uint32_t what, enum healed *ret)
{
	int r = layer_seal_reject(l, what);

	*ret = r == -EBADMSG ? HEALED : HEALED_NEW_LAYER;
	if (r == -EBADMSG)
		r = vfile_restore(file_of(l, what), l->dirfd, file_name(what));
	return r < 0 ? r : 0;
}

int layer_scrub_heal(struct layer *l, uint32_t what, enum healed *ret)
{
	int r;

	if (is_file(what)) {
		r = heal_file(l, what, ret);
	} else {
		r = layer_seal_reject(l, what);
		*ret = r == 0 ? HEALED : HEALED_FETCHING;
	}
	if (r >= 0) /* a new file is not sealed yet */
		sealing_layer(l->ls->sealing, l->row.seq);
	return r < 0 ? r : 0;
}
