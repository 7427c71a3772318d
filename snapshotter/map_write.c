/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer of the map: arrays in memory to the bytes of map_format.h, through
 * one small buffer. Does not sync; whoever makes the leaf log does.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fault.h"
#include "base/io.h"
#include "snapshotter/map_format.h"
#include "verity/stream.h"

struct out {
	int fd;
	int error; /* of the first failure; what follows is dropped */
	uint64_t pos; /* of buf[0] in the file */
	size_t n;
	uint8_t buf[32 << 10];
};

static void flush(struct out *o)
{
	if (o->error == 0 && o->n > 0)
		o->error = stream_write(o->fd, o->buf, o->n, o->pos,
					o->pos + o->n);
	o->pos += o->n;
	o->n = 0;
}

/* Room for one record, zeroed. */
static uint8_t *record(struct out *o, size_t len)
{
	uint8_t *p;

	if (o->n + len > sizeof(o->buf))
		flush(o);
	p = o->buf + o->n;
	memset(p, 0, len);
	o->n += len;
	return p;
}

static void put_header(struct out *o, const struct map_header *h)
{
	uint8_t *p = record(o, MAP_HEADER_LEN);

	memcpy(p, MAP_MAGIC, MAP_MAGIC_LEN);
	put_le32(p + 8, MAP_VERSION);
	put_le32(p + 12, MAP_HEADER_LEN);
	put_le32(p + 16, h->n_units);
	put_le32(p + 20, h->n_extents);
	put_le32(p + 24, h->n_unit_extents);
	put_le32(p + 28, h->n_files);
	put_le32(p + 32, h->n_bodies);
	put_le64(p + 40, h->units);
	put_le64(p + 48, h->extents);
	put_le64(p + 56, h->unit_extents);
	put_le64(p + 64, h->files);
	put_le64(p + 72, h->bodies);
	put_le64(p + 80, h->end);
	put_le64(p + 88, h->payload);
	put_le64(p + 96, h->device_size);
	put_le64(p + 104, h->prefetch_end);
}

static void put_unit(struct out *o, const struct unit *u)
{
	uint8_t *p = record(o, MAP_UNIT_LEN);

	put_le64(p, u->blob_off);
	put_le32(p + 8, u->clen);
	put_le32(p + 12, u->ulen);
	put_le32(p + 16, u->first_x);
	put_le32(p + 20, u->n_x);
	p[24] = u->codec;
}

static void put_extent(struct out *o, const struct extent *x)
{
	uint8_t *p = record(o, MAP_EXTENT_LEN);

	put_le64(p, x->addr);
	put_le32(p + 8, x->len);
	put_le32(p + 12, x->unit);
	put_le32(p + 16, x->unit_off);
	put_le32(p + 20, x->ino);
	memcpy(p + 24, x->digest.b, DIGEST_LEN);
}

static void put_file(struct out *o, const struct map_file *f)
{
	uint8_t *p = record(o, MAP_FILE_LEN);

	if (f->size == 0) /* no contents: a record of zeros, whatever else */
		return;
	put_le64(p, f->addr);
	put_le64(p + 8, f->size);
	put_le64(p + 16, f->body_off);
	put_le32(p + 24, f->body);
	put_le32(p + 28, f->nid);
	put_le32(p + 32, f->first_bit);
	put_le32(p + 36, f->first_extent);
	put_le32(p + 40, f->n_extents);
}

static void put_body(struct out *o, const struct map_body *b)
{
	uint8_t *p = record(o, MAP_BODY_LEN);

	memcpy(p, b->ckey.b, DIGEST_LEN);
	put_le64(p + 32, b->size);
	put_le32(p + 40, b->n_extents);
	put_le32(p + 44, b->first_ino);
}

static int fill_header(const struct map_image *img, struct map_header *h)
{
	uint64_t listed = 0;

	for (uint32_t i = 0; i < img->n_units; i++) {
		if (img->units[i].first_x != listed)
			return -EINVAL;
		listed += img->units[i].n_x;
	}
	if (listed > img->n_extents)
		return -EINVAL;
	h->payload = 0;
	for (uint32_t i = 0; i < img->n_extents; i++)
		h->payload += img->extents[i].len;
	h->n_units = img->n_units;
	h->n_extents = img->n_extents;
	h->n_unit_extents = (uint32_t)listed;
	h->n_files = img->n_files;
	h->n_bodies = img->n_bodies;
	h->device_size = img->device_size;
	h->prefetch_end = img->prefetch_end;
	map_header_layout(h);
	return 0;
}

static void put_all(struct out *o, const struct map_header *h,
		    const struct map_image *img)
{
	put_header(o, h);
	for (uint32_t i = 0; i < img->n_units; i++)
		put_unit(o, &img->units[i]);
	for (uint32_t i = 0; i < img->n_extents; i++)
		put_extent(o, &img->extents[i]);
	for (uint32_t i = 0; i < h->n_unit_extents; i++)
		put_le32(record(o, MAP_INDEX_LEN), img->unit_extents[i]);
	if (h->n_unit_extents % 2) /* sections begin at multiples of 8 */
		(void)record(o, MAP_INDEX_LEN);
	for (uint32_t i = 0; i < img->n_files; i++)
		put_file(o, &img->files[i]);
	for (uint32_t i = 0; i < img->n_bodies; i++)
		put_body(o, &img->bodies[i]);
	flush(o);
}

int map_write(int dirfd, const char *name, const struct map_image *img)
{
	owned(mem) struct out *o = NULL;
	struct map_header h;
	int r = fill_header(img, &h);

	if (r < 0)
		return r;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	o->fd = openat(dirfd, name,
		       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (o->fd < 0)
		return -errno;
	put_all(o, &h, img);
	r = fault_point("map_written");
	if (o->error == 0)
		o->error = r;
	if (close(o->fd) < 0 && o->error == 0)
		o->error = -errno;
	return o->error;
}
