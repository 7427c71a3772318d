/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of a layer: which extents of which body they are, as its map has
 * it. Opened at need, and kept while the layer is open.
 */
#include <string.h>

#include "base/log.h"
#include "snapshotter/layer_priv.h"

static int bit_to_extent(const struct body_view *v, uint32_t bit, uint32_t *ret)
{
	struct map_file f;
	int r;

	if (v->num == 0) {
		*ret = bit; /* the pack's extents come first in the map */
		return 0;
	}
	r = map_file(v->l->map, v->rec.first_ino, &f);
	if (r < 0)
		return r;
	if (bit < f.first_bit || bit - f.first_bit >= f.n_extents)
		return -EINVAL;
	*ret = f.first_extent + (bit - f.first_bit);
	return 0;
}

static int extent_place(const struct body_view *v, uint32_t bit,
			struct body_extent *ret)
{
	struct map_file f;
	struct extent x;
	uint32_t i;
	int r = bit_to_extent(v, bit, &i);

	if (r == 0)
		r = map_extent(v->l->map, i, &x);
	if (r == 0)
		r = map_file(v->l->map, x.ino, &f);
	if (r < 0)
		return r;
	ret->off = f.body_off + (x.addr - f.addr);
	ret->len = x.len;
	ret->hole = x.unit == UNIT_HOLE;
	ret->digest = x.digest;
	return 0;
}

static int view_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	return extent_place(ctx, bit, ret);
}

/* First extent whose end lies behind @off. */
static int view_find(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	const struct body_view *v = ctx;
	uint32_t lo = 0, hi = v->rec.n_extents;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		struct body_extent x;
		int r = extent_place(v, mid, &x);

		if (r < 0)
			return r;
		if (x.off + x.len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_bit = lo;
	return 0;
}

int layer_view(struct layer *l, uint32_t num, struct body_view *v,
	       struct body_layout *lay)
{
	v->l = l;
	v->num = num;
	lay->extent = view_extent;
	lay->find = view_find;
	lay->ctx = v;
	lay->no_holes = true; /* eStargz has none */
	return map_body(l->map, num, &v->rec);
}

struct body *layer_body_kept(struct layer *l, uint32_t i)
{
	struct body *b;

	lock_take(&l->lock);
	b = l->bodies[i];
	lock_drop(&l->lock);
	return b;
}

int layer_body(struct layer *l, uint32_t i, struct body **ret)
{
	struct body *b = layer_body_kept(l, i), *other;
	struct body_layout lay;
	struct body_view v;
	struct body_id id;
	int r;

	if (b) {
		*ret = b;
		return 0;
	}
	r = layer_view(l, i, &v, &lay);
	if (r < 0)
		return r;
	id = (struct body_id){ .ckey = v.rec.ckey,
			       .seq = l->row.seq,
			       .size = v.rec.size,
			       .n_extents = v.rec.n_extents };
	r = body_open(l->ls->o.bodies, &id, &lay, &b);
	if (r < 0)
		return r;
	lock_take(&l->lock);
	other = l->bodies[i];
	if (!other)
		l->bodies[i] = b;
	lock_drop(&l->lock);
	if (other) {
		body_put(b);
		b = other;
	}
	*ret = b;
	return 0;
}

uint64_t layer_body_local(struct layer *l, uint32_t i)
{
	struct body_layout lay;
	struct body_view v;
	struct body_id id;
	struct body *b;

	if (layer_view(l, i, &v, &lay) < 0 || !v.rec.n_extents)
		return 0;
	id = (struct body_id){ .ckey = v.rec.ckey,
			       .seq = l->row.seq,
			       .size = v.rec.size,
			       .n_extents = v.rec.n_extents };
	/* A body that nobody has asked for is not made by looking. */
	if (!layer_body_kept(l, i) && !bodies_exists(l->ls->o.bodies, &id))
		return 0;
	return layer_body(l, i, &b) < 0 ? 0 : body_bytes_landed(b, &lay);
}

int layer_find_place(struct layer *l, uint32_t extent, const struct extent *x,
		     struct body_place *p)
{
	int r = map_file(l->map, x->ino, &p->f);

	if (r < 0)
		return r;
	if (extent < p->f.first_extent ||
	    extent - p->f.first_extent >= p->f.n_extents)
		return -EUCLEAN;
	p->bit = p->f.first_bit + (extent - p->f.first_extent);
	r = layer_body(l, p->f.body, &p->b);
	return r < 0 ? r : layer_view(l, p->f.body, &p->v, &p->lay);
}

int layer_find_body(struct layer *l, uint32_t i, struct body **ret)
{
	struct map_body rec;
	struct body_id id;
	int r = map_body(l->map, i, &rec);

	if (r < 0)
		return r;
	if (!rec.n_extents)
		return 0;
	id = (struct body_id){ .ckey = rec.ckey,
			       .seq = l->row.seq,
			       .size = rec.size,
			       .n_extents = rec.n_extents };
	/* A body that nobody has asked for is not made by looking. */
	if (!layer_body_kept(l, i) && !bodies_exists(l->ls->o.bodies, &id))
		return 0;
	r = layer_body(l, i, ret);
	return r < 0 ? r : 1;
}

/* Asks for what the body lacks. Nobody else may want to read it. */
static int refetch(struct layer *l, const struct body_view *v, struct body *b)
{
	for (uint32_t bit = 0; bit < v->rec.n_extents; bit++) {
		struct extent x;
		uint32_t i;
		int r;

		if (body_has(b, bit))
			continue;
		r = bit_to_extent(v, bit, &i);
		if (r == 0)
			r = map_extent(l->map, i, &x);
		if (r == 0 && x.unit != UNIT_HOLE)
			r = fill_want(l->fill, x.unit, i, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

int layer_reject_body(struct layer *l, uint32_t i)
{
	struct body_layout lay;
	struct body_view v;
	struct body *b;
	int r = layer_find_body(l, i, &b);

	if (r != 1)
		return r;
	r = layer_view(l, i, &v, &lay);
	if (r == 0)
		r = body_reject(b, &lay);
	if (r != -EAGAIN)
		return r;
	r = refetch(l, &v, b);
	return r < 0 ? r : -EAGAIN;
}
