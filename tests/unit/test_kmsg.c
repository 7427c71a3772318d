/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the kernel's log. A pipe in packet mode gives one at each read, as
 * /dev/kmsg does. */
#include "verity/kmsg.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"

#define PATIENCE_MS 60000
#define LINE "fs-verity (sda1, inode 77): FILE CORRUPTED! pos=0, level=-1"

static int parse(const char *record, uint64_t *ino)
{
	*ino = 12345;
	return kmsg_parse(record, strlen(record), ino);
}

static void parse_finds_the_inode(void **state)
{
	uint64_t ino;

	(void)state;
	assert_int_equal(parse("3,1,2,-;" LINE "\n DEVICE=b8:1\n", &ino), 1);
	assert_int_equal(ino, 77);
	assert_int_equal(parse("0,1,2,-,caller=T9;" LINE, &ino), 1);
	assert_int_equal(ino, 77);
	assert_int_equal(
		parse("4,1,2,-;fsverity_msg: 12 callbacks suppressed\n", &ino),
		1);
	assert_int_equal(ino, 0);
}

/* Everybody who may write to /dev/kmsg could have us read all day. */
static void parse_believes_the_kernel_only(void **state)
{
	static const char *const others[] = {
		"8,1,2,-;" LINE,
		"11,1,2,-;" LINE,
		"18446744073709551619,1,2,-;" LINE,
		"x,1,2,-;" LINE,
		"-3,1,2,-;" LINE,
		";" LINE,
		LINE,
		"",
		"3",
		"3,1,2,-",
		"3,1,2,-;",
		"3,1,2,-;x " LINE,
		"3,1,2,-;\n" LINE,
		"3,1,2,-;fs-verity (sda1, inode 77): other",
		"3,1,2,-;fs-verity (sda1, inode 77): FILE\nCORRUPTED!",
		"3,1,2,-;fs-verity (sda1, inode ): FILE CORRUPTED!",
		"3,1,2,-;fs-verity (sda1, inode 99999999999999999999): FILE CORRUPTED!",
		"3,1,2,-;fs-verity (sda1",
		"3,1,2,-;fsverity_msg: callbacks suppressed",
	};
	uint64_t ino;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		assert_int_equal(parse(others[i], &ino), 0);
		assert_int_equal(ino, 12345);
	}
}

/* No byte behind the length counts. */
static void parse_stays_within_the_record(void **state)
{
	static const char record[] = "3,1,2,-;" LINE;
	const size_t shortest = strlen(record) - strlen(" pos=0, level=-1");
	uint64_t ino;

	(void)state;
	for (size_t len = 0; len <= strlen(record); len++)
		assert_int_equal(kmsg_parse(record, len, &ino),
				 len >= shortest);
}

struct seen {
	atomic_uint n;
	atomic_ulong sum; /* of inode numbers */
};

static void note(void *ctx, uint64_t ino)
{
	struct seen *s = ctx;

	atomic_fetch_add(&s->sum, ino);
	atomic_fetch_add(&s->n, 1);
}

static void say(int fd, const char *record)
{
	assert_int_equal(write(fd, record, strlen(record)), strlen(record));
}

static void wait_for(struct seen *s, unsigned n)
{
	uint64_t until = now_ms() + PATIENCE_MS;

	while (atomic_load(&s->n) < n) {
		assert_true(now_ms() < until);
		(void)usleep(1000);
	}
}

static void watch_tells_of_each_line(void **state)
{
	struct seen s = { 0 };
	struct kmsg *k;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_DIRECT | O_NONBLOCK | O_CLOEXEC), 0);
	assert_int_equal(kmsg_watch(p[0], note, &s, &k), 0);
	say(p[1], "6,1,2,-;nothing of interest\n");
	say(p[1], "3,1,2,-;" LINE "\n");
	wait_for(&s, 1);
	say(p[1], "3,1,2,-;" LINE "\n");
	say(p[1], "3,1,2,-;fs-verity (x, inode 3): FILE CORRUPTED! pos=0\n");
	wait_for(&s, 3);
	assert_int_equal(atomic_load(&s.sum), 77 + 77 + 3);
	kmsg_unwatch(k);
	(void)close(p[1]);
}

/* A log that ends, or fails, costs nothing and holds up no stop. */
static void watch_of_a_log_that_ends(void **state)
{
	struct seen s = { 0 };
	struct kmsg *k;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_DIRECT | O_NONBLOCK | O_CLOEXEC), 0);
	say(p[1], "3,1,2,-;" LINE "\n");
	(void)close(p[1]);
	assert_int_equal(kmsg_watch(p[0], note, &s, &k), 0);
	wait_for(&s, 1);
	kmsg_unwatch(k);
	assert_int_equal(kmsg_watch(-1, note, &s, &k), 0);
	kmsg_unwatch(k);
	kmsg_unwatch(NULL);
	assert_int_equal(atomic_load(&s.n), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_finds_the_inode),
		cmocka_unit_test(parse_believes_the_kernel_only),
		cmocka_unit_test(parse_stays_within_the_record),
		cmocka_unit_test(watch_tells_of_each_line),
		cmocka_unit_test(watch_of_a_log_that_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
