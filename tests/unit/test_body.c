/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies on a real file system, with damage done to the files behind their
 * back. The layout is made from a list of lengths; extent i of a pack begins at
 * the next multiple of its alignment.
 */
#include "snapshotter/body.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"
#include "verity/leaves.h"
#include "verity/sha256.h"
#include "verity/state.h"

#define EXTENTS_MAX 64

struct fixture {
	char path[32];
	const char *name; /* of the folder, in /tmp */
	int tmpfd, rootfd;
	bool mounted;
	struct bodies *bs;
	struct body *b;
	struct body_id id;
	struct body_layout lay;
	struct body_extent x[EXTENTS_MAX];
	uint8_t *bytes; /* what the body must hold */
	unsigned n_calls; /* of lay.extent */
};

static int get_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	struct fixture *f = ctx;

	assert_true(bit < f->id.n_extents);
	*ret = f->x[bit];
	return 0;
}

static int find_extent(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	struct fixture *f = ctx;
	uint32_t bit = 0;

	while (bit < f->id.n_extents && f->x[bit].off + f->x[bit].len <= off)
		bit++;
	*ret_bit = bit;
	return 0;
}

/* Describes a body of @n extents with lengths @len; 0 in @holes: none. */
static void make_layout(struct fixture *f, const uint32_t *len, uint32_t n,
			uint32_t align, uint64_t holes)
{
	uint64_t off = 0;

	assert_true(n <= EXTENTS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		off = (off + align - 1) / align * align;
		f->x[i] = (struct body_extent){ .off = off, .len = len[i] };
		f->x[i].hole = holes >> i & 1;
		off += len[i];
	}
	free(f->bytes);
	f->bytes = calloc(1, off);
	assert_non_null(f->bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *p = f->bytes + f->x[i].off;

		for (uint32_t k = 0; k < len[i] && !f->x[i].hole; k++)
			p[k] = (uint8_t)((k + i * 977 + 1) * 2654435761u >> 23);
		if (!f->x[i].hole)
			assert_int_equal(sha256_buf(p, len[i], &f->x[i].digest),
					 0);
	}
	f->id = (struct body_id){ .seq = 5, .size = off, .n_extents = n };
	f->lay = (struct body_layout){ .extent = get_extent,
				       .find = find_extent,
				       .ctx = f };
}

/* Twelve extents: neighbours in one block, one across blocks, one aligned. */
static const uint32_t pack_lens[] = { 100,  700,   5000, 512,   1,   8192,
				      4096, 10000, 3000, 12288, 333, 2 };
#define PACK_N ((uint32_t)ARRAY_LEN(pack_lens))

static void make_pack(struct fixture *f)
{
	make_layout(f, pack_lens, PACK_N, 512, 0);
}

static void make_large(struct fixture *f)
{
	static const uint32_t lens[] = { 1 << 20, 300000, 1 << 20, 77777 };
	struct ckey_builder *k;

	make_layout(f, lens, ARRAY_LEN(lens), 1, 0);
	assert_int_equal(ckey_begin(f->id.size, &k), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(lens); i++)
		assert_int_equal(ckey_add(k, lens[i], &f->x[i].digest), 0);
	assert_int_equal(ckey_end(k, &f->id.ckey), 0);
}

static void open_body(struct fixture *f)
{
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
}

static void close_body(struct fixture *f)
{
	body_put(f->b);
	bodies_free(f->bs);
	f->b = NULL;
	f->bs = NULL;
}

static void reopen(struct fixture *f)
{
	close_body(f);
	open_body(f);
}

/* The next opening happens in another boot of the machine. */
static void reboot(struct fixture *f, const char *id)
{
	close_body(f);
	assert_int_equal(setenv("VS_BOOT_ID", id, 1), 0);
	open_body(f);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	*state = f;
	(void)snprintf(f->path, sizeof(f->path), "/tmp/vs-body-XXXXXX");
	if (!mkdtemp(f->path))
		return -1;
	f->name = f->path + strlen("/tmp/");
	f->tmpfd = open_dir(AT_FDCWD, "/tmp");
	f->rootfd = open_dir(AT_FDCWD, f->path);
	if (f->tmpfd < 0 || f->rootfd < 0)
		return -1;
	if (mkdir_exact(f->rootfd, "layer", 0700) < 0 ||
	    mkdir_exact(f->rootfd, "layer/5", 0700) < 0)
		return -1;
	return unsetenv("VS_BOOT_ID");
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r;

	if (!f)
		return 0;
	close_body(f);
	(void)close(f->rootfd);
	if (f->mounted)
		(void)umount2(f->path, MNT_DETACH);
	r = remove_tree(f->tmpfd, f->name);
	(void)close(f->tmpfd);
	free(f->bytes);
	free(f);
	return r;
}

static int write_bit(struct fixture *f, uint32_t bit)
{
	return body_write(f->b, &f->lay, bit, f->bytes + f->x[bit].off,
			  f->x[bit].len);
}

static void write_bits(struct fixture *f, uint64_t bits)
{
	for (uint32_t i = 0; i < f->id.n_extents; i++) {
		if (bits >> i & 1)
			assert_int_equal(write_bit(f, i), 0);
	}
}

#define ALL UINT64_MAX

static int read_at(struct fixture *f, uint64_t off, size_t len)
{
	owned(mem) uint8_t *p = malloc(len + 1);
	int r;

	assert_non_null(p);
	p[len] = 0xa5;
	r = body_read(f->b, &f->lay, off, p, len);
	if (r == 0)
		assert_memory_equal(p, f->bytes + off, len);
	assert_int_equal(p[len], 0xa5); /* never beyond */
	return r;
}

static int read_bit(struct fixture *f, uint32_t bit)
{
	return read_at(f, f->x[bit].off, f->x[bit].len);
}

/* Exactly the extents in @bits are served. */
static void expect_served(struct fixture *f, uint64_t bits)
{
	for (uint32_t i = 0; i < f->id.n_extents; i++)
		assert_int_equal(read_bit(f, i), bits >> i & 1 ? 0 : -EAGAIN);
}

static int open_raw(struct fixture *f, bool of_state)
{
	char path[128], hex[DIGEST_HEX_LEN + 1];
	int fd;

	hex_encode(f->id.ckey.b, DIGEST_LEN, hex);
	if (digest_is_zero(&f->id.ckey))
		(void)snprintf(path, sizeof(path), "layer/5/pack");
	else
		(void)snprintf(path, sizeof(path), "body/%.2s/%s", hex, hex);
	if (of_state)
		strncat(path, ".state", sizeof(path) - strlen(path) - 1);
	fd = openat(f->rootfd, path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void flip(struct fixture *f, bool of_state, uint64_t off)
{
	owned(fd) int fd = open_raw(f, of_state);
	uint8_t byte;

	assert_int_equal(pread_full(fd, &byte, 1, off), 0);
	byte ^= 0x40;
	assert_int_equal(pwrite_full(fd, &byte, 1, off), 0);
}

static void flip_data(struct fixture *f, uint64_t off)
{
	flip(f, false, off);
}

static void flip_leaf(struct fixture *f, uint64_t block)
{
	flip(f, true, state_leaves_off(f->id.n_extents) + block * 32);
}

/* Copies @len bytes of data or state elsewhere, to be put back later: what a
 * power cut does to a block that was not written back. */
static void peek(struct fixture *f, bool of_state, uint64_t off, void *p,
		 size_t len)
{
	owned(fd) int fd = open_raw(f, of_state);

	assert_int_equal(pread_full(fd, p, len, off), 0);
}

static void poke(struct fixture *f, bool of_state, uint64_t off, const void *p,
		 size_t len)
{
	owned(fd) int fd = open_raw(f, of_state);

	assert_int_equal(pwrite_full(fd, p, len, off), 0);
}

/* Sets the bitmap on the disk, with its checksum. */
static void poke_bits(struct fixture *f, uint64_t bits)
{
	uint8_t sector[STATE_SECTOR_BYTES] = { 0 };
	owned(fd) int fd = open_raw(f, true);

	put_le64(sector, bits);
	assert_int_equal(state_write_bits(fd, 0, sector), 0);
}

static void body_read_gives_what_was_written(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	expect_served(f, ALL);
	assert_int_equal(read_at(f, 0, f->id.size), 0);
	assert_int_equal(read_at(f, 4095, 2), 0);
	assert_int_equal(read_at(f, f->id.size - 1, 1), 0);
	assert_int_equal(read_at(f, f->id.size, 0), 0);
}

static void body_read_serves_any_part_of_a_large_file(void **state)
{
	struct fixture *f = *state;
	uint32_t x = 1;

	make_large(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(read_at(f, 0, f->id.size), 0);
	for (int i = 0; i < 200; i++) {
		uint64_t off, len;

		x = x * 1664525u + 1013904223u;
		off = x % f->id.size;
		len = (x >> 7) % (f->id.size - off + 1);
		assert_int_equal(read_at(f, off, len), 0);
	}
}

static void body_read_wants_every_extent_of_the_range(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, 1u << 2 | 1u << 5);
	expect_served(f, 1u << 2 | 1u << 5);
	/* one byte into the next extent */
	assert_int_equal(read_at(f, f->x[5].off, f->x[5].len + 1), -EAGAIN);
	assert_int_equal(body_n_landed(f->b), 2);
	assert_true(body_has(f->b, 5));
	assert_false(body_has(f->b, 6));
	assert_false(body_has(f->b, UINT32_MAX));
}

static void body_read_refuses_to_pass_the_end(void **state)
{
	struct fixture *f = *state;
	uint8_t p[8];

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_read(f->b, &f->lay, f->id.size - 1, p, 2),
			 -EINVAL);
	assert_int_equal(body_read(f->b, &f->lay, UINT64_MAX - 3, p, 8),
			 -EINVAL);
}

static void body_write_refuses_another_length(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_write(f->b, &f->lay, 2, f->bytes, 4999), -EINVAL);
	assert_int_equal(body_write(f->b, &f->lay, 2, f->bytes, 5001), -EINVAL);
	assert_int_equal(body_write(f->b, &f->lay, PACK_N, f->bytes, 5001),
			 -EINVAL);
	assert_int_equal(body_n_landed(f->b), 0);
}

static void body_write_of_a_landed_extent_changes_nothing(void **state)
{
	struct fixture *f = *state;
	uint8_t junk[5000] = { 1 };

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_write(f->b, &f->lay, 2, junk, 5000), 0);
	expect_served(f, ALL);
}

static void body_open_finds_what_had_landed(void **state)
{
	struct fixture *f = *state;
	uint64_t bits = 1u << 0 | 1u << 3 | 1u << 7 | 1u << 11;

	make_pack(f);
	open_body(f);
	write_bits(f, bits);
	reopen(f);
	assert_int_equal(body_n_landed(f->b), 4);
	expect_served(f, bits);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void body_open_gives_the_same_object(void **state)
{
	struct fixture *f = *state;
	struct body_id other;
	struct body *again;

	make_pack(f);
	open_body(f);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &again), 0);
	assert_ptr_equal(again, f->b);
	body_put(again);
	other = f->id;
	other.size++;
	assert_int_equal(body_open(f->bs, &other, &f->lay, &again), -EUCLEAN);
}

static void body_open_refuses_impossible_ids(void **state)
{
	struct fixture *f = *state;
	struct body_id id;
	struct body *b;

	make_pack(f);
	open_body(f);
	id = f->id;
	id.size = 0;
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id.size = STATE_SIZE_MAX + 1;
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id.size = 11; /* fewer bytes than extents */
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -EINVAL);
	id = f->id;
	id.seq = 6; /* no such layer folder */
	assert_int_equal(body_open(f->bs, &id, &f->lay, &b), -ENOENT);
}

static void body_open_refuses_the_state_of_another(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	close_body(f);
	f->id.n_extents--;
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), -EUCLEAN);
}

static void body_open_lands_holes(void **state)
{
	static const uint32_t lens[] = { 5000, 1 << 20, 3000, 200000, 4096 };
	struct fixture *f = *state;

	make_layout(f, lens, 5, 1, 1u << 1 | 1u << 3);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), 2);
	expect_served(f, 1u << 1 | 1u << 3);
	write_bits(f, 1u << 0 | 1u << 2);
	expect_served(f, 0xf);
	reopen(f);
	expect_served(f, 0xf);
	/* and a damaged one is made good without a fetch */
	flip_data(f, f->x[1].off + 100000);
	flip_data(f, f->x[1].off + 1); /* in the block it shares */
	expect_served(f, 0xf);
	assert_int_equal(body_n_landed(f->b), 4);
}

static void damaged_data_is_fetched_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (uint32_t i = 0; i < PACK_N; i++) {
		flip_data(f, f->x[i].off + f->x[i].len / 2);
		expect_served(f, ALL & ~(1ull << i));
		assert_int_equal(body_n_landed(f->b), PACK_N - 1);
		reopen(f); /* the bit is gone from the disk, too */
		expect_served(f, ALL & ~(1ull << i));
		write_bits(f, ALL);
		expect_served(f, ALL);
	}
}

static void damaged_leaf_costs_nothing(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (uint64_t i = 0; i < leaves_count(f->id.size); i++)
		flip_leaf(f, i);
	expect_served(f, ALL);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	reopen(f);
	expect_served(f, ALL);
}

/* Bits that nothing stands behind; block 0 has a leaf that matches, though. */
static void damaged_bit_is_not_believed(void **state)
{
	struct fixture *f = *state;
	uint8_t ones[2] = { 0xff, 0xff };

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 1);
	close_body(f);
	poke(f, true, STATE_BITMAP_OFF, ones, 2);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	assert_int_equal(read_bit(f, 1), 0);
	reopen(f); /* it stays in doubt */
	expect_served(f, 1u << 1);
	assert_int_equal(body_n_landed(f->b), 1);
	reopen(f);
	expect_served(f, 1u << 1);
}

/* Bits that are lost with their checksum only cost another fetch. */
static void lost_bit_is_landed_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	poke_bits(f, 0xf0f);
	open_body(f);
	expect_served(f, 0xf0f);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void damaged_header_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	flip(f, true, 20);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, ALL);
	reopen(f);
	expect_served(f, ALL);
}

static void lost_data_file_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack", 0), 0);
	open_body(f);
	expect_served(f, 0);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

static void lost_state_file_means_beginning_again(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	close_body(f);
	assert_int_equal(unlinkat(f->rootfd, "layer/5/pack.state", 0), 0);
	open_body(f);
	expect_served(f, 0);
}

static void truncated_data_loses_only_its_end(void **state)
{
	struct fixture *f = *state;
	uint64_t kept = (1u << 5) - 1; /* extents before the cut */

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (int reopened = 0; reopened < 2; reopened++) {
		owned(fd) int fd = open_raw(f, false);

		assert_int_equal(ftruncate(fd, (off_t)f->x[5].off + 3), 0);
		if (reopened)
			reopen(f);
		expect_served(f, kept);
		write_bits(f, ALL);
		expect_served(f, ALL);
	}
}

static void truncated_state_loses_only_leaves(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	for (int reopened = 0; reopened < 2; reopened++) {
		owned(fd) int fd = open_raw(f, true);
		off_t end = (off_t)state_leaves_off(PACK_N) + 70;

		assert_int_equal(ftruncate(fd, end), 0);
		if (reopened)
			reopen(f);
		expect_served(f, ALL);
		assert_int_equal(body_n_landed(f->b), PACK_N);
	}
}

/* Rule 3: a new leaf must not vouch for an old neighbour's damage. */
static void body_write_does_not_bless_a_damaged_neighbour(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 0 | 1u << 2);
	flip_data(f, f->x[0].off + 7);
	write_bits(f, 1u << 1); /* same block as 0 and 2 */
	assert_false(body_has(f->b, 0));
	expect_served(f, 1u << 1 | 1u << 2);
	write_bits(f, 1u << 0);
	expect_served(f, 7);
}

/* Killed between data and leaf: the neighbour must not be lost. */
static void torn_write_keeps_the_neighbour(void **state)
{
	struct fixture *f = *state;
	uint8_t junk[700];

	make_pack(f);
	open_body(f);
	write_bits(f, 1u << 0);
	memset(junk, 0x77, sizeof(junk));
	poke(f, false, f->x[1].off, junk, sizeof(junk));
	expect_served(f, 1u << 0);
	write_bits(f, 1u << 1);
	expect_served(f, 3);
}

/* Rule 4. Data and leaf of a shared block are those of before the second
 * extent, the bit is newer: each matches the other, both are stale. */
static void power_cut_with_matching_stale_leaf_is_seen(void **state)
{
	struct fixture *f = *state;
	uint8_t data[LEAF_BLOCK], leaf[32];
	uint64_t leaf_off;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	leaf_off = state_leaves_off(PACK_N);
	open_body(f);
	write_bits(f, 1u << 0);
	peek(f, false, 0, data, sizeof(data));
	peek(f, true, leaf_off, leaf, sizeof(leaf));
	write_bits(f, 1u << 1 | 1u << 6);
	close_body(f);
	poke(f, false, 0, data, sizeof(data));
	poke(f, true, leaf_off, leaf, sizeof(leaf));
	assert_int_equal(setenv("VS_BOOT_ID", "boot-2", 1), 0);
	open_body(f);
	expect_served(f, 1u << 0 | 1u << 6);
	assert_int_equal(body_n_landed(f->b), 2);
	write_bits(f, ALL);
	expect_served(f, ALL);
}

/* The same, and the first that happens is not a read. */
static void power_cut_is_seen_before_complete(void **state)
{
	struct fixture *f = *state;
	uint8_t data[LEAF_BLOCK], leaf[32];
	uint64_t leaf_off;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	leaf_off = state_leaves_off(PACK_N);
	open_body(f);
	write_bits(f, ALL & ~(1ull << 1));
	peek(f, false, 0, data, sizeof(data));
	peek(f, true, leaf_off, leaf, sizeof(leaf));
	write_bits(f, ALL);
	close_body(f);
	poke(f, false, 0, data, sizeof(data));
	poke(f, true, leaf_off, leaf, sizeof(leaf));
	assert_int_equal(setenv("VS_BOOT_ID", "boot-2", 1), 0);
	open_body(f);
	assert_int_equal(body_n_landed(f->b), PACK_N);
	assert_int_equal(body_complete(f->b, &f->lay), -EAGAIN);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	write_bits(f, 1u << 1);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

/* Doubt survives a crash in the new boot, until all has been looked at. */
static void doubt_ends_when_everything_was_hashed(void **state)
{
	struct fixture *f = *state;
	struct state_header h;
	owned(fd) int fd = -1;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	open_body(f);
	write_bits(f, 0x0f);
	fd = open_raw(f, true);
	reboot(f, "boot-2");
	write_bits(f, 0x10);
	assert_int_equal(read_bit(f, 0), 0);
	reopen(f);
	assert_int_equal(state_read_header(fd, &h), 0);
	assert_string_equal(h.boot, "boot-1");
	expect_served(f, 0x1f);
	assert_int_equal(state_read_header(fd, &h), 0);
	assert_string_equal(h.boot, "boot-2");
}

static void body_complete_waits_for_the_last_extent(void **state)
{
	struct fixture *f = *state;
	struct digest d;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL & ~(1ull << 4));
	assert_int_equal(body_complete(f->b, &f->lay), -EAGAIN);
	assert_int_equal(body_expected_digest(f->b, &d), -EINVAL);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	expect_served(f, ALL);
}

static void body_expected_digest_is_that_of_the_bytes(void **state)
{
	struct fixture *f = *state;
	struct digest want, got, *leaves;
	size_t n;

	make_large(f);
	n = leaves_count(f->id.size);
	leaves = malloc(n * sizeof(*leaves));
	assert_non_null(leaves);
	assert_int_equal(leaves_hash(f->bytes, f->id.size, leaves), 0);
	assert_int_equal(leaves_root(leaves, f->id.size, &want), 0);
	free(leaves);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	assert_int_equal(body_expected_digest(f->b, &got), 0);
	assert_memory_equal(want.b, got.b, DIGEST_LEN);
}

static void damage_makes_a_complete_body_partial(void **state)
{
	struct fixture *f = *state;

	make_large(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	flip_data(f, f->x[1].off + 1000);
	expect_served(f, ALL & ~2ull);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	reopen(f);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

static void complete_body_is_not_doubted_after_a_reboot(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(setenv("VS_BOOT_ID", "boot-1", 1), 0);
	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	reboot(f, "boot-2");
	assert_int_equal(body_get_state(f->b), BODY_COMPLETE);
	expect_served(f, ALL);
}

static void complete_header_without_all_bits_is_not_believed(void **state)
{
	struct fixture *f = *state;

	make_pack(f);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	close_body(f);
	poke_bits(f, 0xff7);
	open_body(f);
	assert_int_equal(body_get_state(f->b), BODY_PARTIAL);
	expect_served(f, ALL & ~(1ull << 3));
}

static void body_write_survives_a_full_disk(void **state)
{
	static const uint32_t lens[] = { 200000, 200000, 1000000, 1000 };
	struct fixture *f = *state;
	owned(mem) char *fill = calloc(1, 1 << 20);
	owned(fd) int fd = -1;
	ssize_t n;

	/* of our own, so that a killed test leaves no mount behind */
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("vs-test", f->path, "tmpfs", 0, "size=2m"), 0);
	f->mounted = true;
	(void)close(f->rootfd);
	f->rootfd = open_dir(AT_FDCWD, f->path);
	assert_int_equal(mkdir_exact(f->rootfd, "layer", 0700), 0);
	assert_int_equal(mkdir_exact(f->rootfd, "layer/5", 0700), 0);
	make_layout(f, lens, 4, 1, 0);
	open_body(f);
	write_bits(f, 1);
	fd = openat(f->rootfd, "fill", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	n = write(fd, fill, 1 << 20);
	assert_true(n > 0);
	assert_int_equal(write_bit(f, 1), 0);
	assert_int_equal(write_bit(f, 2), -ENOSPC);
	assert_false(body_has(f->b, 2));
	expect_served(f, 3);
	assert_int_equal(ftruncate(fd, 0), 0);
	write_bits(f, ALL);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	expect_served(f, ALL);
}

static void bodies_unlink_removes_files_and_folder(void **state)
{
	struct fixture *f = *state;
	char fanout[16];

	make_large(f);
	(void)snprintf(fanout, sizeof(fanout), "body/%02x", f->id.ckey.b[0]);
	open_body(f);
	write_bits(f, 3);
	assert_int_equal(faccessat(f->rootfd, fanout, F_OK, 0), 0);
	assert_int_equal(bodies_unlink(f->bs, &f->id), -EBUSY);
	body_put(f->b);
	f->b = NULL;
	assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
	assert_int_equal(faccessat(f->rootfd, fanout, F_OK, 0), -1);
	assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
	expect_served(f, 0);
}

struct worker {
	struct fixture *f;
	uint32_t first_bit; /* writes every second extent from here */
	atomic_int *n_bad;
	atomic_bool *stop;
};

static void *write_every_second(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = w->first_bit; i < w->f->id.n_extents; i += 2) {
		if (write_bit(w->f, i) != 0)
			atomic_fetch_add(w->n_bad, 1);
		(void)sched_yield();
	}
	return NULL;
}

static void *read_until_stopped(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	uint8_t p[5000];

	while (!atomic_load(w->stop)) {
		for (uint32_t i = 0; i < f->id.n_extents; i++) {
			bool has = body_has(f->b, i);
			int r = body_read(f->b, &f->lay, f->x[i].off, p,
					  f->x[i].len);

			/* nothing is lost, nothing wrong is served */
			if ((r != 0 && (has || r != -EAGAIN)) ||
			    (r == 0 &&
			     memcmp(p, f->bytes + f->x[i].off, f->x[i].len)))
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

/* Neighbours of one block are written by two threads while two others read. */
static void threads_share_blocks_without_loss(void **state)
{
	struct fixture *f = *state;
	uint32_t lens[EXTENTS_MAX];

	for (uint32_t i = 0; i < EXTENTS_MAX; i++)
		lens[i] = 300 + i * 7 % 900;
	make_layout(f, lens, EXTENTS_MAX, 512, 0);
	open_body(f);
	for (int round = 0; round < 20; round++) {
		atomic_int n_bad = 0;
		atomic_bool stop = false;
		struct worker w[4];
		pthread_t t[4];

		for (uint32_t i = 0; i < 4; i++) {
			w[i] = (struct worker){ f, i % 2, &n_bad, &stop };
			assert_int_equal(
				pthread_create(&t[i], NULL,
					       i < 2 ? write_every_second
						     : read_until_stopped,
					       &w[i]),
				0);
		}
		for (int i = 0; i < 4; i++) {
			assert_int_equal(pthread_join(t[i], NULL), 0);
			if (i == 1)
				atomic_store(&stop, true);
		}
		assert_int_equal(atomic_load(&n_bad), 0);
		assert_int_equal(body_n_landed(f->b), EXTENTS_MAX);
		body_put(f->b);
		f->b = NULL;
		assert_int_equal(bodies_unlink(f->bs, &f->id), 0);
		assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
	}
}

static void *damage_often(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;

	for (uint32_t i = 0; i < 300; i++) {
		uint32_t bit = i * 7 % f->id.n_extents;

		flip_data(f, f->x[bit].off + i % f->x[bit].len);
		for (uint32_t k = 0; k < f->id.n_extents; k++) {
			if (write_bit(f, k) != 0)
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

static void *check_bytes_only(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	uint8_t p[5000];

	while (!atomic_load(w->stop)) {
		for (uint32_t i = 0; i < f->id.n_extents; i++) {
			int r = body_read(f->b, &f->lay, f->x[i].off, p,
					  f->x[i].len);

			if (r == 0 &&
			    memcmp(p, f->bytes + f->x[i].off, f->x[i].len))
				atomic_fetch_add(w->n_bad, 1);
		}
	}
	return NULL;
}

/* Settling gives blocks new leaves in spite of bad extents in them: no reader
 * may slip in between. */
static void damage_is_never_served_while_it_is_settled(void **state)
{
	struct fixture *f = *state;
	atomic_int n_bad = 0;
	atomic_bool stop = false;
	uint32_t lens[24];
	struct worker w = { f, 0, &n_bad, &stop };
	pthread_t t[3];

	for (uint32_t i = 0; i < ARRAY_LEN(lens); i++)
		lens[i] = 400 + i * 31;
	make_layout(f, lens, ARRAY_LEN(lens), 512, 0);
	open_body(f);
	write_bits(f, ALL);
	assert_int_equal(pthread_create(&t[0], NULL, damage_often, &w), 0);
	assert_int_equal(pthread_create(&t[1], NULL, check_bytes_only, &w), 0);
	assert_int_equal(pthread_create(&t[2], NULL, check_bytes_only, &w), 0);
	assert_int_equal(pthread_join(t[0], NULL), 0);
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(t[1], NULL), 0);
	assert_int_equal(pthread_join(t[2], NULL), 0);
	assert_int_equal(atomic_load(&n_bad), 0);
}

/* Extents of one byte: the neighbours of a block are many. */
static void tiny_extents_share_a_block(void **state)
{
	struct fixture *f = *state;
	uint32_t lens[EXTENTS_MAX];

	for (uint32_t i = 0; i < EXTENTS_MAX; i++)
		lens[i] = 1;
	make_layout(f, lens, EXTENTS_MAX, 1, 0);
	open_body(f);
	for (uint32_t i = 0; i < EXTENTS_MAX; i += 2)
		assert_int_equal(write_bit(f, EXTENTS_MAX - 2 - i), 0);
	flip_data(f, 10);
	for (uint32_t i = 1; i < EXTENTS_MAX; i += 2)
		assert_int_equal(write_bit(f, i), 0);
	assert_false(body_has(f->b, 10));
	assert_int_equal(body_n_landed(f->b), EXTENTS_MAX - 1);
	assert_int_equal(write_bit(f, 10), 0);
	expect_served(f, ALL);
}

/* More open bodies than may keep their fds. */
static void many_bodies_take_turns_with_fds(void **state)
{
	static const uint32_t lens[] = { 5000, 3000 };
	struct fixture *f = *state;
	struct body *many[1100];
	int last;

	make_layout(f, lens, 2, 1, 0);
	f->id.seq = 0;
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++) {
		put_le32(f->id.ckey.b, i + 1);
		f->id.ckey.b[0] = 1; /* one folder */
		put_le32(f->id.ckey.b + 4, i + 1);
		assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
		many[i] = f->b;
		write_bits(f, 1);
	}
	last = openat(f->rootfd, ".", O_RDONLY | O_CLOEXEC);
	assert_in_range(last, 0, 1024 * 3 + 50);
	(void)close(last);
	for (uint32_t i = 0; i < ARRAY_LEN(many); i += 50) {
		f->b = many[i];
		write_bits(f, 2);
		assert_int_equal(read_at(f, 0, 8000), 0);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(many); i++)
		body_put(many[i]);
	f->b = NULL;
}

struct big_pack {
	uint32_t n;
	uint8_t *bytes;
	uint8_t digest_of[4];
	unsigned n_calls;
};

#define BIG_LEN 1500u
#define BIG_STEP 1536u

static int big_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	struct big_pack *p = ctx;

	p->n_calls++;
	*ret = (struct body_extent){ .off = (uint64_t)bit * BIG_STEP,
				     .len = BIG_LEN };
	return 0;
}

static int big_find(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	(void)ctx;
	*ret_bit = (uint32_t)(off / BIG_STEP + (off % BIG_STEP >= BIG_LEN));
	return 0;
}

/* 50,000 small files: nothing may be quadratic. Counted, not timed. */
static void pack_of_50000_files_needs_few_looks_at_the_layout(void **state)
{
	struct fixture *f = *state;
	struct big_pack pack = { .n = 50000 };
	uint8_t p[BIG_LEN];

	f->id = (struct body_id){ .seq = 5,
				  .size = 49999ull * BIG_STEP + BIG_LEN,
				  .n_extents = 50000 };
	f->lay = (struct body_layout){ .extent = big_extent,
				       .find = big_find,
				       .ctx = &pack,
				       .no_holes = true };
	open_body(f);
	assert_int_equal(pack.n_calls, 0);
	for (uint32_t i = 0; i < pack.n; i++) {
		memset(p, (int)(i % 251), sizeof(p));
		assert_int_equal(body_write(f->b, &f->lay, i, p, BIG_LEN), 0);
	}
	assert_in_range(pack.n_calls, pack.n, 6 * pack.n);
	assert_int_equal(body_complete(f->b, &f->lay), 0);
	for (uint32_t i = 0; i < pack.n; i += 97) {
		assert_int_equal(body_read(f->b, &f->lay,
					   (uint64_t)i * BIG_STEP, p, BIG_LEN),
				 0);
		assert_int_equal(p[BIG_LEN - 1], (int)(i % 251));
	}
	reopen(f);
	assert_int_equal(body_n_landed(f->b), pack.n);
}

static void drop_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)msg;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(body_read_gives_what_was_written),
		T(body_read_serves_any_part_of_a_large_file),
		T(body_read_wants_every_extent_of_the_range),
		T(body_read_refuses_to_pass_the_end),
		T(body_write_refuses_another_length),
		T(body_write_of_a_landed_extent_changes_nothing),
		T(body_open_finds_what_had_landed),
		T(body_open_gives_the_same_object),
		T(body_open_refuses_impossible_ids),
		T(body_open_refuses_the_state_of_another),
		T(body_open_lands_holes),
		T(damaged_data_is_fetched_again),
		T(damaged_leaf_costs_nothing),
		T(damaged_bit_is_not_believed),
		T(lost_bit_is_landed_again),
		T(damaged_header_means_beginning_again),
		T(lost_data_file_means_beginning_again),
		T(lost_state_file_means_beginning_again),
		T(truncated_data_loses_only_its_end),
		T(truncated_state_loses_only_leaves),
		T(body_write_does_not_bless_a_damaged_neighbour),
		T(torn_write_keeps_the_neighbour),
		T(power_cut_with_matching_stale_leaf_is_seen),
		T(power_cut_is_seen_before_complete),
		T(doubt_ends_when_everything_was_hashed),
		T(body_complete_waits_for_the_last_extent),
		T(body_expected_digest_is_that_of_the_bytes),
		T(damage_makes_a_complete_body_partial),
		T(complete_body_is_not_doubted_after_a_reboot),
		T(complete_header_without_all_bits_is_not_believed),
		T(bodies_unlink_removes_files_and_folder),
		T(threads_share_blocks_without_loss),
		T(damage_is_never_served_while_it_is_settled),
		T(tiny_extents_share_a_block),
		T(many_bodies_take_turns_with_fds),
		T(pack_of_50000_files_needs_few_looks_at_the_layout),
		T(body_write_survives_a_full_disk), /* unshares: the last */
	};

	log_set_sink(drop_line);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
