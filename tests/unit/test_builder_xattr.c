/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/builder_xattr: which extended attributes get through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layer_tree.h"

#define assert_xattr_refused(t, n, v, l, msg)                          \
	do {                                                           \
		struct entry_xattr x_ = { (n), (v), (l) };             \
		assert_refused((t),                                    \
			       add((t), "f", ENTRY_REG, .xattrs = &x_, \
				   .n_xattrs = 1),                     \
			       ERR_CORRUPT, msg);                      \
	} while (0)

static void xattrs_for_overlayfs_are_dropped(void **state)
{
	struct entry_xattr xs[] = {
		{ "trusted.overlay.redirect", "/etc", 4 },
		{ "trusted.anything", "x", 1 },
		{ "user.overlay.opaque", "y", 1 },
		{ "system.nfs4_acl", "x", 1 },
		{ "btrfs.compression", "x", 1 },
		{ "security.selinux", "ctx", 3 },
		{ "user.overlayed", "kept", 4 },
	};
	struct entry_xattr special[] = {
		{ "user.none", "x", 1 },
		{ "security.some", "y", 1 },
	};
	struct tree *t = *state;
	struct inode in;
	char buf[128];

	assert_int_equal(add(t, "d", ENTRY_DIR, .mode = 0755, .xattrs = xs,
			     .n_xattrs = ARRAY_LEN(xs)),
			 0);
	assert_int_equal(
		add(t, "p", ENTRY_FIFO, .xattrs = special, .n_xattrs = 2), 0);
	assert_int_equal(add_symlink(t, "s", "x"), 0);
	assert_int_equal(add(t, "sl", ENTRY_HARDLINK, .link_target = "s",
			     .link_len = 1, .xattrs = special, .n_xattrs = 1),
			 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "d", &in), 0);
	assert_int_equal(index_listxattr(t->ix, &in, buf, sizeof(buf)), 32);
	assert_memory_equal(buf, "security.selinux\0user.overlayed", 32);
	/* xattr(7): user.* is for files and directories */
	assert_int_equal(tree_stat(t, "p", &in), 0);
	assert_int_equal(index_listxattr(t->ix, &in, buf, sizeof(buf)), 14);
	assert_string_equal(buf, "security.some");
	assert_int_equal(tree_stat(t, "s", &in), 0);
	assert_int_equal(in.xattr_len, 0);
}

static void xattrs_have_limits(void **state)
{
	static uint8_t value[65536];
	struct entry_xattr xs[129];
	struct tree *t = *state;
	char names[129][12], name[300] = "user.";

	assert_xattr_refused(t, "user.a", value, 65536,
			     "'f': extended attribute 'user.a': name or value "
			     "has a length out of range");
	assert_xattr_refused(t, "user.", value, 1,
			     "'f': extended attribute 'user.': name or value "
			     "has a length out of range");
	memset(name + 5, 'n', 251);
	assert_int_equal(add(t, "f", ENTRY_REG,
			     .xattrs = (&(struct entry_xattr){ name, "", 0 }),
			     .n_xattrs = 1),
			 -1);
	for (size_t i = 0; i < ARRAY_LEN(xs); i++) {
		(void)snprintf(names[i], sizeof(names[i]), "user.%zu", i);
		xs[i] = (struct entry_xattr){ names[i], value, 1 };
	}
	assert_refused(t, add(t, "f", ENTRY_REG, .xattrs = xs, .n_xattrs = 129),
		       ERR_CORRUPT, "'f': more than 128 extended attributes");
	xs[1].name = xs[0].name;
	assert_refused(t, add(t, "f", ENTRY_REG, .xattrs = xs, .n_xattrs = 2),
		       ERR_CORRUPT,
		       "'f': extended attribute 'user.0': named twice");
	xs[1].name = names[1];
	for (size_t i = 0; i < 5; i++)
		xs[i].len = 60000;
	assert_refused(t, add(t, "f", ENTRY_REG, .xattrs = xs, .n_xattrs = 5),
		       ERR_CORRUPT,
		       "'f': extended attribute 'user.4': more than 256 KiB "
		       "of extended attributes");
	assert_int_equal(add(t, "f", ENTRY_REG, .xattrs = xs, .n_xattrs = 4),
			 0);
	assert_int_equal(
		add(t, "g", ENTRY_REG, .xattrs = xs + 5, .n_xattrs = 124), 0);
}

static void acls_are_checked(void **state)
{
	static const uint8_t good[] = {
		2,   0,   0,   0,   1,   0,   6,   0,
		255, 255, 255, 255, /* user:: */
		2,   0,   4,   0,   5,   0,   0,   0, /* user:5 */
		2,   0,   4,   0,   3,   0,   0,   0, /* user:3 */
		4,   0,   4,   0,   255, 255, 255, 255, /* group:: */
		16,  0,   7,   0,   255, 255, 255, 255, /* mask */
		32,  0,   4,   0,   255, 255, 255, 255, /* other */
	};
	static const char name[] = "system.posix_acl_access";
	static const char msg[] = "'f': extended attribute "
				  "'system.posix_acl_access': not an ACL";
	struct entry_xattr x = { name, good, sizeof(good) };
	struct entry_xattr def = { "system.posix_acl_default", good,
				   sizeof(good) };
	struct tree *t = *state;
	uint8_t bad[sizeof(good)];
	struct inode in;

	for (size_t len = 0; len < sizeof(good); len++)
		if (len != 4)
			assert_xattr_refused(t, name, good, len, msg);
	for (int i = 0; i < 4; i++) {
		/* version, permission, order, a mask that is missing */
		static const struct {
			size_t off;
			uint8_t v;
		} cases[] = { { 0, 1 }, { 6, 8 }, { 12, 32 }, { 36, 32 } };

		memcpy(bad, good, sizeof(bad));
		bad[cases[i].off] = cases[i].v;
		assert_xattr_refused(t, name, bad, sizeof(bad), msg);
	}
	assert_int_equal(add(t, "f", ENTRY_REG, .mode = 0674, .xattrs = &x,
			     .n_xattrs = 1),
			 0);
	assert_int_equal(add(t, "d", ENTRY_DIR, .xattrs = &def, .n_xattrs = 1),
			 0);
	/* where the kernel has none */
	assert_int_equal(add(t, "g", ENTRY_REG, .xattrs = &def, .n_xattrs = 1),
			 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "f", &in), 0);
	assert_int_equal(index_getxattr(t->ix, &in, name, bad, sizeof(bad)),
			 sizeof(good));
	assert_memory_equal(bad, good, sizeof(good));
	assert_int_equal(tree_stat(t, "d", &in), 0);
	assert_int_equal(index_getxattr(t->ix, &in, def.name, bad, sizeof(bad)),
			 sizeof(good));
	assert_int_equal(tree_stat(t, "g", &in), 0);
	assert_int_equal(in.xattr_len, 0);
}

static void capabilities_are_checked(void **state)
{
	static const char name[] = "security.capability";
	static const char msg[] = "'f': extended attribute "
				  "'security.capability': not a file "
				  "capability";
	uint8_t v[25] = { [3] = 2 };
	struct tree *t = *state;
	struct entry_xattr x = { name, v, 20 };

	assert_xattr_refused(t, name, v, 0, msg);
	assert_xattr_refused(t, name, v, 19, msg);
	assert_xattr_refused(t, name, v, 12, msg);
	assert_xattr_refused(t, name, v, 24, msg);
	assert_xattr_refused(t, name, v, 25, msg);
	assert_int_equal(add(t, "f", ENTRY_REG, .xattrs = &x, .n_xattrs = 1),
			 0);
	v[3] = 3;
	assert_int_equal(add(t, "g", ENTRY_REG,
			     .xattrs = (&(struct entry_xattr){ name, v, 24 }),
			     .n_xattrs = 1),
			 0);
}

/* ---- ACLs as an unpack leaves them ---- */

#define NOBODY 255, 255, 255, 255
/* u::rwx u:5:r g::rx mask::rx o::rx */
static const uint8_t acl_named[] = {
	2, 0, 0, 0, 1, 0,      7,  0, NOBODY, 2, 0,      4,  0, 5, 0, 0,
	0, 4, 0, 5, 0, NOBODY, 16, 0, 5,      0, NOBODY, 32, 0, 5, 0, NOBODY,
};
static const uint8_t acl_plain[] = {
	2, 0, 0, 0, 1, 0, 6, 0, NOBODY, 4, 0, 4, 0, NOBODY, 32, 0, 4, 0, NOBODY,
};
static const uint8_t acl_none[] = { 2, 0, 0, 0 };

#define ADD_ACL(t, p, kind, m, name, v)                                      \
	assert_int_equal(add((t), (p), (kind), .mode = (m),                  \
			     .xattrs = (&(struct entry_xattr){ (name), (v),  \
							       sizeof(v) }), \
			     .n_xattrs = 1),                                 \
			 0)

/* acl_named with other permissions for owner, mask and others; 0: no ACL */
static void assert_acl(struct tree *t, const char *path, const char *name,
		       unsigned perms)
{
	uint8_t want[sizeof(acl_named)], got[sizeof(acl_named)];
	struct inode in;

	memcpy(want, acl_named, sizeof(want));
	want[6] = perms >> 6 & 7;
	want[30] = perms >> 3 & 7;
	want[38] = perms & 7;
	assert_int_equal(tree_stat(t, path, &in), 0);
	if (!perms) {
		assert_int_equal(
			index_getxattr(t->ix, &in, name, got, sizeof(got)),
			-ENODATA);
		return;
	}
	assert_int_equal(index_getxattr(t->ix, &in, name, got, sizeof(got)),
			 sizeof(got));
	assert_memory_equal(got, want, sizeof(got));
}

static void the_mode_has_the_last_word(void **state)
{
	struct tree *t = *state;

	ADD_ACL(t, "same", ENTRY_REG, 0755, ACL_ACCESS, acl_named);
	ADD_ACL(t, "odds", ENTRY_REG, 04621, ACL_ACCESS, acl_named);
	ADD_ACL(t, "plain", ENTRY_REG, 0644, ACL_ACCESS, acl_plain);
	ADD_ACL(t, "none", ENTRY_REG, 0644, ACL_ACCESS, acl_none);
	ADD_ACL(t, "dir", ENTRY_DIR, 0700, ACL_DEFAULT, acl_named);
	ADD_ACL(t, "d-none", ENTRY_DIR, 0700, ACL_DEFAULT, acl_none);
	assert_int_equal(add(t, "link", ENTRY_HARDLINK, .link_target = "same",
			     .link_len = 4, .mode = 0511),
			 0);
	assert_int_equal(tree_build(t), 0);
	assert_acl(t, "same", ACL_ACCESS, 0511);
	assert_acl(t, "odds", ACL_ACCESS, 0621);
	assert_acl(t, "plain", ACL_ACCESS, 0);
	assert_acl(t, "none", ACL_ACCESS, 0);
	assert_acl(t, "dir", ACL_ACCESS, 0);
	assert_acl(t, "dir", ACL_DEFAULT, 0755);
	assert_acl(t, "d-none", ACL_DEFAULT, 0);
}

static void default_acls_are_inherited(void **state)
{
	struct tree *t = *state;
	struct inode in;

	ADD_ACL(t, "d", ENTRY_DIR, 0755, ACL_DEFAULT, acl_named);
	assert_int_equal(add(t, "d/f", ENTRY_REG, .mode = 0640), 0);
	assert_int_equal(add(t, "d/sub", ENTRY_DIR, .mode = 0700), 0);
	assert_int_equal(add(t, "d/sub/p", ENTRY_FIFO, .mode = 0622), 0);
	assert_int_equal(add(t, "d/made/f", ENTRY_REG, .mode = 0444), 0);
	assert_int_equal(add_symlink(t, "d/s", "f"), 0);
	assert_int_equal(add(t, "d/.wh.gone", ENTRY_REG, .mode = 0), 0);
	ADD_ACL(t, "d/plain", ENTRY_REG, 0644, ACL_ACCESS, acl_plain);
	ADD_ACL(t, "d/none", ENTRY_DIR, 0751, ACL_DEFAULT, acl_none);
	ADD_ACL(t, "d/simple", ENTRY_DIR, 0751, ACL_DEFAULT, acl_plain);
	assert_int_equal(add(t, "d/simple/f", ENTRY_REG, .mode = 0666), 0);
	assert_int_equal(tree_build(t), 0);
	assert_acl(t, "d/f", ACL_ACCESS, 0640);
	assert_acl(t, "d/f", ACL_DEFAULT, 0);
	assert_acl(t, "d/sub", ACL_ACCESS, 0700);
	assert_acl(t, "d/sub", ACL_DEFAULT, 0755);
	assert_acl(t, "d/sub/p", ACL_ACCESS, 0622);
	assert_acl(t, "d/made", ACL_ACCESS, 0755);
	assert_acl(t, "d/made/f", ACL_ACCESS, 0444);
	assert_acl(t, "d/plain", ACL_ACCESS, 0);
	assert_acl(t, "d/none", ACL_ACCESS, 0751);
	assert_acl(t, "d/none", ACL_DEFAULT, 0);
	assert_acl(t, "d/simple", ACL_ACCESS, 0751);
	assert_acl(t, "d/simple/f", ACL_ACCESS, 0);
	assert_int_equal(tree_stat(t, "d/s", &in), 0);
	assert_int_equal(in.xattr_len, 0);
	assert_int_equal(tree_stat(t, "d/gone", &in), 0);
	assert_int_equal(in.xattr_len, 0);
}

/* chown(2) on the inode takes the capability; a link may bring it again. */
static void hard_links_merge_xattrs(void **state)
{
	static const uint8_t cap[20] = { [3] = 2, [4] = 9 };
	struct entry_xattr first[] = {
		{ "user.first", "1", 1 },
		{ "user.both", "1", 1 },
		{ "security.capability", cap, sizeof(cap) },
	};
	struct entry_xattr second[] = {
		{ "user.both", "22", 2 },
		{ "security.capability", cap, sizeof(cap) },
	};
	struct tree *t = *state;
	struct inode in;
	char buf[64];

	for (char name[] = "a"; name[0] < 'c'; name[0]++)
		assert_int_equal(
			add(t, name, ENTRY_REG, .xattrs = first, .n_xattrs = 3),
			0);
	assert_int_equal(add(t, "la", ENTRY_HARDLINK, .link_target = "a",
			     .link_len = 1, .xattrs = second, .n_xattrs = 1),
			 0);
	assert_int_equal(add(t, "lb", ENTRY_HARDLINK, .link_target = "b",
			     .link_len = 1, .xattrs = second, .n_xattrs = 2),
			 0);
	assert_int_equal(tree_build(t), 0);
	assert_int_equal(tree_stat(t, "a", &in), 0);
	assert_int_equal(index_listxattr(t->ix, &in, buf, sizeof(buf)), 21);
	assert_memory_equal(buf, "user.first\0user.both", 21);
	assert_int_equal(index_getxattr(t->ix, &in, "user.both", buf, 64), 2);
	assert_int_equal(tree_stat(t, "b", &in), 0);
	assert_int_equal(
		index_getxattr(t->ix, &in, "security.capability", buf, 64),
		sizeof(cap));
	assert_memory_equal(buf, cap, sizeof(cap));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_tree, teardown_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(xattrs_for_overlayfs_are_dropped),
		TEST(xattrs_have_limits),
		TEST(acls_are_checked),
		TEST(capabilities_are_checked),
		TEST(the_mode_has_the_last_word),
		TEST(default_acls_are_inherited),
		TEST(hard_links_merge_xattrs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
