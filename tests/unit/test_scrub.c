/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks for a scrub, in which order files are read, and what is counted.
 * Layers are of this file's own making: folders with a file for each number. The
 * helper is this program once more.
 */
#include "snapshotter/scrub.h"

#include <json-c/json.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/layer_priv.h"
#include "snapshotter/seal.h"
#include "tests/lib/fake_verity.h"
#include "tests/unit/tmpdir.h"
#include "verity/scrubber.h"

#define PATIENCE_MS 60000
#define N_LAYERS 3u
#define N_BODIES 2u /* of each; number 0 is a pack, 1 is shared by all */
#define N_FILES (N_LAYERS * (2 + 1) + 1) /* of all layers */
#define LOG_MAX 256

struct world {
	char *dir; /* of tmpdir.h */
	struct layers ls;
	struct layer layer[N_LAYERS];
	struct scrubbing *q;
	struct lock lock; /* guards what follows */
	char log[LOG_MAX][24]; /* "seq/what", in order of layer_scrub_begin() */
	unsigned n_log;
	unsigned n_healed;
	int heal_answer;
	enum healed healed;
	bool put_back; /* healing mends the file */
};

static struct world w;

/* ---- files ---- */

static const char *path_of(uint32_t seq, uint32_t what, char out[160])
{
	if (what == 1)
		(void)snprintf(out, 160, "%s/shared", w.dir);
	else
		(void)snprintf(out, 160, "%s/%u.%u", w.dir, seq, what);
	return out;
}

static void fill(uint8_t data[9000], uint32_t what)
{
	for (size_t i = 0; i < 9000; i++)
		data[i] = (uint8_t)(what * 7 + i * 31);
}

static void make_file(uint32_t seq, uint32_t what)
{
	uint8_t data[9000];
	char path[160];
	owned(fd) int fd = open(path_of(seq, what, path),
				O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	fill(data, what);
	assert_int_equal(write_full(fd, data, sizeof(data)), 0);
}

static void flip(uint32_t seq, uint32_t what)
{
	char path[160];
	owned(fd) int fd = open(path_of(seq, what, path), O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_int_equal(pread_full(fd, &byte, 1, 5000), 0);
	byte ^= 1;
	assert_int_equal(pwrite_full(fd, &byte, 1, 5000), 0);
}

static uint64_t ino_of(uint32_t seq, uint32_t what)
{
	char path[160];
	struct stat st;

	assert_int_equal(stat(path_of(seq, what, path), &st), 0);
	return st.st_ino;
}

/* ---- what scrub.c asks of layers ---- */

struct layer *layer_use(struct layers *ls, uint32_t seq, bool *ret_was_closed)
{
	assert_ptr_equal(ls, &w.ls);
	*ret_was_closed = false;
	if (seq >= N_LAYERS)
		return NULL;
	if (w.layer[seq].state == LAYER_CLOSED)
		w.layer[seq].state = LAYER_OPEN;
	return &w.layer[seq];
}

struct layer *layer_look(struct layers *ls, uint32_t seq, bool *ret_was_closed)
{
	assert_ptr_equal(ls, &w.ls);
	*ret_was_closed = false;
	return &w.layer[seq];
}

void layer_unlook(struct layer *l, bool was_closed)
{
	assert_non_null(l);
	assert_false(was_closed);
}

enum layer_open_state layer_state(struct layer *l)
{
	return l->state;
}

bool layer_is_damaged(struct layer *l)
{
	return l->state == LAYER_BROKEN;
}

int layer_record_damage(struct layer *l, struct err *e)
{
	(void)e;
	atomic_store(&l->damage_recorded, true);
	return 0;
}

int layers_seqs(struct layers *ls, uint32_t **ret, size_t *ret_n)
{
	assert_ptr_equal(ls, &w.ls);
	*ret = calloc(N_LAYERS, sizeof(**ret));
	assert_non_null(*ret);
	for (uint32_t i = 0; i < N_LAYERS; i++)
		(*ret)[i] = i;
	*ret_n = N_LAYERS;
	return 0;
}

uint32_t layer_n_bodies(const struct layer *l)
{
	(void)l;
	return N_BODIES;
}

struct digest layer_body_name(struct layer *l, uint32_t i)
{
	struct digest d = { 0 };

	(void)l;
	d.b[0] = (uint8_t)i; /* the pack has none */
	return d;
}

int layer_scrub_begin(struct layer *l, uint32_t what, uint64_t only_ino,
		      struct scrub_target *ret)
{
	owned(fd) int fd = -1;
	char path[160];
	struct fake_mem {
		uint8_t data[9000];
	} m;
	struct digest leaves[3];

	if (only_ino && ino_of(l->row.seq, what) != only_ino)
		return 1;
	lock_take(&w.lock);
	if (w.n_log < LOG_MAX)
		(void)snprintf(w.log[w.n_log++], sizeof(w.log[0]), "%u/%u",
			       l->row.seq, what);
	lock_drop(&w.lock);
	fd = open(path_of(l->row.seq, what, path), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -EBADMSG;
	fill(m.data, what);
	assert_int_equal(leaves_hash(m.data, sizeof(m.data), leaves), 0);
	*ret = (struct scrub_target){ .size = sizeof(m.data) };
	assert_int_equal(leaves_root(leaves, sizeof(m.data), &ret->want), 0);
	ret->fd = take_fd(&fd);
	return 0;
}

int layer_scrub_beside(struct layer *l, uint32_t what,
		       const struct scrub_target *t)
{
	(void)t;
	return l->row.seq == 2 && what == SEAL_MAP && w.heal_answer == -ENOSPC;
}

int layer_scrub_heal(struct layer *l, uint32_t what, enum healed *ret)
{
	int r;

	lock_take(&w.lock);
	w.n_healed++;
	*ret = w.healed;
	r = w.heal_answer;
	if (w.put_back)
		make_file(l->row.seq, what);
	lock_drop(&w.lock);
	return r;
}

/* ---- the world ---- */

static int setup(void **state)
{
	if (tmpdir_setup(state) < 0)
		return -1;
	w = (struct world){ .dir = *state };
	lock_init(&w.lock, RANK_LEAF);
	w.ls.o.rootfd = open_dir(AT_FDCWD, w.dir);
	for (uint32_t i = 0; i < N_LAYERS; i++) {
		w.layer[i].row.seq = i;
		for (uint32_t k = 0; k < N_BODIES; k++)
			make_file(i, k);
		make_file(i, SEAL_INDEX);
		make_file(i, SEAL_MAP);
	}
	return 0;
}

static int teardown(void **state)
{
	scrubbing_free(w.q);
	helper_caller_free(w.ls.o.scrubber);
	(void)close(w.ls.o.rootfd);
	return tmpdir_teardown(state);
}

static void start(void)
{
	w.ls.o.scrubber = scrubber_new();
	assert_non_null(w.ls.o.scrubber);
	assert_int_equal(scrubbing_new(&w.ls, &w.q), 0);
}

static int64_t number(const char *name)
{
	struct json_object *o, *s, *v;
	struct buf b = { 0 };
	int64_t n;

	assert_int_equal(buf_adds(&b, "{"), 0);
	scrubbing_json(w.q, &b);
	assert_int_equal(buf_addf(&b, "}%c", 0), 0);
	o = json_tokener_parse((char *)b.p);
	assert_non_null(o);
	assert_true(json_object_object_get_ex(o, "scrub", &s));
	assert_true(json_object_object_get_ex(s, name, &v));
	n = json_object_get_int64(v);
	(void)json_object_put(o);
	buf_release(&b);
	return n;
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

static void scrub(uint32_t seq)
{
	uint64_t ticket = scrubbing_ask(w.q, seq);

	assert_true(ticket > 0);
	UNTIL(number("finished") >= (int64_t)ticket);
}

static unsigned times(const char *file)
{
	unsigned n = 0;

	lock_take(&w.lock);
	for (unsigned i = 0; i < w.n_log; i++)
		n += !strcmp(w.log[i], file);
	lock_drop(&w.lock);
	return n;
}

/* ---- tests ---- */

static void all_layers_are_read_and_what_they_share_once(void **state)
{
	(void)state;
	start();
	scrub(SCRUB_ALL);
	assert_int_equal(number("files"), N_FILES);
	assert_int_equal(number("bytes"), N_FILES * 9000);
	assert_int_equal(number("bad"), 0);
	assert_int_equal(times("0/1"), 1);
	assert_int_equal(times("1/1"), 0);
	scrub(1);
	assert_int_equal(number("files"), N_FILES + 4);
	assert_int_equal(times("1/1"), 1);
	scrub(N_LAYERS); /* is not there any more */
	assert_int_equal(number("files"), N_FILES + 4);
}

static void bad_files_are_healed_and_counted(void **state)
{
	static const struct {
		enum healed healed;
		int answer;
		const char *name;
	} cases[] = {
		{ HEALED, 0, "healed" },
		{ HEALED_FETCHING, 0, "fetching" },
		{ HEALED_NEW_LAYER, 0, "new_layers" },
		{ HEALED, -EIO, "not_healed" },
	};
	char path[160];

	(void)state;
	start();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		w.healed = cases[i].healed;
		w.heal_answer = cases[i].answer;
		w.put_back = true;
		flip(1, 0);
		scrub(SCRUB_ALL);
		assert_int_equal(number(cases[i].name), 1);
		assert_int_equal(number("bad"), i + 1);
		assert_int_equal(w.n_healed, i + 1);
	}
	/* What is not there need not be read. */
	assert_int_equal(unlink(path_of(2, 0, path)), 0);
	w.heal_answer = 0;
	scrub(2);
	assert_int_equal(number("bad"), ARRAY_LEN(cases) + 1);
	/* Beside a good file. */
	w.heal_answer = -ENOSPC;
	scrub(2);
	assert_int_equal(number("leaf_logs"), 1);
}

static void layer_that_cannot_be_opened_is_recorded(void **state)
{
	(void)state;
	w.layer[1].state = LAYER_BROKEN;
	start();
	scrub(SCRUB_ALL);
	scrub(SCRUB_ALL);
	assert_true(atomic_load(&w.layer[1].damage_recorded));
	assert_int_equal(number("new_layers"), 1);
	assert_int_equal(number("bad"), 1);
	assert_int_equal(times("1/0"), 0);
}

/* The file that the kernel names comes first, whosever it is; then what is open. */
static void alarm_reads_the_named_file_first(void **state)
{
	(void)state;
	w.layer[0].state = LAYER_OPEN;
	w.put_back = true;
	scrubbing_pause_ms = 1;
	start();
	flip(2, 0);
	scrubbing_alarm(w.q, ino_of(2, 0));
	UNTIL(number("runs") == 1);
	assert_int_equal(number("bad"), 1);
	assert_int_equal(number("alarms"), 1);
	assert_string_equal(w.log[0], "2/0");
	assert_true(times("0/0") == 1 && times("0/1") == 1);
	/* Its lines may be left out: then only what is in use. */
	w.layer[1].state = w.layer[2].state = LAYER_CLOSED;
	scrubbing_alarm(w.q, 0);
	UNTIL(number("runs") == 2);
	assert_int_equal(times("0/0"), 2);
	assert_int_equal(times("1/0"), 1);
	assert_int_equal(w.layer[1].state, LAYER_CLOSED);
	scrubbing_pause_ms = 5000;
}

/* Reading what cannot be healed makes the kernel complain again. */
static void alarms_in_vain_come_ever_less_often(void **state)
{
	uint64_t began = now_ms();

	(void)state;
	scrubbing_pause_ms = 100;
	start();
	for (int i = 1; i <= 4; i++) {
		scrubbing_alarm(w.q, 0);
		scrubbing_alarm(w.q, 0); /* most likely of the same run */
		UNTIL(number("runs") >= i);
	}
	assert_true(now_ms() - began >= 100 + 200 + 400);
	assert_int_equal(number("alarms"), 8);
	scrubbing_pause_ms = 5000;
}

static void set_stamp(time_t age)
{
	const struct timespec t[2] = { { .tv_sec = time(NULL) - age },
				       { .tv_sec = time(NULL) - age } };

	assert_int_equal(utimensat(w.ls.o.rootfd, "scrubbed", t, 0), 0);
}

static time_t stamp_age(void)
{
	struct stat st;

	assert_int_equal(fstatat(w.ls.o.rootfd, "scrubbed", &st, 0), 0);
	return time(NULL) - st.st_mtime;
}

static void calendar_begins_at_the_first_start(void **state)
{
	(void)state;
	scrubbing_look_ms = 10;
	w.ls.o.scrub_interval_s = 1000;
	start();
	UNTIL(faccessat(w.ls.o.rootfd, "scrubbed", F_OK, 0) == 0);
	assert_int_equal(number("runs"), 0);
	set_stamp(999 + 5); /* the interval is over */
	UNTIL(number("runs") == 1);
	UNTIL(stamp_age() < 1000);
	assert_int_equal(number("files"), N_FILES);
	/* A clock that was ahead. */
	set_stamp(-100000);
	UNTIL(stamp_age() >= 0);
	assert_int_equal(number("runs"), 1);
	scrubbing_look_ms = 600000;
}

static void calendar_survives_a_restart(void **state)
{
	(void)state;
	w.ls.o.scrub_interval_s = 1000;
	start();
	UNTIL(faccessat(w.ls.o.rootfd, "scrubbed", F_OK, 0) == 0);
	scrubbing_free(w.q);
	set_stamp(5000);
	assert_int_equal(scrubbing_new(&w.ls, &w.q), 0);
	UNTIL(number("runs") == 1);
}

static void stop_in_the_middle_of_a_file(void **state)
{
	(void)state;
	w.ls.o.scrub_rate = 1;
	start();
	assert_true(scrubbing_ask(w.q, SCRUB_ALL) > 0);
	assert_true(scrubbing_ask(w.q, 1) > 0);
	UNTIL(times("0/4294967293") == 1); /* the map comes first */
	scrubbing_stop(w.q);
	assert_int_equal(scrubbing_ask(w.q, 1), 0);
}

static void dead_helper_costs_a_moment(void **state)
{
	struct helper_status st;

	(void)state;
	start();
	helper_caller_get_status(w.ls.o.scrubber, &st);
	(void)kill(st.pid, SIGKILL);
	scrub(SCRUB_ALL);
	assert_int_equal(number("files"), N_FILES);
	assert_int_equal(number("skipped"), 0);
}

static void without_a_helper_it_is_off(void **state)
{
	(void)state;
	assert_int_equal(scrubbing_new(&w.ls, &w.q), 0);
	assert_int_equal(scrubbing_ask(w.q, SCRUB_ALL), 0);
	scrubbing_alarm(w.q, 1);
	assert_int_equal(number("runs"), 0);
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
		T(all_layers_are_read_and_what_they_share_once),
		T(bad_files_are_healed_and_counted),
		T(layer_that_cannot_be_opened_is_recorded),
		T(alarm_reads_the_named_file_first),
		T(alarms_in_vain_come_ever_less_often),
		T(calendar_begins_at_the_first_start),
		T(calendar_survives_a_restart),
		T(stop_in_the_middle_of_a_file),
		T(dead_helper_costs_a_moment),
		T(without_a_helper_it_is_off),
	};

	fake_verity_main(argc, argv);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
