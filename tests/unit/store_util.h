/* SPDX-License-Identifier: Apache-2.0 */
/* Short words for the store's calls. Include after <cmocka.h>. */
#ifndef TESTS_UNIT_STORE_UTIL_H
#define TESTS_UNIT_STORE_UTIL_H

#include "snapshotter/store.h"

#define SN "verity"

static inline struct store *open_store(const char *dir)
{
	struct store *s = NULL;
	struct err e = ERR_INIT;

	if (store_open(dir, &s, &e) < 0)
		fail_msg("store_open: %s", e.msg);
	return s;
}

/* Returns the id. */
static inline uint64_t create(struct store *s, const char *sn, const char *key,
			      const char *parent, enum snap_kind kind,
			      const char *ref)
{
	owned(labels) struct labels l = { 0 };
	struct err e = ERR_INIT;
	uint64_t id = store_new_id(s);

	assert_int_equal(labels_set(&l, LABEL_REF, ref), 0);
	if (store_create(s, id, sn, key, parent, kind, &l, NULL, &e) < 0)
		fail_msg("store_create '%s': %s", key, e.msg);
	return id;
}

static inline uint64_t prepare(struct store *s, const char *sn, const char *key,
			       const char *parent)
{
	return create(s, sn, key, parent, SNAP_KIND_ACTIVE, NULL);
}

static inline uint64_t prepare_ref(struct store *s, const char *sn,
				   const char *key, const char *parent,
				   const char *ref)
{
	return create(s, sn, key, parent, SNAP_KIND_ACTIVE, ref);
}

static inline uint64_t view(struct store *s, const char *sn, const char *key,
			    const char *parent)
{
	return create(s, sn, key, parent, SNAP_KIND_VIEW, NULL);
}

static inline void assert_create(struct store *s, const char *sn,
				 const char *key, const char *parent,
				 enum err_kind kind)
{
	struct labels none = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(store_create(s, store_new_id(s), sn, key, parent,
				      SNAP_KIND_ACTIVE, &none, NULL, &e),
			 -1);
	assert_int_equal(e.kind, kind);
}

static inline void commit_ref(struct store *s, const char *sn, const char *name,
			      const char *key, const char *ref)
{
	owned(labels) struct labels l = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(labels_set(&l, LABEL_REF, ref), 0);
	if (store_commit(s, sn, name, key, NULL, &l, 1, 1, &e) < 0)
		fail_msg("store_commit '%s': %s", name, e.msg);
}

static inline void commit(struct store *s, const char *sn, const char *name,
			  const char *key)
{
	commit_ref(s, sn, name, key, NULL);
}

#endif
