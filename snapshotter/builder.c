/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder's two ends: the sink that a parser feeds, and the writing of the
 * two files. builder_priv.h says which file does what between them.
 *
 * Writing has two steps. The first settles the tree, once; it may be repeated
 * while the parent layers are unknown. The second writes files, and may be
 * repeated at will, into another directory for example.
 */
#include "snapshotter/builder.h"

#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "snapshotter/builder_priv.h"

int builder_new(const struct builder_opts *o, struct builder **ret)
{
	struct builder *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->o = *o;
	b->arena.charged = &b->charged;
	if (getrandom(b->key, sizeof(b->key), 0) != sizeof(b->key)) {
		r = -errno;
		builder_free(b);
		return r;
	}
	r = tree_init(b);
	if (r < 0) {
		builder_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void builder_free(struct builder *b)
{
	if (!b)
		return;
	map_image_release(&b->map);
	free(b->image.order);
	free(b->nodes);
	free(b->names);
	free(b->slots);
	free(b->links);
	free(b->whiteouts);
	free(b->handles);
	free(b->units);
	free(b->extents);
	buf_release(&b->xattrs);
	arena_release(&b->arena);
	uncharge(&b->charged);
	free(b);
}

static int check_open(const struct builder *b, struct err *e)
{
	if (!b->spent && !b->broken)
		return 0;
	return err_set(e, ERR_INTERNAL, "the layer has been built already");
}

static int sink_entry(void *ctx, const struct entry *en, uint32_t *ret,
		      struct err *e)
{
	struct builder *b = ctx;
	uint32_t node;

	if (check_open(b, e) < 0)
		return -1;
	if (b->n_handles >= NODES_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the layer has more than %u entries", NODES_MAX);
	if (ENSURE(&b->charged, b->handles, b->n_handles, b->cap_handles) < 0)
		return out_of_memory(e);
	if (tree_entry(b, en, &node, e) < 0)
		return -1;
	b->handles[b->n_handles] = node;
	*ret = b->n_handles++;
	return 0;
}

static int sink_unit(void *ctx, const struct unit *u, uint32_t *ret,
		     struct err *e)
{
	struct builder *b = ctx;

	if (check_open(b, e) < 0)
		return -1;
	return map_add_unit(b, u, ret, e);
}

static int sink_extent(void *ctx, uint32_t entry, uint64_t file_off,
		       const struct extent *x, struct err *e)
{
	struct builder *b = ctx;

	if (check_open(b, e) < 0)
		return -1;
	if (entry >= b->n_handles)
		return err_set(e, ERR_INTERNAL, "chunk of no entry");
	if (b->handles[entry] == NONE) /* hidden: nobody will read it */
		return 0;
	return map_add_extent(b, b->handles[entry], file_off, x, e);
}

static int sink_prefetch(void *ctx, uint64_t end, struct err *e)
{
	struct builder *b = ctx;

	if (check_open(b, e) < 0)
		return -1;
	if (b->prefetch_set)
		return err_set(e, ERR_CORRUPT,
			       "two prefetch landmarks in the layer");
	b->prefetch_set = true;
	b->prefetch_end = end;
	return 0;
}

const struct sink builder_sink = {
	.entry = sink_entry,
	.unit = sink_unit,
	.extent = sink_extent,
	.prefetch = sink_prefetch,
};

/* The order matters: messages need the names, which tree_finish() sorts. */
static int settle(struct builder *b, struct err *e)
{
	if (b->spent)
		return 0;
	if (b->broken)
		return err_set(e, ERR_INTERNAL, "the layer was not built");
	if (map_check_covered(b, e) < 0 || tree_implied(b, e) < 0)
		return -1;
	b->broken = true;
	if (tree_finish(b, e) < 0 || map_place_files(b, e) < 0)
		return -1;
	b->image = (struct index_image){
		.nodes = b->nodes,
		.names = b->names,
		.n_nodes = b->n_nodes,
		.n_names = b->n_names,
		.device_size = b->device_size,
	};
	memcpy(b->image.uuid, b->o.uuid, sizeof(b->image.uuid));
	if (index_place(&b->image, e) < 0 || map_finish(b, e) < 0)
		return -1;
	b->broken = false;
	b->spent = true;
	return 0;
}

static void make_result(const struct builder *b, struct builder_result *ret)
{
	*ret = (struct builder_result){
		.n_inodes = b->n_nodes,
		.index_size = (uint64_t)b->image.blocks * 4096,
		.n_implied = b->n_implied,
		.n_bodies = b->map.n_bodies,
	};
	/* below 2^44 each, and in all, or they had no place in the device */
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		const struct index_node *v = &b->nodes[i];

		if (S_ISREG(v->mode)) {
			ret->payload += v->size;
			ret->usage += (v->size + 4095) & ~UINT64_C(4095);
		}
		if (S_ISDIR(v->mode))
			ret->usage += 4096;
	}
}

int builder_write(struct builder *b, int dirfd, struct builder_result *ret,
		  struct err *e)
{
	int r;

	if (settle(b, e) < 0)
		return -1;
	if (index_write(&b->image, dirfd, "index", e) < 0)
		return -1;
	r = fault_point("index_written");
	if (r == 0)
		r = map_write(dirfd, "map", &b->map);
	if (r < 0) {
		(void)unlinkat(dirfd, "index", 0);
		(void)unlinkat(dirfd, "map", 0);
		return err_sys(e, r, "cannot write the layer's map");
	}
	make_result(b, ret);
	return 0;
}
