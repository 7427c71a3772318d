/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that works on a body is killed at every passage of every fault
 * point. Afterwards nothing verified may be lost: what it had reported as
 * landed is served. And nothing else: what is served is right.
 *
 * The child is this program again, because fault points are read from the
 * environment once a process.
 */
#include "snapshotter/body.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "body_fixture.h"
#include "tests/lib/fake_verity.h"

/* Fixed numbers: this and that extent share block 0 with others. */
#define DAMAGED 1u
#define DAMAGED_LARGE 5u
#define PASSAGES_MAX 64

static const char *const points[] = {
	"body_data_created",   "body_state_written",   "body_created",
	"body_data_written",   "body_leaves_written",  "body_bit_written",
	"body_synced",         "body_marked_complete", "body_demoted",
	"body_boot_adopted",   "body_bits_cleared",    "body_leaves_renewed",
	"body_state_unlinked", "body_copied",          "body_replaced",
	"body_marked_sealed",  "body_sealed",
};
static bool reached[ARRAY_LEN(points)];

/* The child reports by appending bytes to a file: they survive its death. */
static void report(struct fixture *f, uint32_t bit)
{
	owned(fd) int fd =
		openat(f->rootfd, "landed",
		       O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	uint8_t byte = (uint8_t)bit;

	assert_int_equal(write_full(fd, &byte, 1), 0);
}

static uint64_t reported(struct fixture *f)
{
	owned(mem) char *text = NULL;
	uint64_t bits = 0;
	size_t len = 0;

	if (read_file_at(f->rootfd, "landed", 4096, &text, &len) < 0)
		return 0;
	for (size_t i = 0; i < len; i++)
		bits |= 1ull << text[i];
	return bits;
}

/* Lands and reads until it succeeds: a fault point may have failed once. */
static void land_and_check(struct fixture *f, uint32_t bit)
{
	for (int i = 0; i < 5; i++) {
		if (read_bit(f, bit) == 0)
			return;
		if (write_bit(f, bit) == 0)
			report(f, bit);
	}
	fail();
}

static void land_all(struct fixture *f)
{
	int r = -1;

	/* Of those that power_cut_before() landed, the stale one comes last. */
	for (uint32_t i = 0; i < PACK_N; i++)
		land_and_check(f, (2 + i * 5) % PACK_N);
	for (int i = 0; i < 3 && r < 0; i++)
		r = body_complete(f->b, &f->lay);
	assert_int_equal(r, 0);
}

/* As the sealer and its owner do it. Any step may fail once. */
static void seal(struct fixture *f)
{
	int r = -1;

	for (int i = 0; i < 5 && r != -EALREADY; i++) {
		struct body_seal s;
		struct digest d;

		r = body_seal_begin(f->b, &s);
		if (r < 0)
			continue;
		assert_int_equal(kernel_enable(s.fd), 0);
		assert_int_equal(kernel_measure(s.fd, &d), 0);
		(void)close(s.fd);
		if (digest_equal(&d, &s.want)) {
			r = body_seal_end(f->b, &s);
			continue;
		}
		r = body_reject(f->b, &f->lay);
		if (r < 0)
			land_all(f);
	}
	assert_int_equal(r, -EALREADY);
}

static void work(struct fixture *f)
{
	int r = -1;

	for (int i = 0; i < 3 && !f->bs; i++)
		(void)!bodies_new(f->rootfd, &f->bs);
	for (int i = 0; i < 3 && r < 0; i++)
		r = body_open(f->bs, &f->id, &f->lay, &f->b);
	assert_int_equal(r, 0);
	land_all(f);
	seal(f);
}

/* Complete, and damaged unseen. */
static void work_at_seal(struct fixture *f)
{
	int r = -1;

	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	for (int i = 0; i < 3 && r < 0; i++)
		r = body_open(f->bs, &f->id, &f->lay, &f->b);
	assert_int_equal(r, 0);
	seal(f);
	for (uint32_t i = 0; i < PACK_N; i++)
		assert_int_equal(read_bit(f, i), 0);
}

static void remove_body(struct fixture *f)
{
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
}

static int child(const char *what, const char *dir)
{
	struct fixture f = { .rootfd = open_dir(AT_FDCWD, dir) };

	log_set_sink(drop_line);
	make_pack(&f);
	if (!strcmp(what, "remove"))
		remove_body(&f);
	else if (!strcmp(what, "seal"))
		work_at_seal(&f);
	else
		work(&f);
	close_body(&f);
	free(f.bytes);
	return 0;
}

/* Runs the child with one fault. true: it was killed by it. */
static bool run_child(struct fixture *f, const char *what, const char *point,
		      const char *action, int n)
{
	char fault[128];
	int status;
	pid_t pid;

	(void)snprintf(fault, sizeof(fault), "%s:%s@%d", point, action, n);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setenv("VS_FAULT", fault, 1);
		execl("/proc/self/exe", "test_body_crash", what, f->path, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status)) {
		assert_int_equal(WTERMSIG(status), SIGKILL);
		return true;
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static void begin(struct fixture *f)
{
	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	(void)unlinkat(f->rootfd, "landed", 0);
	(void)unlinkat(f->rootfd, "layer/5/pack", 0);
	(void)unlinkat(f->rootfd, "layer/5/pack.state", 0);
	make_pack(f);
}

static void nothing_before(struct fixture *f)
{
	begin(f);
}

static void complete_and_damaged_before(struct fixture *f)
{
	begin(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	close_body(f);
	flip_data(f, f->x[DAMAGED].off + 5);
	flip_data(f, f->x[DAMAGED_LARGE].off + 4097);
}

/* The fake kernel measures what is there: the seal does not count any more. */
static void sealed_and_damaged_before(struct fixture *f)
{
	struct body_seal s;

	begin(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_seal_begin(f->b, &s), 0);
	assert_int_equal(kernel_enable(s.fd), 0);
	(void)close(s.fd);
	assert_int_equal(body_seal_end(f->b, &s), 0);
	close_body(f);
	flip_data(f, f->x[DAMAGED].off + 5);
	flip_data(f, f->x[DAMAGED_LARGE].off + 4097);
}

static void partial_and_damaged_before(struct fixture *f)
{
	begin(f);
	open_body(f);
	write_bits(f, ALL & ~(1ull << 11));
	close_body(f);
	flip_data(f, f->x[DAMAGED].off + 5);
	flip_data(f, f->x[DAMAGED_LARGE].off + 4097);
	flip_leaf(f, 3);
}

/* Block 0 is as before extent 1 landed, leaf and all. */
static void power_cut_before(struct fixture *f)
{
	uint64_t leaf_off = state_leaves_off(PACK_N);
	uint8_t data[LEAF_BLOCK], leaf[32];

	begin(f);
	open_body(f);
	write_bits(f, 1);
	peek(f, false, 0, data, sizeof(data));
	peek(f, true, leaf_off, leaf, sizeof(leaf));
	write_bits(f, 1u << DAMAGED | 1u << 3 | 1u << 7);
	close_body(f);
	poke(f, false, 0, data, sizeof(data));
	poke(f, true, leaf_off, leaf, sizeof(leaf));
	assert_int_equal(setenv("VS_BOOT_ID", "boot-2", 1), 0);
}

/* After a death. @kept: verified before, and not damaged since. */
static void check(struct fixture *f, uint64_t kept)
{
	uint64_t landed = reported(f) | kept;

	open_body(f);
	for (uint32_t i = 0; i < PACK_N; i++) {
		int r = read_bit(f, i); /* compares when 0 */

		assert_true(r == 0 || r == -EAGAIN);
		if (landed >> i & 1)
			assert_int_equal(r, 0);
	}
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
	close_body(f);
}

struct scenario {
	void (*before)(struct fixture *f);
	const char *what;
	uint64_t kept;
};

static void run_scenario(struct fixture *f, const struct scenario *s)
{
	unsigned n_deaths = 0;

	for (size_t p = 0; p < ARRAY_LEN(points); p++) {
		for (int n = 1;; n++) {
			assert_true(n < PASSAGES_MAX);
			s->before(f);
			if (!run_child(f, s->what, points[p], "kill", n))
				break;
			reached[p] = true;
			n_deaths++;
			check(f, s->kept);
		}
		/* The same place fails instead: reported, then repeated. */
		s->before(f);
		assert_false(run_child(f, s->what, points[p], "fail=28", 1));
		check(f, s->kept);
	}
	assert_true(n_deaths > 0);
}

static void body_survives_kills_while_landing(void **state)
{
	static const struct scenario s = { nothing_before, "work", 0 };

	run_scenario(*state, &s);
}

static void body_survives_kills_while_repairing(void **state)
{
	static const uint64_t kept =
		((1u << PACK_N) - 1) & ~(1u << DAMAGED | 1u << DAMAGED_LARGE);
	const struct scenario complete = { complete_and_damaged_before, "work",
					   kept };
	const struct scenario partial = { partial_and_damaged_before, "work",
					  kept & ~(1u << 11) };

	const struct scenario sealed = { sealed_and_damaged_before, "work",
					 kept };

	run_scenario(*state, &complete);
	run_scenario(*state, &sealed);
	run_scenario(*state, &partial);
}

/* The kernel's digest is the first to tell. */
static void body_survives_kills_while_rejected(void **state)
{
	static const uint64_t kept =
		((1u << PACK_N) - 1) & ~(1u << DAMAGED | 1u << DAMAGED_LARGE);
	const struct scenario s = { complete_and_damaged_before, "seal", kept };

	run_scenario(*state, &s);
}

static void body_survives_kills_after_a_power_cut(void **state)
{
	static const struct scenario s = { power_cut_before, "work",
					   1u << 0 | 1u << 3 | 1u << 7 };

	run_scenario(*state, &s);
}

static void body_survives_kills_while_removed(void **state)
{
	static const struct scenario s = { complete_and_damaged_before,
					   "remove", 0 };

	run_scenario(*state, &s);
}

static void every_fault_point_was_reached(void **state)
{
	(void)state;
	for (size_t p = 0; p < ARRAY_LEN(points); p++) {
		if (!reached[p])
			print_error("never reached: %s\n", points[p]);
		assert_true(reached[p]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(body_survives_kills_while_landing),
		T(body_survives_kills_while_repairing),
		T(body_survives_kills_while_rejected),
		T(body_survives_kills_after_a_power_cut),
		T(body_survives_kills_while_removed),
		cmocka_unit_test(every_fault_point_was_reached),
	};

	kernel_set_ops(&fake_kernel);
	if (argc == 3)
		return child(argv[1], argv[2]);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
