/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/index_write: the bytes of the EROFS profile, field by field, as
 * someone who only has the format's description would read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>

#include "fuse/erofs_fs.h"
#include "layer_tree.h"

/* The whole index; the caller frees. */
static uint8_t *image(struct tree *t, size_t *ret_len)
{
	char *p;

	assert_int_equal(tree_build(t), 0);
	assert_int_equal(
		read_file_at(t->dirfd, "index", 64u << 20, &p, ret_len), 0);
	assert_int_equal(*ret_len % 4096, 0);
	assert_true(*ret_len == t->res.index_size);
	return (uint8_t *)p;
}

static uint64_t nid_of(struct tree *t, const char *path)
{
	struct inode in;

	assert_int_equal(tree_stat(t, path, &in), 0);
	return in.nid;
}

static void superblock_has_the_fixed_fields(void **state)
{
	static const uint8_t uuid[16] = "0123456789abcdef";
	struct builder_opts o = { 0 };
	owned(mem) uint8_t *p = NULL;
	uint8_t want[256] = { 0 };
	struct tree t;
	size_t len;

	(void)state;
	memcpy(o.uuid, uuid, 16);
	tree_setup(&t, &o);
	assert_int_equal(tree_file(&t, "f", 5000, 1), 0);
	p = image(&t, &len);
	for (size_t i = 0; i < 1024; i++)
		assert_int_equal(p[i], 0);
	put_le32(want, 0xe0f5e1e2);
	memcpy(want + 4, p + 1028, 4); /* checked below */
	put_le32(want + 8, 3);
	want[12] = 12;
	put_le16(want + 14, 40);
	put_le64(want + 16, 2);
	put_le32(want + 36, 1);
	memcpy(want + 48, uuid, 16);
	memcpy(want + 64, "vs-index-1", 10);
	put_le32(want + 80, 0xc);
	put_le16(want + 86, 1);
	put_le16(want + 88, 9);
	put_le32(want + 128 + 64, 2); /* blocks of the device */
	put_le32(want + 128 + 68, 1); /* it begins behind the index */
	assert_memory_equal(p + 1024, want, sizeof(want));
	/* a value computed with another program for "123456789" */
	assert_int_equal(~erofs_crc32c(~0u, (const uint8_t *)"123456789", 9),
			 0xe3069283);
	memset(p + 1028, 0, 4);
	assert_int_equal(erofs_crc32c(~0u, p + 1024, 4096 - 1024),
			 get_le32(want + 4));
	tree_release(&t);
}

static void inode_has_the_fixed_fields(void **state)
{
	struct tree *t = *state;
	owned(mem) uint8_t *p = NULL;
	uint8_t want[64 + 8] = { 0 };
	size_t len;

	assert_int_equal(tree_file(t, "before", 4097, 1), 0);
	assert_int_equal(add(t, "f", ENTRY_REG, .mode = 04751, .uid = 1,
			     .gid = 2, .mtime = 0x123456789, .mtime_nsec = 4,
			     .size = 3 * 4096 + 1),
			 0);
	assert_int_equal(tree_extent(t, 0, 3 * 4096 + 1, UNIT_HOLE, 0, 0), 0);
	assert_int_equal(add(t, "g", ENTRY_HARDLINK, .link_target = "f",
			     .link_len = 1, .mode = 04751, .uid = 1, .gid = 2,
			     .mtime = 0x123456789, .mtime_nsec = 4),
			 0);
	p = image(t, &len);
	put_le16(want, 9); /* extended, chunks */
	put_le16(want + 4, S_IFREG | 04751);
	put_le64(want + 8, 3 * 4096 + 1);
	put_le32(want + 16, 0x20 | 2); /* one chunk of 4 blocks */
	put_le32(want + 20, 3);
	put_le32(want + 24, 1);
	put_le32(want + 28, 2);
	put_le64(want + 32, 0x123456789);
	put_le32(want + 40, 4);
	put_le32(want + 44, 2);
	put_le16(want + 64 + 2, 1); /* device */
	put_le32(want + 64 + 4, 2); /* behind the two blocks of "before" */
	assert_memory_equal(p + 32 * nid_of(t, "f"), want, sizeof(want));
}

static void huge_files_take_chunks_of_1_tib(void **state)
{
	struct tree *t = *state;
	owned(mem) uint8_t *p = NULL;
	const uint8_t *v;
	size_t len;

	assert_int_equal(
		add(t, "f", ENTRY_REG, .size = (UINT64_C(1) << 41) + 1), 0);
	t->b->nodes[1].file.covered = t->b->nodes[1].size;
	p = image(t, &len);
	v = p + 32 * nid_of(t, "f");
	assert_int_equal(get_le32(v + 16), 0x20 | 28);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(get_le32(v + 64 + 8 * i + 4), i << 28);
}

static void dots_stand_in_their_sorted_place(void **state)
{
	static const char *const sorted[] = { "!",  "-a", ".", "..", "...",
					      ".a", "/",  "0", "a",  "\xff" };
	struct tree *t = *state;
	owned(mem) uint8_t *p = NULL;
	const uint8_t *d;
	uint32_t name = 12 * 9;
	size_t len;

	for (int i = 9; i >= 0; i--)
		if (i != 2 && i != 3 && i != 6)
			assert_int_equal(add_empty(t, sorted[i]), 0);
	p = image(t, &len);
	d = p + 1280 + 64; /* the root's inline tail */
	for (int i = 0, k = 0; i < 10; i++) {
		if (i == 6)
			continue;
		assert_int_equal(get_le16(d + 12 * k + 8), name);
		assert_memory_equal(d + name, sorted[i], strlen(sorted[i]));
		assert_int_equal(d[12 * k + 10], i == 2 || i == 3 ? 2 : 1);
		if (i == 2 || i == 3) /* the root is its own parent */
			assert_int_equal(get_le64(d + 12 * k), 40);
		name += (uint32_t)strlen(sorted[i]);
		k++;
	}
	assert_int_equal(get_le64(p + 1280 + 8), name);
}

/* The rules of placing, over a tree with records of all lengths. */
static void records_do_not_cross_blocks(void **state)
{
	static char value[6000], target[4096];
	struct tree *t = *state;
	const struct index_node *nodes;
	uint64_t end = 0;
	char name[32];

	memset(target, 't', sizeof(target));
	for (int i = 0; i < 400; i++) {
		struct entry_xattr x = { "user.x", value, (size_t)(i * 15) };

		(void)snprintf(name, sizeof(name), "d%d/s%d", i % 9, i);
		assert_int_equal(add(t, name, ENTRY_SYMLINK,
				     .link_target = target,
				     .link_len = (size_t)(1 + i * 10)),
				 0);
		(void)snprintf(name, sizeof(name), "d%d/x%d", i % 9, i);
		assert_int_equal(
			add(t, name, ENTRY_FIFO, .xattrs = &x, .n_xattrs = 1),
			0);
	}
	assert_int_equal(tree_build(t), 0);
	nodes = t->b->nodes;
	for (uint32_t i = 0; i < t->b->n_nodes; i++) {
		const struct index_node *v = &nodes[t->b->image.order[i]];
		uint64_t off = 32ull * v->nid, rec = 64 + v->xattr_len;

		if (v->layout == EROFS_INLINE)
			rec += v->size % 4096;
		assert_true(off >= end);
		assert_true(off - end < 4096);
		if (i && rec <= 4096)
			assert_true(off % 4096 + rec <= 4096);
		else if (i)
			assert_int_equal(off % 4096, 0);
		assert_int_equal(v->ino, i + 1);
		end = off + rec;
	}
	assert_int_equal(nodes[0].nid, 40);
}

/* Children side by side in name order, then the subdirectories. */
static void inodes_stand_in_index_order(void **state)
{
	static const char *const order[] = { "",      "a",   "b",
					     "z",     "a/m", "a/n",
					     "a/m/q", "b/k", "b/k/l" };
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add_empty(t, "b/k/l"), 0);
	assert_int_equal(add_empty(t, "z"), 0);
	assert_int_equal(add_link(t, "b/k/zz", "a/n"), 0);
	assert_int_equal(add_empty(t, "a/n"), 0);
	assert_int_equal(add_empty(t, "a/m/q"), 0);
	assert_int_equal(tree_build(t), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(order); i++) {
		assert_int_equal(tree_stat(t, order[i], &in), 0);
		assert_int_equal(in.ino, i + 1);
	}
}

/* The root cannot move to where its record would fit. */
static void root_stays_at_its_place(void **state)
{
	static char value[50000];
	struct entry_xattr xs[] = { { "user.a", value, sizeof(value) },
				    { "user.b", value, 3000 } };
	owned(buf) struct buf area = { 0 };
	struct tree *t = *state;
	char name[260];
	struct inode in;

	memset(name, 'n', 250);
	for (int i = 0; i < 12; i++) {
		(void)snprintf(name + 250, sizeof(name) - 250, "%d", i);
		assert_int_equal(add_empty(t, name), 0);
	}
	/* a builder gives it none, but the writer does not know that */
	for (size_t i = 0; i < ARRAY_LEN(xs); i++)
		assert_int_equal(index_xattr_add(&area, xs[i].name, xs[i].value,
						 xs[i].len),
				 0);
	t->b->nodes[0].xattrs = area.p;
	t->b->nodes[0].xattr_len = (uint32_t)area.len;
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "", &in), 0);
	assert_int_equal(in.nid, 40);
	assert_int_equal(in.layout, EROFS_PLAIN);
	assert_int_equal(index_getxattr(t->ix, &in, "user.b", value, 3000),
			 3000);
	assert_int_equal(tree_stat(t, name, &in), 0);
}

static void write_removes_what_it_began(void **state)
{
	struct rlimit old, small;
	struct tree *t = *state;
	char name[32];
	int r;

	for (int i = 0; i < 5000; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(add_empty(t, name), 0);
	}
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = old;
	small.rlim_cur = 100000;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	r = builder_write(t->b, t->dirfd, &t->res, &t->e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(r, -1);
	assert_non_null(strstr(t->e.msg, "cannot write index file 'index'"));
	assert_int_equal(faccessat(t->dirfd, "index", F_OK, 0), -1);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(builder_write(t->b, t->dirfd, &t->res, &t->e), -1);
	assert_non_null(strstr(t->e.msg, "File exists"));
}

static void xattr_add_refuses_what_has_no_encoding(void **state)
{
	owned(buf) struct buf b = { 0 };
	static uint8_t v[65536];

	(void)state;
	assert_int_equal(index_xattr_add(&b, "system.posix_acl_accessx", v, 1),
			 -EOPNOTSUPP);
	assert_int_equal(index_xattr_add(&b, "usr.a", v, 1), -EOPNOTSUPP);
	assert_int_equal(index_xattr_add(&b, "security.", v, 1), -ERANGE);
	assert_int_equal(index_xattr_add(&b, "user.a", v, 65536), -ERANGE);
	assert_int_equal(b.len, 0);
	assert_int_equal(index_xattr_add(&b, "user.a", v, 3), 0);
	assert_int_equal(b.len, 12 + 8);
	assert_memory_equal(b.p + 12, "\1\1\3\0a\0\0\0", 8);
	for (int i = 0; i < 3; i++)
		assert_int_equal(index_xattr_add(&b, "user.a", v, 65535), 0);
	assert_int_equal(index_xattr_add(&b, "user.a", v, 65535), -E2BIG);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_tree, teardown_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(superblock_has_the_fixed_fields),
		TEST(inode_has_the_fixed_fields),
		TEST(huge_files_take_chunks_of_1_tib),
		TEST(dots_stand_in_their_sorted_place),
		TEST(records_do_not_cross_blocks),
		TEST(inodes_stand_in_index_order),
		TEST(root_stays_at_its_place),
		TEST(write_removes_what_it_began),
		TEST(xattr_add_refuses_what_has_no_encoding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
