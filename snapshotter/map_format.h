/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map's bytes, shared by map.c (reads) and map_write.c (writes) only.
 *
 * All numbers are little endian. Sections follow one another without a gap,
 * each at a multiple of 8: the counts alone give every offset, and a header
 * that says otherwise is refused.
 *
 *	header   0 magic  8 version  12 length of the header
 *		16 n_units  20 n_extents  24 n_unit_extents  28 n_files
 *		32 n_bodies  36 zero
 *		40 offsets of units, extents, unit_extents, files, bodies (u64)
 *		80 size of the file  88 payload  96 device_size
 *		104 prefetch_end  112 zero
 *	unit     0 blob_off  8 clen  12 ulen  16 first_x  20 n_x  24 codec (u8)
 *		25 zero
 *	extent   0 addr  8 len  12 unit  16 unit_off  20 ino  24 digest
 *	file     0 addr  8 size  16 body_off  24 body  28 nid  32 first_bit
 *		36 first_extent  40 n_extents  44 zero
 *	body     0 ckey  32 size  40 n_extents  44 first_ino
 */
#ifndef SNAPSHOTTER_MAP_FORMAT_H
#define SNAPSHOTTER_MAP_FORMAT_H

#include "snapshotter/map.h"

#define MAP_MAGIC "vs-map\r\n" /* a text-mode copy spoils it */
#define MAP_MAGIC_LEN 8u
#define MAP_VERSION 1u

enum {
	MAP_HEADER_LEN = 128,
	MAP_UNIT_LEN = 32,
	MAP_EXTENT_LEN = 56,
	MAP_INDEX_LEN = 4, /* one number of unit_extents */
	MAP_FILE_LEN = 48,
	MAP_BODY_LEN = 48,
};

struct map_header {
	uint32_t n_units, n_extents, n_unit_extents, n_files, n_bodies;
	uint64_t payload, device_size, prefetch_end;
	/* follow from the counts */
	uint64_t units, extents, unit_extents, files, bodies, end;
};

/* Fills the second part from the first. Cannot overflow: 2^32 records of
 * 56 bytes each are 2^38. */
static inline void map_header_layout(struct map_header *h)
{
	h->units = MAP_HEADER_LEN;
	h->extents = h->units + (uint64_t)h->n_units * MAP_UNIT_LEN;
	h->unit_extents = h->extents + (uint64_t)h->n_extents * MAP_EXTENT_LEN;
	h->files =
		h->unit_extents + (uint64_t)h->n_unit_extents * MAP_INDEX_LEN;
	h->files = (h->files + 7) & ~7ull;
	h->bodies = h->files + (uint64_t)h->n_files * MAP_FILE_LEN;
	h->end = h->bodies + (uint64_t)h->n_bodies * MAP_BODY_LEN;
}

#endif
