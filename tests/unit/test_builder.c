/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/builder: what it refuses, hides and turns into something else.
 * Attributes in test_builder_xattr.c, contents in test_builder_map.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layer_tree.h"

/* ---- paths ---- */

static void path_clean_follows_go(void **state)
{
	static const char *const cases[][2] = {
		{ "a", "a" },      { "./a", "a" },
		{ "/a", "a" },     { "a/", "a" },
		{ "a//b", "a/b" }, { "a/./b", "a/b" },
		{ "./", "" },      { "", "" },
		{ ".", "" },       { "/", "" },
		{ "//", "" },      { "/./a/.//b/.", "a/b" },
		{ "...", "..." },  { "a/..b", "a/..b" },
		{ "b../", "b.." }, { ".a/.b", ".a/.b" },
	};
	const char *why = NULL;
	struct path p;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(
			path_clean(cases[i][0], strlen(cases[i][0]), &p, &why),
			0);
		assert_string_equal(p.s, cases[i][1]);
		assert_int_equal(p.len, strlen(cases[i][1]));
	}
	assert_int_equal(path_clean("x/y/zz", 6, &p, &why), 0);
	assert_string_equal(p.s + p.name, "zz");
}

static void path_clean_refuses_dotdot_anywhere(void **state)
{
	static const char *const cases[] = { "..",     "../a", "a/..",
					     "a/../b", "./..", "/.." };
	struct tree *t = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(add_dir(t, cases[i]), -1);
		assert_int_equal(t->e.kind, ERR_CORRUPT);
		assert_non_null(strstr(t->e.msg, "'..' in the path"));
		assert_non_null(strstr(t->e.msg, cases[i]));
	}
}

static void path_clean_refuses_nul_and_lengths(void **state)
{
	struct tree *t = *state;
	struct entry nul = { .path = "a\0b", .path_len = 3, .type = ENTRY_DIR };
	char s[5000];

	assert_refused(t, tree_add(t, &nul), ERR_CORRUPT,
		       "'a?b': NUL in the name");
	memset(s, 'n', 256);
	s[256] = '\0';
	assert_int_equal(add_dir(t, s), -1);
	assert_non_null(strstr(t->e.msg, "a component exceeds 255 bytes"));
	assert_int_equal(add_dir(t, s + 1), 0);
	for (size_t i = 0; i < sizeof(s) - 1; i++)
		s[i] = i % 200 == 199 ? '/' : 'p';
	s[4095] = '\0';
	assert_int_equal(add_dir(t, s), 0);
	s[4095] = 'p';
	s[4096] = '\0';
	assert_int_equal(add_dir(t, s), -1);
	assert_non_null(strstr(t->e.msg, "the path exceeds 4095 bytes"));
	for (size_t i = 0; i < 1024; i++)
		memcpy(s + 2 * i, "d/", 2);
	s[2048] = '\0';
	assert_int_equal(add_dir(t, s), 0);
	strncat(s, "e", 2);
	assert_int_equal(add_dir(t, s), -1);
	assert_non_null(strstr(t->e.msg, "more than 1024 components"));
}

static void messages_hide_control_characters(void **state)
{
	struct tree *t = *state;

	assert_refused(t, add_dir(t, "a\n'\x1b/.."), ERR_CORRUPT,
		       "'a??\?/..': '..' in the path");
}

/* ---- names that meet ---- */

static void duplicate_names_are_refused(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_empty(t, "d/f"), 0);
	assert_refused(t, add_empty(t, "./d/f"), ERR_CORRUPT,
		       "'./d/f': named twice");
	assert_refused(t, add_dir(t, "d/f"), ERR_CORRUPT, "'d/f': named twice");
	assert_int_equal(add_dir(t, "d"), 0); /* it was implied */
	assert_refused(t, add_dir(t, "d/"), ERR_CORRUPT, "'d/': named twice");
	assert_refused(t, add_empty(t, "d"), ERR_CORRUPT, "'d': named twice");
	assert_int_equal(add_link(t, "l", "d/f"), 0);
	assert_refused(t, add_empty(t, "l"), ERR_CORRUPT, "'l': named twice");
	assert_refused(t, add_link(t, "l", "d/f"), ERR_CORRUPT,
		       "'l': named twice");
	/* what JSON makes of two different broken bytes */
	assert_int_equal(add_empty(t, "x\xef\xbf\xbd"), 0);
	assert_int_equal(add_empty(t, "x\xef\xbf\xbd"), -1);
	assert_int_equal(t->e.kind, ERR_CORRUPT);
}

static void a_file_is_no_directory(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_empty(t, "f"), 0);
	assert_refused(t, add_empty(t, "f/x"), ERR_CORRUPT,
		       "'f/x': its parent is not a directory");
	assert_int_equal(add_symlink(t, "s", "/"), 0);
	assert_refused(t, add_empty(t, "s/x"), ERR_UNSUPPORTED,
		       "'s/x': its parent is not a directory");
	assert_int_equal(add_link(t, "h", "f"), 0);
	assert_refused(t, add_empty(t, "h/x"), ERR_UNSUPPORTED,
		       "'h/x': its parent is not a directory");
	assert_int_equal(add_empty(t, "d/e/f"), 0);
	assert_refused(t, add_empty(t, "d/e"), ERR_CORRUPT,
		       "'d/e': named twice");
}

/* containerd gives the root of each snapshot itself. */
static void the_root_has_no_attributes(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_refused(t, add_empty(t, "."), ERR_CORRUPT,
		       "the root of the layer is not a directory");
	assert_int_equal(add(t, "./", ENTRY_DIR, .mode = 01777, .uid = 7,
			     .gid = 8, .mtime = 9, .mtime_nsec = 10),
			 0);
	assert_int_equal(add_dir(t, "/"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	assert_int_equal(in.uid, 0);
	assert_int_equal(in.gid, 0);
	assert_int_equal(in.mtime, 0);
	assert_int_equal(in.ino, 1);
	assert_int_equal(in.nlink, 2);
}

static void a_directory_may_come_after_its_children(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add_empty(t, "a/b/c"), 0);
	assert_int_equal(add(t, "a", ENTRY_DIR, .mode = 02750, .gid = 5), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "a", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 02750);
	assert_int_equal(in.gid, 5);
	assert_int_equal(in.nlink, 3);
	assert_int_equal(tree_stat(t, "a/b", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	assert_int_equal(in.mtime, 0);
	assert_int_equal(tree_stat(t, "a/b/c", &in), 0);
	assert_int_equal(t->res.n_implied, 0);
}

/* ---- attributes ---- */

static void attributes_out_of_range_are_refused(void **state)
{
	struct tree *t = *state;

	assert_refused(t, add(t, "a", ENTRY_DIR, .uid = -1), ERR_CORRUPT,
		       "'a': owner out of range");
	assert_refused(t, add(t, "a", ENTRY_DIR, .gid = UINT32_MAX),
		       ERR_CORRUPT, "'a': owner out of range");
	assert_refused(t, add(t, "a", ENTRY_DIR, .mtime_nsec = 1000000000),
		       ERR_CORRUPT, "'a': time out of range");
	assert_refused(t, add(t, "a", ENTRY_CHAR, .dev_major = 4096),
		       ERR_CORRUPT, "'a': device number out of range");
	assert_refused(t, add(t, "a", ENTRY_BLOCK, .dev_minor = 1 << 20),
		       ERR_CORRUPT, "'a': device number out of range");
	assert_refused(t, add(t, "a", ENTRY_REG, .size = UINT64_MAX),
		       ERR_CORRUPT, "'a': size out of range");
	assert_refused(t, add(t, "a", (enum entry_type)99), ERR_CORRUPT,
		       "'a': unknown type 99");
	assert_int_equal(add(t, "a", ENTRY_DIR, .uid = UINT32_MAX - 1), 0);
}

static void attributes_arrive_unchanged(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add(t, "su", ENTRY_REG, .mode = 0100000 | 06711,
			     .uid = 100000, .gid = 65534, .mtime = 9223372035,
			     .mtime_nsec = 999999999),
			 0);
	assert_int_equal(add(t, "c", ENTRY_CHAR, .mode = 0600,
			     .dev_major = 4095, .dev_minor = 0xfffff),
			 0);
	assert_int_equal(
		add(t, "b", ENTRY_BLOCK, .dev_major = 8, .dev_minor = 1), 0);
	assert_int_equal(add(t, "p", ENTRY_FIFO, .mode = 0622), 0);
	assert_int_equal(add(t, "s", ENTRY_SOCK, .mode = 0700), 0);
	assert_int_equal(add_symlink(t, "l", "../to"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "su", &in), 0);
	assert_int_equal(in.mode, S_IFREG | 06711);
	assert_int_equal(in.uid, 100000);
	assert_int_equal(in.gid, 65534);
	assert_true(in.mtime == 9223372035);
	assert_int_equal(in.mtime_nsec, 999999999);
	assert_int_equal(tree_stat(t, "c", &in), 0);
	assert_int_equal(in.mode, S_IFCHR | 0600);
	assert_int_equal(in.rdev, 0xfffffffful);
	assert_int_equal(tree_stat(t, "b", &in), 0);
	assert_int_equal(in.rdev, 0x801);
	assert_int_equal(tree_stat(t, "p", &in), 0);
	assert_int_equal(in.mode, S_IFIFO | 0622);
	assert_int_equal(tree_stat(t, "s", &in), 0);
	assert_int_equal(in.mode, S_IFSOCK | 0700);
	assert_int_equal(tree_stat(t, "l", &in), 0);
	assert_int_equal(in.mode, S_IFLNK | 0777);
	assert_int_equal(in.size, 5);
}

/* As an unpack sets them: before 1970 or behind 2262 is 1970. */
static void times_are_bounded(void **state)
{
	static const int64_t times[] = { -1, -5000000000, 9223372036,
					 INT64_MAX };
	struct tree *t = *state;
	struct inode in;
	char name[2] = "a";

	for (size_t i = 0; i < ARRAY_LEN(times); i++, name[0]++)
		assert_int_equal(add(t, name, ENTRY_REG, .mtime = times[i],
				     .mtime_nsec = 5),
				 0);
	assert_int_equal(tree_build(t), 0);
	for (name[0] = 'a'; name[0] < 'e'; name[0]++) {
		assert_int_equal(tree_stat(t, name, &in), 0);
		assert_int_equal(in.mtime, 0);
		assert_int_equal(in.mtime_nsec, 0);
	}
}

static void symlinks_have_a_target(void **state)
{
	struct tree *t = *state;
	char target[4097];

	memset(target, 't', sizeof(target));
	target[4096] = '\0';
	assert_refused(t, add_symlink(t, "l", ""), ERR_CORRUPT,
		       "'l': symbolic link: empty target");
	assert_refused(t, add_symlink(t, "l", target), ERR_CORRUPT,
		       "'l': symbolic link: target exceeds 4095 bytes");
	assert_refused(t,
		       add(t, "l", ENTRY_SYMLINK, .link_target = "a\0b",
			   .link_len = 3),
		       ERR_CORRUPT, "'l': symbolic link: NUL in the target");
	assert_int_equal(add_symlink(t, "l", target + 1), 0);
}

/* ---- hard links ---- */

static void hard_links_share_an_inode(void **state)
{
	static const char *const names[] = { "a", "b", "c", "d/e", "z" };
	struct tree *t = *state;
	struct inode first, in;

	assert_int_equal(add_link(t, "a", "b"), 0); /* forward, through links */
	assert_int_equal(add_link(t, "b", "./d/e"), 0);
	assert_int_equal(add_link(t, "d/e", "/z"), 0);
	assert_int_equal(tree_file(t, "z", 10, 1), 0);
	assert_int_equal(add_link(t, "c", "a"), 0);
	assert_int_equal(add_symlink(t, "s", "z"), 0);
	assert_int_equal(add_link(t, "s2", "s"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "z", &first), 0);
	assert_int_equal(first.nlink, 5);
	assert_int_equal(first.size, 10);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(tree_stat(t, names[i], &in), 0);
		assert_int_equal(in.nid, first.nid);
	}
	assert_int_equal(tree_stat(t, "s2", &in), 0);
	assert_int_equal(in.mode, S_IFLNK | 0777);
	assert_int_equal(in.nlink, 2);
	assert_int_equal(t->res.n_inodes, 4);
	assert_int_equal(t->res.payload, 10);
}

static void hard_link_brings_its_attributes(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add(t, "f", ENTRY_REG, .mode = 0644, .mtime = 1), 0);
	assert_int_equal(add_symlink(t, "s", "f"), 0);
	assert_int_equal(add(t, "l", ENTRY_HARDLINK, .link_target = "f",
			     .link_len = 1, .mode = 0600, .uid = 1, .gid = 2,
			     .mtime = -1),
			 0);
	assert_int_equal(add(t, "m", ENTRY_HARDLINK, .link_target = "l",
			     .link_len = 1, .mode = 04751, .uid = 3, .gid = 4,
			     .mtime = 5, .mtime_nsec = 6),
			 0);
	assert_int_equal(add(t, "sl", ENTRY_HARDLINK, .link_target = "s",
			     .link_len = 1, .mode = 0600, .uid = 8),
			 0);
	assert_refused(t,
		       add(t, "x", ENTRY_HARDLINK, .link_target = "f",
			   .link_len = 1, .uid = UINT32_MAX),
		       ERR_CORRUPT, "'x': owner out of range");
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "f", &in), 0);
	assert_int_equal(in.mode, S_IFREG | 04751);
	assert_int_equal(in.uid, 3);
	assert_int_equal(in.gid, 4);
	assert_int_equal(in.mtime, 5);
	assert_int_equal(in.mtime_nsec, 6);
	assert_int_equal(tree_stat(t, "s", &in), 0);
	assert_int_equal(in.mode, S_IFLNK | 0777);
	assert_int_equal(in.uid, 8);
}

static void hard_link_to_nothing_is_unsupported(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_empty(t, "f"), 0);
	assert_int_equal(add_link(t, "d/l", "d/no"), 0);
	assert_refused(t, tree_build(t), ERR_UNSUPPORTED,
		       "'d/l': hard link to 'd/no': not in this layer");
}

static void hard_link_through_a_file_is_unsupported(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_empty(t, "f"), 0);
	assert_int_equal(add_link(t, "l", "f/x"), 0);
	assert_refused(t, tree_build(t), ERR_UNSUPPORTED,
		       "'l': hard link to 'f/x': not in this layer");
}

static void hard_link_to_a_marker_is_unsupported(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_empty(t, ".wh.gone"), 0);
	assert_int_equal(add_link(t, "l", "gone"), 0);
	assert_refused(t, tree_build(t), ERR_UNSUPPORTED,
		       "'l': hard link to 'gone': not in this layer");
}

static void hard_link_to_a_landmark_is_unsupported(void **state)
{
	struct tree *t = *state;

	assert_int_equal(tree_file(t, ".prefetch.landmark", 1, 1), 0);
	assert_int_equal(add_link(t, "l", ".prefetch.landmark"), 0);
	assert_refused(t, tree_build(t), ERR_UNSUPPORTED,
		       "'l': hard link to '.prefetch.landmark': "
		       "not in this layer");
}

static void hard_link_cycles_end(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_link(t, "a", "b"), 0);
	assert_int_equal(add_link(t, "b", "c"), 0);
	assert_int_equal(add_link(t, "c", "b"), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'c': hard link to 'b': links to itself");
	assert_refused(t, tree_build(t), ERR_INTERNAL,
		       "the layer was not built");
}

static void hard_link_to_itself_is_refused(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_link(t, "a", "a"), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'a': hard link to 'a': links to itself");
}

static void hard_link_to_a_directory_is_refused(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_dir(t, "d"), 0);
	assert_int_equal(add_link(t, "a", "b"), 0);
	assert_int_equal(add_link(t, "b", "d"), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'b': hard link to 'd': is a directory");
}

static void hard_link_to_the_root_is_refused(void **state)
{
	struct tree *t = *state;

	assert_refused(t, add_link(t, "a", "../x"), ERR_CORRUPT,
		       "'a': hard link target: '..' in the path");
	assert_int_equal(add_link(t, "a", "/"), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'a': hard link to '/': is a directory");
}

/* A chain of links, each to the next, must not cost its square. */
static void hard_link_chains_are_walked_once(void **state)
{
	struct tree *t = *state;
	char a[16], b[16];
	struct inode in;

	for (int i = 0; i < 50000; i++) {
		(void)snprintf(a, sizeof(a), "l%d", i);
		(void)snprintf(b, sizeof(b), "l%d", i + 1);
		assert_int_equal(add_link(t, a, b), 0);
	}
	assert_int_equal(add_empty(t, b), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "l0", &in), 0);
	assert_int_equal(in.nlink, 50001);
}

/* ---- whiteouts, markers, landmarks ---- */

static void whiteouts_become_devices(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(
		add(t, "d/.wh.gone", ENTRY_REG, .mode = 0644, .uid = 5), 0);
	assert_int_equal(add(t, "dev", ENTRY_CHAR, .mode = 0600), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "d/gone", &in), 0);
	assert_int_equal(in.mode, S_IFCHR);
	assert_int_equal(in.rdev, 0);
	assert_int_equal(in.uid, 0);
	assert_int_equal(tree_stat(t, "d/.wh.gone", &in), -ENOENT);
	assert_int_equal(tree_stat(t, "dev", &in), 0);
	assert_int_equal(in.mode, S_IFCHR | 0600);
	assert_int_equal(in.rdev, 0);
}

static void whiteout_gives_way_to_its_name(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add_empty(t, ".wh.a"), 0);
	assert_int_equal(add_empty(t, "a"), 0);
	assert_int_equal(add_empty(t, "b/c"), 0);
	assert_int_equal(add_empty(t, ".wh.b"), 0);
	assert_int_equal(add_link(t, "l", "a"), 0);
	assert_int_equal(add_empty(t, ".wh.l"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "a", &in), 0);
	assert_true(S_ISREG(in.mode));
	assert_int_equal(tree_stat(t, "b", &in), 0);
	assert_true(S_ISDIR(in.mode));
	assert_int_equal(tree_stat(t, "l", &in), 0);
	assert_true(S_ISREG(in.mode));
}

static void whiteouts_of_nothing_are_refused(void **state)
{
	struct tree *t = *state;

	assert_refused(t, add_empty(t, "d/.wh."), ERR_CORRUPT,
		       "'d/.wh.': whiteout of nothing");
	assert_refused(t, add_empty(t, ".wh.."), ERR_CORRUPT,
		       "'.wh..': whiteout of nothing");
	assert_refused(t, add_empty(t, ".wh..."), ERR_CORRUPT,
		       "'.wh...': whiteout of nothing");
	assert_refused(t, add_empty(t, ".wh.a/b"), ERR_UNSUPPORTED,
		       "'.wh.a/b': lies below a whiteout");
	assert_int_equal(add_empty(t, "d/.wh.x"), 0);
	assert_int_equal(add_empty(t, "d/.wh.x"), 0);
	assert_refused(t, tree_build(t), ERR_CORRUPT,
		       "'d/x': whiteout named twice");
}

static void opaque_marker_sets_an_xattr(void **state)
{
	const char *want = "trusted.overlay.opaque";
	struct builder_opts o = { .userxattr = true };
	struct tree *t = *state, user;
	struct entry_xattr x = { "user.k", "v", 1 };
	struct inode in;
	char buf[64];

	assert_int_equal(add_empty(t, "d/.wh..wh..opq"), 0);
	assert_int_equal(add(t, "d", ENTRY_DIR, .mode = 0755, .xattrs = &x,
			     .n_xattrs = 1),
			 0);
	assert_int_equal(add_empty(t, "d/.wh..wh.plnk"), 0);
	assert_int_equal(add_empty(t, "d/.wh..wh.aufs/x/y"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "d", &in), 0);
	assert_int_equal(index_getxattr(t->ix, &in, want, buf, sizeof(buf)), 1);
	assert_int_equal(buf[0], 'y');
	assert_int_equal(index_getxattr(t->ix, &in, "user.k", buf, 64), 1);
	assert_int_equal(t->res.n_inodes, 2); /* nothing else is there */

	tree_setup(&user, &o);
	assert_int_equal(add_empty(&user, "d/.wh..wh..opq"), 0);
	assert_int_equal(tree_build(&user), 0);
	assert_int_equal(tree_stat(&user, "d", &in), 0);
	assert_int_equal(index_getxattr(user.ix, &in, "user.overlay.opaque",
					buf, sizeof(buf)),
			 1);
	assert_int_equal(index_listxattr(user.ix, &in, buf, sizeof(buf)), 20);
	tree_release(&user);
}

static void format_files_are_hidden_at_the_root_only(void **state)
{
	static const char *const names[] = { "stargz.index.json",
					     ".prefetch.landmark",
					     "./.no.prefetch.landmark" };
	struct tree *t = *state;
	struct inode in;
	char sub[64];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(tree_file(t, names[i], 1, 1), 0);
		(void)snprintf(sub, sizeof(sub), "sub/%s", names[i]);
		assert_int_equal(add_empty(t, sub), 0);
	}
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(t->res.n_inodes, 5);
	assert_int_equal(t->res.payload, 0);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(tree_stat(t, names[i], &in), -ENOENT);
		(void)snprintf(sub, sizeof(sub), "sub/%s",
			       i == 2 ? names[i] + 2 : names[i]);
		assert_int_equal(tree_stat(t, sub, &in), 0);
	}
}

static void format_names_of_other_types_are_shown(void **state)
{
	struct tree *t = *state;
	struct inode in;

	assert_int_equal(add_dir(t, "stargz.index.json"), 0);
	assert_int_equal(add_symlink(t, ".prefetch.landmark", "x"), 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "stargz.index.json", &in), 0);
	assert_int_equal(tree_stat(t, ".prefetch.landmark", &in), 0);
}

/* ---- implied directories ---- */

struct parents {
	bool known;
	int n_asked;
};

static int parents_implied(void *ctx, const char *path,
			   struct implied_attr *ret)
{
	struct parents *p = ctx;

	p->n_asked++;
	if (!strcmp(path, "lib"))
		return -ELOOP;
	if (!strcmp(path, "usr/lib")) {
		if (!p->known)
			return -EAGAIN;
		ret->mode = 03751;
		ret->uid = 3;
		ret->gid = 4;
		ret->mtime = 5;
		ret->mtime_nsec = 6;
		return index_xattr_add(ret->xattrs, "user.below", "b", 1);
	}
	return -ENOENT;
}

static void implied_directories_look_like_the_parents(void **state)
{
	struct parents p = { 0 };
	struct builder_opts o = { .implied = parents_implied, .ctx = &p };
	char names[64];
	struct inode in;
	struct tree t;

	(void)state;
	tree_setup(&t, &o);
	assert_int_equal(add_empty(&t, "usr/lib/x/y"), 0);
	assert_int_equal(add_dir(&t, "usr/lib/x"), 0);
	assert_int_equal(add_empty(&t, "usr/lib/new/y"), 0);
	assert_refused(&t, tree_build(&t), ERR_UNAVAILABLE,
		       "'usr/lib': the parent layers are not known yet");
	assert_int_equal(p.n_asked, 2); /* not for the root */
	assert_int_equal(faccessat(t.dirfd, "index", F_OK, 0), -1);
	p.known = true;
	assert_int_equal(tree_build(&t), 0);
	assert_int_equal(p.n_asked, 4); /* what is settled is kept */
	assert_int_equal(t.res.n_implied, 1);
	assert_int_equal(tree_stat(&t, "usr/lib", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 03751);
	assert_int_equal(in.uid, 3);
	assert_int_equal(in.gid, 4);
	assert_int_equal(in.mtime, 5);
	assert_int_equal(in.mtime_nsec, 6);
	assert_int_equal(index_listxattr(t.ix, &in, names, sizeof(names)), 11);
	assert_string_equal(names, "user.below");
	assert_int_equal(tree_stat(&t, "usr", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	assert_int_equal(in.xattr_len, 0);
	/* made in a directory with a setgid bit */
	assert_int_equal(tree_stat(&t, "usr/lib/new", &in), 0);
	assert_int_equal(in.mode, S_IFDIR | 0755);
	assert_int_equal(in.gid, 4);
	tree_release(&t);
}

/* "lib/x" over a base where lib leads to usr/lib: a directory of that name
 * would hide what the link shows. */
static void implied_directory_over_a_link_is_unsupported(void **state)
{
	struct parents p = { 0 };
	struct builder_opts o = { .implied = parents_implied, .ctx = &p };
	struct tree t;

	(void)state;
	tree_setup(&t, &o);
	assert_int_equal(add_empty(&t, "lib/x/y"), 0);
	assert_refused(&t, tree_build(&t), ERR_UNSUPPORTED,
		       "'lib': a symbolic link in the parent layers");
	tree_release(&t);
}

/* ---- the whole ---- */

static void feed(struct tree *t, int n)
{
	struct entry_xattr x = { "user.k", "some value", 10 };
	char name[64];

	for (int i = 0; i < n; i++) {
		int d = i / 20;

		(void)snprintf(name, sizeof(name), "app/m%d/n%d/file%07d.js",
			       d % 50, d / 50, i);
		assert_int_equal(tree_file(t, name, (uint64_t)(i % 97) * 501,
					   (uint8_t)i),
				 0);
	}
	assert_int_equal(add(t, "x", ENTRY_DIR, .xattrs = &x, .n_xattrs = 1),
			 0);
	assert_int_equal(add_link(t, "l", "app/m0/n0/file0000001.js"), 0);
	assert_int_equal(add_empty(t, "x/.wh.gone"), 0);
}

static char *slurp(struct tree *t, const char *name, size_t *len)
{
	char *p;

	assert_int_equal(read_file_at(t->dirfd, name, 64u << 20, &p, len), 0);
	return p;
}

static void the_same_events_give_the_same_bytes(void **state)
{
	static const char *const names[] = { "index", "map" };
	struct tree *t = *state, other;

	tree_setup(&other, NULL);
	feed(t, 3000);
	feed(&other, 3000);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_build(&other), 0);
	for (int i = 0; i < 2; i++) {
		size_t a_len, b_len;
		owned(mem) char *a = slurp(t, names[i], &a_len);
		owned(mem) char *b = slurp(&other, names[i], &b_len);

		assert_int_equal(a_len, b_len);
		assert_memory_equal(a, b, a_len);
	}
	tree_release(&other);
}

static long anon_kib(void)
{
	owned(file) FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld", &kib) == 1)
			break;
	return kib;
}

static void a_hundred_thousand_files_fit_in_memory(void **state)
{
	struct tree *t = *state;
	long before = anon_kib();

	feed(t, 100000);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(t->res.n_inodes, 100000 + 5000 + 50 + 4);
	(void)before;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_in_range(anon_kib() - before, 1, 48 << 10);
#endif
}

static void write_leaves_nothing_behind_on_failure(void **state)
{
	struct tree *t = *state;

	assert_int_equal(add_dir(t, "d"), 0);
	assert_int_equal(mkdirat(t->dirfd, "map", 0700), 0);
	assert_int_equal(builder_write(t->b, t->dirfd, &t->res, &t->e), -1);
	assert_int_equal(t->e.kind, ERR_INTERNAL);
	assert_int_equal(faccessat(t->dirfd, "index", F_OK, 0), -1);
	assert_int_equal(unlinkat(t->dirfd, "map", AT_REMOVEDIR), 0);
	assert_int_equal(tree_build(t), 0); /* and it can be tried again */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_tree, teardown_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(path_clean_follows_go),
		TEST(path_clean_refuses_dotdot_anywhere),
		TEST(path_clean_refuses_nul_and_lengths),
		TEST(messages_hide_control_characters),
		TEST(duplicate_names_are_refused),
		TEST(a_file_is_no_directory),
		TEST(the_root_has_no_attributes),
		TEST(a_directory_may_come_after_its_children),
		TEST(attributes_out_of_range_are_refused),
		TEST(attributes_arrive_unchanged),
		TEST(times_are_bounded),
		TEST(symlinks_have_a_target),
		TEST(hard_links_share_an_inode),
		TEST(hard_link_brings_its_attributes),
		TEST(hard_link_to_nothing_is_unsupported),
		TEST(hard_link_through_a_file_is_unsupported),
		TEST(hard_link_to_a_marker_is_unsupported),
		TEST(hard_link_to_a_landmark_is_unsupported),
		TEST(hard_link_cycles_end),
		TEST(hard_link_to_itself_is_refused),
		TEST(hard_link_to_a_directory_is_refused),
		TEST(hard_link_to_the_root_is_refused),
		TEST(hard_link_chains_are_walked_once),
		TEST(whiteouts_become_devices),
		TEST(whiteout_gives_way_to_its_name),
		TEST(whiteouts_of_nothing_are_refused),
		TEST(opaque_marker_sets_an_xattr),
		TEST(format_files_are_hidden_at_the_root_only),
		TEST(format_names_of_other_types_are_shown),
		TEST(implied_directories_look_like_the_parents),
		TEST(implied_directory_over_a_link_is_unsupported),
		TEST(the_same_events_give_the_same_bytes),
		TEST(a_hundred_thousand_files_fit_in_memory),
		TEST(write_leaves_nothing_behind_on_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
