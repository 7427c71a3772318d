/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of the layer: where each file lies in the virtual device and in
 * which body, and which unit of the blob brings each of its extents.
 *
 * Small files share one body, the pack; a large file has its own, named by its
 * content key, so that equal files of all images share it. In the map the
 * extents of the pack come first, then those of the large files, both in
 * archive order: bit N of the pack is extent N of the map.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/erofs_fs.h"
#include "snapshotter/body.h"
#include "snapshotter/builder_priv.h"

static bool is_large(const struct index_node *v)
{
	return v->size >= MAP_LARGE;
}

static bool has_contents(const struct index_node *v)
{
	return S_ISREG(v->mode) && v->size;
}

static struct shown shown_node(const struct builder *b, uint32_t node)
{
	struct path p;

	name_path(b, b->nodes[node].name, &p);
	return show(p.s, p.len);
}

/* ---- events ---- */

int map_add_unit(struct builder *b, const struct unit *u, uint32_t *ret,
		 struct err *e)
{
	if (!u->clen || u->blob_off > (uint64_t)INT64_MAX - u->clen)
		return err_set(e, ERR_CORRUPT,
			       "compressed range out of bounds at %" PRIu64,
			       u->blob_off);
	if (b->n_units >= EXTENTS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the layer has more than %u compressed ranges",
			       EXTENTS_MAX);
	if (ENSURE(&b->charged, b->units, b->n_units, b->cap_units) < 0)
		return out_of_memory(e);
	b->units[b->n_units] = *u;
	/* first_x names the handle until the units are sorted */
	b->units[b->n_units].first_x = b->n_units;
	b->units[b->n_units].n_x = 0;
	b->units[b->n_units].ulen = 0;
	*ret = b->n_units++;
	return 0;
}

/* Until map_finish(), x->addr is an offset in the file and x->ino a node. */
int map_add_extent(struct builder *b, uint32_t node, uint64_t file_off,
		   const struct extent *x, struct err *e)
{
	struct index_node *v = &b->nodes[node];
	bool hole = x->unit == UNIT_HOLE;
	const char *why =
		!S_ISREG(v->mode)         ? "data of something without contents"
		: !x->len                 ? "empty chunk"
		: x->len > MAP_EXTENT_MAX ? "chunk exceeds 64 MiB"
		: !hole && x->unit >= b->n_units ? "chunk of no range"
		: !hole && x->unit_off > UINT32_MAX - x->len
			? "chunk offset out of bounds"
		: file_off != v->file.covered
			? "chunks do not follow one another"
		: x->len > v->size - file_off ? "chunks exceed the file"
					      : NULL;

	if (why)
		return err_set(e, ERR_CORRUPT, "'%s': %s",
			       shown_node(b, node).s, why);
	if (b->n_extents >= EXTENTS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the layer has more than %u chunks",
			       EXTENTS_MAX);
	if (ENSURE(&b->charged, b->extents, b->n_extents, b->cap_extents) < 0)
		return out_of_memory(e);
	b->extents[b->n_extents] = *x;
	b->extents[b->n_extents].addr = file_off;
	b->extents[b->n_extents].ino = node;
	b->n_extents++;
	v->file.covered += x->len;
	if (!hole && b->units[x->unit].ulen < x->unit_off + x->len)
		b->units[x->unit].ulen = x->unit_off + x->len;
	return 0;
}

int map_check_covered(struct builder *b, struct err *e)
{
	for (uint32_t i = 0; i < b->n_nodes; i++)
		if (has_contents(&b->nodes[i]) &&
		    b->nodes[i].file.covered != b->nodes[i].size)
			return err_set(e, ERR_CORRUPT,
				       "'%s': chunks do not cover the file",
				       shown_node(b, i).s);
	return 0;
}

/* ---- at the end ---- */

/* Device addresses, in archive order: nodes[] has it. */
int map_place_files(struct builder *b, struct err *e)
{
	uint64_t block = 0; /* < 2^32 */

	for (uint32_t i = 0; i < b->n_nodes; i++) {
		struct index_node *v = &b->nodes[i];
		uint32_t bits;

		if (!has_contents(v))
			continue;
		bits = erofs_chunk_bits(v->size);
		if (block + (erofs_n_chunks(v->size, bits) << bits) >
		    EROFS_DEV_BLOCKS_MAX)
			return err_set(e, ERR_UNSUPPORTED,
				       "the files of the layer exceed 16 TiB");
		v->file.addr = block * EROFS_BLK;
		block += (v->size - 1) / EROFS_BLK + 1;
	}
	b->device_size = block * EROFS_BLK;
	return 0;
}

static int by_blob_off(const void *x, const void *y)
{
	const struct unit *a = x, *b = y;

	if (a->blob_off != b->blob_off)
		return a->blob_off < b->blob_off ? -1 : 1;
	return a->first_x < b->first_x ? -1 : 1;
}

/* Neighbours in the blob are neighbours in the map: fill fetches ranges. */
static int sort_units(struct builder *b, struct err *e)
{
	owned(mem) uint32_t *to = calloc(b->n_units + 1ul, sizeof(*to));
	uint64_t end = 0;

	if (!to)
		return out_of_memory(e);
	if (b->n_units) /* qsort() wants no NULL */
		qsort(b->units, b->n_units, sizeof(*b->units), by_blob_off);
	for (uint32_t i = 0; i < b->n_units; i++) {
		const struct unit *u = &b->units[i];

		if (u->blob_off < end)
			return err_set(e, ERR_CORRUPT,
				       "compressed ranges overlap at %" PRIu64,
				       u->blob_off);
		end = u->blob_off + u->clen;
		to[u->first_x] = i;
	}
	for (uint32_t i = 0; i < b->n_extents; i++)
		if (b->extents[i].unit != UNIT_HOLE)
			b->extents[i].unit = to[b->extents[i].unit];
	return 0;
}

static int by_body_class(const void *x, const void *y, void *ctx)
{
	const struct extent *a = x, *b = y;
	const struct index_node *nodes = ctx;
	bool large = is_large(&nodes[a->ino]);

	if (large != is_large(&nodes[b->ino]))
		return large ? 1 : -1;
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Addresses and ordinals for the extents, files[] records but for bodies. */
static void make_files(struct builder *b, struct map_image *m)
{
	if (b->n_extents)
		qsort_r(b->extents, b->n_extents, sizeof(*b->extents),
			by_body_class, b->nodes);
	for (uint32_t i = 0; i < b->n_extents; i++) {
		struct extent *x = &b->extents[i];
		const struct index_node *v = &b->nodes[x->ino];
		struct map_file *f = &m->files[v->ino - 1];

		if (!f->n_extents++) {
			f->addr = v->file.addr;
			f->size = v->size;
			f->nid = v->nid;
			f->first_extent = i;
		}
		x->addr += v->file.addr;
		x->ino = v->ino;
	}
}

static int make_pack(struct builder *b, struct map_image *m, struct err *e)
{
	struct map_body *pack = &m->bodies[0];

	for (uint32_t i = 0; i < b->n_nodes; i++) {
		const struct index_node *v = &b->nodes[i];
		struct map_file *f;

		if (!has_contents(v) || is_large(v))
			continue;
		f = &m->files[v->ino - 1];
		f->body_off = erofs_round_up(pack->size, MAP_PACK_ALIGN);
		f->first_bit = pack->n_extents;
		if (f->first_bit != f->first_extent)
			return err_set(e, ERR_INTERNAL,
				       "pack and map disagree");
		pack->size = f->body_off + f->size;
		pack->n_extents += f->n_extents;
		if (!pack->first_ino)
			pack->first_ino = v->ino;
	}
	return 0;
}

struct large {
	struct digest ckey;
	uint32_t node;
	uint32_t same; /* first node in archive order with this key */
};

static int by_ckey(const void *x, const void *y)
{
	const struct large *a = x, *b = y;
	int c = memcmp(&a->ckey, &b->ckey, sizeof(a->ckey));

	return c ? c : a->node < b->node ? -1 : 1;
}

static int by_node(const void *x, const void *y)
{
	const struct large *a = x, *b = y;

	return a->node < b->node ? -1 : 1;
}

DEFINE_OWNED(ckey_builder, struct ckey_builder *, ckey_free)

static int content_key(const struct builder *b, const struct map_file *f,
		       struct digest *ret)
{
	owned(ckey_builder) struct ckey_builder *k = NULL;
	int r = ckey_begin(f->size, &k);

	for (uint32_t i = 0; r == 0 && i < f->n_extents; i++) {
		const struct extent *x = &b->extents[f->first_extent + i];

		r = ckey_add(k, x->len,
			     x->unit == UNIT_HOLE ? NULL : &x->digest);
	}
	if (r < 0)
		return r;
	return ckey_end(take_ptr(&k), ret);
}

/* The large files with their keys, in archive order, twins marked. */
static int list_large(struct builder *b, const struct map_image *m,
		      struct large **ret, uint32_t *ret_n)
{
	owned(mem) struct large *list = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n_nodes; i++)
		n += has_contents(&b->nodes[i]) && is_large(&b->nodes[i]);
	list = calloc(n + 1ul, sizeof(*list));
	if (!list)
		return -ENOMEM;
	n = 0;
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		const struct index_node *v = &b->nodes[i];
		int r;

		if (!has_contents(v) || !is_large(v))
			continue;
		list[n].node = i;
		r = content_key(b, &m->files[v->ino - 1], &list[n].ckey);
		if (r < 0)
			return r;
		n++;
	}
	qsort(list, n, sizeof(*list), by_ckey);
	for (uint32_t i = 0; i < n; i++)
		list[i].same =
			i && digest_equal(&list[i].ckey, &list[i - 1].ckey)
				? list[i - 1].same
				: list[i].node;
	qsort(list, n, sizeof(*list), by_node);
	*ret = take_ptr(&list);
	*ret_n = n;
	return 0;
}

static int make_large(struct builder *b, struct map_image *m, struct err *e)
{
	owned(mem) struct large *list = NULL;
	struct map_body *bodies;
	uint32_t n;
	int r = list_large(b, m, &list, &n);

	if (r < 0)
		return err_sys(e, r, "cannot name the layer's large files");
	bodies = reallocarray(m->bodies, n + 1ul, sizeof(*bodies));
	if (!bodies)
		return out_of_memory(e);
	m->bodies = bodies;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t ino = b->nodes[list[i].node].ino;
		uint32_t first = b->nodes[list[i].same].ino;
		struct map_file *f = &m->files[ino - 1];

		if (ino != first) { /* numbered before */
			f->body = m->files[first - 1].body;
			continue;
		}
		f->body = m->n_bodies;
		bodies[m->n_bodies++] = (struct map_body){
			.ckey = list[i].ckey,
			.size = f->size,
			.n_extents = f->n_extents,
			.first_ino = ino,
		};
	}
	return 0;
}

static int by_unit(const void *x, const void *y, void *ctx)
{
	uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
	const struct extent *xs = ctx, *a = &xs[i], *b = &xs[k];

	if (a->unit != b->unit)
		return a->unit < b->unit ? -1 : 1;
	if (a->unit_off != b->unit_off)
		return a->unit_off < b->unit_off ? -1 : 1;
	return i < k ? -1 : i > k;
}

/* Holes come last: UNIT_HOLE is the largest number. */
static int make_unit_extents(struct builder *b, struct map_image *m,
			     struct err *e)
{
	m->unit_extents = calloc(b->n_extents + 1ul, sizeof(*m->unit_extents));
	if (!m->unit_extents)
		return out_of_memory(e);
	for (uint32_t i = 0; i < b->n_extents; i++)
		m->unit_extents[i] = i;
	qsort_r(m->unit_extents, b->n_extents, sizeof(*m->unit_extents),
		by_unit, b->extents);
	for (uint32_t i = 0, first = 0; i < b->n_units; i++) {
		struct unit *u = &b->units[i];

		u->first_x = first;
		u->n_x = 0;
		for (uint64_t end = 0; first < b->n_extents; first++) {
			const struct extent *x =
				&b->extents[m->unit_extents[first]];

			if (x->unit != i)
				break;
			if (x->unit_off < end)
				return err_set(e, ERR_CORRUPT,
					       "chunks overlap in the range "
					       "at %" PRIu64,
					       u->blob_off);
			end = (uint64_t)x->unit_off + x->len;
			u->n_x++;
		}
	}
	return 0;
}

/* After index_place(): nodes have their ordinals and nids. */
int map_finish(struct builder *b, struct err *e)
{
	struct map_image *m = &b->map;

	m->files = calloc(b->n_nodes, sizeof(*m->files));
	m->bodies = calloc(1, sizeof(*m->bodies));
	if (!m->files || !m->bodies)
		return out_of_memory(e);
	if (sort_units(b, e) < 0)
		return -1;
	m->n_files = b->n_nodes;
	m->n_bodies = 1;
	make_files(b, m);
	if (make_pack(b, m, e) < 0 || make_large(b, m, e) < 0 ||
	    make_unit_extents(b, m, e) < 0)
		return -1;
	m->units = b->units;
	m->n_units = b->n_units;
	m->extents = b->extents;
	m->n_extents = b->n_extents;
	m->device_size = b->device_size;
	m->prefetch_end = b->prefetch_end;
	return 0;
}

/* Units and extents belong to the builder. */
void map_image_release(struct map_image *m)
{
	free(m->unit_extents);
	free(m->files);
	free(m->bodies);
	memset(m, 0, sizeof(*m));
}
