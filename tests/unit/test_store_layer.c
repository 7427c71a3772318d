/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/store: layers, their numbers and bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "snapshotter/store.h"
#include "tests/unit/store_layers.h"
#include "tests/unit/tmpdir.h"

/* ---- layers ---- */

static void store_next_seq_survives_and_never_repeats(void **state)
{
	struct store *s = open_store(*state);
	struct err e = ERR_INIT;
	uint32_t a, b, c;

	assert_int_equal(store_next_seq(s, &a, &e), 0);
	assert_int_equal(store_next_seq(s, &b, &e), 0);
	store_close(s);
	s = open_store(*state);
	assert_int_equal(store_next_seq(s, &c, &e), 0);
	assert_true(a >= 1 && b > a && c > b);
	store_close(s);
}

static void store_add_layer_round_trips(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row row = make_row(s, 7, 10), got = { 0 };
	owned(mem) struct layer_row *all = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	row.diff_id = digest_of(9);
	(void)snprintf(row.parent_chain, sizeof(row.parent_chain), "sha256:p");
	assert_int_equal(store_add_layer(s, &row, NULL, 0, &e), 0);
	store_close(s);
	s = open_store(*state);
	assert_int_equal(store_get_layer(s, row.seq, &got, &e), 1);
	assert_memory_equal(&got.blob, &row.blob, sizeof(got.blob));
	assert_memory_equal(&got.toc, &row.toc, sizeof(got.toc));
	assert_memory_equal(&got.index_digest, &row.index_digest,
			    sizeof(row.index_digest));
	assert_memory_equal(&got.map_digest, &row.map_digest,
			    sizeof(row.map_digest));
	assert_memory_equal(&got.diff_id, &row.diff_id, sizeof(row.diff_id));
	assert_string_equal(got.parent_chain, "sha256:p");
	assert_string_equal(got.chain_id, "R");
	assert_string_equal(got.image, "reg.test/x:1");
	assert_int_equal(got.size, 1000);
	assert_int_equal(got.payload, 4000);
	assert_int_equal(got.usage, 4096);
	assert_int_equal(got.n_inodes, 10);
	assert_int_equal(got.ino_base, row.ino_base);
	assert_int_equal(got.created, row.created);
	assert_int_equal(got.proof, PROOF_NONE);
	assert_false(got.bad);
	assert_int_equal(store_get_layer(s, row.seq + 1, &got, &e), 0);
	assert_int_equal(store_layers(s, &all, &n, &e), 0);
	assert_int_equal(n, 1);
	assert_int_equal(all[0].seq, row.seq);
	store_close(s);
}

static int find(struct store *s, const struct layer_row *key,
		const char *parent_chain, struct layer_row *ret)
{
	struct err e = ERR_INIT;

	return store_find_layer(s, &key->blob, &key->toc, key->format,
				key->writer, parent_chain, ret, &e);
}

static void store_find_layer_wants_the_whole_key(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row row = make_row(s, 7, 10), other = row, got;
	struct err e = ERR_INIT;

	assert_int_equal(find(s, &row, "", &got), 0);
	assert_int_equal(store_add_layer(s, &row, NULL, 0, &e), 0);
	assert_int_equal(find(s, &row, "", &got), 1);
	assert_int_equal(got.seq, row.seq);
	assert_int_equal(find(s, &row, "sha256:p", &got), 0);
	other.writer = 2;
	assert_int_equal(find(s, &other, "", &got), 0);
	other = row;
	other.toc = digest_of(1);
	assert_int_equal(find(s, &other, "", &got), 0);

	/* One good layer a key; a bad one gives its place away. */
	other = make_row(s, 7, 10);
	assert_int_equal(store_add_layer(s, &other, NULL, 0, &e), -1);
	assert_int_equal(e.kind, ERR_EXISTS);
	assert_int_equal(store_set_bad(s, row.seq, &e), 0);
	assert_int_equal(find(s, &row, "", &got), 1);
	assert_true(got.bad);
	assert_int_equal(store_add_layer(s, &other, NULL, 0, &e), 0);
	assert_int_equal(find(s, &row, "", &got), 1);
	assert_int_equal(got.seq, other.seq);
	assert_false(got.bad);
	store_close(s);
}

static void store_add_layer_fits_inode_numbers_below_4g(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row a = make_row(s, 1, 1000), b = make_row(s, 2, 500);
	struct layer_row c = make_row(s, 3, 4000000000),
			 d = make_row(s, 4, 999);
	struct layer_row huge = make_row(s, 5, 300000000);
	owned(mem) struct digest *gone = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	assert_int_equal(store_add_layer(s, &a, NULL, 0, &e), 0);
	assert_int_equal(store_add_layer(s, &b, NULL, 0, &e), 0);
	assert_int_equal(store_add_layer(s, &c, NULL, 0, &e), 0);
	assert_true(a.ino_base >= 1024);
	assert_true(b.ino_base > a.ino_base + 1000);
	assert_true(c.ino_base > b.ino_base + 500);
	assert_int_equal(store_add_layer(s, &huge, NULL, 0, &e), -1);
	assert_int_equal(e.kind, ERR_NO_SPACE);

	/* The first hole that is large enough is taken again. */
	assert_int_equal(store_drop_layer(s, a.seq, &gone, &n, &e), 0);
	assert_int_equal(store_add_layer(s, &d, NULL, 0, &e), 0);
	assert_int_equal(d.ino_base, a.ino_base);
	assert_true((uint64_t)c.ino_base + c.n_inodes <= UINT32_MAX);
	store_close(s);
}

static void store_drop_layer_returns_bodies_nobody_needs(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row a = make_row(s, 1, 10), b = make_row(s, 2, 10);
	const struct digest ka[] = { digest_of(30), digest_of(10),
				     digest_of(20), digest_of(10) };
	const struct digest kb[] = { digest_of(20) };
	owned(mem) struct digest *all = NULL;
	owned(mem) struct digest *gone = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	assert_int_equal(store_add_layer(s, &a, ka, 4, &e), 0);
	assert_int_equal(store_add_layer(s, &b, kb, 1, &e), 0);
	assert_int_equal(store_all_ckeys(s, &all, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_memory_equal(&all[0], &ka[1], sizeof(all[0]));
	assert_memory_equal(&all[2], &ka[0], sizeof(all[0]));

	assert_int_equal(add_lazy(s, SN, "", "R", a.seq), 0);
	assert_int_equal(store_drop_layer(s, a.seq, &gone, &n, &e), -1);
	assert_int_equal(e.kind, ERR_PRECONDITION);
	{
		owned(snap) struct snap sp = { 0 };
		owned(snap) struct snap was = { 0 };

		assert_int_equal(store_find_ref(s, SN, "", "R", &sp, &e), 1);
		assert_int_equal(store_remove(s, SN, sp.name, &was, &e), 0);
		assert_int_equal(was.seq, a.seq);
	}
	assert_int_equal(store_drop_layer(s, a.seq, &gone, &n, &e), 0);
	assert_int_equal(n, 2);
	assert_memory_equal(&gone[0], &ka[1], sizeof(gone[0]));
	assert_memory_equal(&gone[1], &ka[0], sizeof(gone[0]));
	free(take_ptr(&all));
	assert_int_equal(store_all_ckeys(s, &all, &n, &e), 0);
	assert_int_equal(n, 1);
	store_close(s);
}

static int collect(void *ctx, const char *source)
{
	char *out = ctx;

	(void)snprintf(out + strlen(out), 100 - strlen(out), "%s ", source);
	return 0;
}

static void store_sources_live_as_long_as_a_layer_of_the_blob(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row a = make_row(s, 1, 10), b = make_row(s, 1, 10);
	owned(mem) struct digest *none = NULL;
	char got[100] = "";
	struct err e = ERR_INIT;
	size_t n = 0;

	(void)snprintf(b.parent_chain, sizeof(b.parent_chain), "sha256:p");
	assert_int_equal(store_add_layer(s, &a, NULL, 0, &e), 0);
	assert_int_equal(store_add_layer(s, &b, NULL, 0, &e), 0);
	assert_int_equal(store_add_source(s, &a.blob, "r/b", &e), 0);
	assert_int_equal(store_add_source(s, &a.blob, "r/a", &e), 0);
	assert_int_equal(store_add_source(s, &a.blob, "r/b", &e), 0);
	assert_int_equal(store_sources(s, &a.blob, collect, got, &e), 0);
	assert_string_equal(got, "r/a r/b ");
	assert_int_equal(store_drop_layer(s, a.seq, &none, &n, &e), 0);
	free(take_ptr(&none));
	got[0] = '\0';
	assert_int_equal(store_sources(s, &a.blob, collect, got, &e), 0);
	assert_string_equal(got, "r/a r/b ");
	assert_int_equal(store_drop_layer(s, b.seq, &none, &n, &e), 0);
	got[0] = '\0';
	assert_int_equal(store_sources(s, &a.blob, collect, got, &e), 0);
	assert_string_equal(got, "");
	store_close(s);
}

static void collect_pair(void *ctx, uint32_t seq, uint32_t below)
{
	char *out = ctx;

	(void)snprintf(out + strlen(out), 100 - strlen(out), "%u/%u ", seq,
		       below);
}

static void store_layers_below_looks_through_ordinary_layers(void **state)
{
	struct store *s = open_store(*state);
	struct layer_row a = make_row(s, 1, 10), b = make_row(s, 2, 10),
			 c = make_row(s, 3, 10);
	owned(snap) struct snap base = { 0 };
	char got[100] = "", want[100];
	struct err e = ERR_INIT;

	assert_int_equal(store_add_layer(s, &a, NULL, 0, &e), 0);
	assert_int_equal(store_add_layer(s, &b, NULL, 0, &e), 0);
	assert_int_equal(store_add_layer(s, &c, NULL, 0, &e), 0);
	assert_int_equal(store_layers_below(s, collect_pair, got, &e), 0);
	assert_string_equal(got, "");

	/* a below two ordinary ones below b; c alone; a container on b. */
	assert_int_equal(add_lazy(s, SN, "", "A", a.seq), 0);
	assert_int_equal(store_find_ref(s, SN, "", "A", &base, &e), 1);
	prepare(s, SN, "k1", base.name);
	commit(s, SN, "o1", "k1");
	prepare(s, SN, "k2", "o1");
	commit(s, SN, "o2", "k2");
	assert_int_equal(add_lazy(s, SN, "o2", "B", b.seq), 0);
	assert_int_equal(add_lazy(s, SN, "", "C", c.seq), 0);
	prepare(s, SN, "k3", "o2");
	assert_int_equal(store_layers_below(s, collect_pair, got, &e), 0);
	(void)snprintf(want, sizeof(want), "%u/%u ", b.seq, a.seq);
	assert_string_equal(got, want);
	store_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(store_next_seq_survives_and_never_repeats),
		T(store_add_layer_round_trips),
		T(store_find_layer_wants_the_whole_key),
		T(store_add_layer_fits_inode_numbers_below_4g),
		T(store_drop_layer_returns_bodies_nobody_needs),
		T(store_sources_live_as_long_as_a_layer_of_the_blob),
		T(store_layers_below_looks_through_ordinary_layers),
	};

	return cmocka_run_group_tests_name("store_layer", tests, NULL, NULL);
}
