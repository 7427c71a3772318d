/* SPDX-License-Identifier: Apache-2.0 */
/* snapshotter/store_ref and store_proof: which row shows a ref, and whose claim
 * is true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/store_layers.h"
#include "tests/unit/tmpdir.h"

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
	bool trusted = false;
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
	assert_int_equal(add_lazy(s, SN, second, r.s, strong),
			 ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, second, top.s, weak), 0);
	assert_int_equal(add_lazy(s, SN, second, top.s, strong), 0);
	/* Under any other ref the same layer is a lie, held or not. */
	assert_int_equal(add_lazy(s, SN, "", "Q", strong), ERR_PRECONDITION);
	assert_int_equal(add_lazy(s, SN, "", "Q", weak), 0);
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

/* ---- whose claim is false ---- */

/* The layer serves somebody who tells the truth, so it is not bad; a row that
 * lies about it is, all the same. */
static void store_create_refuses_a_false_claim_on_a_good_layer(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	struct digest_str r = chain(NULL, 7), above = chain("victim's", 8);
	char good[64], lie[64];

	assert_int_equal(add_lazy(s, SN, "", r.s, seq), 0);
	assert_int_equal(add_lazy(s, SN, "", "victim's", seq), 0);
	holder(s, "", r.s, good, sizeof(good));
	holder(s, "", "victim's", lie, sizeof(lie));
	prepare(s, SN, "before", lie); /* nobody knows yet */
	assert_int_equal(add_lazy(s, SN, lie, above.s, add_layer(s, 2)), 0);
	assert_int_equal(prove(s, seq, 7).n_true, 1);
	prepare(s, SN, "fine", good);
	assert_create(s, SN, "container", lie, ERR_PRECONDITION);
	holder(s, lie, above.s, good, sizeof(good));
	assert_create(s, SN, "container", good, ERR_PRECONDITION);
	store_close(s);
}

/* ---- getting a ref back ---- */

static void drop(struct store *s, const char *name)
{
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;

	if (store_remove(s, SN, name, &sp, &e) < 0)
		fail_msg("store_remove '%s': %s", name, e.msg);
}

/* A lazy row of layer @seq, which an unpacked one named "own" has taken @ref
 * from. */
static void hide(struct store *s, uint32_t seq, const char *ref, char *lazy,
		 size_t size)
{
	assert_int_equal(add_lazy(s, SN, "", ref, seq), 0);
	holder(s, "", ref, lazy, size);
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "own", "k", ref);
	assert_holder(s, "", ref, "own");
}

static void store_remove_gives_the_ref_back(void **state)
{
	struct store *s = open_store(*state);
	uint32_t seq = add_layer(s, 1);
	char lazy[64];

	hide(s, seq, "R", lazy, sizeof(lazy));
	store_close(s);
	s = open_store(*state); /* it is remembered */
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "later", "k", "R");
	assert_has_no_ref(s, "later");
	/* Who can be trusted comes first, though it came later. */
	drop(s, "own");
	assert_holder(s, "", "R", "later");
	drop(s, "later");
	assert_holder(s, "", "R", lazy);
	assert_int_equal(add_lazy(s, SN, "", "R", seq), ERR_EXISTS);
	drop(s, lazy);
	assert_holder(s, "", "R", "");
	store_close(s);
}

static void store_remove_gives_no_ref_to_a_bad_layer(void **state)
{
	struct store *s = open_store(*state);
	uint32_t damaged = add_layer(s, 1), liar = add_layer(s, 2);
	struct digest_str r = chain(NULL, 7);
	struct err e = ERR_INIT;
	char lazy[64];

	hide(s, damaged, "R", lazy, sizeof(lazy));
	assert_int_equal(store_set_bad(s, damaged, &e), 0);
	drop(s, "own");
	assert_holder(s, "", "R", "");
	hide(s, liar, "Q", lazy, sizeof(lazy));
	assert_int_equal(add_lazy(s, SN, "", r.s, liar), 0);
	assert_int_equal(prove(s, liar, 7).n_false, 1);
	drop(s, "own");
	assert_holder(s, "", "Q", "");
	assert_has_no_ref(s, lazy);
	store_close(s);
}

/* Somebody may have been told of the one that was proven, and asks for the list
 * now: it must not name an unproven one. */
static void store_set_bad_gives_the_ref_to_the_trusted_only(void **state)
{
	struct store *s = open_store(*state);
	uint32_t weak = add_layer(s, 1), strong = add_layer(s, 2);
	struct digest_str r = chain(NULL, 7);
	struct err e = ERR_INIT;
	char first[64], second[64];

	assert_int_equal(add_lazy(s, SN, "", r.s, weak), 0);
	holder(s, "", r.s, first, sizeof(first));
	(void)prove(s, strong, 7);
	assert_int_equal(add_lazy(s, SN, "", r.s, strong), 0);
	holder(s, "", r.s, second, sizeof(second));
	assert_string_not_equal(first, second);
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "own", "k", r.s);
	assert_has_no_ref(s, "own");
	assert_int_equal(store_set_bad(s, strong, &e), 0);
	assert_holder(s, "", r.s, "own");
	assert_has_no_ref(s, second);
	/* The label goes by an update: the same. */
	assert_int_equal(update_ref(s, "own", NULL), 0);
	assert_holder(s, "", r.s, "");
	/* The proof tells that the claim is true: now it may. */
	assert_int_equal(prove(s, weak, 7).n_true, 1);
	assert_holder(s, "", r.s, first);
	store_close(s);
}

static void store_set_proven_takes_back_from_the_unproven(void **state)
{
	struct store *s = open_store(*state);
	uint32_t mine = add_layer(s, 1), other = add_layer(s, 2);
	struct digest_str r = chain(NULL, 7);
	char lazy[64], name[64];

	hide(s, mine, r.s, lazy, sizeof(lazy));
	assert_int_equal(update_ref(s, "own", NULL), 0);
	assert_int_equal(add_lazy(s, SN, "", r.s, other), 0);
	holder(s, "", r.s, name, sizeof(name));
	(void)prove(s, mine, 7);
	assert_holder(s, "", r.s, lazy);
	assert_has_no_ref(s, name);
	store_close(s);
}

static void store_update_that_drops_the_label_is_for_good(void **state)
{
	static const char *const other = "labels.x";
	struct store *s = open_store(*state);
	owned(labels) struct labels none = { 0 };
	owned(snap) struct snap sp = { 0 };
	struct err e = ERR_INIT;
	char lazy[64];

	hide(s, add_layer(s, 1), "R", lazy, sizeof(lazy));
	/* This one does not speak of the ref. */
	assert_int_equal(store_update(s, SN, lazy, &none, &other, 1, &sp, &e),
			 0);
	drop(s, "own");
	assert_holder(s, "", "R", lazy);
	prepare(s, SN, "k", "");
	commit_ref(s, SN, "own", "k", "R");
	assert_int_equal(update_ref(s, lazy, NULL), 0);
	drop(s, "own");
	assert_holder(s, "", "R", "");
	store_close(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		T(store_create_refuses_a_false_claim_on_a_good_layer),
		T(store_remove_gives_the_ref_back),
		T(store_remove_gives_no_ref_to_a_bad_layer),
		T(store_set_bad_gives_the_ref_to_the_trusted_only),
		T(store_set_proven_takes_back_from_the_unproven),
		T(store_update_that_drops_the_label_is_for_good),
	};

	return cmocka_run_group_tests_name("store_ref", tests, NULL, NULL);
}
