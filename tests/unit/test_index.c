/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/index: reading what the builder wrote, and refusing what it would never
 * write. The image lies in memory, so that each test can damage it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "fuse/erofs_fs.h"
#include "layer_tree.h"

#define N_BIG 100000

/* An image in memory, and the blocks that a call has read of it. */
struct image {
	struct tree t;
	uint8_t *p;
	size_t len;
	struct index *ix;
	int fail; /* -errno for every read, 0: none */
	uint32_t blocks[64];
	uint32_t n_blocks, n_reads;
};

static int image_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	struct image *im = ctx;

	if (im->fail)
		return im->fail;
	assert_true(off <= im->len && len <= im->len - off);
	memcpy(p, im->p + off, len);
	im->n_reads++;
	if (im->n_blocks < ARRAY_LEN(im->blocks))
		im->blocks[im->n_blocks++] = (uint32_t)(off / 4096);
	return 0;
}

/* Opens it again, with a checksum that fits what was changed. */
static int image_open(struct image *im)
{
	struct index_io io = { image_pread, im, im->len };

	index_close(take_ptr(&im->ix));
	if (im->len >= 4096)
		put_le32(im->p + 1028, erofs_sb_checksum(im->p));
	return index_open(&io, &im->ix);
}

static void image_load(struct image *im)
{
	char *p;

	if (tree_build(&im->t) < 0)
		fail_msg("%s", im->t.e.msg);
	assert_int_equal(
		read_file_at(im->t.dirfd, "index", 256u << 20, &p, &im->len),
		0);
	im->p = (uint8_t *)p;
	assert_int_equal(image_open(im), 0);
}

static void image_release(struct image *im)
{
	index_close(im->ix);
	free(im->p);
	tree_release(&im->t);
	memset(im, 0, sizeof(*im));
}

static const char target_long[] = "a/target/that/is/long";
static uint8_t value_long[20000];
static const char *const many_names[13] = {
	"user.a", "user.b", "user.c", "user.d", "user.e", "user.f", "user.g",
	"user.h", "user.i", "user.j", "user.k", "user.l", "user.m",
};

static void fill_tree(struct tree *t)
{
	/* says what the mode 0644 does not say: the mask */
	static const uint8_t acl[] = {
		2,   0,   0,   0,   1,   0,   6,   0,   255, 255, 255, 255,
		4,   0,   4,   0,   255, 255, 255, 255, 16,  0,   4,   0,
		255, 255, 255, 255, 32,  0,   4,   0,   255, 255, 255, 255,
	};
	struct entry_xattr xs[] = {
		{ "user.empty", "", 0 },
		{ "user.long", value_long, sizeof(value_long) },
		{ "security.selinux", "context", 8 },
		{ "system.posix_acl_access", acl, sizeof(acl) },
		{ "user.last", "z", 1 },
	};
	struct entry_xattr of_link = { "security.long", value_long,
				       sizeof(value_long) };
	struct entry_xattr many[13];
	char name[64], target[3000];

	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = (struct entry_xattr){ many_names[i], value_long,
						sizeof(value_long) };
	for (size_t i = 0; i < sizeof(value_long); i++)
		value_long[i] = (uint8_t)(i * 7);
	memset(target, 'p', sizeof(target));
	assert_int_equal(tree_file(t, "file", 9000, 1), 0);
	assert_int_equal(tree_file(t, "dir/one", 1, 1), 0);
	assert_int_equal(add_empty(t, "dir/two"), 0);
	assert_int_equal(
		add(t, "dev", ENTRY_CHAR, .dev_major = 1, .dev_minor = 3), 0);
	assert_int_equal(add(t, "fifo", ENTRY_FIFO, .mode = 0600), 0);
	assert_int_equal(add_symlink(t, "link", target_long), 0);
	assert_int_equal(add(t, "xs", ENTRY_REG, .mode = 0644, .xattrs = xs,
			     .n_xattrs = ARRAY_LEN(xs)),
			 0);
	assert_int_equal(add(t, "plain", ENTRY_SYMLINK, .link_target = target,
			     .link_len = sizeof(target), .xattrs = &of_link,
			     .n_xattrs = 1),
			 0);
	assert_int_equal(add(t, "huge", ENTRY_REG, .xattrs = many,
			     .n_xattrs = ARRAY_LEN(many)),
			 0);
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "many/name-%04d-%0*d", i,
			       i % 40, i);
		assert_int_equal(add_empty(t, name), 0);
	}
}

static int setup(void **state)
{
	static struct image im;

	memset(&im, 0, sizeof(im));
	tree_setup(&im.t, NULL);
	fill_tree(&im.t);
	image_load(&im);
	*state = &im;
	return 0;
}

static int teardown(void **state)
{
	image_release(*state);
	tree_sweep();
	return 0;
}

static struct inode inode_of(struct image *im, const char *path)
{
	struct inode in;

	assert_int_equal(index_walk(im->ix, path, &in), 0);
	return in;
}

/* ---- what is there is found ---- */

struct listing {
	struct image *im;
	char names[1200][64];
	uint64_t next[1200];
	uint8_t types[1200];
	uint64_t nids[1200];
	int n, stop_after;
};

static int note_entry(void *ctx, const struct dirent_pos *d)
{
	struct listing *l = ctx;

	assert_true(l->n < (int)ARRAY_LEN(l->names));
	assert_true(d->name_len < sizeof(l->names[0]));
	memcpy(l->names[l->n], d->name, d->name_len);
	l->names[l->n][d->name_len] = '\0';
	l->types[l->n] = d->dtype;
	l->nids[l->n] = d->nid;
	l->next[l->n++] = d->next;
	return l->n == l->stop_after ? 7 : 0;
}

static void readdir_lists_all_in_order(void **state)
{
	static struct listing l;
	struct image *im = *state;
	struct inode dir = inode_of(im, "many");

	memset(&l, 0, sizeof(l));
	assert_int_equal(index_readdir(im->ix, &dir, 0, note_entry, &l), 0);
	assert_int_equal(l.n, 1002);
	assert_string_equal(l.names[0], ".");
	assert_string_equal(l.names[1], "..");
	assert_int_equal(l.types[0], DT_DIR);
	assert_int_equal(l.types[2], DT_REG);
	assert_true(l.nids[0] == dir.nid);
	assert_true(l.nids[1] == 40);
	for (int i = 1; i < l.n; i++)
		assert_true(strcmp(l.names[i - 1], l.names[i]) < 0);
	dir = inode_of(im, "");
	memset(&l, 0, sizeof(l));
	assert_int_equal(index_readdir(im->ix, &dir, 0, note_entry, &l), 0);
	assert_int_equal(l.n, 11);
	for (int i = 0; i < l.n; i++)
		if (!strcmp(l.names[i], "dev"))
			assert_int_equal(l.types[i], DT_CHR);
		else if (!strcmp(l.names[i], "fifo"))
			assert_int_equal(l.types[i], DT_FIFO);
		else if (!strcmp(l.names[i], "link"))
			assert_int_equal(l.types[i], DT_LNK);
}

/* From every offset that was given out, the rest follows. */
static void readdir_goes_on_from_any_entry(void **state)
{
	static struct listing all, one;
	struct image *im = *state;
	struct inode dir = inode_of(im, "many");
	uint64_t off = 0;

	memset(&all, 0, sizeof(all));
	assert_int_equal(index_readdir(im->ix, &dir, 0, note_entry, &all), 0);
	for (int i = 0; i < all.n; i++) {
		one.n = 0;
		one.stop_after = 1;
		assert_int_equal(
			index_readdir(im->ix, &dir, off, note_entry, &one), 7);
		assert_string_equal(one.names[0], all.names[i]);
		assert_true(one.next[0] == all.next[i]);
		assert_true(one.next[0] != 0);
		off = one.next[0];
	}
	one.n = 0;
	assert_int_equal(index_readdir(im->ix, &dir, off, note_entry, &one), 0);
	assert_int_equal(one.n, 0);
	assert_int_equal(
		index_readdir(im->ix, &dir, UINT64_MAX, note_entry, &one), 0);
	assert_int_equal(one.n, 0);
}

static void lookup_finds_every_name(void **state)
{
	static struct listing l;
	struct image *im = *state;
	struct inode dir = inode_of(im, "many"), file = inode_of(im, "file");
	char name[80];
	uint32_t nid;

	memset(&l, 0, sizeof(l));
	assert_int_equal(index_readdir(im->ix, &dir, 0, note_entry, &l), 0);
	for (int i = 0; i < l.n; i++) {
		size_t len = strlen(l.names[i]);

		assert_int_equal(
			index_lookup(im->ix, &dir, l.names[i], len, &nid), 0);
		assert_true(nid == l.nids[i]);
		memcpy(name, l.names[i], len);
		name[len] = '!'; /* longer, shorter, other */
		assert_int_equal(
			index_lookup(im->ix, &dir, name, len + 1, &nid),
			-ENOENT);
		if (i > 2)
			assert_int_equal(index_lookup(im->ix, &dir, name,
						      len > 11 ? 9 : 3, &nid),
					 -ENOENT);
		name[0] = (char)(i & 1 ? 0x01 : 0xff);
		assert_int_equal(index_lookup(im->ix, &dir, name, len, &nid),
				 -ENOENT);
	}
	assert_int_equal(index_lookup(im->ix, &dir, "", 0, &nid), -ENOENT);
	assert_int_equal(index_lookup(im->ix, &file, "a", 1, &nid), -ENOTDIR);
	memset(name, 'x', sizeof(name));
	assert_int_equal(index_walk(im->ix, "file/x", &dir), -ENOTDIR);
	assert_int_equal(index_walk(im->ix, "dir/three", &dir), -ENOENT);
	assert_int_equal(index_walk(im->ix, "//dir///one/", &dir), 0);
	assert_int_equal(dir.size, 1);
}

static void lookup_reads_no_block_twice(void **state)
{
	struct image *im = *state, big = { 0 };
	struct inode dir;
	char name[32];
	uint32_t nid;

	(void)im;
	tree_setup(&big.t, NULL);
	for (int i = 0; i < N_BIG; i++) {
		(void)snprintf(name, sizeof(name), "d/file-%06d.json", i);
		assert_int_equal(add_empty(&big.t, name), 0);
	}
	image_load(&big);
	dir = inode_of(&big, "d");
	assert_true(dir.size > 2000000);
	for (int i = 0; i < N_BIG; i += 11) {
		(void)snprintf(name, sizeof(name), "file-%06d.json", i);
		big.n_blocks = 0;
		assert_int_equal(index_lookup(big.ix, &dir, name, 16, &nid), 0);
		/* 10 for a binary search over 705 blocks, one for the type */
		assert_in_range(big.n_blocks, 2, 11);
		for (uint32_t a = 0; a < big.n_blocks; a++)
			for (uint32_t b = 0; b < a; b++)
				assert_int_not_equal(big.blocks[a],
						     big.blocks[b]);
	}
	image_release(&big);
}

static void inode_reads_once(void **state)
{
	struct image *im = *state;
	struct inode in = inode_of(im, "file");

	im->n_reads = 0;
	assert_int_equal(index_inode(im->ix, in.nid, &in), 0);
	assert_int_equal(im->n_reads, 1);
	assert_int_equal(in.size, 9000);
	assert_int_equal(in.addr, 0);
	assert_int_equal(inode_of(im, "dir/one").addr, 12288);
	assert_int_equal(index_device_size(im->ix), 16384);
	assert_int_equal(index_n_inodes(im->ix), 1012);
}

static void readlink_wants_room_for_the_nul(void **state)
{
	struct image *im = *state;
	struct inode in = inode_of(im, "link"), plain = inode_of(im, "plain");
	char buf[4096];

	assert_int_equal(index_readlink(im->ix, &in, buf, in.size), -ERANGE);
	assert_int_equal(index_readlink(im->ix, &in, buf, in.size + 1), 0);
	assert_string_equal(buf, target_long);
	assert_int_equal(plain.layout, EROFS_PLAIN);
	assert_int_equal(index_readlink(im->ix, &plain, buf, sizeof(buf)), 0);
	assert_int_equal(strlen(buf), 3000);
	in = inode_of(im, "file");
	assert_int_equal(index_readlink(im->ix, &in, buf, sizeof(buf)),
			 -EINVAL);
}

static void xattrs_are_read_over_blocks(void **state)
{
	static const char names[] = "security.selinux\0user.empty\0user.last\0"
				    "user.long\0system.posix_acl_access";
	struct image *im = *state;
	struct inode in = inode_of(im, "xs"), none = inode_of(im, "file");
	static uint8_t v[sizeof(value_long)];
	char list[sizeof(names)];

	assert_int_equal(index_listxattr(im->ix, &in, NULL, 0), sizeof(names));
	assert_int_equal(index_listxattr(im->ix, &in, list, sizeof(list) - 1),
			 -ERANGE);
	assert_int_equal(index_listxattr(im->ix, &in, list, sizeof(list)),
			 sizeof(names));
	assert_memory_equal(list, names, sizeof(names));
	assert_int_equal(index_getxattr(im->ix, &in, "user.long", NULL, 0),
			 sizeof(v));
	assert_int_equal(
		index_getxattr(im->ix, &in, "user.long", v, sizeof(v) - 1),
		-ERANGE);
	im->n_reads = 0;
	assert_int_equal(index_getxattr(im->ix, &in, "user.long", v, sizeof(v)),
			 sizeof(v));
	assert_memory_equal(v, value_long, sizeof(v));
	assert_in_range(im->n_reads, 1, 6);
	assert_int_equal(index_getxattr(im->ix, &in, "user.last", v, 1), 1);
	assert_int_equal(v[0], 'z');
	assert_int_equal(index_getxattr(im->ix, &in, "user.empty", v, 1), 0);
	assert_int_equal(index_getxattr(im->ix, &in, "user.emp", v, 1),
			 -ENODATA);
	assert_int_equal(index_getxattr(im->ix, &in, "system.posix_acl_access",
					v, sizeof(v)),
			 36);
	assert_int_equal(index_getxattr(im->ix, &none, "user.a", v, 1),
			 -ENODATA);
	assert_int_equal(index_listxattr(im->ix, &none, list, sizeof(list)), 0);
}

static void xattrs_may_take_260_kb(void **state)
{
	static uint8_t v[sizeof(value_long)];
	struct image *im = *state;
	struct inode in = inode_of(im, "huge");

	assert_in_range(in.xattr_len, 260000, 262148);
	for (size_t i = 0; i < ARRAY_LEN(many_names); i++) {
		memset(v, 0, sizeof(v));
		assert_int_equal(index_getxattr(im->ix, &in, many_names[i], v,
						sizeof(v)),
				 sizeof(v));
		assert_memory_equal(v, value_long, sizeof(v));
	}
	assert_int_equal(index_listxattr(im->ix, &in, NULL, 0), 13 * 7);
}

static void failed_reads_are_passed_on(void **state)
{
	struct image *im = *state;
	struct inode dir = inode_of(im, "many"), in = inode_of(im, "xs");
	static struct listing l;
	uint32_t nid;
	char buf[64];

	im->fail = -EIO; /* never "no such name" */
	assert_int_equal(index_lookup(im->ix, &dir, "name", 4, &nid), -EIO);
	assert_int_equal(index_inode(im->ix, 40, &in), -EIO);
	assert_int_equal(index_walk(im->ix, "dir", &in), -EIO);
	assert_int_equal(index_readdir(im->ix, &dir, 0, note_entry, &l), -EIO);
	assert_int_equal(index_getxattr(im->ix, &in, "user.a", buf, 1), -EIO);
	assert_int_equal(index_listxattr(im->ix, &in, buf, 1), -EIO);
	im->fail = 0;
	in = inode_of(im, "link");
	im->fail = -EIO;
	assert_int_equal(index_readlink(im->ix, &in, buf, sizeof(buf)), -EIO);
}

/* ---- damage ---- */

/* Changes bytes in the image for as long as the scope lasts. */
struct patch {
	uint8_t *at;
	uint8_t old[16];
	size_t len;
};

static struct patch patch(struct image *im, uint64_t off, const void *p,
			  size_t len)
{
	struct patch r = { .at = im->p + off, .len = len };

	assert_true(off + len <= im->len && len <= sizeof(r.old));
	memcpy(r.old, r.at, len);
	assert_true(memcmp(r.at, p, len)); /* a change, or the test is void */
	memcpy(r.at, p, len);
	return r;
}

static void unpatch(struct patch *p)
{
	memcpy(p->at, p->old, p->len);
}

static void superblock_of_another_profile_is_refused(void **state)
{
	static const struct {
		uint32_t off;
		uint8_t v;
	} cases[] = {
		{ 1024, 0 },      { 1032, 7 }, /* compat */
		{ 1036, 9 }, /* block size */
		{ 1037, 1 },      { 1038, 41 }, /* root nid */
		{ 1047, 1 }, /* inos */
		{ 1048, 1 }, /* build time */
		{ 1060, 1 },      { 1063, 1 }, /* blocks */
		{ 1064, 1 },      { 1068, 1 }, /* meta, xattr block */
		{ 1024 + 64, 1 }, { 1024 + 79, 1 }, /* volume */
		{ 1024 + 80, 8 }, { 1024 + 84, 1 },  { 1024 + 86, 2 },
		{ 1024 + 88, 8 }, { 1024 + 90, 1 },  { 1024 + 127, 1 },
		{ 1152, 1 }, /* tag */
		{ 1152 + 68, 0 }, /* device at 0 */
		{ 1152 + 72, 1 }, { 1152 + 127, 1 },
	};
	struct image *im = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct patch p = patch(im, cases[i].off, &cases[i].v, 1);

		assert_int_equal(image_open(im), -EUCLEAN);
		unpatch(&p);
	}
	assert_int_equal(image_open(im), 0);
	/* the uuid may be any */
	(void)patch(im, 1024 + 48, "u", 1);
	assert_int_equal(image_open(im), 0);
}

static void superblock_checksum_is_checked(void **state)
{
	struct image *im = *state;
	struct index_io io = { image_pread, im, im->len };
	struct index *ix;

	(void)patch(im, 1028, "????", 4);
	assert_int_equal(index_open(&io, &ix), -EUCLEAN);
}

static void truncated_image_is_refused(void **state)
{
	struct image *im = *state;
	size_t len = im->len;

	for (im->len = 0; im->len < len; im->len += im->len < 4096 ? 512 : 4096)
		assert_int_equal(image_open(im), -EUCLEAN);
	im->len = len - 1;
	assert_int_equal(image_open(im), -EUCLEAN);
	im->len = len;
	assert_int_equal(image_open(im), 0);
}

static void damaged_inodes_are_refused(void **state)
{
	static const struct {
		const char *path;
		uint32_t off, len;
		uint64_t v;
	} cases[] = {
		{ "file", 0, 2, 8 }, /* compact */
		{ "file", 0, 2, 1 }, /* plain, with contents */
		{ "file", 0, 2, 5 }, /* inline */
		{ "file", 0, 2, 3 }, /* compressed */
		{ "file", 0, 2, 0x19 }, /* unknown bit */
		{ "file", 2, 2, 1 }, /* xattr header without entries */
		{ "file", 2, 2, 0xffff }, /* xattrs behind the image */
		{ "file", 4, 2, 0 }, /* no type */
		{ "file", 4, 2, S_IFIFO | 0644 },
		{ "file", 6, 2, 1 },
		{ "file", 8, 8, 0 }, /* a chunk, but nothing in it */
		{ "file", 8, 8, 4096 }, /* the chunk is too large for it */
		{ "file", 8, 8, UINT64_MAX },
		{ "file", 8, 8, INT64_MAX },
		{ "file", 8, 8, UINT64_C(1) << 44 },
		{ "file", 16, 4, 0x21 },
		{ "file", 16, 4, 0x42 },
		{ "file", 20, 4, 0 },
		{ "file", 20, 4, 1013 },
		{ "file", 40, 4, 1000000000 },
		{ "file", 44, 4, 0 },
		{ "file", 48, 1, 1 },
		{ "file", 63, 1, 1 },
		{ "file", 64, 2, 1 }, /* chunk: high bits of the block */
		{ "file", 66, 2, 0 }, /* of the index itself */
		{ "file", 66, 2, 2 },
		{ "file", 68, 4, 2 }, /* ends behind the device */
		{ "file", 68, 4, 0xffffffff },
		{ "many", 8, 8, 0 },
		{ "many", 8, 8, 26 },
		{ "many", 8, 8, UINT64_MAX },
		{ "many", 8, 8, INT64_MAX },
		{ "many", 16, 4, 0 },
		{ "many", 16, 4, 0xffffffff },
		{ "many", 0, 2, 9 },
		{ "dir", 8, 8, 4095 }, /* tail behind its block */
		{ "dir", 8, 8, 4096 },
		{ "dir", 16, 4, 1 },
		{ "dir", 2, 2, 1000 },
		{ "link", 8, 8, 0 },
		{ "link", 8, 8, 4096 },
		{ "link", 0, 2, 1 },
		{ "link", 0, 2, 9 },
		{ "link", 16, 4, 1 },
		{ "plain", 16, 4, 0 },
		{ "plain", 16, 4, 0x10000 },
		{ "dev", 8, 8, 1 },
		{ "dev", 0, 2, 5 },
		{ "fifo", 16, 4, 1 },
		{ "fifo", 8, 8, 1 },
		{ "dir/two", 16, 4, 1 },
		{ "dir/two", 0, 2, 9 },
	};
	struct image *im = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct inode in = inode_of(im, cases[i].path), out;
		uint8_t v[8];
		struct patch p;

		put_le64(v, cases[i].v);
		p = patch(im, in.nid * 32ull + cases[i].off, v, cases[i].len);
		if (index_inode(im->ix, in.nid, &out) != -EUCLEAN)
			fail_msg("'%s' offset %u value %#jx was accepted",
				 cases[i].path, cases[i].off,
				 (uintmax_t)cases[i].v);
		unpatch(&p);
	}
}

static void numbers_outside_the_image_are_no_inodes(void **state)
{
	struct image *im = *state;
	uint32_t end = (uint32_t)(im->len / 32);
	struct inode in;

	assert_int_equal(index_inode(im->ix, 0, &in), -ENOENT);
	assert_int_equal(index_inode(im->ix, 39, &in), -ENOENT);
	assert_int_equal(index_inode(im->ix, end, &in), -ENOENT);
	assert_int_equal(index_inode(im->ix, UINT32_MAX, &in), -ENOENT);
	assert_int_equal(index_inode(im->ix, end - 1, &in), -EUCLEAN);
}

/* Offset in the image of a directory's first block or tail. */
static uint64_t dir_off(struct image *im, const char *path)
{
	struct inode in = inode_of(im, path);

	return in.size >= 4096 ? in.u * 4096ull
			       : in.nid * 32ull + 64 + in.xattr_len;
}

static void damaged_directories_are_refused(void **state)
{
	/* "dir": ".", "..", "one", "two"; names from 48 on */
	static const struct {
		uint32_t off, len;
		uint64_t v;
	} cases[] = {
		{ 8, 2, 0 },
		{ 8, 2, 47 },
		{ 8, 2, 60 }, /* no room for names */
		{ 8, 2, 0xfff0 },
		{ 12 + 8, 2, 48 }, /* empty */
		{ 12 + 8, 2, 47 }, /* before the names */
		{ 24 + 8, 2, 4000 },
		{ 24 + 8, 2, 49 }, /* order */
		{ 36 + 8, 2, 0 },
		{ 36 + 8, 2, 57 },
		{ 24, 8, 39 }, /* nid */
		{ 24, 8, UINT64_C(1) << 32 | 40 },
		{ 24, 8, UINT64_MAX },
		{ 24 + 10, 1, 0 },
		{ 24 + 10, 1, 8 },
		{ 24 + 11, 1, 1 },
		{ 51, 1, '/' },
		{ 52, 1, 0 },
		{ 51, 1, 'z' }, /* unsorted */
	};
	struct image *im = *state;
	struct inode dir = inode_of(im, "dir");
	uint64_t off = dir_off(im, "dir");
	static struct listing l;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct patch p;
		uint8_t v[8];

		put_le64(v, cases[i].v);
		p = patch(im, off + cases[i].off, v, cases[i].len);
		l.n = 0;
		if (index_readdir(im->ix, &dir, 0, note_entry, &l) != -EUCLEAN)
			fail_msg("offset %u value %#jx was accepted",
				 cases[i].off, (uintmax_t)cases[i].v);
		unpatch(&p);
	}
}

static void entry_of_the_wrong_type_is_refused(void **state)
{
	struct image *im = *state;
	struct inode dir = inode_of(im, "dir");
	uint32_t nid;

	assert_int_equal(index_lookup(im->ix, &dir, "one", 3, &nid), 0);
	(void)patch(im, dir_off(im, "dir") + 24 + 10, "\2", 1);
	assert_int_equal(index_lookup(im->ix, &dir, "one", 3, &nid), -EUCLEAN);
}

static void damaged_xattrs_are_refused(void **state)
{
	static const struct {
		uint32_t off, v;
	} cases[] = {
		{ 0, 1 },    { 4, 1 },  { 11, 1 }, /* header */
		{ 12, 255 }, { 12, 0 }, /* name length */
		{ 13, 0 },   { 13, 5 }, { 13, 7 }, { 13, 2 }, /* index */
		{ 15, 255 }, /* value length */
		{ 17, 0 }, /* NUL in a name */
	};
	struct image *im = *state;
	struct inode in = inode_of(im, "xs");
	char buf[256];

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t v = (uint8_t)cases[i].v;
		struct patch p =
			patch(im, in.nid * 32ull + 64 + cases[i].off, &v, 1);

		if (index_listxattr(im->ix, &in, buf, sizeof(buf)) != -EUCLEAN)
			fail_msg("offset %u value %u was accepted",
				 cases[i].off, v);
		assert_int_equal(
			index_getxattr(im->ix, &in, "user.last", buf, 1),
			-EUCLEAN);
		unpatch(&p);
	}
}

static void nul_in_a_symlink_is_refused(void **state)
{
	struct image *im = *state;
	struct inode in = inode_of(im, "link");
	char buf[64];

	(void)patch(im, in.nid * 32ull + 64 + 3, "\0", 1);
	assert_int_equal(index_readlink(im->ix, &in, buf, sizeof(buf)),
			 -EUCLEAN);
}

/* An inode that did not come from index_inode() must not lead outside. */
static void invented_inodes_read_nothing_outside(void **state)
{
	struct inode in = { .nid = UINT32_MAX,
			    .mode = S_IFDIR,
			    .size = UINT64_MAX,
			    .u = UINT32_MAX,
			    .layout = EROFS_INLINE,
			    .xattr_len = UINT32_MAX };
	struct image *im = *state;
	static struct listing l;
	char buf[64];
	uint32_t nid;

	assert_int_equal(index_lookup(im->ix, &in, "a", 1, &nid), -EUCLEAN);
	assert_int_equal(index_readdir(im->ix, &in, 0, note_entry, &l),
			 -EUCLEAN);
	assert_int_equal(index_listxattr(im->ix, &in, buf, 64), -EUCLEAN);
	assert_int_equal(index_getxattr(im->ix, &in, "user.a", buf, 64),
			 -EUCLEAN);
	in.mode = S_IFLNK;
	in.size = 10;
	assert_int_equal(index_readlink(im->ix, &in, buf, 64), -EUCLEAN);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(readdir_lists_all_in_order),
		TEST(readdir_goes_on_from_any_entry),
		TEST(lookup_finds_every_name),
		TEST(lookup_reads_no_block_twice),
		TEST(inode_reads_once),
		TEST(readlink_wants_room_for_the_nul),
		TEST(xattrs_are_read_over_blocks),
		TEST(xattrs_may_take_260_kb),
		TEST(failed_reads_are_passed_on),
		TEST(superblock_of_another_profile_is_refused),
		TEST(superblock_checksum_is_checked),
		TEST(truncated_image_is_refused),
		TEST(damaged_inodes_are_refused),
		TEST(numbers_outside_the_image_are_no_inodes),
		TEST(damaged_directories_are_refused),
		TEST(entry_of_the_wrong_type_is_refused),
		TEST(damaged_xattrs_are_refused),
		TEST(nul_in_a_symlink_is_refused),
		TEST(invented_inodes_read_nothing_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
