/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a layer: opening and closing them, and what is done when they are
 * damaged.
 *
 * A layer whose index or map is not what was built is never repaired: kernels
 * and containers know its inode numbers. Its row becomes bad, which makes room
 * for a new one, and it serves who has it as far as it can. FUSE threads only
 * see the damage; the row is written by who can wait for the database.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"

int layer_dir(struct layers *ls, uint32_t seq)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "layer/%u", seq);
	return open_dir(ls->o.rootfd, path);
}

/* ---- opening ---- */

static int open_index(struct layer *l)
{
	struct index_io io = { .pread = vfile_pread };
	int r = vfile_open(l->dirfd, "index", &l->row.index_digest,
			   &l->index_file);

	if (r < 0)
		return r;
	io.ctx = l->index_file;
	io.size = vfile_size(l->index_file);
	return index_open(&io, &l->index);
}

static int open_map(struct layer *l)
{
	struct vfile *v = NULL;
	struct err e = ERR_INIT;
	int r = vfile_open(l->dirfd, "map", &l->row.map_digest, &v);

	if (r < 0)
		return r;
	if (map_open(v, &l->map, &e) < 0) {
		log_err("map refused: layer=%s seq=%u image='%s' err='%s'",
			digest_str(&l->row.blob).s, l->row.seq, l->row.image,
			e.msg);
		return -EUCLEAN;
	}
	l->map_file = v; /* the map's now */
	l->n_bodies = map_n_bodies(l->map);
	l->bodies = calloc(l->n_bodies ? l->n_bodies : 1, sizeof(*l->bodies));
	return l->bodies ? 0 : -ENOMEM;
}

static int open_files(struct layer *l)
{
	struct fill_ops ops;
	int r;

	l->dirfd = layer_dir(l->ls, l->row.seq);
	if (l->dirfd < 0)
		return l->dirfd;
	r = open_index(l);
	if (r == 0)
		r = open_map(l);
	if (r == 0)
		r = layer_open_blob(l);
	if (r < 0)
		return r;
	/* A full disk is no reason to refuse what can be read. One record more
	 * than units: the table of contents. */
	if (atomic_load(&l->proof) == PROOF_NONE)
		r = residue_open(l->dirfd, map_n_units(l->map) + 1,
				 &l->residue);
	else /* as a death between the two steps of a verdict leaves it */
		(void)unlinkat(l->dirfd, "residue", 0);
	if (r < 0)
		log_warn("residue is not kept: seq=%u err='%s'", l->row.seq,
			 strerror(-r));
	layer_fill_ops(l, &ops);
	return fill_new(l->ls->o.filler, l->map, l->blob, &ops, &l->fill);
}

void layer_close_files(struct layer *l)
{
	fill_free(l->fill);
	for (uint32_t i = 0; l->bodies && i < l->n_bodies; i++)
		body_put(l->bodies[i]);
	free(l->bodies);
	blob_unref(l->blob);
	residue_close(l->residue);
	map_close(l->map);
	index_close(l->index);
	vfile_close(l->index_file);
	if (l->dirfd >= 0)
		(void)close(l->dirfd);
	l->fill = NULL;
	l->bodies = NULL;
	l->blob = NULL;
	l->residue = NULL;
	l->map = NULL;
	l->map_file = NULL;
	l->src.index = l->index = NULL;
	l->index_file = NULL;
	l->dirfd = -1;
}

/* What says that the files are not what was built. All else may pass: memory,
 * file descriptors, a disk that cannot be read just now. */
static bool is_damage(int r)
{
	return r == -EUCLEAN || r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* The one thread that finds LAYER_CLOSED opens, others wait for it. */
void layer_open_locked(struct layer *l)
{
	struct layers *ls = l->ls;
	int r;

	while (l->state == LAYER_OPENING)
		cond_wait(&ls->changed, &ls->lock);
	if (l->state == LAYER_OPEN || l->state == LAYER_BROKEN)
		return;
	l->state = LAYER_OPENING;
	lock_drop(&ls->lock);
	r = open_files(l);
	if (r < 0) {
		/* Each read tries again. */
		log_limited(
			LOG_LEVEL_ERR, digest_str(&l->row.blob).s,
			"layer cannot be opened: layer=%s seq=%u image='%s' err='%s'",
			digest_str(&l->row.blob).s, l->row.seq, l->row.image,
			strerror(-r));
		layer_close_files(l);
	} else {
		layer_check_complete(l);
	}
	lock_take(&ls->lock);
	if (r == 0) {
		layer_use_repos_locked(l); /* what was learned meanwhile */
		l->src.index = l->index;
	}
	l->state = r == 0         ? LAYER_OPEN
		   : is_damage(r) ? LAYER_BROKEN
				  : LAYER_CLOSED;
	cond_broadcast(&ls->changed);
}

/* ---- damage ---- */

bool layer_is_damaged(struct layer *l)
{
	bool r;

	lock_take(&l->ls->lock);
	r = l->state == LAYER_BROKEN ||
	    (l->state == LAYER_OPEN && (vfile_is_damaged(l->index_file) ||
					vfile_is_damaged(l->map_file)));
	lock_drop(&l->ls->lock);
	return r;
}

int layer_record_damage(struct layer *l, struct err *e)
{
	if (atomic_load(&l->damage_recorded))
		return 0;
	if (store_set_bad(l->ls->o.store, l->row.seq, e) < 0)
		return -1;
	if (!atomic_exchange(&l->damage_recorded, true))
		log_err("layer is damaged, a new one takes its place: layer=%s seq=%u image='%s'",
			digest_str(&l->row.blob).s, l->row.seq, l->row.image);
	return 0;
}

/* Whole, once: else who comes next would be the one to find the damage. What
 * other errors mean shows when somebody reads. */
static void check_files(struct layer *l)
{
	if (atomic_exchange(&l->checked, true))
		return;
	if (vfile_check(l->index_file) < 0 || vfile_check(l->map_file) < 0)
		log_warn("layer cannot be checked: layer=%s seq=%u",
			 digest_str(&l->row.blob).s, l->row.seq);
}

int layers_check(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct err *e)
{
	struct layer *l = layer_get(ls, seq);
	int r;

	if (!l)
		return 0;
	if (layer_state(l) == LAYER_OPEN)
		check_files(l);
	if (layer_is_damaged(l))
		r = layer_record_damage(l, e);
	else if (layer_state(l) == LAYER_OPEN)
		r = 1;
	else
		r = err_set(e, ERR_UNAVAILABLE,
			    "layer cannot be opened at present (see the log)");
	if (r == 1 && digest_equal(&l->row.blob, &lw->desc.blob))
		layer_learn_repo(ls, &l->row, &lw->ref);
	layer_put(l);
	return r;
}
