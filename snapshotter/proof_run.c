/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of a layer into its two judges, the hash and the tree; see
 * proof_run.h. The files that the tree makes live in layer/<seq>/proof for a
 * moment.
 */
#include "snapshotter/proof_run.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/log.h"
#include "snapshotter/proof_stream.h"
#include "snapshotter/proof_tree.h"
#include "verity/sha256.h"

#define FOLDER "proof"

struct run {
	struct layer *l;
	struct sha256 *hash;
	struct proof_tree *tree;
	struct attempt
		*a; /* a->why is set: the tree is not looked at any more */
	const struct snap_link *below;
	struct snap_link *own_below; /* when it is ours to free */
	size_t n_below;
};

/* What speaks about the layer is kept, the rest ends the attempt. */
static int judge(struct run *u, int r, const struct err *found, struct err *e)
{
	if (r == 0)
		return 0;
	if (found->kind == ERR_CORRUPT || found->kind == ERR_UNSUPPORTED) {
		u->a->why = *found;
		return 0;
	}
	*e = *found;
	return -1;
}

static int sink_unit(void *ctx, const struct unit *un, const struct extent *x,
		     uint32_t n, struct err *e)
{
	struct run *u = ctx;
	struct err found = ERR_INIT;

	if (u->a->why.kind != ERR_NONE)
		return 0;
	return judge(u, proof_tree_unit(u->tree, un, x, n, &found), &found, e);
}

static int sink_bytes(void *ctx, const void *p, size_t len, struct err *e)
{
	struct run *u = ctx;
	struct err found = ERR_INIT;
	int r = sha256_update(u->hash, p, len);

	if (r < 0)
		return err_sys(e, r, "proof");
	if (u->a->why.kind != ERR_NONE)
		return 0;
	return judge(u, proof_tree_feed(u->tree, p, len, &found), &found, e);
}

/* ---- directories that are only implied ---- */

static bool find_below_request(struct run *u)
{
	struct layer *l = u->l;
	struct layer_want lw = { .below_known = true };

	lock_take(&l->ls->lock);
	lw.below = l->proof_below; /* stays what it is once it is set */
	lw.n_below = l->n_proof_below;
	lock_drop(&l->ls->lock);
	if (!lw.below || !layer_row_fits(&l->row, &lw))
		return false;
	u->below = lw.below;
	u->n_below = lw.n_below;
	return true;
}

/* What lay below when the layer was built: below one of its rows, or below the
 * request that waits for it. */
static int find_below(struct run *u, struct err *e)
{
	struct layer *l = u->l;
	struct store *s = l->ls->o.store;
	owned(mem) struct layer_use *uses = NULL;
	size_t n = 0;

	if (!l->row.parent_chain[0])
		return 0;
	if (find_below_request(u))
		return 0;
	if (store_layer_parents(s, l->row.seq, &uses, &n, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		struct layer_want lw = { .below_known = true };
		struct snap_link *below = NULL;
		struct err gone = ERR_INIT;

		if (uses[i].parent[0] &&
		    store_chain(s, uses[i].sn, uses[i].parent, &below,
				&lw.n_below, &gone) < 0)
			continue;
		lw.below = below;
		if (layer_row_fits(&l->row, &lw)) {
			u->below = u->own_below = below;
			u->n_below = lw.n_below;
			return 0;
		}
		free(below);
	}
	return err_set(e, ERR_UNAVAILABLE,
		       "the parents that the layer was built above are gone");
}

/* A tree that was built without a look below names all its directories. */
static int implied(void *ctx, const char *path, struct implied_attr *ret)
{
	struct run *u = ctx;

	if (!u->l->row.parent_chain[0]) {
		(void)err_set(
			&u->a->why, ERR_CORRUPT,
			"the table names directory '%.100s', the tar does not",
			path);
		return -ENOENT;
	}
	return layer_implied(u->l->ls, u->below, u->n_below, path, ret);
}

/* ---- the attempt ---- */

static int open_folder(struct layer *l)
{
	int r = remove_tree(l->dirfd, FOLDER);

	if (r < 0 && r != -ENOENT)
		return r;
	r = mkdir_exact(l->dirfd, FOLDER, 0700);
	return r < 0 ? r : open_dir(l->dirfd, FOLDER);
}

static int compare(struct run *u, struct err *e)
{
	struct layer *l = u->l;
	owned(fd) int dirfd = open_folder(l);
	struct digest index, map;
	struct err found = ERR_INIT;
	int r;

	if (dirfd < 0)
		return err_sys(e, dirfd, "folder of a proof");
	r = proof_tree_finish(u->tree, map_prefetch_end(l->map), dirfd, &index,
			      &map, &found);
	if (judge(u, r, &found, e) < 0)
		return -1;
	if (r == 0 && u->a->why.kind == ERR_NONE &&
	    (!digest_equal(&index, &l->row.index_digest) ||
	     !digest_equal(&map, &l->row.map_digest)))
		(void)err_set(
			&u->a->why, ERR_CORRUPT,
			"the table of contents does not tell what the tar stream tells");
	r = remove_tree(l->dirfd, FOLDER);
	if (r < 0 && r != -ENOENT)
		log_warn("folder of a proof is left: seq=%u err='%s'",
			 l->row.seq, strerror(-r));
	return 0;
}

static int run_stream(struct run *u, bool from_blob,
		      const struct proof_stream *ps, struct err *e)
{
	struct err found = ERR_INIT;
	int r = from_blob ? proof_stream_blob(ps, &u->a->same_blob, &found)
			  : proof_stream_local(ps, &found);

	/* A broken stream says more than what the tree made of it. */
	if (r < 0 && found.kind == ERR_CORRUPT) {
		u->a->why = found;
		r = 0;
	}
	if (r < 0) {
		*e = found;
		return -1;
	}
	r = sha256_end(u->hash, &u->a->diff_id);
	return r < 0 ? err_sys(e, r, "proof") : 0;
}

static int start_judges(struct run *u, struct err *e)
{
	struct builder_opts bo = { .implied = implied,
				   .ctx = u,
				   .userxattr = u->l->ls->o.userxattr };
	int r = sha256_new(&u->hash);

	memcpy(bo.uuid, u->l->row.toc.b, sizeof(bo.uuid));
	if (r == 0)
		r = proof_tree_new(&bo, &u->tree);
	return r < 0 ? err_sys(e, r, "proof") : 0;
}

int proof_attempt(struct layer *l, bool from_blob, bool may_fetch,
		  const atomic_bool *stop, struct attempt *ret, struct err *e)
{
	struct run u = { .l = l, .a = ret };
	struct proof_stream ps = { .l = l,
				   .sink = { sink_unit, sink_bytes, &u },
				   .stop = stop,
				   .may_fetch = may_fetch };
	int r;

	memset(ret, 0, sizeof(*ret));
	r = find_below(&u, e);
	if (r == 0)
		r = start_judges(&u, e);
	if (r == 0)
		r = run_stream(&u, from_blob, &ps, e);
	if (r == 0 && ret->why.kind == ERR_NONE)
		r = compare(&u, e);
	ret->sound = r == 0 && ret->why.kind == ERR_NONE;
	sha256_free(u.hash);
	proof_tree_free(u.tree);
	free(u.own_below);
	return r;
}
