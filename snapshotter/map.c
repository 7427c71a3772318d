/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of the map; see map.h for who checks what and map_format.h for the
 * bytes. Immutable after opening, so any thread may read; holds no lock and
 * keeps no record.
 */
#include "snapshotter/map.h"

#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "snapshotter/map_format.h"
#include "verity/vfile.h"

struct map {
	struct map_io io;
	struct map_header h;
};

/* ---- opening ---- */

static int bad(struct err *e, const char *what)
{
	return err_set(e, ERR_CORRUPT, "map: %s", what);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	while (n > 0 && *p == 0) {
		p++;
		n--;
	}
	return n == 0;
}

static int parse_header(const uint8_t *b, uint64_t size, struct map_header *h,
			struct err *e)
{
	if (memcmp(b, MAP_MAGIC, MAP_MAGIC_LEN) != 0)
		return bad(e, "no magic");
	if (get_le32(b + 8) != MAP_VERSION)
		return err_set(e, ERR_UNSUPPORTED, "map: version %u",
			       get_le32(b + 8));
	h->n_units = get_le32(b + 16);
	h->n_extents = get_le32(b + 20);
	h->n_unit_extents = get_le32(b + 24);
	h->n_files = get_le32(b + 28);
	h->n_bodies = get_le32(b + 32);
	h->payload = get_le64(b + 88);
	h->device_size = get_le64(b + 96);
	h->prefetch_end = get_le64(b + 104);
	map_header_layout(h);
	if (get_le32(b + 12) != MAP_HEADER_LEN || get_le32(b + 36) != 0 ||
	    !all_zero(b + 112, MAP_HEADER_LEN - 112))
		return bad(e, "unknown fields in the header");
	if (get_le64(b + 40) != h->units || get_le64(b + 48) != h->extents ||
	    get_le64(b + 56) != h->unit_extents ||
	    get_le64(b + 64) != h->files || get_le64(b + 72) != h->bodies ||
	    get_le64(b + 80) != h->end)
		return bad(e, "sections and counts do not fit");
	if (h->end != size)
		return bad(e, "size of the file and counts do not fit");
	/* UNIT_HOLE is no unit, and a file has at least one extent */
	if (h->n_units == UNIT_HOLE || h->n_unit_extents > h->n_extents ||
	    h->n_bodies == 0)
		return bad(e, "impossible counts");
	return 0;
}

static int open_header(struct map *m, struct err *e)
{
	uint8_t b[MAP_HEADER_LEN];
	int r;

	if (m->io.size < sizeof(b))
		return bad(e, "shorter than its header");
	r = m->io.pread(m->io.ctx, b, sizeof(b), 0);
	if (r == -EUCLEAN)
		return bad(e, "header does not have its digest");
	if (r < 0)
		return err_sys(e, r, "map: header");
	return parse_header(b, m->io.size, &m->h, e);
}

int map_open_io(const struct map_io *io, struct map **ret, struct err *e)
{
	struct map *m = calloc(1, sizeof(*m));

	if (!m) {
		if (io->close)
			io->close(io->ctx);
		return err_sys(e, -ENOMEM, "map");
	}
	m->io = *io;
	if (open_header(m, e) < 0) {
		map_close(m);
		return -1;
	}
	*ret = m;
	return 0;
}

static void close_vfile(void *ctx)
{
	vfile_close(ctx);
}

int map_open(struct vfile *v, struct map **ret, struct err *e)
{
	struct map_io io = { .pread = vfile_pread,
			     .close = close_vfile,
			     .ctx = v,
			     .size = vfile_size(v) };

	return map_open_io(&io, ret, e);
}

void map_close(struct map *m)
{
	if (!m)
		return;
	if (m->io.close)
		m->io.close(m->io.ctx);
	free(m);
}

uint32_t map_n_units(const struct map *m)
{
	return m->h.n_units;
}

uint32_t map_n_extents(const struct map *m)
{
	return m->h.n_extents;
}

uint32_t map_n_files(const struct map *m)
{
	return m->h.n_files;
}

uint32_t map_n_bodies(const struct map *m)
{
	return m->h.n_bodies;
}

uint64_t map_payload(const struct map *m)
{
	return m->h.payload;
}

uint64_t map_device_size(const struct map *m)
{
	return m->h.device_size;
}

uint64_t map_prefetch_end(const struct map *m)
{
	return m->h.prefetch_end;
}

/* ---- records ---- */

static int read_record(struct map *m, uint64_t section, uint32_t i,
		       uint32_t count, void *p, size_t len)
{
	if (i >= count)
		return -EINVAL;
	return m->io.pread(m->io.ctx, p, len, section + (uint64_t)i * len);
}

/* [off, off + len) lies in [0, end) */
static bool range_fits(uint64_t off, uint64_t len, uint64_t end)
{
	return off <= end && len <= end - off;
}

int map_unit(struct map *m, uint32_t i, struct unit *ret)
{
	uint8_t b[MAP_UNIT_LEN];
	struct unit u;
	int r = read_record(m, m->h.units, i, m->h.n_units, b, sizeof(b));

	if (r < 0)
		return r;
	u = (struct unit){ .blob_off = get_le64(b),
			   .clen = get_le32(b + 8),
			   .ulen = get_le32(b + 12),
			   .first_x = get_le32(b + 16),
			   .n_x = get_le32(b + 20),
			   .codec = b[24] };
	if (u.codec > CODEC_GZIP_SPAN || u.clen == 0 ||
	    !range_fits(u.blob_off, u.clen, INT64_MAX) ||
	    !range_fits(u.first_x, u.n_x, m->h.n_unit_extents) ||
	    !all_zero(b + 25, MAP_UNIT_LEN - 25))
		return -EUCLEAN;
	*ret = u;
	return 0;
}

int map_extent(struct map *m, uint32_t i, struct extent *ret)
{
	uint8_t b[MAP_EXTENT_LEN];
	struct extent x;
	int r = read_record(m, m->h.extents, i, m->h.n_extents, b, sizeof(b));

	if (r < 0)
		return r;
	x = (struct extent){ .addr = get_le64(b),
			     .len = get_le32(b + 8),
			     .unit = get_le32(b + 12),
			     .unit_off = get_le32(b + 16),
			     .ino = get_le32(b + 20) };
	memcpy(x.digest.b, b + 24, DIGEST_LEN);
	if (x.len == 0 || x.len > MAP_EXTENT_MAX ||
	    !range_fits(x.addr, x.len, m->h.device_size) ||
	    (x.unit != UNIT_HOLE && x.unit >= m->h.n_units) ||
	    !range_fits(x.unit_off, x.len, UINT32_MAX) || x.ino == 0 ||
	    x.ino > m->h.n_files)
		return -EUCLEAN;
	*ret = x;
	return 0;
}

int map_unit_extent(struct map *m, uint32_t i, uint32_t *ret)
{
	uint8_t b[MAP_INDEX_LEN];
	int r = read_record(m, m->h.unit_extents, i, m->h.n_unit_extents, b,
			    sizeof(b));

	if (r < 0)
		return r;
	if (get_le32(b) >= m->h.n_extents)
		return -EUCLEAN;
	*ret = get_le32(b);
	return 0;
}

int map_file(struct map *m, uint32_t ino, struct map_file *ret)
{
	uint8_t b[MAP_FILE_LEN];
	struct map_file f;
	int r;

	if (ino == 0)
		return -EINVAL;
	r = read_record(m, m->h.files, ino - 1, m->h.n_files, b, sizeof(b));
	if (r < 0)
		return r;
	if (all_zero(b, sizeof(b)))
		return -ENODATA;
	f = (struct map_file){ .addr = get_le64(b),
			       .size = get_le64(b + 8),
			       .body_off = get_le64(b + 16),
			       .body = get_le32(b + 24),
			       .nid = get_le32(b + 28),
			       .first_bit = get_le32(b + 32),
			       .first_extent = get_le32(b + 36),
			       .n_extents = get_le32(b + 40) };
	if (f.size == 0 || !range_fits(f.addr, f.size, m->h.device_size) ||
	    !range_fits(f.body_off, f.size, INT64_MAX) ||
	    f.body >= m->h.n_bodies || f.n_extents == 0 ||
	    !range_fits(f.first_extent, f.n_extents, m->h.n_extents) ||
	    !range_fits(f.first_bit, f.n_extents, UINT32_MAX) ||
	    !all_zero(b + 44, MAP_FILE_LEN - 44))
		return -EUCLEAN;
	*ret = f;
	return 0;
}

int map_body(struct map *m, uint32_t i, struct map_body *ret)
{
	uint8_t b[MAP_BODY_LEN];
	struct map_body v;
	int r = read_record(m, m->h.bodies, i, m->h.n_bodies, b, sizeof(b));

	if (r < 0)
		return r;
	v = (struct map_body){ .size = get_le64(b + 32),
			       .n_extents = get_le32(b + 40),
			       .first_ino = get_le32(b + 44) };
	memcpy(v.ckey.b, b, DIGEST_LEN);
	if (v.size > INT64_MAX || v.n_extents > m->h.n_extents ||
	    v.first_ino > m->h.n_files)
		return -EUCLEAN;
	*ret = v;
	return 0;
}

int map_find_extent(struct map *m, const struct map_file *f, uint64_t off,
		    uint32_t *ret_i, struct extent *ret)
{
	uint32_t lo = 0, hi = f->n_extents;
	uint64_t at;

	if (off >= f->size)
		return -EINVAL;
	at = f->addr + off;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		struct extent x;
		int r = map_extent(m, f->first_extent + mid, &x);

		if (r < 0)
			return r;
		if (at < x.addr) {
			hi = mid;
		} else if (at - x.addr >= x.len) {
			lo = mid + 1;
		} else {
			*ret_i = f->first_extent + mid;
			*ret = x;
			return 0;
		}
	}
	return -EUCLEAN;
}
