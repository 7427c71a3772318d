/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of the seals, and what each errno does. Layers are of this file's
 * own making: folders with a file for each number. The sealer's process is this
 * program once more, with the kernel of tests/lib/fake_verity.h; it fails where
 * VS_FAULT says so.
 */
#include "snapshotter/seal.h"

#include <json-c/json.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "tests/lib/fake_verity.h"
#include "tests/unit/tmpdir.h"
#include "verity/sealer.h"

#define PATIENCE_MS 60000
#define N_FILES 4
#define SEQ 7

struct world {
	char *dir; /* of tmpdir.h */
	struct layers ls;
	struct layer layer;
	struct sealer *sealer;
	struct sealing *q;
	struct digest want[N_FILES];
	atomic_uint n_begun, n_ended, n_rejected, n_used;
	atomic_uint n_tried[N_FILES]; /* n_begun, of each */
	atomic_int reject_answer;
	atomic_bool always_begin; /* also what is sealed */
	bool keep_cached;
};

static struct world w;

/* ---- what seal.c asks of layers ---- */

struct layer *layer_use(struct layers *ls, uint32_t seq, bool *ret_was_closed)
{
	assert_ptr_equal(ls, &w.ls);
	*ret_was_closed = false;
	if (seq != SEQ)
		return NULL;
	atomic_fetch_add(&w.n_used, 1);
	return &w.layer;
}

void layer_unlook(struct layer *l, bool was_closed)
{
	assert_false(was_closed);
	if (l)
		atomic_fetch_sub(&w.n_used, 1);
}

enum layer_open_state layer_state(struct layer *l)
{
	return l->state;
}

static int open_file(uint32_t what)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%u", w.dir, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static bool is_sealed(uint32_t what)
{
	owned(fd) int fd = open_file(what);

	return fake_is_sealed(fd);
}

unsigned layer_seal_scan(struct layer *l,
			 void (*fn)(void *ctx, uint32_t seq, uint32_t what),
			 void *ctx)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < N_FILES; i++) {
		if (is_sealed(i))
			continue;
		fn(ctx, SEQ, i);
		n++;
	}
	atomic_store(&l->sealed, n == 0);
	return n;
}

int layer_seal_begin(struct layer *l, uint32_t what, struct seal_target *ret)
{
	struct stat st;
	int fd;

	assert_ptr_equal(l, &w.layer);
	atomic_fetch_add(&w.n_begun, 1);
	atomic_fetch_add(&w.n_tried[what], 1);
	if (is_sealed(what) && !atomic_load(&w.always_begin))
		return 1;
	fd = open_file(what);
	assert_int_equal(fstat(fd, &st), 0);
	*ret = (struct seal_target){ .fd = fd,
				     .size = (uint64_t)st.st_size,
				     .want = w.want[what] };
	return 0;
}

int layer_seal_end(struct seal_target *t)
{
	(void)t;
	atomic_fetch_add(&w.n_ended, 1);
	return 0;
}

int layer_seal_reject(struct layer *l, uint32_t what)
{
	(void)l;
	(void)what;
	atomic_fetch_add(&w.n_rejected, 1);
	return atomic_load(&w.reject_answer);
}

void bodies_keep_cached(struct bodies *bs, bool keep)
{
	(void)bs;
	w.keep_cached = keep;
}

/* ---- the world ---- */

static void make_file(uint32_t i)
{
	char path[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%u", w.dir, i);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	for (uint32_t k = 0; k < 3000; k++)
		assert_int_equal(write_full(fd, &i, sizeof(i)), 0);
	(void)close(fd);
	fd = open_file(i);
	assert_int_equal(fake_digest(fd, &w.want[i]), 0);
	(void)close(fd);
}

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0)
		return -1;
	w = (struct world){ .dir = *state };
	w.layer.state = LAYER_OPEN;
	w.layer.row.seq = SEQ;
	for (uint32_t i = 0; i < N_FILES; i++)
		make_file(i);
	return 0;
}

static int teardown(void **state)
{
	sealing_free(w.q);
	sealer_free(w.sealer);
	assert_int_equal(atomic_load(&w.n_used), 0);
	return tmpdir_teardown(state);
}

/* @fault: NULL, or for the helper */
static void start(const char *fault)
{
	if (fault)
		assert_int_equal(setenv("VS_FAULT", fault, 1), 0);
	assert_int_equal(sealer_new(SEALER_MEMORY, &w.sealer), 0);
	assert_int_equal(unsetenv("VS_FAULT"), 0);
	w.ls.o.sealer = w.sealer;
	assert_int_equal(sealing_new(&w.ls, &w.q), 0);
	assert_true(w.keep_cached);
}

static struct json_object *status(void)
{
	struct json_object *o, *s;
	struct buf b = { 0 };

	assert_int_equal(buf_adds(&b, "{"), 0);
	sealing_json(w.q, &b);
	assert_int_equal(buf_addf(&b, "}%c", 0), 0);
	o = json_tokener_parse((char *)b.p);
	assert_non_null(o);
	assert_true(json_object_object_get_ex(o, "sealing", &s));
	(void)json_object_get(s);
	(void)json_object_put(o);
	buf_release(&b);
	return s;
}

static int64_t number(const char *name)
{
	struct json_object *s = status(), *v;
	int64_t n;

	assert_true(json_object_object_get_ex(s, name, &v));
	n = json_object_get_int64(v);
	(void)json_object_put(s);
	return n;
}

static void text(const char *name, char out[256])
{
	struct json_object *s = status(), *v;

	assert_true(json_object_object_get_ex(s, name, &v));
	(void)snprintf(out, 256, "%s", json_object_get_string(v));
	(void)json_object_put(s);
}

#define UNTIL(what)                                       \
	do {                                              \
		uint64_t until_ = now_ms() + PATIENCE_MS; \
                                                          \
		while (!(what)) {                         \
			assert_true(now_ms() < until_);   \
			(void)usleep(2000);               \
		}                                         \
	} while (0)

static bool layer_is_sealed(void)
{
	return atomic_load(&w.layer.sealed);
}

/* ---- tests ---- */

static void layer_is_sealed_once(void **state)
{
	(void)state;
	start(NULL);
	sealing_body(w.q, SEQ, 2);
	sealing_layer(w.q, SEQ);
	sealing_layer(w.q, SEQ);
	UNTIL(layer_is_sealed() && number("files") == N_FILES);
	for (uint32_t i = 0; i < N_FILES; i++)
		assert_true(is_sealed(i));
	assert_int_equal(atomic_load(&w.n_ended), N_FILES);
	assert_int_equal(atomic_load(&w.n_rejected), 0);
	sealing_layer(w.q, SEQ + 1); /* is not there any more */
	sealing_body(w.q, SEQ + 1, 0);
	UNTIL(number("queued") == 0);
}

/* Passing troubles: tried again until it works. */
static void errors_that_pass_are_tried_again(void **state)
{
	static const int errors[] = { ETXTBSY, EBUSY,  EINTR,  EAGAIN, ENOMEM,
				      EMFILE,  ENOSPC, EDQUOT, EROFS,  EPERM };
	char last[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		char fault[64], want[128];

		if (i) {
			assert_int_equal(teardown(state), 0);
			assert_int_equal(setup(state), 0);
		}
		(void)snprintf(fault, sizeof(fault), "sealer_asked:fail=%d",
			       errors[i]);
		start(fault);
		sealing_layer(w.q, SEQ);
		UNTIL(layer_is_sealed() && number("files") == N_FILES);
		assert_int_equal(atomic_load(&w.n_rejected), 0);
		text("last_error", last);
		(void)snprintf(want, sizeof(want), "of layer %d: %s", SEQ,
			       strerror(errors[i]));
		assert_non_null(strstr(last, want));
		text("state", last);
		assert_string_equal(last, "on");
	}
}

static void a_helper_that_dies_costs_a_repetition(void **state)
{
	struct helper_status st;

	(void)state;
	start("verity_enabled:kill");
	sealing_layer(w.q, SEQ);
	UNTIL(layer_is_sealed());
	sealer_get_status(w.sealer, &st);
	assert_true(st.n_starts > 1);
}

/* One file is too large; the others are sealed, and it is not tried again. */
static void a_file_that_cannot_be_sealed_is_left(void **state)
{
	char fault[64];
	uint32_t left = 0;

	(void)state;
	(void)snprintf(fault, sizeof(fault), "sealer_asked:fail=%d", EFBIG);
	start(fault);
	sealing_layer(w.q, SEQ);
	UNTIL(number("files") == N_FILES - 1 && number("queued") == 0);
	while (left < N_FILES && is_sealed(left))
		left++;
	assert_int_equal(atomic_load(&w.n_tried[left]), 1);
	sealing_layer(w.q, SEQ);
	sealing_body(w.q, SEQ, left);
	UNTIL(number("queued") == 0);
	assert_int_equal(atomic_load(&w.n_tried[left]), 1);
	assert_int_equal(number("waiting"), 1);
	assert_false(layer_is_sealed());
}

static void no_verity_turns_it_off_once(void **state)
{
	static const int errors[] = { EOPNOTSUPP, ENOTTY, EINVAL };
	char said[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		char fault[64];
		unsigned n;

		if (i) {
			assert_int_equal(teardown(state), 0);
			assert_int_equal(setup(state), 0);
		}
		(void)snprintf(fault, sizeof(fault), "sealer_asked:fail=%d",
			       errors[i]);
		start(fault);
		sealing_body(w.q, SEQ, 0);
		UNTIL((text("state", said), !strcmp(said, "off")));
		text("reason", said);
		assert_non_null(strstr(said, strerror(errors[i])));
		n = atomic_load(&w.n_begun);
		sealing_layer(w.q, SEQ);
		sealing_body(w.q, SEQ, 1);
		assert_int_equal(number("queued"), 0);
		assert_int_equal(atomic_load(&w.n_begun), n);
		assert_int_equal(number("files"), 0);
		UNTIL(!w.keep_cached);
	}
}

static void another_digest_is_repaired(void **state)
{
	(void)state;
	w.want[1].b[0] ^= 1;
	atomic_store(&w.reject_answer, 1); /* is being fetched */
	start(NULL);
	sealing_body(w.q, SEQ, 1);
	UNTIL(atomic_load(&w.n_rejected) == 1 && number("queued") == 0);
	assert_int_equal(number("waiting"), 0);
	assert_int_equal(number("rejected"), 1);
	assert_int_equal(atomic_load(&w.n_ended), 0);
	/* and here it is */
	w.want[1].b[0] ^= 1;
	atomic_store(&w.always_begin, true);
	sealing_body(w.q, SEQ, 1);
	UNTIL(number("files") == 1);
	assert_int_equal(atomic_load(&w.n_rejected), 1);
}

/* A disk that gives other bytes each time: not for ever at full speed. */
static void repair_in_vain_gets_rare(void **state)
{
	(void)state;
	sealing_later_ms = 1000000;
	w.want[1].b[0] ^= 1;
	atomic_store(&w.always_begin, true);
	start(NULL);
	sealing_body(w.q, SEQ, 1);
	UNTIL(atomic_load(&w.n_rejected) == 3 && number("waiting") == 1 &&
	      number("queued") == 0);
	sealing_later_ms = 20;
	assert_int_equal(atomic_load(&w.n_ended), 0);
	assert_int_equal(atomic_load(&w.n_begun), 3);
}

static void unreadable_file_is_repaired(void **state)
{
	char fault[64];

	(void)state;
	(void)snprintf(fault, sizeof(fault), "sealer_asked:fail=%d", EIO);
	start(fault);
	sealing_body(w.q, SEQ, 3); /* repaired at once */
	UNTIL(number("files") == 1);
	assert_int_equal(atomic_load(&w.n_rejected), 1);
	assert_true(is_sealed(3));
}

/* The daemon stops while the helper is at a file. */
static void sealing_free_waits_for_nobody(void **state)
{
	(void)state;
	start("sealer_asked:sleep=3600000");
	sealing_layer(w.q, SEQ);
	UNTIL(atomic_load(&w.n_begun) > 0);
	sealing_free(w.q);
	w.q = NULL;
	assert_true(atomic_load(&w.n_ended) <
		    N_FILES); /* one is still asleep */
}

static void masked_is_told(void **state)
{
	char said[256];

	(void)state;
	w.ls.o.seal_off = "masked";
	assert_int_equal(sealing_new(&w.ls, &w.q), 0);
	assert_false(w.keep_cached);
	sealing_layer(w.q, SEQ);
	sealing_body(w.q, SEQ, 0);
	text("state", said);
	assert_string_equal(said, "off");
	text("reason", said);
	assert_string_equal(said, "masked");
	assert_int_equal(number("queued"), 0);
}

static void drop_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)msg;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(layer_is_sealed_once),
		T(errors_that_pass_are_tried_again),
		T(a_helper_that_dies_costs_a_repetition),
		T(a_file_that_cannot_be_sealed_is_left),
		T(no_verity_turns_it_off_once),
		T(another_digest_is_repaired),
		T(repair_in_vain_gets_rare),
		T(unreadable_file_is_repaired),
		T(sealing_free_waits_for_nobody),
		T(masked_is_told),
	};

	fake_verity_main(argc, argv);
	log_set_sink(drop_line);
	sealing_later_ms = 20;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
