/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/mounts: the table of containerd's overlay snapshotter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "snapshotter/mounts.h"

#define ORD(i, k)                                                 \
	{                                                         \
		.id = (i), .seq = NO_LAYER, .kind = SNAP_KIND_##k \
	}
#define LAZY(i, s)                                                 \
	{                                                          \
		.id = (i), .seq = (s), .kind = SNAP_KIND_COMMITTED \
	}

static const struct mounts_env plain = { .root = "/r" };
static const struct mounts_env indexed = { .root = "/r", .index_off = true };

/* "type source opt opt …" */
static void render(const struct mounts_env *env, const struct snap_link *chain,
		   size_t n, char *out, size_t size)
{
	owned(mount_list) struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(mounts_make(env, chain, n, &m, &e), 0);
	assert_int_equal(m.n, 1);
	(void)snprintf(out, size, "%s %s", m.v[0].type, m.v[0].source);
	for (size_t i = 0; i < m.v[0].n_options; i++)
		(void)snprintf(out + strlen(out), size - strlen(out), " %s",
			       m.v[0].options[i]);
}

static void check(const struct mounts_env *env, const struct snap_link *chain,
		  size_t n, const char *expect)
{
	char got[512];

	render(env, chain, n, got, sizeof(got));
	assert_string_equal(got, expect);
}

static void mounts_make_without_parent_is_a_bind(void **state)
{
	const struct snap_link active[] = { ORD(7, ACTIVE) };
	const struct snap_link view[] = { ORD(7, VIEW) };

	(void)state;
	check(&indexed, active, 1, "bind /r/s/7/fs rw rbind");
	check(&indexed, view, 1, "bind /r/s/7/fs ro rbind");
}

static void mounts_make_of_active_is_an_overlay(void **state)
{
	const struct snap_link one[] = { ORD(9, ACTIVE), ORD(7, COMMITTED) };
	const struct snap_link two[] = { ORD(9, ACTIVE), ORD(7, COMMITTED),
					 ORD(3, COMMITTED) };

	(void)state;
	check(&plain, one, 2,
	      "overlay overlay workdir=/r/s/9/work upperdir=/r/s/9/fs lowerdir=/r/s/7/fs");
	check(&indexed, two, 3,
	      "overlay overlay workdir=/r/s/9/work upperdir=/r/s/9/fs lowerdir=/r/s/7/fs:/r/s/3/fs index=off");
}

static void mounts_make_of_view_has_no_upper(void **state)
{
	const struct snap_link one[] = { ORD(9, VIEW), ORD(7, COMMITTED) };
	const struct snap_link two[] = { ORD(9, VIEW), ORD(7, COMMITTED),
					 ORD(3, COMMITTED) };

	(void)state;
	check(&indexed, one, 2, "bind /r/s/7/fs ro rbind");
	check(&plain, two, 3, "overlay overlay lowerdir=/r/s/7/fs:/r/s/3/fs");
}

static void mounts_make_names_lazy_layers_by_number(void **state)
{
	const struct snap_link mixed[] = { ORD(9, ACTIVE), ORD(7, COMMITTED),
					   LAZY(5, 12), LAZY(4, 3) };
	const struct snap_link view[] = { ORD(9, VIEW), LAZY(5, 12) };

	(void)state;
	check(&plain, mixed, 4,
	      "overlay overlay workdir=/r/s/9/work upperdir=/r/s/9/fs lowerdir=/r/s/7/fs:/r/l/12:/r/l/3");
	check(&plain, view, 2, "bind /r/l/12 ro rbind");
}

static void mounts_make_lists_a_repeated_layer_once_at_the_top(void **state)
{
	const struct snap_link active[] = { ORD(9, ACTIVE), LAZY(8, 1),
					    LAZY(7, 2),     LAZY(6, 1),
					    LAZY(5, 2),     LAZY(4, 3) };
	const struct snap_link view[] = { ORD(9, VIEW), LAZY(8, 1),
					  LAZY(7, 1) };
	const struct snap_link one[] = { ORD(9, ACTIVE), LAZY(8, 1),
					 LAZY(7, 1) };

	(void)state;
	check(&plain, active, 6,
	      "overlay overlay workdir=/r/s/9/work upperdir=/r/s/9/fs lowerdir=/r/l/1:/r/l/2:/r/l/3");
	check(&plain, view, 3, "bind /r/l/1 ro rbind");
	check(&plain, one, 3,
	      "overlay overlay workdir=/r/s/9/work upperdir=/r/s/9/fs lowerdir=/r/l/1");
}

static void mounts_make_refuses_committed(void **state)
{
	const struct snap_link c[] = { ORD(7, COMMITTED) };
	struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(mounts_make(&plain, c, 1, &m, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	assert_null(m.v);
}

static void mounts_root_is_usable_refuses_what_options_split_at(void **state)
{
	(void)state;
	assert_true(mounts_root_is_usable("/var/lib/verity-snapshotter"));
	assert_true(mounts_root_is_usable("/a b"));
	assert_false(mounts_root_is_usable("relative"));
	assert_false(mounts_root_is_usable("/a:b"));
	assert_false(mounts_root_is_usable("/a,b"));
	assert_false(mounts_root_is_usable("/a\\b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mounts_make_without_parent_is_a_bind),
		cmocka_unit_test(mounts_make_of_active_is_an_overlay),
		cmocka_unit_test(mounts_make_of_view_has_no_upper),
		cmocka_unit_test(mounts_make_names_lazy_layers_by_number),
		cmocka_unit_test(
			mounts_make_lists_a_repeated_layer_once_at_the_top),
		cmocka_unit_test(mounts_make_refuses_committed),
		cmocka_unit_test(
			mounts_root_is_usable_refuses_what_options_split_at),
	};

	return cmocka_run_group_tests_name("mounts", tests, NULL, NULL);
}
