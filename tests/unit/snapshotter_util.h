/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshotter in a temporary folder, driven in one line a step. Included by
 * its tests behind cmocka.h. */
#ifndef TESTS_SNAPSHOTTER_UTIL_H
#define TESTS_SNAPSHOTTER_UTIL_H

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "snapshotter/snapshotter_priv.h"
#include "tests/unit/tmpdir.h"

#define SN "verity"

static inline unused_arg struct snapshotter *open_sn(const char *dir)
{
	struct snapshotter *s = NULL;
	char root[300], run[300];
	struct snapshotter_opts o = { .root = root,
				      .run = run,
				      .prepare_budget_s = 20,
				      .without = SNAPSHOTTER_WITHOUT_FUSE };
	struct err e = ERR_INIT;

	(void)snprintf(root, sizeof(root), "%s/root", dir);
	(void)snprintf(run, sizeof(run), "%s/root/run/deep", dir);
	if (snapshotter_open(&o, &s, &e) < 0)
		fail_msg("snapshotter_open: %s", e.msg);
	return s;
}

/* Path below the root, NUL-terminated, in a buffer of the caller. */
static inline unused_arg const char *at(const char *dir, char *buf, size_t size,
					const char *rel)
{
	(void)snprintf(buf, size, "%s/root/%s", dir, rel);
	return buf;
}

static inline unused_arg int try_make(struct snapshotter *s, const char *sn,
				      const char *key, const char *parent,
				      bool is_view, struct mount_list *m,
				      struct err *e)
{
	struct labels none = { 0 };
	struct prepare_req rq = { .sn = sn,
				  .key = key,
				  .parent = parent,
				  .labels = &none,
				  .view = is_view };
	struct prepare_op *op = NULL;

	return snapshotter_prepare(s, &rq, NULL, NULL, m, &op, e);
}

/* Makes a snapshot; its mounts as text. */
static inline unused_arg void make(struct snapshotter *s, const char *sn,
				   const char *key, const char *parent,
				   bool is_view, char *out, size_t size)
{
	owned(mount_list) struct mount_list m = { 0 };
	struct err e = ERR_INIT;

	if (try_make(s, sn, key, parent, is_view, &m, &e) != 0)
		fail_msg("prepare '%s': %s", key, e.msg);
	if (!out)
		return;
	(void)snprintf(out, size, "%s %s", m.v[0].type, m.v[0].source);
	for (size_t i = 0; i < m.v[0].n_options; i++)
		(void)snprintf(out + strlen(out), size - strlen(out), " %s",
			       m.v[0].options[i]);
}

static inline unused_arg void prepare(struct snapshotter *s, const char *key,
				      const char *parent)
{
	make(s, SN, key, parent, false, NULL, 0);
}

static inline unused_arg void commit(struct snapshotter *s, const char *name,
				     const char *key)
{
	struct labels none = { 0 };
	struct err e = ERR_INIT;

	if (snapshotter_commit(s, SN, name, key, "", &none, &e) < 0)
		fail_msg("commit '%s': %s", name, e.msg);
}

static inline unused_arg uint64_t id_of(struct snapshotter *s, const char *key)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(snapshotter_stat(s, SN, key, &sp, &e), 0);
	return sp.id;
}

static inline unused_arg void fs_path(struct snapshotter *s, const char *key,
				      char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s/s/%" PRIu64 "/fs", s->root,
		       id_of(s, key));
}

static inline unused_arg int entries(const char *path)
{
	owned(dir) DIR *d = opendir(path);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	return n - 2;
}

#endif
