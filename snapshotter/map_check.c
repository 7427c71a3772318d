/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the records of a map relate: the pass that a new map goes through once.
 * Uses only the public reader, which has checked each record by itself.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "snapshotter/map.h"

#define DEVICE_ALIGN 4096u /* of a file's address: a block of the index */

struct check {
	struct map *m;
	uint8_t *seen; /* a bit per extent: some unit lists it */
	uint64_t n_listed, n_owned, payload;
	struct err *e;
};

printf_like(2, 3) static int bad(struct check *c, const char *fmt, ...)
{
	char what[120];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return err_set(c->e, ERR_CORRUPT, "map: %s", what);
}

/* A record that cannot be had: damaged, or the disk fails. */
static int unread(struct check *c, const char *kind, uint32_t i, int r)
{
	if (r == -EUCLEAN || r == -EINVAL)
		return bad(c, "%s %u has impossible values", kind, i);
	return err_sys(c->e, r, "map: %s %u", kind, i);
}

static int check_unit_extent(struct check *c, uint32_t unit, uint32_t i,
			     uint64_t *end)
{
	struct extent x;
	uint32_t n = 0;
	int r = map_unit_extent(c->m, i, &n);

	if (r == 0)
		r = map_extent(c->m, n, &x);
	if (r < 0)
		return unread(c, "place", i, r);
	if (x.unit != unit || c->seen[n / 8] & 1u << n % 8)
		return bad(c, "unit %u lists extent %u, which is not its own",
			   unit, n);
	if (x.unit_off < *end)
		return bad(c, "extent %u overlaps another in unit %u", n, unit);
	c->seen[n / 8] |= (uint8_t)(1u << n % 8);
	*end = (uint64_t)x.unit_off + x.len;
	return 0;
}

static int check_units(struct check *c)
{
	uint64_t blob_end = 0;
	uint32_t rest;

	for (uint32_t i = 0; i < map_n_units(c->m); i++) {
		struct unit u;
		uint64_t end = 0;
		int r = map_unit(c->m, i, &u);

		if (r < 0)
			return unread(c, "unit", i, r);
		if (u.blob_off < blob_end)
			return bad(c, "unit %u overlaps the one before it", i);
		if (u.first_x != c->n_listed)
			return bad(c, "unit %u begins its list at %u", i,
				   u.first_x);
		for (uint32_t k = 0; k < u.n_x; k++) {
			if (check_unit_extent(c, i, u.first_x + k, &end) < 0)
				return -1;
		}
		if (u.ulen != end)
			return bad(c, "unit %u has a length of %u", i, u.ulen);
		blob_end = u.blob_off + u.clen;
		c->n_listed += u.n_x;
	}
	if (map_unit_extent(c->m, (uint32_t)c->n_listed, &rest) != -EINVAL)
		return bad(c, "places that no unit lists");
	return 0;
}

static int check_body(struct check *c, uint32_t ino, const struct map_file *f)
{
	struct map_body v;
	int r = map_body(c->m, f->body, &v);

	if (r < 0)
		return unread(c, "body", f->body, r);
	if ((f->body == 0) != (f->size < MAP_LARGE))
		return bad(c, "file %u has the wrong kind of body", ino);
	if (f->body_off > v.size || f->size > v.size - f->body_off ||
	    f->first_bit > v.n_extents ||
	    f->n_extents > v.n_extents - f->first_bit)
		return bad(c, "file %u does not fit its body", ino);
	if (f->body == 0 && f->body_off % MAP_PACK_ALIGN != 0)
		return bad(c, "file %u is not aligned in the pack", ino);
	if (f->body != 0 && (f->size != v.size || f->n_extents != v.n_extents))
		return bad(c, "file %u is not all of its body", ino);
	return 0;
}

static int check_file(struct check *c, uint32_t ino, const struct map_file *f)
{
	uint64_t pos = 0;

	if (f->addr % DEVICE_ALIGN != 0)
		return bad(c, "file %u is not aligned", ino);
	for (uint32_t i = 0; i < f->n_extents; i++) {
		struct extent x;
		uint32_t n = f->first_extent + i;
		int r = map_extent(c->m, n, &x);

		if (r < 0)
			return unread(c, "extent", n, r);
		if (x.ino != ino || x.addr != f->addr + pos ||
		    x.len > f->size - pos)
			return bad(c, "extent %u does not fit file %u", n, ino);
		if ((x.unit == UNIT_HOLE) == !!(c->seen[n / 8] & 1u << n % 8))
			return bad(c,
				   "extent %u is in no unit's list, or "
				   "needs none",
				   n);
		pos += x.len;
	}
	if (pos != f->size)
		return bad(c,
			   "extents cover %" PRIu64 " of %" PRIu64
			   " bytes of file %u",
			   pos, f->size, ino);
	c->n_owned += f->n_extents;
	c->payload += pos;
	return check_body(c, ino, f);
}

static int check_files(struct check *c)
{
	for (uint32_t ino = 1; ino <= map_n_files(c->m); ino++) {
		struct map_file f;
		int r = map_file(c->m, ino, &f);

		if (r == -ENODATA)
			continue;
		if (r < 0)
			return unread(c, "file", ino, r);
		if (check_file(c, ino, &f) < 0)
			return -1;
		if (ino == UINT32_MAX)
			break;
	}
	/* Every extent names one file, so the sum leaves none out. */
	if (c->n_owned != map_n_extents(c->m))
		return bad(c, "%" PRIu64 " extents of %u belong to files",
			   c->n_owned, map_n_extents(c->m));
	if (c->payload != map_payload(c->m))
		return bad(c, "payload is %" PRIu64, c->payload);
	return 0;
}

static int check_bodies(struct check *c)
{
	for (uint32_t i = 0; i < map_n_bodies(c->m); i++) {
		struct map_file f;
		struct map_body v;
		int r = map_body(c->m, i, &v);

		if (r < 0)
			return unread(c, "body", i, r);
		if (i == 0) {
			if (!digest_is_zero(&v.ckey))
				return bad(c, "the pack has a key");
			continue;
		}
		r = map_file(c->m, v.first_ino, &f);
		if (r < 0 || f.body != i)
			return bad(c, "body %u belongs to no file", i);
	}
	return 0;
}

int map_check(struct map *m, struct err *e)
{
	size_t n = (size_t)map_n_extents(m) / 8 + 1;
	owned(mem) uint8_t *seen = calloc(1, n);
	struct check c = { .m = m, .seen = seen, .e = e };

	if (!seen)
		return err_sys(e, -ENOMEM, "map: check");
	if (check_units(&c) < 0 || check_files(&c) < 0 || check_bodies(&c) < 0)
		return -1;
	return 0;
}
