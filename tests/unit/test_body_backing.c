/* SPDX-License-Identifier: Apache-2.0 */
/* Which bodies the kernel may read without us, and who is told when one of
 * them is not to be trusted any more. The kernel is that of
 * tests/lib/fake_verity.h. */
#include "snapshotter/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "body_fixture.h"
#include "tests/lib/fake_verity.h"

static unsigned n_told;

static void told(void *ctx)
{
	(void)ctx;
	n_told++;
}

static void complete(struct fixture *f)
{
	make_large(f);
	open_body(f);
	bodies_on_damage(f->bs, told, NULL);
	n_told = 0;
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
}

static void seal(struct fixture *f)
{
	struct body_seal s;

	assert_int_equal(body_seal_begin(f->b, &s), 0);
	assert_int_equal(kernel_enable(s.fd), 0);
	(void)close(s.fd);
	assert_int_equal(body_seal_end(f->b, &s), 0);
}

static void assert_passed(struct fixture *f, bool unsealed)
{
	owned(fd) int fd = body_backing_fd(f->b, unsealed);
	owned(mem) uint8_t *p = malloc(f->id.size);

	assert_non_null(p);
	assert_true(fd >= 0);
	assert_int_equal(pread_full(fd, p, f->id.size, 0), 0);
	assert_memory_equal(p, f->bytes, f->id.size);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void partial_body_is_never_passed(void **state)
{
	struct fixture *f = *state;

	make_large(f);
	open_body(f);
	assert_int_equal(body_backing_fd(f->b, true), -EAGAIN);
	write_bits(f, ALL & ~1ull);
	assert_int_equal(body_backing_fd(f->b, true), -EAGAIN);
	/* all is here, and not durable */
	write_bits(f, ALL);
	assert_int_equal(body_backing_fd(f->b, true), -EAGAIN);
}

static void unsealed_body_is_passed_where_that_is_wanted(void **state)
{
	struct fixture *f = *state;

	complete(f);
	assert_int_equal(body_backing_fd(f->b, false), -EAGAIN);
	assert_passed(f, true);
}

static void sealed_body_is_passed(void **state)
{
	struct fixture *f = *state;

	complete(f);
	seal(f);
	assert_passed(f, false);
	reopen(f);
	assert_passed(f, false);
}

/* Another file has the name: what is open stays good, nobody gets that one. */
static void foreign_file_is_not_passed(void **state)
{
	struct fixture *f = *state;
	char hex[DIGEST_HEX_LEN + 1], path[128];
	int fd;

	complete(f);
	seal(f);
	hex_encode(f->id.ckey.b, DIGEST_LEN, hex);
	(void)snprintf(path, sizeof(path), "body/%.2s/%s", hex, hex);
	assert_int_equal(unlinkat(f->rootfd, path, 0), 0);
	fd = openat(f->rootfd, path, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, f->bytes, f->id.size, 0), 0);
	(void)close(fd);
	assert_int_equal(body_backing_fd(f->b, true), -EAGAIN);
}

static void damage_is_told_once_and_ends_passing(void **state)
{
	struct fixture *f = *state;

	complete(f);
	assert_int_equal(n_told, 0);
	assert_int_equal(read_bit(f, 1), 0);
	assert_int_equal(n_told, 0);
	flip_data(f, f->x[1].off + 9);
	assert_int_equal(read_bit(f, 1), -EAGAIN);
	assert_int_equal(n_told, 1);
	assert_int_equal(body_backing_fd(f->b, true), -EAGAIN);
	assert_int_equal(read_bit(f, 1), -EAGAIN);
	assert_int_equal(n_told, 1);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_passed(f, true);
	assert_int_equal(n_told, 1);
}

static void rejected_body_is_told(void **state)
{
	struct fixture *f = *state;

	complete(f);
	seal(f);
	assert_int_equal(body_reject(f->b, &f->lay), 0);
	assert_int_equal(n_told, 1);
	assert_int_equal(body_backing_fd(f->b, false), -EAGAIN);
	seal(f);
	assert_passed(f, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(partial_body_is_never_passed),
		T(unsealed_body_is_passed_where_that_is_wanted),
		T(sealed_body_is_passed),
		T(foreign_file_is_not_passed),
		T(damage_is_told_once_and_ends_passing),
		T(rejected_body_is_told),
	};

	kernel_set_ops(&fake_kernel);
	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
