/* SPDX-License-Identifier: Apache-2.0 */
#include "verity/state.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/io.h"

struct fixture {
	char path[32];
	const char *name; /* of the folder, in /tmp */
	int tmpfd, dirfd;
	bool mounted;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	*state = f;
	(void)snprintf(f->path, sizeof(f->path), "/tmp/vs-state-XXXXXX");
	if (!mkdtemp(f->path))
		return -1;
	f->name = f->path + strlen("/tmp/");
	f->tmpfd = open_dir(AT_FDCWD, "/tmp");
	f->dirfd = open_dir(AT_FDCWD, f->path);
	return f->tmpfd < 0 || f->dirfd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r;

	if (!f)
		return 0;
	(void)close(f->dirfd);
	if (f->mounted)
		(void)umount2(f->path, MNT_DETACH);
	r = remove_tree(f->tmpfd, f->name);
	(void)close(f->tmpfd);
	free(f);
	return r;
}

static const struct state_header sample = {
	.kind = STATE_FILE,
	.phase = STATE_COMPLETE,
	.size = 10000001,
	.n_extents = 4099,
	.ckey = { { 7, 8, 9 } },
	.boot = "0f0e0d0c-1111-2222-3333-444455556666",
};

static void crc32c_gives_published_values(void **state)
{
	uint8_t zeros[32] = { 0 };

	(void)state;
	assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
	assert_int_equal(crc32c(zeros, sizeof(zeros)), 0x8a9136aau);
}

static void state_decode_returns_what_was_encoded(void **state)
{
	uint8_t sector[STATE_SECTOR];
	struct state_header h;

	(void)state;
	state_encode(&sample, sector);
	assert_int_equal(state_decode(sector, sizeof(sector), &h), 0);
	assert_int_equal(h.kind, sample.kind);
	assert_int_equal(h.phase, sample.phase);
	assert_true(h.size == sample.size);
	assert_int_equal(h.n_extents, sample.n_extents);
	assert_memory_equal(h.ckey.b, sample.ckey.b, DIGEST_LEN);
	assert_string_equal(h.boot, sample.boot);
	assert_false(h.frozen);
	assert_true(digest_is_zero(&h.seal));
	h.frozen = true;
	h.phase = STATE_SEALED;
	h.seal = (struct digest){ { 4, 5 } };
	state_encode(&h, sector);
	h = sample;
	assert_int_equal(state_decode(sector, sizeof(sector), &h), 0);
	assert_true(h.frozen);
	assert_int_equal(h.phase, STATE_SEALED);
	assert_true(digest_equal(&h.seal, &(struct digest){ { 4, 5 } }));
}

static void state_decode_refuses_any_flipped_bit(void **state)
{
	uint8_t sector[STATE_SECTOR];
	struct state_header h;

	(void)state;
	state_encode(&sample, sector);
	for (size_t i = 0; i < sizeof(sector) * 8; i++) {
		sector[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(state_decode(sector, sizeof(sector), &h),
				 -EUCLEAN);
		sector[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(state_decode(sector, sizeof(sector) - 1, &h),
			 -EUCLEAN);
}

static void state_decode_refuses_values_out_of_range(void **state)
{
	struct state_header bad[10];
	uint8_t sector[STATE_SECTOR];
	struct state_header h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		bad[i] = sample;
	bad[0].kind = 0;
	bad[1].kind = 4;
	bad[2].kind = STATE_PACK; /* with a ckey */
	bad[3].kind = STATE_VFILE; /* with extents */
	bad[4].size = STATE_SIZE_MAX + 1;
	bad[5].n_extents = 0;
	bad[6].size = 4098; /* fewer bytes than extents */
	bad[7].phase = STATE_BAD + 1;
	bad[8].phase = STATE_SEALED; /* without a digest */
	bad[9].seal.b[0] = 1; /* not sealed */
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		state_encode(&bad[i], sector);
		assert_int_equal(state_decode(sector, sizeof(sector), &h),
				 -EUCLEAN);
	}
}

static void state_create_allocates_everything(void **state)
{
	struct fixture *f = *state;
	owned(fd) int fd = -1;
	struct state_header h;
	struct stat st;

	assert_int_equal(state_create(f->dirfd, "a.state", &sample, &fd), 0);
	assert_int_equal(faccessat(f->dirfd, "a.state", F_OK, 0), -1);
	assert_int_equal(state_publish(f->dirfd, "a.state"), 0);
	assert_int_equal(fstat(fd, &st), 0);
	/* 4096, 4099 bits in 2 sectors, 2442 leaves */
	assert_int_equal(st.st_size, 4096 + 1024 + 2442 * 32);
	assert_true(st.st_blocks * 512 >= st.st_size);
	assert_int_equal(state_read_header(fd, &h), 0);
	assert_int_equal(h.n_extents, sample.n_extents);
	assert_int_equal(state_unlink(f->dirfd, "a.state"), 0);
	assert_int_equal(faccessat(f->dirfd, "a.state", F_OK, 0), -1);
	assert_int_equal(state_unlink(f->dirfd, "a.state"), 0);
}

static void state_create_leaves_nothing_on_a_full_disk(void **state)
{
	struct fixture *f = *state;
	struct state_header big = sample;
	owned(fd) int dirfd = -1;
	int fd = -1;

	/* of our own, so that a killed test leaves no mount behind */
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("vs-test", f->path, "tmpfs", 0, "size=256k"), 0);
	f->mounted = true;
	dirfd = open_dir(AT_FDCWD, f->path);
	big.size = 1ull << 30;
	assert_int_equal(state_create(dirfd, "a.state", &big, &fd), -ENOSPC);
	assert_int_equal(fd, -1);
	assert_int_equal(faccessat(dirfd, "a.state.tmp", F_OK, 0), -1);
	assert_int_equal(state_create(dirfd, "a.state", &sample, &fd), 0);
	(void)close(fd);
}

static void state_read_leaves_gives_zeros_behind_the_end(void **state)
{
	struct fixture *f = *state;
	owned(fd) int fd = -1;
	struct digest in[3] = { { { 1 } }, { { 2 } }, { { 3 } } }, out[4];

	assert_int_equal(state_create(f->dirfd, "a.state", &sample, &fd), 0);
	assert_int_equal(state_write_leaves(fd, 4099, 2439, 3, in), 0);
	assert_int_equal(state_read_leaves(fd, 4099, 2438, 4, out), 0);
	assert_true(digest_is_zero(&out[0]));
	assert_memory_equal(&out[1], in, sizeof(in));
	/* cut inside the second: not half a leaf followed by old memory */
	assert_int_equal(ftruncate(fd, 4096 + 1024 + 2440 * 32 + 1), 0);
	memset(out, 0xff, sizeof(out));
	assert_int_equal(state_read_leaves(fd, 4099, 2438, 4, out), 0);
	assert_memory_equal(&out[1], &in[0], sizeof(in[0]));
	assert_int_equal(out[2].b[0], 2);
	assert_int_equal(out[2].b[1], 0);
	assert_true(digest_is_zero(&out[3]));
}

static void state_read_bits_refuses_any_flipped_bit(void **state)
{
	struct fixture *f = *state;
	owned(fd) int fd = -1;
	uint8_t in[STATE_SECTOR_BYTES] = { 0x81, 0, 0xff }, out[sizeof(in)];

	assert_int_equal(state_create(f->dirfd, "a.state", &sample, &fd), 0);
	assert_int_equal(state_read_bits(fd, 1, out), 0); /* never written */
	assert_int_equal(out[0], 0);
	assert_int_equal(state_write_bits(fd, 1, in), 0);
	assert_int_equal(state_read_bits(fd, 1, out), 0);
	assert_memory_equal(in, out, sizeof(in));
	for (uint64_t i = 0; i < STATE_SECTOR; i += 7) {
		uint64_t off = STATE_BITMAP_OFF + STATE_SECTOR + i;
		uint8_t byte, bad;

		assert_int_equal(pread_full(fd, &byte, 1, off), 0);
		bad = byte ^ 0x10;
		assert_int_equal(pwrite_full(fd, &bad, 1, off), 0);
		assert_int_equal(state_read_bits(fd, 1, out), -EUCLEAN);
		assert_int_equal(pwrite_full(fd, &byte, 1, off), 0);
	}
	assert_int_equal(state_read_bits(fd, 1, out), 0);
}

static void state_boot_id_obeys_the_environment(void **state)
{
	char a[STATE_BOOT_LEN + 1], b[STATE_BOOT_LEN + 1];

	(void)state;
	assert_int_equal(unsetenv("VS_BOOT_ID"), 0);
	state_boot_id(a);
	assert_int_equal(strlen(a), 36);
	assert_int_equal(setenv("VS_BOOT_ID", "another", 1), 0);
	state_boot_id(b);
	assert_string_equal(b, "another");
	assert_false(state_same_boot(a, b));
	assert_true(state_same_boot(b, b));
	assert_false(state_same_boot("", ""));
	assert_int_equal(unsetenv("VS_BOOT_ID"), 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc32c_gives_published_values),
		cmocka_unit_test(state_decode_returns_what_was_encoded),
		cmocka_unit_test(state_decode_refuses_any_flipped_bit),
		cmocka_unit_test(state_decode_refuses_values_out_of_range),
		T(state_create_allocates_everything),
		T(state_create_leaves_nothing_on_a_full_disk),
		T(state_read_leaves_gives_zeros_behind_the_end),
		T(state_read_bits_refuses_any_flipped_bit),
		cmocka_unit_test(state_boot_id_obeys_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
