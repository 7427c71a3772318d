/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/broken: which mounts stand on a dead view. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "snapshotter/broken.h"

#define TASK "/run/containerd/io.containerd.runtime.v2.task/"

/* "mount=container mount=container ..." of what is found in @text */
static void assert_found(const char *text, const char *later, const char *want)
{
	owned(mem) char *copy = strdup(text), *after = strdup(later);
	owned(buf) struct buf out = { 0 };
	struct broken *b = NULL;

	assert_int_equal(broken_find_in(copy, "/r", &b), 0);
	broken_refresh_in(b, after);
	broken_json_of(b, &out);
	broken_free(b);
	assert_false(out.failed);
	assert_string_equal((const char *)out.p, want);
}

static void assert_now(const char *text, const char *want)
{
	assert_found(text, text, want);
}

static const char overlay[] =
	"70 30 0:60 / " TASK "default/abc/rootfs rw - overlay overlay "
	"rw,lowerdir=/r/s/3/fs:/r/l/7:/r/l/4,upperdir=/r/s/9/fs,workdir=/r/s/9/work\n";

static void find_takes_overlays_on_lazy_layers(void **state)
{
	(void)state;
	assert_now(overlay,
		   "\"broken\":[{\"mount\":\"" TASK
		   "default/abc/rootfs\",\"container\":\"default/abc\"}]");
	assert_now(
		"70 30 0:60 / /m rw - overlay overlay ro,lowerdir=/r/l/7\n"
		"71 30 0:61 / /a\\040b rw - overlay o ro,lowerdir+=/x,lowerdir+=/r/l/7\n",
		"\"broken\":[{\"mount\":\"/m\",\"container\":\"\"},"
		"{\"mount\":\"/a b\",\"container\":\"\"}]");
}

/* containerd shortens long lists; what they are relative to is not shown. */
static void find_takes_relative_lowers(void **state)
{
	(void)state;
	assert_now("1 0 0:1 / /m rw - overlay o rw,lowerdir=s/3/fs:l/7\n",
		   "\"broken\":[{\"mount\":\"/m\",\"container\":\"\"}]");
	assert_now("1 0 0:1 / /m rw - overlay o "
		   "rw,lowerdir=7:6:5,upperdir=/r/s/9/fs,workdir=/r/s/9/work\n",
		   "\"broken\":[{\"mount\":\"/m\",\"container\":\"\"}]");
}

static void find_leaves_others_alone(void **state)
{
	static const char *const fine[] = {
		"rw,lowerdir=/r/s/3/fs,upperdir=/r/s/9/fs",
		"rw,lowerdir=/r2/l/7",
		"rw,lowerdir=/r/l/7x",
		"rw,lowerdir=/r/l/",
		"rw,lowerdir=/r/l/7/etc",
		"rw,lowerdir=/x/r/l/7",
		"rw,lowerdir=l/ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"rw,lowerdir=7:6,upperdir=/elsewhere/s/9/fs",
		"rw,lowerdir=7:6,upperdir=/r/sx/9",
		"rw,lowerdir=7:6",
		"rw,lowerdir=/a\\134:l/7", /* one folder, "/a:l/7" */
		"rw,upperdir=/r/l/7",
		"rw,xlowerdir=/r/l/7",
		"rw,lowerdir",
		"",
	};
	char line[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		(void)snprintf(line, sizeof(line),
			       "1 0 0:1 / /m rw - overlay o %s\n", fine[i]);
		assert_now(line, "\"broken\":[]");
	}
	assert_now("1 0 0:1 / /m rw - overlay o\n", "\"broken\":[]");
	assert_now("1 0 0:1 / /m rw - ext4 o rw,lowerdir=/r/l/7\n",
		   "\"broken\":[]");
}

#define VIEW " rw - fuse.verity-layers verity-layers ro\n"

static void find_takes_views_without_a_session(void **state)
{
	(void)state;
	/* 0:40 is our dead view, 0:41 another daemon's, 0:42 nobody's */
	assert_now("1 0 0:40 / /r/l" VIEW "2 0 0:40 /7 /mine" VIEW
		   "3 0 0:41 / /other/l" VIEW "4 0 0:41 /7 /theirs" VIEW
		   "5 0 0:42 /8 /left" VIEW,
		   "\"broken\":[{\"mount\":\"/mine\",\"container\":\"\"},"
		   "{\"mount\":\"/left\",\"container\":\"\"}]");
}

static void refresh_forgets_what_has_gone(void **state)
{
	owned(mem) char *text = strdup(overlay), *none = strdup("");
	owned(mem) char *back = strdup(overlay);
	owned(buf) struct buf out = { 0 };
	struct broken *b = NULL;

	(void)state;
	/* other id, other device, other place */
	assert_found("1 0 0:1 / /m rw - overlay o rw,lowerdir=/r/l/7\n"
		     "2 0 0:2 / /n rw - overlay o rw,lowerdir=/r/l/7\n"
		     "3 0 0:3 / /o rw - overlay o rw,lowerdir=/r/l/7\n"
		     "4 0 0:4 / /p rw - overlay o rw,lowerdir=/r/l/7\n",
		     "9 0 0:1 / /m rw - overlay o rw,lowerdir=/r/l/7\n"
		     "2 0 0:9 / /n rw - overlay o rw,lowerdir=/r/l/7\n"
		     "4 0 0:4 / /p rw - overlay o rw,lowerdir=/r/l/7\n"
		     "3 0 0:3 / /q rw - overlay o rw,lowerdir=/r/l/7\n",
		     "\"broken\":[{\"mount\":\"/p\",\"container\":\"\"}]");
	/* gone is gone, also when the kernel gives the same id again */
	assert_int_equal(broken_find_in(text, "/r", &b), 0);
	broken_refresh_in(b, none);
	broken_refresh_in(b, back);
	broken_json_of(b, &out);
	assert_string_equal((const char *)out.p, "\"broken\":[]");
	broken_free(b);
}

static void container_comes_from_the_path_of_the_task(void **state)
{
	static const struct {
		const char *path, *want;
	} cases[] = {
		{ TASK "k8s.io/0123/rootfs", "k8s.io/0123" },
		{ "/x/io.containerd.runtime.v1.linux/a/b/rootfs", "a/b" },
		{ TASK "default/abc", "" },
		{ TASK "default/abc/rootfs/x", "" },
		{ TASK "default//rootfs", "" },
		{ TASK "/abc/rootfs", "" },
		{ TASK, "" },
		{ "/a/b/rootfs", "" },
	};
	char got[20];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		broken_container(cases[i].path, got, sizeof(got));
		assert_string_equal(got, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(find_takes_overlays_on_lazy_layers),
		cmocka_unit_test(find_takes_relative_lowers),
		cmocka_unit_test(find_leaves_others_alone),
		cmocka_unit_test(find_takes_views_without_a_session),
		cmocka_unit_test(refresh_forgets_what_has_gone),
		cmocka_unit_test(container_comes_from_the_path_of_the_task),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
