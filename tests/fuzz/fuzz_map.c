/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps from any bytes: no record leads outside, and what map_check() accepts
 * keeps its promises to a reader.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
	const uint8_t *p;
	size_t len;
};

static int read_bytes(void *ctx, void *p, size_t len, uint64_t off)
{
	const struct bytes *b = ctx;

	if (off > b->len || len > b->len - off)
		abort(); /* the reader knows the size */
	memcpy(p, b->p + off, len);
	return 0;
}

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void look_up(struct map *m, const struct map_file *f, bool checked)
{
	const uint64_t offs[] = { 0, f->size / 2, f->size - 1 };

	for (size_t i = 0; i < ARRAY_LEN(offs); i++) {
		struct extent x;
		uint32_t n;
		int r = map_find_extent(m, f, offs[i], &n, &x);

		must(!checked || r == 0);
		if (r < 0)
			continue;
		must(n < map_n_extents(m) && x.addr <= f->addr + offs[i]);
		must(f->addr + offs[i] - x.addr < x.len);
	}
}

static void read_all(struct map *m, bool checked)
{
	struct unit u;
	struct extent x;
	struct map_body b;
	struct map_file f;
	uint32_t n;

	for (uint32_t i = 0; i < map_n_units(m); i++)
		must(map_unit(m, i, &u) == 0 || !checked);
	for (uint32_t i = 0; i < map_n_extents(m); i++) {
		int r = map_extent(m, i, &x);

		must(r == 0 || !checked);
		if (r == 0)
			must(x.addr + x.len <= map_device_size(m));
		(void)!map_unit_extent(m, i, &n);
	}
	for (uint32_t i = 0; i < map_n_bodies(m); i++)
		must(map_body(m, i, &b) == 0 || !checked);
	for (uint32_t i = 0; i <= map_n_files(m); i++) {
		if (map_file(m, i, &f) == 0)
			look_up(m, &f, checked);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes b = { data, size };
	struct map_io io = { .pread = read_bytes, .ctx = &b, .size = size };
	struct map *m = NULL;
	struct err e = ERR_INIT;
	bool checked;

	if (map_open_io(&io, &m, &e) < 0) {
		must(e.kind != ERR_NONE && m == NULL);
		return 0;
	}
	checked = map_check(m, &e) == 0;
	read_all(m, checked);
	map_close(m);
	return 0;
}
