/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/store: layers, their numbers and bodies, and which row shows a
 * ref. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "snapshotter/store.h"
#include "tests/unit/store_util.h"
#include "tests/unit/tmpdir.h"
#include "verity/sha256.h"

static struct digest digest_of(uint8_t x)
{
	struct digest d;

	memset(d.b, x, sizeof(d.b));
	return d;
}

/* A layer that differs from others by @x. */
static struct layer_row make_row(struct store *s, uint8_t x, uint64_t n_inodes)
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

static uint32_t add_layer(struct store *s, uint8_t x)
{
	struct layer_row row = make_row(s, x, 10);
	struct err e = ERR_INIT;

	if (store_add_layer(s, &row, NULL, 0, &e) < 0)
		fail_msg("store_add_layer: %s", e.msg);
	return row.seq;
}

static int add_lazy(struct store *s, const char *sn, const char *parent,
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
static void holder(struct store *s, const char *parent, const char *ref,
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

static void assert_holder(struct store *s, const char *parent, const char *ref,
			  const char *name)
{
	char got[64];

	holder(s, parent, ref, got, sizeof(got));
	assert_string_equal(got, name);
}

static void assert_has_no_ref(struct store *s, const char *name)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(store_get(s, SN, name, &sp, &e), 0);
	assert_null(labels_get(&sp.labels, LABEL_REF));
}

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

/* ---- the ref rule ---- */

static void store_add_lazy_makes_a_committed_row(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	owned(snap) struct snap sp = { 0 };
	owned(mem) struct snap_link *chain = NULL;
	struct err e = ERR_INIT;
	char name[32];
	uint64_t users = 0;
	size_t n = 0;

	assert_int_equal(add_lazy(s, SN, "", "R", seq), 0);
	assert_int_equal(store_find_ref(s, SN, "", "R", &sp, &e), 1);
	(void)snprintf(name, sizeof(name), "lazy/%llu",
		       (unsigned long long)sp.id);
	assert_string_equal(sp.name, name);
	assert_int_equal(sp.seq, seq);
	assert_int_equal(sp.size, 4096);
	assert_int_equal(sp.inodes, 10);
	assert_string_equal(labels_get(&sp.labels, "containerd.io/snapshot/x"),
			    "y");
	assert_int_equal(store_layer_users(s, seq, &users, &e), 0);
	assert_int_equal(users, 1);
	prepare(s, SN, "top", sp.name);
	assert_int_equal(store_chain(s, SN, "top", &chain, &n, &e), 0);
	assert_int_equal(n, 2);
	assert_int_equal(chain[1].seq, seq);
	store_close(s);
}

static void store_add_lazy_checks_the_parent(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);

	prepare(s, SN, "active", "");
	assert_int_equal(add_lazy(s, SN, "nobody", "R", seq), ERR_NOT_FOUND);
	assert_int_equal(add_lazy(s, SN, "active", "R", seq), ERR_INVALID);
	assert_int_equal(add_lazy(s, SN, "", "R", seq + 1), ERR_INTERNAL);
	store_close(s);
}

static void store_add_lazy_same_layer_exists(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1), other = add_layer(s, 2);

	assert_int_equal(add_lazy(s, SN, "", "R", seq), 0);
	assert_int_equal(add_lazy(s, SN, "", "R", seq), ERR_EXISTS);
	/* Neither is proven: first come, first served. */
	assert_int_equal(add_lazy(s, SN, "", "R", other), ERR_PRECONDITION);
	/* Another snapshotter, another ref: other questions. */
	assert_int_equal(add_lazy(s, "stargz", "", "R", other), 0);
	assert_int_equal(add_lazy(s, SN, "", "Q", other), 0);
	store_close(s);
}

static void store_find_ref_tells_parents_apart(void **state)
{
	struct store *s = open_store(*state);
	uint32_t one = add_layer(s, 1), two = add_layer(s, 2);
	char a[64], b[64];

	prepare(s, SN, "x", "");
	commit(s, SN, "base", "x");
	assert_int_equal(add_lazy(s, SN, "", "R", one), 0);
	assert_holder(s, "base", "R", "");
	assert_int_equal(add_lazy(s, SN, "base", "R", two), 0);
	holder(s, "", "R", a, sizeof(a));
	holder(s, "base", "R", b, sizeof(b));
	assert_true(*a && *b);
	assert_string_not_equal(a, b);
	assert_holder(s, "nobody", "R", "");
	store_close(s);
}

static void store_commit_takes_the_ref_from_an_unproven_layer(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	char lazy[64];

	assert_int_equal(add_lazy(s, SN, "", "R", seq), 0);
	holder(s, "", "R", lazy, sizeof(lazy));
	prepare_ref(s, SN, "k", "", "R");
	assert_holder(s, "", "R", lazy); /* an active row shows nothing */
	commit_ref(s, SN, "own", "k", "R");
	assert_holder(s, "", "R", "own");
	assert_has_no_ref(s, lazy);
	/* …and a lazy row never takes it back. */
	assert_int_equal(add_lazy(s, SN, "", "R", seq), ERR_EXISTS);
	assert_holder(s, "", "R", "own");
	store_close(s);
}

/* The stream of layer @seq has a diff id of @n's. */
static struct claims prove(struct store *s, uint32_t seq, uint8_t n)
{
	struct digest d = { { n } };
	struct claims c = { 0 };
	struct err e = ERR_INIT;

	if (store_set_proven(s, seq, &d, &c, &e) < 0)
		fail_msg("store_set_proven: %s", e.msg);
	return c;
}

/* The chain id of diff id @n, alone or above @parent. */
static struct digest_str chain(const char *parent, uint8_t n)
{
	struct digest d = { { n } };
	char both[160];
	int len = snprintf(both, sizeof(both), "%s %s", parent ? parent : "",
			   digest_str(&d).s);

	if (parent)
		assert_int_equal(sha256_buf(both, (size_t)len, &d), 0);
	return digest_str(&d);
}

static void store_commit_leaves_the_ref_with_a_proven_layer(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	struct digest_str r = chain(NULL, 7);
	char lazy[64];

	assert_int_equal(add_lazy(s, SN, "", r.s, seq), 0);
	prove(s, seq, 7);
	holder(s, "", r.s, lazy, sizeof(lazy));
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "own", "k", r.s);
	assert_holder(s, "", r.s, lazy);
	assert_has_no_ref(s, "own");
	/* Two that were unpacked: the first keeps it. */
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "a", "k", "Q");
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "b", "k", "Q");
	assert_holder(s, "", "Q", "a");
	assert_has_no_ref(s, "b");
	store_close(s);
}

static void store_add_lazy_of_a_proven_layer_takes_the_ref(void **state)
{
	struct store *s = open_store(*state);
	uint32_t weak = add_layer(s, 1), strong = add_layer(s, 2);
	struct digest_str r = chain(NULL, 7), top = chain(r.s, 7);
	char first[64], second[64];
	bool trusted = false, fits = false;
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	(void)prove(s, strong, 7);
	assert_int_equal(add_lazy(s, SN, "", r.s, weak), 0);
	holder(s, "", r.s, first, sizeof(first));
	assert_int_equal(add_lazy(s, SN, "", r.s, strong), 0);
	holder(s, "", r.s, second, sizeof(second));
	assert_string_not_equal(first, second);
	assert_has_no_ref(s, first);
	assert_int_equal(store_get(s, SN, second, &sp, &e), 0);
	assert_int_equal(store_snap_is_trusted(s, sp.id, &trusted, &e), 0);
	assert_true(trusted);
	/* It may lie above itself; what is true there is another ref. */
	assert_int_equal(
		store_claim_fits(s, strong, SN, second, top.s, &fits, &e), 0);
	assert_true(fits);
	assert_int_equal(add_lazy(s, SN, second, r.s, strong),
			 ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, second, top.s, weak), 0);
	assert_int_equal(add_lazy(s, SN, second, top.s, strong), 0);
	/* Under any other ref the same layer is a lie, held or not. */
	assert_int_equal(add_lazy(s, SN, "", "Q", strong), ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, "", "Q", weak), 0);
	assert_int_equal(store_claim_fits(s, strong, SN, "", "Q", &fits, &e),
			 0);
	assert_false(fits);
	store_close(s);
}

static void store_set_proven_hides_only_what_is_false(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	struct digest_str r = chain(NULL, 7);
	struct layer_row row;
	struct claims c;
	struct err e = ERR_INIT;
	char good[64], lie[64];

	assert_int_equal(add_lazy(s, SN, "", r.s, seq), 0);
	assert_int_equal(add_lazy(s, SN, "", "victim's", seq), 0);
	holder(s, "", r.s, good, sizeof(good));
	holder(s, "", "victim's", lie, sizeof(lie));
	c = prove(s, seq, 7);
	assert_int_equal(c.n_true, 1);
	assert_int_equal(c.n_false, 1);
	assert_string_equal(c.claimed, "victim's");
	assert_string_equal(c.found, r.s);
	assert_holder(s, "", r.s, good);
	assert_has_no_ref(s, lie);
	assert_int_equal(store_get_layer(s, seq, &row, &e), 1);
	assert_int_equal(row.proof, PROOF_PROVEN);
	assert_int_equal(row.diff_id.b[0], 7);
	assert_false(row.bad);
	store_close(s);
}

/* The layer is what it is, but nobody says so: its users must not run it. */
static void store_set_proven_of_lies_only_is_a_quarantine(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	struct digest_str r = chain(NULL, 7);
	owned(snap) struct snap sp = { 0 };
	struct layer_row row;
	struct err e = ERR_INIT;
	char lie[64];

	assert_int_equal(add_lazy(s, SN, "", "victim's", seq), 0);
	holder(s, "", "victim's", lie, sizeof(lie));
	assert_int_equal(prove(s, seq, 7).n_true, 0);
	assert_has_no_ref(s, lie);
	assert_int_equal(store_get_layer(s, seq, &row, &e), 1);
	assert_int_equal(row.proof, PROOF_PROVEN);
	assert_true(row.bad);
	/* No new use above it, but it stays in sight. */
	assert_create(s, SN, "container", lie, ERR_PRECONDITION);
	assert_int_equal(store_get(s, SN, lie, &sp, &e), 0);
	assert_int_equal(add_lazy(s, SN, "", "victim's", seq),
			 ERR_PRECONDITION);
	/* Who tells the truth gets a new layer of the same blob, and who lies
	 * again is known by it. */
	seq = add_layer(s, 1);
	assert_int_equal(add_lazy(s, SN, "", "victim's", seq),
			 ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, "", r.s, seq), 0);
	store_close(s);
}

static void store_set_proven_waits_for_the_parents_name(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	struct digest_str base = chain(NULL, 3), top;
	char named[128];
	struct claims c;

	/* Neither a ref nor a name that tells the chain id. */
	prepare(s, SN, "k", "");
	commit(s, SN, "nameless", "k");
	assert_int_equal(add_lazy(s, SN, "nameless", "R", seq), 0);
	c = prove(s, seq, 7);
	assert_int_equal(c.n_unknown, 1);
	assert_int_equal(c.n_true + c.n_false, 0);
	/* containerd's names end in it. */
	(void)snprintf(named, sizeof(named), "default/4/%s", base.s);
	prepare(s, SN, "k", "");
	commit(s, SN, named, "k");
	top = chain(base.s, 7);
	assert_int_equal(add_lazy(s, SN, named, top.s, seq), 0);
	assert_int_equal(add_lazy(s, SN, named, "Q", seq), ERR_PRECONDITION);
	assert_int_equal(prove(s, seq, 7).n_true, 1);
	store_close(s);
}

static void store_set_proof_failed_hides_the_ref_at_once(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1), other = add_layer(s, 2);
	struct layer_row row;
	struct err e = ERR_INIT;
	char lazy[64];

	assert_int_equal(add_lazy(s, SN, "", "R", seq), 0);
	holder(s, "", "R", lazy, sizeof(lazy));
	assert_int_equal(store_set_proof(s, seq, PROOF_FAILED, &e), 0);
	assert_holder(s, "", "R", "");
	assert_has_no_ref(s, lazy);
	assert_int_equal(store_get_layer(s, seq, &row, &e), 1);
	assert_int_equal(row.proof, PROOF_FAILED);
	assert_true(row.bad);
	assert_int_equal(add_lazy(s, SN, "", "R", seq), ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, "", "R", other), 0);
	store_close(s);
}

static int update_ref(struct store *s, const char *name, const char *ref)
{
	static const char *const path = "labels." LABEL_REF;
	owned(labels) struct labels l = { 0 };
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(labels_set(&l, LABEL_REF, ref), 0);
	return store_update(s, SN, name, &l, &path, 1, &sp, &e);
}

static void store_update_moves_the_ref_with_its_label(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);

	prepare(s, SN, "k", "");
	commit_ref(s, SN, "a", "k", "R");
	assert_int_equal(update_ref(s, "a", "Q"), 0);
	assert_holder(s, "", "R", "");
	assert_holder(s, "", "Q", "a");
	assert_int_equal(update_ref(s, "a", "Q"), 0);
	assert_holder(s, "", "Q", "a");
	assert_int_equal(update_ref(s, "a", NULL), 0);
	assert_holder(s, "", "Q", "");
	assert_has_no_ref(s, "a");
	/* An update cannot take what commit could not. */
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "b", "k", "Q");
	assert_int_equal(update_ref(s, "a", "Q"), 0);
	assert_holder(s, "", "Q", "b");
	assert_has_no_ref(s, "a");
	/* The label of an active row is just a label. */
	assert_int_equal(add_lazy(s, SN, "", "Z", seq), 0);
	prepare(s, SN, "act", "");
	assert_int_equal(update_ref(s, "act", "Z"), 0);
	store_close(s);
}

static void store_remove_frees_the_ref(void **state)
{
	struct store *s = open_store(*state);
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;
	uint32_t seq = add_layer(s, 1);

	prepare(s, SN, "k", "");
	commit_ref(s, SN, "a", "k", "R");
	assert_int_equal(store_remove(s, SN, "a", &sp, &e), 0);
	assert_int_equal(add_lazy(s, SN, "", "R", seq), 0);
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
		T(store_add_lazy_makes_a_committed_row),
		T(store_add_lazy_checks_the_parent),
		T(store_add_lazy_same_layer_exists),
		T(store_find_ref_tells_parents_apart),
		T(store_commit_takes_the_ref_from_an_unproven_layer),
		T(store_commit_leaves_the_ref_with_a_proven_layer),
		T(store_add_lazy_of_a_proven_layer_takes_the_ref),
		T(store_set_proven_hides_only_what_is_false),
		T(store_set_proven_of_lies_only_is_a_quarantine),
		T(store_set_proven_waits_for_the_parents_name),
		T(store_set_proof_failed_hides_the_ref_at_once),
		T(store_update_moves_the_ref_with_its_label),
		T(store_remove_frees_the_ref),
	};

	return cmocka_run_group_tests_name("store_layer", tests, NULL, NULL);
}
