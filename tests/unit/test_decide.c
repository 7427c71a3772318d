/* SPDX-License-Identifier: Apache-2.0 */
/* decide.c: what Prepare answers. A real store; the layers are the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "snapshotter/decide.h"
#include "snapshotter/seal.h"
#include "tests/unit/store_util.h"
#include "tests/unit/tmpdir.h"

#define REF \
	"sha256:1111111111111111111111111111111111111111111111111111111111111111"
#define BLOB \
	"sha256:2222222222222222222222222222222222222222222222222222222222222222"
#define TOC \
	"sha256:3333333333333333333333333333333333333333333333333333333333333333"
#define OTHER \
	"sha256:4444444444444444444444444444444444444444444444444444444444444444"
#define STARGZ "containerd.io/snapshot/remote/stargz."
#define IMAGE "reg.test:5000/app:1"

/* ---- the layers ---- */

static struct fake {
	int answer; /* of layers_want() */
	struct err why;
	struct layer_row row;
	struct layer_waiter *waiter;
	bool fits;
	unsigned n_wants, n_used, n_notes, n_proofs;
	struct proof_waiter *prover;
	bool proven_at_once;
	struct store *store;
	bool damaged; /* so finds layers_check() */
	unsigned n_checks;
	const char *unsealed; /* why nothing is sealed */
	uint32_t used;
	char note[240];
} fake;

int layers_want(struct layers *ls, const struct layer_want *lw,
		struct layer_waiter *w, struct layer_row *row, struct err *e)
{
	(void)ls;
	fake.n_wants++;
	assert_string_equal(digest_str(&lw->desc.blob).s, BLOB);
	assert_string_equal(digest_str(&lw->desc.toc).s, TOC);
	assert_string_equal(lw->ref.host, "reg.test:5000");
	assert_string_equal(lw->image, IMAGE);
	assert_true(lw->below_known);
	if (fake.answer == 0)
		fake.waiter = w;
	if (fake.answer == 1)
		*row = fake.row;
	if (fake.answer < 0)
		*e = fake.why;
	return fake.answer;
}

int layers_check(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct err *e)
{
	(void)ls;
	(void)lw;
	(void)e;
	fake.n_checks++;
	if (fake.damaged)
		assert_int_equal(store_set_bad(fake.store, seq, NULL), 0);
	return !fake.damaged;
}

bool layers_cancel(struct layers *ls, struct layer_waiter *w)
{
	bool mine = fake.waiter == w;

	(void)ls;
	fake.waiter = NULL;
	return mine;
}

int layers_prove(struct layers *ls, const struct layer_want *lw, uint32_t seq,
		 struct proof_waiter *w)
{
	(void)ls;
	(void)lw;
	fake.n_proofs++;
	assert_int_equal(seq, fake.row.seq);
	if (fake.proven_at_once)
		return 1;
	fake.prover = w;
	return 0;
}

bool layers_prove_cancel(struct layers *ls, struct proof_waiter *w)
{
	bool mine = fake.prover == w;

	(void)ls;
	fake.prover = NULL;
	return mine;
}

void layers_progress(struct layers *ls, uint32_t seq, char *buf, size_t size)
{
	(void)ls;
	assert_int_equal(seq, fake.row.seq);
	(void)snprintf(buf, size, "5 of 7 bytes are here");
}

static void proof_ends(void)
{
	struct proof_waiter *w = fake.prover;

	assert_non_null(w);
	fake.prover = NULL;
	w->done(w);
}

static void job_ends(const struct layer_row *row, const struct err *e)
{
	struct layer_waiter *w = fake.waiter;

	assert_non_null(w);
	fake.waiter = NULL;
	w->done(w, row, e);
}

bool layer_row_fits(const struct layer_row *row, const struct layer_want *lw)
{
	(void)row;
	(void)lw;
	return fake.fits;
}

void layers_used(struct layers *ls, uint32_t seq)
{
	(void)ls;
	fake.n_used++;
	fake.used = seq;
}

void layers_note_fallback(struct layers *ls, const struct digest *blob,
			  const char *image, uint64_t size, const char *reason)
{
	(void)ls;
	(void)size;
	fake.n_notes++;
	assert_string_equal(digest_str(blob).s, BLOB);
	assert_string_equal(image, IMAGE);
	(void)snprintf(fake.note, sizeof(fake.note), "%s", reason);
}

void layers_why_unsealed(struct layers *ls, char *buf, size_t size)
{
	(void)ls;
	(void)snprintf(buf, size, "%s", fake.unsealed ? fake.unsealed : "");
}

bool layers_is_news(struct layers *ls, const struct digest *d, unsigned ms)
{
	(void)ls;
	(void)d;
	(void)ms;
	return false;
}

int layers_add_job(struct layers *ls, const char *host, struct host_job *j)
{
	(void)ls;
	(void)host;
	(void)j;
	return -ECANCELED;
}

/* ---- a request ---- */

struct world {
	char *dir;
	struct decide_env env;
	struct labels labels;
	struct prepare_req rq;
	struct prepare_op *op;
	struct err e;
	int n_ready;
};

static void label(struct world *w, const char *key, const char *value)
{
	assert_int_equal(labels_set(&w->labels, key, value), 0);
}

static uint32_t add_layer(struct world *w, const char *blob, const char *toc,
			  struct layer_row *row)
{
	memset(row, 0, sizeof(*row));
	assert_int_equal(digest_parse(blob, &row->blob), 0);
	assert_int_equal(digest_parse(toc, &row->toc), 0);
	row->format = FORMAT_ESTARGZ;
	row->writer = BUILDER_VERSION;
	row->size = 1000;
	row->n_inodes = 3;
	(void)snprintf(row->image, sizeof(row->image), IMAGE);
	assert_int_equal(store_next_seq(w->env.store, &row->seq, &w->e), 0);
	if (store_add_layer(w->env.store, row, NULL, 0, &w->e) < 0)
		fail_msg("store_add_layer: %s", w->e.msg);
	return row->seq;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	*state = w;
	assert_int_equal(tmpdir_setup((void **)&w->dir), 0);
	memset(&fake, 0, sizeof(fake));
	fake.fits = true;
	fake.store = w->env.store = open_store(w->dir);
	label(w, LABEL_REF, REF);
	label(w, STARGZ "reference", IMAGE);
	label(w, STARGZ "digest", BLOB);
	label(w, LABEL_TOC_DIGEST, TOC);
	w->rq = (struct prepare_req){
		.sn = SN, .key = "extract", .parent = "", .labels = &w->labels
	};
	(void)add_layer(w, BLOB, TOC, &fake.row);
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	decide_free(w->op);
	labels_release(&w->labels);
	store_close(w->env.store);
	assert_int_equal(tmpdir_teardown((void **)&w->dir), 0);
	free(w);
	return 0;
}

static void ready(void *ctx)
{
	((struct world *)ctx)->n_ready++;
}

static int decide(struct world *w)
{
	memset(&w->e, 0, sizeof(w->e));
	return decide_prepare(&w->env, &w->rq, ready, w, &w->op, &w->e);
}

static int finish(struct world *w)
{
	const struct prepare_req *rq;

	memset(&w->e, 0, sizeof(w->e));
	assert_int_equal(w->n_ready, 1);
	int r = decide_finish(w->op, &rq, &w->e);

	assert_string_equal(rq->key, "extract");
	assert_string_equal(labels_get(rq->labels, LABEL_REF), REF);
	return r;
}

static void assert_lazy(struct world *w, int r)
{
	struct snap row;

	assert_int_equal(r, -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_notes, 0);
	assert_int_equal(fake.n_used, 1);
	assert_int_equal(fake.used, fake.row.seq);
	/* containerd will find it by List, and it is durable by now */
	assert_int_equal(store_find_ref(w->env.store, SN, "", REF, &row, &w->e),
			 1);
	assert_int_equal(row.seq, fake.row.seq);
	snap_release(&row);
}

static void assert_ordinary(int r, const char *reason)
{
	assert_int_equal(r, 0);
	assert_int_equal(fake.n_used, 0);
	assert_int_equal(fake.n_notes, reason ? 1 : 0);
	if (reason && !strstr(fake.note, reason))
		fail_msg("'%s' is not '%s'", fake.note, reason);
}

/* ---- what is never lazy ---- */

static void prepare_without_a_ref_is_ordinary(void **state)
{
	struct world *w = *state;

	label(w, LABEL_REF, NULL);
	assert_ordinary(decide(w), NULL);
	assert_int_equal(fake.n_wants, 0);
}

static void views_and_never_lazy_are_ordinary(void **state)
{
	struct world *w = *state;

	fake.answer = 1;
	w->rq.view = true;
	assert_ordinary(decide(w), NULL);
	w->rq.view = false;
	w->env.policy = POLICY_NEVER_LAZY;
	assert_ordinary(decide(w), NULL);
	assert_int_equal(fake.n_wants, 0);
}

static void labels_that_say_too_little_give_the_reason(void **state)
{
	struct world *w = *state;

	label(w, LABEL_TOC_DIGEST, NULL);
	assert_ordinary(decide(w), "no TOC digest");
	/* an ordinary client: nobody expects anything */
	fake.n_notes = 0;
	label(w, STARGZ "reference", NULL);
	label(w, STARGZ "digest", NULL);
	assert_ordinary(decide(w), NULL);
	label(w, STARGZ "digest", "sha256:short");
	assert_ordinary(decide(w), NULL);
	assert_int_equal(fake.n_wants, 0);
}

static void without_a_view_the_reason_is_told(void **state)
{
	struct world *w = *state;

	w->env.off_reason = "no /dev/fuse";
	assert_ordinary(decide(w), "no /dev/fuse");
}

/* ---- verity = "require" ---- */

static void require_refuses_what_is_new_and_cannot_be_sealed(void **state)
{
	struct world *w = *state;

	fake.answer = 1;
	w->env.require_verity = true;
	fake.unsealed = "Operation not supported: " SEALING_NEEDS;
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_PRECONDITION);
	assert_non_null(strstr(w->e.msg, "tune2fs -O verity"));
	assert_non_null(strstr(w->e.msg, "CONFIG_FS_VERITY"));
	assert_non_null(strstr(w->e.msg, "file system of its own"));
	assert_non_null(strstr(fake.note, "tune2fs -O verity"));
	assert_int_equal(fake.n_wants, 0);
	/* what nobody expects to be lazy is ordinary as ever */
	fake.n_notes = 0;
	label(w, LABEL_TOC_DIGEST, NULL);
	assert_ordinary(decide(w), "no TOC digest");
}

static void
require_keeps_what_is_there_and_takes_what_can_be_sealed(void **state)
{
	struct world *w = *state;

	fake.answer = 1;
	w->env.require_verity = true;
	assert_lazy(w, decide(w));
	fake.unsealed = "no fs-verity";
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_wants, 1);
	/* without it nobody asks */
	w->env.require_verity = false;
	label(w, LABEL_REF, OTHER);
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_wants, 2);
}

/* ---- the layer ---- */

static void a_ready_layer_is_committed_at_once(void **state)
{
	struct world *w = *state;

	fake.answer = 1;
	assert_lazy(w, decide(w));
	assert_int_equal(w->n_ready, 0);
	/* the same again finds the row and asks for no layer */
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_wants, 1);
}

static void a_job_that_ends_well_is_committed(void **state)
{
	struct world *w = *state;

	assert_int_equal(decide(w), 1);
	assert_int_equal(w->n_ready, 0);
	job_ends(&fake.row, &w->e);
	assert_lazy(w, finish(w));
	/* the timer comes too late and changes nothing */
	decide_expire(w->op);
	assert_int_equal(w->n_ready, 1);
}

static void a_job_that_fails_gives_its_reason(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;

	assert_int_equal(decide(w), 1);
	(void)err_set(&e, ERR_DENIED, "403 from reg.test");
	job_ends(NULL, &e);
	assert_ordinary(finish(w), "403 from reg.test");
}

static void a_budget_that_ends_gives_ordinary_mounts(void **state)
{
	struct world *w = *state;

	assert_int_equal(decide(w), 1);
	decide_expire(w->op);
	decide_expire(w->op);
	assert_ordinary(finish(w), "budget");
}

/* ---- proof = "before-run" ---- */

/* Its diff id is that of REF. */
static void set_proven(struct world *w)
{
	struct claims c;
	struct digest d;

	assert_int_equal(digest_parse(REF, &d), 0);
	assert_int_equal(
		store_set_proven(w->env.store, fake.row.seq, &d, &c, &w->e), 0);
}

static void before_run_waits_for_the_proof(void **state)
{
	struct world *w = *state;

	w->env.prove_before_run = true;
	assert_int_equal(decide(w), 1);
	job_ends(&fake.row, &w->e);
	assert_int_equal(fake.n_proofs, 1);
	assert_int_equal(w->n_ready, 0);
	set_proven(w);
	proof_ends();
	assert_lazy(w, finish(w));
}

static void a_damaged_layer_leaves_its_ref_to_a_new_one(void **state)
{
	struct world *w = *state;
	struct layer_row old;

	fake.answer = 1;
	assert_lazy(w, decide(w));
	assert_int_equal(fake.n_wants, 1);
	/* sound: the row that is there will do */
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_checks, 1);
	assert_int_equal(fake.n_wants, 1);
	/* damaged: asked for anew, and found under another number */
	fake.damaged = true;
	old = fake.row;
	assert_int_equal(store_set_bad(w->env.store, old.seq, &w->e), 0);
	(void)add_layer(w, BLOB, TOC, &fake.row);
	fake.n_used = 0;
	assert_lazy(w, decide(w));
	assert_int_not_equal(fake.row.seq, old.seq);
	assert_int_equal(fake.n_wants, 2);
}

static void before_run_asks_a_ready_layer_for_its_proof(void **state)
{
	struct world *w = *state;

	w->env.prove_before_run = true;
	fake.answer = 1;
	fake.proven_at_once = true;
	set_proven(w);
	assert_lazy(w, decide(w));
	assert_int_equal(fake.n_proofs, 1);
	assert_int_equal(w->n_ready, 0);
}

static void before_run_tells_the_progress_when_the_budget_ends(void **state)
{
	struct world *w = *state;

	w->env.prove_before_run = true;
	fake.answer = 1;
	assert_int_equal(decide(w), 1);
	decide_expire(w->op);
	decide_expire(w->op);
	assert_int_equal(finish(w), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(w->e.msg, "5 of 7 bytes are here"));
	assert_int_equal(fake.n_used, 0);
	assert_int_equal(fake.n_notes, 0);
}

/* The timer between the end of the job and the wait for the proof. */
static void before_run_expires_between_two_waits(void **state)
{
	struct world *w = *state;
	struct layer_waiter *job;

	w->env.prove_before_run = true;
	assert_int_equal(decide(w), 1);
	job = fake.waiter;
	fake.waiter = NULL;
	decide_expire(w->op);
	assert_int_equal(w->n_ready, 0);
	job->done(job, &fake.row, &w->e);
	assert_int_equal(finish(w), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
}

static void before_run_serves_no_lie(void **state)
{
	struct world *w = *state;

	w->env.prove_before_run = true;
	fake.answer = 1;
	assert_int_equal(decide(w), 1);
	assert_int_equal(store_set_proof(w->env.store, fake.row.seq,
					 PROOF_FAILED, &w->e),
			 0);
	proof_ends();
	assert_ordinary(finish(w), "quarantine");
}

/* A row that is there from before the setting, or from a run without it. */
static void before_run_does_not_trust_an_unproven_row(void **state)
{
	struct world *w = *state;

	fake.answer = 1;
	assert_lazy(w, decide(w));
	w->env.prove_before_run = true;
	assert_int_equal(decide(w), 1);
	decide_expire(w->op);
	assert_int_equal(finish(w), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
}

static void a_job_that_cannot_start_gives_its_reason(void **state)
{
	struct world *w = *state;

	fake.answer = -1;
	(void)err_set(&fake.why, ERR_CORRUPT, "layer is in quarantine");
	assert_ordinary(decide(w), "quarantine");
}

static void a_layer_above_another_parent_is_ordinary(void **state)
{
	struct world *w = *state;

	assert_int_equal(decide(w), 1);
	fake.fits = false;
	job_ends(&fake.row, &w->e);
	assert_ordinary(finish(w), "another parent");
}

static void a_layer_that_was_swept_meanwhile_is_ordinary(void **state)
{
	struct world *w = *state;
	struct digest *ckeys = NULL;
	size_t n;

	assert_int_equal(decide(w), 1);
	assert_int_equal(
		store_drop_layer(w->env.store, fake.row.seq, &ckeys, &n, &w->e),
		0);
	free(ckeys);
	job_ends(&fake.row, &w->e);
	assert_ordinary(finish(w), "removed as unused");
}

static void require_lazy_makes_the_reason_an_error(void **state)
{
	struct world *w = *state;

	w->env.policy = POLICY_REQUIRE_LAZY;
	assert_int_equal(decide(w), 1);
	decide_expire(w->op);
	assert_int_equal(finish(w), -1);
	assert_int_equal(w->e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(w->e.msg, "budget"));
	assert_int_equal(fake.n_notes, 1);
}

static void a_parent_that_does_not_exist_is_an_error(void **state)
{
	struct world *w = *state;

	w->rq.parent = "nobody";
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_NOT_FOUND);
}

/* ---- who holds the ref ---- */

static void a_ref_that_containerd_unpacked_is_enough(void **state)
{
	struct world *w = *state;

	(void)prepare_ref(w->env.store, SN, "k", "", REF);
	commit_ref(w->env.store, SN, "done", "k", REF);
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_wants, 0);
}

static void a_ref_held_by_another_unproven_layer_is_ordinary(void **state)
{
	struct world *w = *state;
	struct layer_row other;

	(void)add_layer(w, OTHER, TOC, &other);
	assert_int_equal(store_add_lazy(w->env.store, SN, "", REF, &w->labels,
					other.seq, 1, 1, &w->e),
			 0);
	assert_ordinary(decide(w), "unproven layer");
	/* Of another plugin name it is no business. */
	w->rq.sn = "stargz";
	fake.answer = 1;
	fake.n_notes = 0;
	assert_int_equal(decide(w), -1);
	assert_int_equal(w->e.kind, ERR_EXISTS);
	assert_int_equal(fake.n_used, 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(prepare_without_a_ref_is_ordinary),
		T(views_and_never_lazy_are_ordinary),
		T(labels_that_say_too_little_give_the_reason),
		T(without_a_view_the_reason_is_told),
		T(require_refuses_what_is_new_and_cannot_be_sealed),
		T(require_keeps_what_is_there_and_takes_what_can_be_sealed),
		T(a_ready_layer_is_committed_at_once),
		T(a_job_that_ends_well_is_committed),
		T(a_job_that_fails_gives_its_reason),
		T(a_budget_that_ends_gives_ordinary_mounts),
		T(before_run_waits_for_the_proof),
		T(a_damaged_layer_leaves_its_ref_to_a_new_one),
		T(before_run_asks_a_ready_layer_for_its_proof),
		T(before_run_tells_the_progress_when_the_budget_ends),
		T(before_run_expires_between_two_waits),
		T(before_run_serves_no_lie),
		T(before_run_does_not_trust_an_unproven_row),
		T(a_job_that_cannot_start_gives_its_reason),
		T(a_layer_above_another_parent_is_ordinary),
		T(a_layer_that_was_swept_meanwhile_is_ordinary),
		T(require_lazy_makes_the_reason_an_error),
		T(a_parent_that_does_not_exist_is_an_error),
		T(a_ref_that_containerd_unpacked_is_enough),
		T(a_ref_held_by_another_unproven_layer_is_ordinary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
