/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and refs in a store, for its tests. Include after <cmocka.h>. */
#ifndef TESTS_UNIT_STORE_LAYERS_H
#define TESTS_UNIT_STORE_LAYERS_H

#include <stdio.h>

#include "tests/unit/store_util.h"
#include "verity/sha256.h"

static inline struct digest digest_of(uint8_t x)
{
	struct digest d;

	memset(d.b, x, sizeof(d.b));
	return d;
}

/* A layer that differs from others by @x. */
static inline struct layer_row make_row(struct store *s, uint8_t x,
					uint64_t n_inodes)
{
	struct layer_row row = {
		.blob = digest_of(x),
		.toc = digest_of((uint8_t)(x + 100)),
		.format = 1,
		.writer = 1,
		.size = 1000,
		.index_digest = digest_of(1),
		.map_digest = digest_of(2),
		.chain_id = "R",
		.image = "reg.test/x:1",
		.payload = 4000,
		.usage = 4096,
		.n_inodes = n_inodes,
	};
	struct err e = ERR_INIT;

	assert_int_equal(store_next_seq(s, &row.seq, &e), 0);
	return row;
}

static inline uint32_t add_layer(struct store *s, uint8_t x)
{
	struct layer_row row = make_row(s, x, 10);
	struct err e = ERR_INIT;

	if (store_add_layer(s, &row, NULL, 0, &e) < 0)
		fail_msg("store_add_layer: %s", e.msg);
	return row.seq;
}

static inline int add_lazy(struct store *s, const char *sn, const char *parent,
			   const char *ref, uint32_t seq)
{
	owned(labels) struct labels l = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(labels_set(&l, "containerd.io/snapshot/x", "y"), 0);
	return store_add_lazy(s, sn, parent, ref, &l, seq, 4096, 10, &e) < 0
		       ? (int)e.kind
		       : 0;
}

/* The name of the row that shows the ref, which must also have the label;
 * "" when there is none. */
static inline void holder(struct store *s, const char *parent, const char *ref,
			  char *out, size_t size)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;
	int r = store_find_ref(s, SN, parent, ref, &sp, &e);

	assert_true(r >= 0);
	*out = '\0';
	if (r == 0)
		return;
	assert_string_equal(labels_get(&sp.labels, LABEL_REF), ref);
	assert_int_equal(sp.kind, SNAP_KIND_COMMITTED);
	(void)snprintf(out, size, "%s", sp.name);
}

static inline void assert_holder(struct store *s, const char *parent,
				 const char *ref, const char *name)
{
	char got[64];

	holder(s, parent, ref, got, sizeof(got));
	assert_string_equal(got, name);
}

static inline void assert_has_no_ref(struct store *s, const char *name)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(store_get(s, SN, name, &sp, &e), 0);
	assert_null(labels_get(&sp.labels, LABEL_REF));
}

/* The stream of layer @seq has a diff id of @n's. */
static inline struct claims prove(struct store *s, uint32_t seq, uint8_t n)
{
	struct digest d = { { n } };
	struct claims c = { 0 };
	struct err e = ERR_INIT;

	if (store_set_proven(s, seq, &d, &c, &e) < 0)
		fail_msg("store_set_proven: %s", e.msg);
	return c;
}

/* The chain id of diff id @n, alone or above @parent. */
static inline struct digest_str chain(const char *parent, uint8_t n)
{
	struct digest d = { { n } };
	char both[160];
	int len = snprintf(both, sizeof(both), "%s %s", parent ? parent : "",
			   digest_str(&d).s);

	if (parent)
		assert_int_equal(sha256_buf(both, (size_t)len, &d), 0);
	return digest_str(&d);
}

#endif
