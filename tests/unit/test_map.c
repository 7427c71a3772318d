/* SPDX-License-Identifier: Apache-2.0 */
/* The map: what is written is read, and every rule of map_check() is tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/io.h"
#include "snapshotter/map.h"
#include "verity/vfile.h"

/* ---- verity/vfile over a plain descriptor ---- */

struct vfile {
	int fd;
	uint64_t size;
};

static unsigned n_vfiles;
static int vfile_error; /* of the next reads */

void vfile_close(struct vfile *v)
{
	if (!v)
		return;
	assert_int_equal(close(v->fd), 0);
	free(v);
	n_vfiles--;
}

uint64_t vfile_size(const struct vfile *v)
{
	return v->size;
}

int vfile_pread(void *p_v, void *p, size_t len, uint64_t off)
{
	struct vfile *v = p_v;

	if (vfile_error)
		return vfile_error;
	if (off > v->size || len > v->size - off)
		return -EINVAL;
	return pread_full(v->fd, p, len, off);
}

static struct vfile *fake_vfile(int dirfd, const char *name)
{
	struct vfile *v = calloc(1, sizeof(*v));
	struct stat st;

	assert_non_null(v);
	v->fd = openat(dirfd, name, O_RDWR | O_CLOEXEC);
	assert_true(v->fd >= 0);
	assert_int_equal(fstat(v->fd, &st), 0);
	v->size = (uint64_t)st.st_size;
	n_vfiles++;
	return v;
}

/* ---- a layer: two small files, a large one with a hole, no contents ---- */

enum { N_UNITS = 4, N_X = 6, N_LISTED = 5, N_FILES = 5, N_BODIES = 2 };

struct world {
	struct unit units[N_UNITS];
	struct extent extents[N_X];
	uint32_t listed[N_LISTED];
	struct map_file files[N_FILES];
	struct map_body bodies[N_BODIES];
	struct map_image img;
	char dir[64];
	int dirfd;
};

static const struct world fresh = {
	.units = {
		/* the bytes before the first payload */
		{ .blob_off = 0, .clen = 90, .codec = CODEC_GZIP_MEMBER },
		{ .blob_off = 90, .clen = 500, .ulen = 5000, .first_x = 0,
		  .n_x = 2, .codec = CODEC_GZIP_MEMBER },
		{ .blob_off = 590, .clen = 70000, .ulen = 100000,
		  .first_x = 2, .n_x = 1, .codec = CODEC_GZIP_MEMBER },
		{ .blob_off = 70590, .clen = 80000, .ulen = 60000,
		  .first_x = 3, .n_x = 2, .codec = CODEC_GZIP_MEMBER },
	},
	.extents = {
		/* file 2: 1000 bytes; file 3: 3000 in one piece */
		{ .addr = 0, .len = 1000, .unit = 1, .unit_off = 0, .ino = 2 },
		{ .addr = 4096, .len = 3000, .unit = 1, .unit_off = 2000,
		  .ino = 3 },
		/* file 5: 100000, a hole of 50000, 20000, 30000 */
		{ .addr = 8192, .len = 100000, .unit = 2, .ino = 5 },
		{ .addr = 108192, .len = 50000, .unit = UNIT_HOLE, .ino = 5 },
		{ .addr = 158192, .len = 20000, .unit = 3, .ino = 5 },
		{ .addr = 178192, .len = 30000, .unit = 3, .unit_off = 30000,
		  .ino = 5 },
	},
	.listed = { 0, 1, 2, 4, 5 },
	.files = {
		{ 0 }, /* the root */
		{ .addr = 0, .size = 1000, .body_off = 0, .nid = 41,
		  .first_bit = 0, .first_extent = 0, .n_extents = 1 },
		{ .addr = 4096, .size = 3000, .body_off = 1024, .nid = 43,
		  .first_bit = 1, .first_extent = 1, .n_extents = 1 },
		{ 0 }, /* empty */
		{ .addr = 8192, .size = 200000, .body = 1, .nid = 47,
		  .first_extent = 2, .n_extents = 4 },
	},
	.bodies = {
		{ .size = 4024, .n_extents = 2 },
		{ .ckey = { { 7 } }, .size = 200000, .n_extents = 4,
		  .first_ino = 5 },
	},
	.img = { .n_units = N_UNITS, .n_extents = N_X, .n_files = N_FILES,
		 .n_bodies = N_BODIES, .device_size = 212992,
		 .prefetch_end = 590 },
};

static int setup(void **state)
{
	struct world *w = malloc(sizeof(*w));

	assert_non_null(w);
	*w = fresh;
	w->img.units = w->units;
	w->img.extents = w->extents;
	w->img.unit_extents = w->listed;
	w->img.files = w->files;
	w->img.bodies = w->bodies;
	for (unsigned i = 0; i < N_X; i++)
		w->extents[i].digest.b[0] = (uint8_t)(i + 1);
	(void)snprintf(w->dir, sizeof(w->dir), "/tmp/test_map.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->dirfd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->dirfd >= 0);
	vfile_error = 0;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = remove_tree(tmp, w->dir + sizeof("/tmp"));

	(void)close(tmp);
	(void)close(w->dirfd);
	free(w);
	return r;
}

static struct map *open_map(struct world *w, struct err *e)
{
	struct map *m = NULL;

	if (map_open(fake_vfile(w->dirfd, "map"), &m, e) < 0)
		assert_null(m);
	return m;
}

static struct map *written(struct world *w)
{
	struct err e = ERR_INIT;
	struct map *m;

	assert_int_equal(map_write(w->dirfd, "map", &w->img), 0);
	m = open_map(w, &e);
	if (!m)
		fail_msg("%s", e.msg);
	return m;
}

/* ---- tests ---- */

static void map_gives_back_what_was_written(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	struct err e = ERR_INIT;
	struct stat st;
	struct unit u;
	struct extent x;
	struct map_file f;
	struct map_body b;
	uint32_t n;

	assert_int_equal(map_n_units(m), N_UNITS);
	assert_int_equal(map_n_extents(m), N_X);
	assert_int_equal(map_n_files(m), N_FILES);
	assert_int_equal(map_n_bodies(m), N_BODIES);
	assert_int_equal(map_payload(m), 204000);
	assert_int_equal(map_device_size(m), 212992);
	assert_int_equal(map_prefetch_end(m), 590);
	for (uint32_t i = 0; i < N_UNITS; i++) {
		assert_int_equal(map_unit(m, i, &u), 0);
		assert_int_equal(u.blob_off, w->units[i].blob_off);
		assert_int_equal(u.clen, w->units[i].clen);
		assert_int_equal(u.ulen, w->units[i].ulen);
		assert_int_equal(u.codec, w->units[i].codec);
		assert_int_equal(u.first_x, w->units[i].first_x);
		assert_int_equal(u.n_x, w->units[i].n_x);
	}
	for (uint32_t i = 0; i < N_X; i++) {
		assert_int_equal(map_extent(m, i, &x), 0);
		assert_int_equal(x.addr, w->extents[i].addr);
		assert_int_equal(x.len, w->extents[i].len);
		assert_int_equal(x.unit, w->extents[i].unit);
		assert_int_equal(x.unit_off, w->extents[i].unit_off);
		assert_int_equal(x.ino, w->extents[i].ino);
		assert_true(digest_equal(&x.digest, &w->extents[i].digest));
	}
	for (uint32_t i = 0; i < N_LISTED; i++) {
		assert_int_equal(map_unit_extent(m, i, &n), 0);
		assert_int_equal(n, w->listed[i]);
	}
	for (uint32_t i = 1; i <= N_FILES; i++) {
		const struct map_file *v = &w->files[i - 1];

		if (v->size == 0) {
			assert_int_equal(map_file(m, i, &f), -ENODATA);
			continue;
		}
		assert_int_equal(map_file(m, i, &f), 0);
		assert_int_equal(f.addr, v->addr);
		assert_int_equal(f.size, v->size);
		assert_int_equal(f.body_off, v->body_off);
		assert_int_equal(f.body, v->body);
		assert_int_equal(f.nid, v->nid);
		assert_int_equal(f.first_bit, v->first_bit);
		assert_int_equal(f.first_extent, v->first_extent);
		assert_int_equal(f.n_extents, v->n_extents);
	}
	for (uint32_t i = 0; i < N_BODIES; i++) {
		assert_int_equal(map_body(m, i, &b), 0);
		assert_true(digest_equal(&b.ckey, &w->bodies[i].ckey));
		assert_int_equal(b.size, w->bodies[i].size);
		assert_int_equal(b.n_extents, w->bodies[i].n_extents);
		assert_int_equal(b.first_ino, w->bodies[i].first_ino);
	}
	assert_int_equal(map_check(m, &e), 0);
	assert_int_equal(fstatat(w->dirfd, "map", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* header, units, extents, places padded to 8, files, bodies */
	assert_int_equal(st.st_size,
			 128 + 4 * 32 + 6 * 56 + 24 + 5 * 48 + 2 * 48);
	map_close(m);
	assert_int_equal(n_vfiles, 0);
}

static void map_of_an_empty_layer_is_a_header(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	struct map_body pack = { 0 };
	struct map *m;

	w->img = (struct map_image){ .bodies = &pack, .n_bodies = 1 };
	m = written(w);
	assert_int_equal(map_check(m, &e), 0);
	assert_int_equal(map_payload(m), 0);
	map_close(m);
}

static void numbers_beyond_the_end_are_invalid(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	struct unit u;
	struct extent x;
	struct map_file f;
	struct map_body b;
	uint32_t n;

	assert_int_equal(map_unit(m, N_UNITS, &u), -EINVAL);
	assert_int_equal(map_unit(m, UNIT_HOLE, &u), -EINVAL);
	assert_int_equal(map_extent(m, N_X, &x), -EINVAL);
	assert_int_equal(map_unit_extent(m, N_LISTED, &n), -EINVAL);
	assert_int_equal(map_file(m, 0, &f), -EINVAL);
	assert_int_equal(map_file(m, N_FILES + 1, &f), -EINVAL);
	assert_int_equal(map_body(m, N_BODIES, &b), -EINVAL);
	map_close(m);
}

static void find_extent_at_every_byte(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	struct extent x;
	uint32_t i;

	for (uint32_t ino = 1; ino <= N_FILES; ino++) {
		struct map_file f;

		if (map_file(m, ino, &f) == -ENODATA)
			continue;
		for (uint64_t off = 0; off < f.size;
		     off += off % 50000 < 10 || off % 50000 > 49990 ? 1 : 997) {
			assert_int_equal(map_find_extent(m, &f, off, &i, &x),
					 0);
			assert_int_equal(x.ino, ino);
			assert_true(x.addr <= f.addr + off);
			assert_true(f.addr + off < x.addr + x.len);
			assert_int_equal(x.addr, w->extents[i].addr);
		}
		assert_int_equal(map_find_extent(m, &f, f.size, &i, &x),
				 -EINVAL);
		assert_int_equal(map_find_extent(m, &f, UINT64_MAX, &i, &x),
				 -EINVAL);
	}
	map_close(m);
}

static void find_extent_refuses_a_gap(void **state)
{
	struct world *w = *state;
	struct map_file f;
	struct extent x;
	struct map *m;
	uint32_t i;

	w->extents[3].len = 40000;
	m = written(w);
	assert_int_equal(map_file(m, 5, &f), 0);
	assert_int_equal(map_find_extent(m, &f, 145000, &i, &x), -EUCLEAN);
	assert_int_equal(map_find_extent(m, &f, 150000, &i, &x), 0);
	assert_int_equal(i, 4);
	map_close(m);
}

static void open_refuses_every_other_header(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	struct vfile *v;
	uint8_t keep, c;

	map_close(m);
	for (uint64_t i = 0; i < 128; i++) {
		struct err e = ERR_INIT;
		bool free_value = i >= 88 && i < 112; /* no structure */

		v = fake_vfile(w->dirfd, "map");
		assert_int_equal(pread_full(v->fd, &keep, 1, i), 0);
		c = keep ^ 1;
		assert_int_equal(pwrite_full(v->fd, &c, 1, i), 0);
		m = NULL;
		if (free_value) {
			assert_int_equal(map_open(v, &m, &e), 0);
			map_close(m);
		} else {
			assert_int_equal(map_open(v, &m, &e), -1);
			assert_int_equal(e.kind, i >= 8 && i < 12
							 ? ERR_UNSUPPORTED
							 : ERR_CORRUPT);
		}
		assert_int_equal(n_vfiles, 0); /* consumed in any case */
		v = fake_vfile(w->dirfd, "map");
		assert_int_equal(pwrite_full(v->fd, &keep, 1, i), 0);
		vfile_close(v);
	}
}

static void open_refuses_every_other_size(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	static const int delta[] = { -1, 1, -500, 8 };
	uint64_t size = 0;

	map_close(m);
	for (size_t i = 0; i < ARRAY_LEN(delta); i++) {
		struct err e = ERR_INIT;
		struct vfile *v = fake_vfile(w->dirfd, "map");

		size = size ? size : v->size;
		vfile_close(v);
		v = fake_vfile(w->dirfd, "map");
		v->size = size + (uint64_t)(int64_t)delta[i];
		assert_int_equal(map_open(v, &m, &e), -1);
		assert_int_equal(e.kind, ERR_CORRUPT);
		assert_non_null(strstr(e.msg, "size of the file"));
	}
	assert_int_equal(n_vfiles, 0);
}

static void open_and_records_pass_read_errors_on(void **state)
{
	struct world *w = *state;
	struct map *m = written(w);
	struct err e = ERR_INIT;
	struct unit u;

	vfile_error = -EIO;
	assert_int_equal(map_unit(m, 0, &u), -EIO);
	assert_int_equal(map_check(m, &e), -1);
	assert_int_equal(e.sys, EIO);
	map_close(m);
	assert_null(open_map(w, &e));
	assert_int_equal(e.kind, ERR_INTERNAL);
	vfile_error = -EUCLEAN;
	assert_null(open_map(w, &e));
	assert_int_equal(e.kind, ERR_CORRUPT);
	assert_int_equal(n_vfiles, 0);
}

/* ---- one broken rule each ---- */

static void records_with_impossible_values_are_unclean(void **state)
{
	struct world *w = *state;
	struct world keep = *w;
	struct unit u;
	struct extent x;
	struct map_file f;
	struct map_body b;
	uint32_t n;
	struct map *m;

#define UNCLEAN(change, call)                     \
	do {                                      \
		*w = keep;                        \
		change;                           \
		m = written(w);                   \
		assert_int_equal(call, -EUCLEAN); \
		map_close(m);                     \
	} while (0)

	UNCLEAN(w->units[1].codec = 9, map_unit(m, 1, &u));
	UNCLEAN(w->units[1].clen = 0, map_unit(m, 1, &u));
	UNCLEAN(w->units[1].blob_off = UINT64_MAX, map_unit(m, 1, &u));
	UNCLEAN(w->units[1].blob_off = INT64_MAX - 10, map_unit(m, 1, &u));
	UNCLEAN(w->extents[0].len = 0, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].len = MAP_EXTENT_MAX + 1, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].addr = 212992 - 999, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].addr = UINT64_MAX - 10, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].unit = N_UNITS, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].unit_off = UINT32_MAX - 10, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].ino = 0, map_extent(m, 0, &x));
	UNCLEAN(w->extents[0].ino = N_FILES + 1, map_extent(m, 0, &x));
	UNCLEAN(w->listed[0] = N_X, map_unit_extent(m, 0, &n));
	UNCLEAN(w->files[1].addr = UINT64_MAX - 10, map_file(m, 2, &f));
	UNCLEAN(w->files[1].size = UINT64_MAX, map_file(m, 2, &f));
	UNCLEAN(w->files[1].body_off = UINT64_MAX - 10, map_file(m, 2, &f));
	UNCLEAN(w->files[1].body = N_BODIES, map_file(m, 2, &f));
	UNCLEAN(w->files[1].n_extents = 0, map_file(m, 2, &f));
	UNCLEAN(w->files[1].n_extents = N_X + 1, map_file(m, 2, &f));
	UNCLEAN(w->files[1].first_extent = UINT32_MAX, map_file(m, 2, &f));
	UNCLEAN(w->files[1].first_bit = UINT32_MAX, map_file(m, 2, &f));
	UNCLEAN(w->bodies[1].size = UINT64_MAX, map_body(m, 1, &b));
	UNCLEAN(w->bodies[1].n_extents = N_X + 1, map_body(m, 1, &b));
	UNCLEAN(w->bodies[1].first_ino = N_FILES + 1, map_body(m, 1, &b));
#undef UNCLEAN
	*w = keep;
}

static void check_refuses_records_that_do_not_fit(void **state)
{
	struct world *w = *state;
	struct world keep = *w;
	struct map *m;

#define REFUSED(change, reason)                                             \
	do {                                                                \
		struct err e = ERR_INIT;                                    \
		*w = keep;                                                  \
		change;                                                     \
		m = written(w);                                             \
		assert_int_equal(map_check(m, &e), -1);                     \
		assert_int_equal(e.kind, ERR_CORRUPT);                      \
		if (!strstr(e.msg, reason))                                 \
			fail_msg("%s: %s, not %s", #change, e.msg, reason); \
		map_close(m);                                               \
	} while (0)

	REFUSED(w->units[2].codec = 9, "unit 2 has impossible values");
	REFUSED(w->units[2].blob_off = 589, "unit 2 overlaps");
	REFUSED(w->units[1].ulen = 4999, "unit 1 has a length of 4999");
	REFUSED(w->units[0].ulen = 1, "unit 0 has a length of 1");
	REFUSED((w->units[2].n_x = 0, w->units[2].ulen = 0,
		 w->units[3].first_x = 2),
		"unit 3 lists extent 2, which is not its own");
	REFUSED(w->listed[2] = 3, "unit 2 lists extent 3");
	REFUSED(w->listed[4] = 4, "unit 3 lists extent 4");
	REFUSED((w->listed[3] = 5, w->listed[4] = 4), "overlaps another");
	REFUSED(w->extents[1].unit_off = 999, "extent 1 overlaps another");
	REFUSED((w->units[3].n_x = 1, w->units[3].ulen = 20000),
		"extent 5 is in no unit's list");
	REFUSED(w->files[1].addr = 512, "file 2 is not aligned");
	REFUSED(w->extents[1].ino = 2, "extent 1 does not fit file 3");
	REFUSED(w->extents[1].addr = 4097, "extent 1 does not fit file 3");
	REFUSED(w->files[4].size = 199999, "extent 5 does not fit file 5");
	REFUSED(w->files[4].size = 200001, "cover 200000 of 200001");
	REFUSED(w->files[4].n_extents = 3, "cover 170000 of 200000");
	REFUSED(w->files[1] = (struct map_file){ 0 },
		"5 extents of 6 belong to files");
	REFUSED(w->files[1].body = 1, "file 2 has the wrong kind of body");
	REFUSED(w->files[4].body = 0, "file 5 has the wrong kind of body");
	REFUSED(w->files[2].body_off = 1025, "file 3 does not fit its body");
	REFUSED(w->files[2].body_off = 1000, "file 3 is not aligned");
	REFUSED(w->files[2].first_bit = 2, "file 3 does not fit its body");
	REFUSED(w->bodies[0].size = 4023, "file 3 does not fit its body");
	REFUSED(w->bodies[1].size = 200001, "file 5 is not all of its body");
	REFUSED(w->bodies[1].n_extents = 5, "file 5 is not all of its body");
	REFUSED(w->bodies[0].ckey.b[0] = 1, "the pack has a key");
	REFUSED(w->bodies[1].first_ino = 2, "body 1 belongs to no file");
	REFUSED(w->bodies[1].first_ino = 0, "body 1 belongs to no file");
#undef REFUSED
	*w = keep;
}

static void write_refuses_lists_that_do_not_fit(void **state)
{
	struct world *w = *state;

	w->units[2].first_x = 3;
	assert_int_equal(map_write(w->dirfd, "map", &w->img), -EINVAL);
	w->units[2].first_x = 2;
	w->units[3].n_x = 5;
	assert_int_equal(map_write(w->dirfd, "map", &w->img), -EINVAL);
	w->units[3].n_x = 2;
	assert_int_equal(map_write(w->dirfd, "no/such/folder", &w->img),
			 -ENOENT);
	assert_int_equal(symlinkat("elsewhere", w->dirfd, "map"), 0);
	assert_int_equal(map_write(w->dirfd, "map", &w->img), -ELOOP);
}

static void write_gives_the_same_bytes_for_the_same_image(void **state)
{
	struct world *w = *state;
	char *a = NULL, *b = NULL;
	size_t n_a = 0, n_b = 0;

	assert_int_equal(map_write(w->dirfd, "map", &w->img), 0);
	/* a longer file of that name leaves nothing behind */
	assert_int_equal(
		write_file_atomic(w->dirfd, "again", w, sizeof(*w), 0600), 0);
	assert_int_equal(map_write(w->dirfd, "again", &w->img), 0);
	assert_int_equal(read_file_at(w->dirfd, "map", 1 << 20, &a, &n_a), 0);
	assert_int_equal(read_file_at(w->dirfd, "again", 1 << 20, &b, &n_b), 0);
	assert_int_equal(n_a, n_b);
	assert_memory_equal(a, b, n_a);
	assert_memory_equal(a, "vs-map\r\n\1\0\0\0", 12);
	free(a);
	free(b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(map_gives_back_what_was_written),
		T(map_of_an_empty_layer_is_a_header),
		T(numbers_beyond_the_end_are_invalid),
		T(find_extent_at_every_byte),
		T(find_extent_refuses_a_gap),
		T(open_refuses_every_other_header),
		T(open_refuses_every_other_size),
		T(open_and_records_pass_read_errors_on),
		T(records_with_impossible_values_are_unclean),
		T(check_refuses_records_that_do_not_fit),
		T(write_refuses_lists_that_do_not_fit),
		T(write_gives_the_same_bytes_for_the_same_image),
	};
#undef T

	return cmocka_run_group_tests(tests, NULL, NULL);
}
