/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/builder_map: extents that must cover their files, and the map
 * that comes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layer_tree.h"
#include "snapshotter/body.h"
#include "snapshotter/builder_priv.h"
#include "verity/vfile.h"

static void extents_must_cover_the_file(void **state)
{
	struct tree *t = *state;
	uint32_t u;

	assert_int_equal(add(t, "d/f", ENTRY_REG, .size = 100), 0);
	assert_int_equal(tree_unit(t, 50, &u), 0);
	assert_refused(t, tree_extent(t, 10, 10, u, 0, 1), ERR_CORRUPT,
		       "'d/f': chunks do not follow one another");
	assert_refused(t, tree_extent(t, 0, 101, u, 0, 1), ERR_CORRUPT,
		       "'d/f': chunks exceed the file");
	assert_refused(t, tree_extent(t, 0, 0, u, 0, 1), ERR_CORRUPT,
		       "'d/f': empty chunk");
	assert_refused(t, tree_extent(t, 0, 1, u + 1, 0, 1), ERR_CORRUPT,
		       "'d/f': chunk of no range");
	assert_refused(t, tree_extent(t, 0, 100, u, UINT32_MAX - 50, 1),
		       ERR_CORRUPT, "'d/f': chunk offset out of bounds");
	assert_refused(t, tree_extent(t, 0, MAP_EXTENT_MAX + 1, u, 0, 1),
		       ERR_CORRUPT, "'d/f': chunk exceeds 64 MiB");
	assert_int_equal(tree_extent(t, 0, 60, u, 0, 1), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'d/f': chunks do not cover the file");
	assert_int_equal(tree_extent(t, 60, 40, u, 60, 2), 0);
	assert_int_equal(tree_build(t), 0);
	assert_refused(t, add_dir(t, "late"), ERR_INTERNAL,
		       "the layer has been built already");
}

static void extents_belong_to_files(void **state)
{
	struct tree *t = *state;
	uint32_t u;

	assert_int_equal(tree_unit(t, 50, &u), 0);
	assert_refused(t, tree_extent(t, 0, 1, u, 0, 1), ERR_INTERNAL,
		       "chunk of no entry");
	assert_int_equal(add_dir(t, "d"), 0);
	assert_refused(t, tree_extent(t, 0, 1, u, 0, 1), ERR_CORRUPT,
		       "'d': data of something without contents");
	assert_int_equal(add_empty(t, "e"), 0);
	assert_refused(t, tree_extent(t, 0, 1, u, 0, 1), ERR_CORRUPT,
		       "'e': chunks exceed the file");
}

static void units_must_not_overlap(void **state)
{
	struct unit u = { .blob_off = 100, .clen = 50 };
	struct tree *t = *state;
	uint32_t n;

	assert_int_equal(builder_sink.unit(t->b, &u, &n, &t->e), 0);
	u.blob_off = UINT64_MAX - 10;
	assert_refused(t, builder_sink.unit(t->b, &u, &n, &t->e), ERR_CORRUPT,
		       "compressed range out of bounds at "
		       "18446744073709551605");
	u.blob_off = 60;
	assert_int_equal(builder_sink.unit(t->b, &u, &n, &t->e), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "compressed ranges overlap at 100");
}

static void extents_must_not_share_output(void **state)
{
	struct tree *t = *state;
	uint32_t u;

	assert_int_equal(tree_unit(t, 50, &u), 0);
	assert_int_equal(add(t, "a", ENTRY_REG, .size = 10), 0);
	assert_int_equal(tree_extent(t, 0, 10, u, 0, 1), 0);
	assert_int_equal(add(t, "b", ENTRY_REG, .size = 10), 0);
	assert_int_equal(tree_extent(t, 0, 10, u, 9, 1), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "chunks overlap in the range at 0");
}

static void the_device_ends_at_16_tib(void **state)
{
	struct tree *t = *state;

	/* a chunk is 1 TiB: 15 of them fit, and the 16th would end at 2^32 */
	for (int i = 0; i < 16; i++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(
			add(t, name, ENTRY_REG, .size = UINT64_C(1) << 40), 0);
		t->b->nodes[t->b->n_nodes - 1].file.covered = UINT64_C(1) << 40;
	}
	assert_refused(t, tree_build(t), ERR_UNSUPPORTED,
		       "the files of the layer exceed 16 TiB");
}

static const struct map_file *file_of(struct tree *t, const char *path)
{
	struct inode in;

	assert_int_equal(tree_stat(t, path, &in), 0);
	assert_int_equal(t->b->map.files[in.ino - 1].nid, in.size ? in.nid : 0);
	assert_true(t->b->map.files[in.ino - 1].addr == in.addr);
	return &t->b->map.files[in.ino - 1];
}

static void small_files_share_the_pack(void **state)
{
	const struct map_file *f, *g, *h;
	struct tree *t = *state;

	assert_int_equal(tree_file(t, "z", 1000, 1), 0);
	assert_int_equal(tree_file(t, "big", MAP_LARGE, 2), 0);
	assert_int_equal(tree_file(t, "a", MAP_LARGE - 1, 3), 0);
	assert_int_equal(add_empty(t, "e"), 0);
	assert_int_equal(tree_file(t, "m", 5, 4), 0);
	assert_int_equal(tree_build(t), 0);
	f = file_of(t, "z");
	g = file_of(t, "a");
	h = file_of(t, "m");
	assert_int_equal(f->body, 0);
	assert_int_equal(f->body_off, 0);
	assert_int_equal(f->addr, 0);
	assert_int_equal(f->first_bit, 0);
	assert_int_equal(g->body, 0);
	assert_int_equal(g->body_off, 1024);
	assert_int_equal(g->addr, 4096 + MAP_LARGE);
	assert_int_equal(g->first_bit, 1);
	assert_int_equal(g->n_extents, 2);
	assert_int_equal(h->body_off, 1024 + MAP_LARGE);
	assert_int_equal(h->first_bit, 3);
	assert_int_equal(h->first_extent, 3);
	assert_int_equal(t->b->map.bodies[0].size, 1024 + MAP_LARGE + 5);
	assert_int_equal(t->b->map.bodies[0].n_extents, 4);
	assert_true(digest_is_zero(&t->b->map.bodies[0].ckey));
	f = file_of(t, "big");
	assert_int_equal(f->body, 1);
	assert_int_equal(f->body_off, 0);
	assert_int_equal(f->first_bit, 0);
	assert_int_equal(f->first_extent, 4);
	assert_int_equal(file_of(t, "e")->size, 0);
	assert_int_equal(t->res.n_bodies, 2);
	assert_int_equal(t->res.payload, 1000 + 2 * MAP_LARGE - 1 + 5);
	assert_int_equal(t->res.usage, 4096 * (1 + 1 + 1) + 2 * MAP_LARGE);
}

static void equal_large_files_share_a_body(void **state)
{
	struct ckey_builder *k;
	struct digest d, want;
	struct tree *t = *state;

	assert_int_equal(tree_file(t, "b", 200000, 1), 0);
	assert_int_equal(tree_file(t, "other", 200000, 2), 0);
	assert_int_equal(tree_file(t, "a", 200000, 1), 0);
	assert_int_equal(tree_file(t, "c", 200001, 1), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(t->res.n_bodies, 4);
	assert_int_equal(file_of(t, "b")->body, 1);
	assert_int_equal(file_of(t, "other")->body, 2);
	assert_int_equal(file_of(t, "a")->body, 1);
	assert_int_equal(file_of(t, "c")->body, 3);
	assert_int_equal(file_of(t, "a")->first_bit, 0);
	assert_int_equal(t->b->map.bodies[1].n_extents, 4);
	assert_int_equal(t->b->map.bodies[0].size, 0);
	memset(&d, 1, sizeof(d));
	assert_int_equal(ckey_begin(200000, &k), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ckey_add(k, i < 3 ? 65536 : 3392, &d), 0);
	assert_int_equal(ckey_end(k, &want), 0);
	assert_memory_equal(&t->b->map.bodies[1].ckey, &want, sizeof(want));
}

static void unit_extents_are_sorted(void **state)
{
	const struct map_image *m;
	struct tree *t = *state;
	uint32_t u[2], spare;

	assert_int_equal(tree_unit(t, 10, &u[1]), 0);
	t->blob_off = 100;
	assert_int_equal(tree_unit(t, 10, &u[0]), 0);
	t->blob_off = 50;
	assert_int_equal(tree_unit(t, 10, &spare), 0);
	assert_int_equal(add(t, "a", ENTRY_REG, .size = 30), 0);
	assert_int_equal(tree_extent(t, 0, 10, u[0], 20, 1), 0);
	assert_int_equal(tree_extent(t, 10, 10, UNIT_HOLE, 0, 0), 0);
	assert_int_equal(tree_extent(t, 20, 10, u[0], 0, 1), 0);
	assert_int_equal(add(t, "b", ENTRY_REG, .size = 10), 0);
	assert_int_equal(tree_extent(t, 0, 10, u[1], 5, 1), 0);
	assert_int_equal(builder_sink.prefetch(t->b, 77, &t->e), 0);
	assert_refused(t, builder_sink.prefetch(t->b, 78, &t->e), ERR_CORRUPT,
		       "two prefetch landmarks in the layer");
	assert_int_equal(tree_build(t), 0);
	m = &t->b->map;
	assert_int_equal(m->n_units, 3);
	assert_int_equal(m->n_extents, 4);
	assert_int_equal(m->units[0].blob_off, 0);
	assert_int_equal(m->units[0].ulen, 15);
	assert_int_equal(m->units[0].n_x, 1);
	assert_int_equal(m->units[1].blob_off, 50);
	assert_int_equal(m->units[1].n_x, 0);
	assert_int_equal(m->units[1].ulen, 0);
	assert_int_equal(m->units[2].first_x, 1);
	assert_int_equal(m->units[2].n_x, 2);
	assert_int_equal(m->units[2].ulen, 30);
	assert_int_equal(m->unit_extents[0], 3);
	assert_int_equal(m->unit_extents[1], 2);
	assert_int_equal(m->unit_extents[2], 0);
	assert_int_equal(m->unit_extents[3], 1); /* the hole */
	assert_int_equal(m->prefetch_end, 77);
	assert_int_equal(m->device_size, 8192);
	assert_int_equal(m->extents[3].addr, 4096);
}

/* The reader of the map agrees, record by record. */
static void the_map_passes_its_own_check(void **state)
{
	struct tree *t = *state;
	struct vfile *v;
	struct digest d;
	struct map *m;
	char name[16];

	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "d%d/f%d", i % 7, i);
		assert_int_equal(
			tree_file(t, name, (uint64_t)i * 997, (uint8_t)(i % 5)),
			0);
	}
	assert_int_equal(add_link(t, "l", "d1/f1"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(vfile_create(t->dirfd, "map", &d), 0);
	assert_int_equal(vfile_open(t->dirfd, "map", &d, &v), 0);
	if (map_open(v, &m, &t->e) < 0)
		fail_msg("%s", t->e.msg);
	if (map_check(m, &t->e) < 0)
		fail_msg("%s", t->e.msg);
	assert_true(map_payload(m) == t->res.payload);
	map_close(m);
}

/* Others have nearly all of it: this one fails, and gives back what it had. */
static void builders_share_a_budget(void **state)
{
	struct tree *t = *state;
	size_t others = 0, again = 0;
	char name[32];
	int r = 0;

	assert_true(charge(&others, BUILDING_MAX - (2u << 20)));
	for (int i = 0; i < 100000 && r == 0; i++) {
		(void)snprintf(name, sizeof(name), "file%07d", i);
		r = add_empty(t, name);
	}
	assert_int_equal(r, -1);
	assert_non_null(strstr(t->e.msg, "Cannot allocate memory"));
	builder_free(t->b);
	t->b = NULL;
	assert_true(charge(&again, (2u << 20) - 4096));
	uncharge(&again);
	uncharge(&others);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_tree, teardown_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(builders_share_a_budget),
		TEST(extents_must_cover_the_file),
		TEST(extents_belong_to_files),
		TEST(units_must_not_overlap),
		TEST(extents_must_not_share_output),
		TEST(the_device_ends_at_16_tib),
		TEST(small_files_share_the_pack),
		TEST(equal_large_files_share_a_body),
		TEST(unit_extents_are_sorted),
		TEST(the_map_passes_its_own_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
