/* SPDX-License-Identifier: Apache-2.0 */
/* From a tar stream to the digests of the files it would make; proof_tree.h. */
#include "snapshotter/proof_tree.h"

#include <inttypes.h>

#include "snapshotter/formats/estargz.h"
#include "snapshotter/formats/tar.h"
#include "verity/vfile.h"

struct proof_tree {
	struct tar *tar;
	struct estargz_tar *norm;
	struct builder *builder;
	uint64_t off; /* bytes of the stream so far */
	uint64_t unit_off; /* where the current unit begins */
	uint32_t unit; /* its number in the builder */
	const struct extent *x;
	uint32_t n_x, next_x;
	uint32_t x_left; /* bytes of x[next_x - 1] still to come */
	uint32_t file; /* handle of the entry that contents belong to */
	uint64_t file_pos, file_size;
};

static int give_extent(struct proof_tree *t, struct err *e)
{
	struct extent x = t->x[t->next_x];

	if (x.len > t->file_size - t->file_pos)
		return err_set(e, ERR_CORRUPT,
			       "a chunk goes beyond a file of the tar");
	x.unit = t->unit;
	t->next_x++;
	t->x_left = x.len;
	return builder_sink.extent(t->builder, t->file, t->file_pos, &x, e);
}

/*
 * Contents of the current file. What no extent covers belongs to a file that is
 * hidden, or the builder misses it in the end.
 */
static int on_data(void *ctx, uint64_t off, size_t len, struct err *e)
{
	struct proof_tree *t = ctx;
	uint64_t at = off - t->unit_off;

	while (len) {
		size_t n = len;

		if (!t->x_left && t->next_x < t->n_x) {
			uint64_t begin = t->x[t->next_x].unit_off;

			if (begin < at)
				return err_set(e, ERR_CORRUPT,
					       "a chunk lies outside the "
					       "files of the tar");
			if (begin == at && give_extent(t, e) < 0)
				return -1;
			if (begin > at && n > begin - at)
				n = (size_t)(begin - at);
		}
		if (t->x_left) {
			n = n < t->x_left ? n : t->x_left;
			t->x_left -= (uint32_t)n;
		}
		t->file_pos += n;
		at += n;
		len -= n;
	}
	return 0;
}

static int on_entry(void *ctx, const struct entry *en, struct err *e)
{
	struct proof_tree *t = ctx;
	struct entry norm;
	int r = estargz_tar_entry(t->norm, en, &norm);

	if (r < 0)
		return err_sys(e, r, "tar header");
	t->file_pos = 0;
	t->file_size = en->size;
	return builder_sink.entry(t->builder, &norm, &t->file, e);
}

int proof_tree_new(const struct builder_opts *o, struct proof_tree **ret)
{
	static const struct tar_ops ops = { on_entry, on_data };
	owned(proof_tree) struct proof_tree *t = calloc(1, sizeof(*t));
	int r = t ? 0 : -ENOMEM;

	if (r == 0)
		r = tar_new(&ops, t, &t->tar);
	if (r == 0)
		r = estargz_tar_new(&t->norm);
	if (r == 0)
		r = builder_new(o, &t->builder);
	if (r < 0)
		return r;
	*ret = take_ptr(&t);
	return 0;
}

void proof_tree_free(struct proof_tree *t)
{
	if (!t)
		return;
	builder_free(t->builder);
	estargz_tar_free(t->norm);
	tar_free(t->tar);
	free(t);
}

int proof_tree_unit(struct proof_tree *t, const struct unit *u,
		    const struct extent *x, uint32_t n, struct err *e)
{
	if (t->next_x < t->n_x || t->x_left)
		return err_set(e, ERR_CORRUPT,
			       "a chunk lies outside the files of the tar");
	t->unit_off = t->off;
	t->x = x;
	t->n_x = n;
	t->next_x = 0;
	return u ? builder_sink.unit(t->builder, u, &t->unit, e) : 0;
}

int proof_tree_feed(struct proof_tree *t, const void *p, size_t len,
		    struct err *e)
{
	t->off += len;
	return tar_feed(t->tar, p, len, e);
}

int proof_tree_finish(struct proof_tree *t, uint64_t prefetch_end, int dirfd,
		      struct digest *ret_index, struct digest *ret_map,
		      struct err *e)
{
	struct builder_result res;
	int r;

	if (proof_tree_unit(t, NULL, NULL, 0, e) < 0 ||
	    tar_finish(t->tar, e) < 0)
		return -1;
	if (prefetch_end &&
	    builder_sink.prefetch(t->builder, prefetch_end, e) < 0)
		return -1;
	if (builder_write(t->builder, dirfd, &res, e) < 0)
		return -1;
	r = vfile_create(dirfd, "index", ret_index);
	if (r == 0)
		r = vfile_create(dirfd, "map", ret_map);
	return r < 0 ? err_sys(e, r, "index and map of a proof") : 0;
}
