/* SPDX-License-Identifier: Apache-2.0 */
/* fuse/mount: lines of mountinfo; the mounts themselves are in test_view.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "fuse/mount.h"

static void mount_next_takes_lines_apart(void **state)
{
	char text[] =
		"36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:7 - ext3 "
		"/dev/root rw,errors=continue\n"
		"66 46 0:40 / /a\\040b\\011c\\134d\\012e ro - "
		"fuse.verity-layers verity-layers ro\n"
		"7 1 0:5 / /last rw - tmpfs none rw";
	struct mount_entry m;
	char *at = text;

	(void)state;
	assert_true(mount_next(&at, &m));
	assert_int_equal(m.id, 36);
	assert_int_equal(m.parent, 35);
	assert_int_equal(m.major, 98);
	assert_string_equal(m.path, "/mnt2");
	assert_string_equal(m.type, "ext3");
	assert_string_equal(m.source, "/dev/root");
	assert_string_equal(m.root, "/mnt1");
	assert_string_equal(m.options, "rw,errors=continue");
	assert_true(mount_next(&at, &m));
	assert_int_equal(m.minor, 40);
	assert_string_equal(m.path, "/a b\tc\\d\ne");
	assert_string_equal(m.type, MOUNT_TYPE);
	assert_string_equal(m.source, MOUNT_SOURCE);
	assert_true(mount_next(&at, &m));
	assert_string_equal(m.path, "/last");
	assert_false(mount_next(&at, &m));
}

static void mount_next_skips_what_it_does_not_know(void **state)
{
	char text[] = "\n"
		      "nonsense\n"
		      "1 2 3:4\n"
		      "1 2 3:4 /\n"
		      "1 2 3:4 / /no-dash rw shared:1 ext4 /dev/x rw\n"
		      "1 2 3:4 / /no-type rw -\n"
		      "1 2 3:4 / /no-source rw - ext4\n"
		      "1 2 3:4 / /short - ext4 x\n"
		      "1 2 3:4 / /bad\\09\\4 rw - ext4 x rw\n";
	struct mount_entry m;
	char *at = text;

	(void)state;
	/* escapes that are none stay as they are */
	do
		assert_true(mount_next(&at, &m));
	while (strcmp(m.path, "/short") == 0);
	assert_string_equal(m.path, "/bad\\09\\4");
	assert_false(mount_next(&at, &m));
}

static void mount_find_says_when_there_is_none(void **state)
{
	struct mount_dev dev;

	(void)state;
	assert_int_equal(mount_find("/proc", &dev), -ENOENT); /* not ours */
	assert_int_equal(mount_find("/no/such/place", &dev), -ENOENT);
	assert_int_equal(mount_find("relative", &dev), -EINVAL);
	assert_int_equal(mount_detach("/proc", &(struct mount_dev){ 0, 0 }),
			 -ENOENT);
	assert_int_equal(mount_detach_dead("/proc"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mount_next_takes_lines_apart),
		cmocka_unit_test(mount_next_skips_what_it_does_not_know),
		cmocka_unit_test(mount_find_says_when_there_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
