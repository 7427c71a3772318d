/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A body on a real file system, its layout, and ways to damage its files behind
 * its back. The layout is made from a list of lengths; extent i of a pack begins
 * at the next multiple of its alignment. Include after <cmocka.h>.
 */
#ifndef TESTS_UNIT_BODY_FIXTURE_H
#define TESTS_UNIT_BODY_FIXTURE_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/body.h"
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
};

static inline int get_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	struct fixture *f = ctx;

	assert_true(bit < f->id.n_extents);
	*ret = f->x[bit];
	return 0;
}

static inline int find_extent(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	struct fixture *f = ctx;
	uint32_t bit = 0;

	while (bit < f->id.n_extents && f->x[bit].off + f->x[bit].len <= off)
		bit++;
	*ret_bit = bit;
	return 0;
}

/* Describes a body of @n extents with lengths @len; 0 in @holes: none. */
static inline void make_layout(struct fixture *f, const uint32_t *len,
			       uint32_t n, uint32_t align, uint64_t holes)
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

static inline void make_pack(struct fixture *f)
{
	make_layout(f, pack_lens, PACK_N, 512, 0);
}

static inline void make_large(struct fixture *f)
{
	static const uint32_t lens[] = { 1 << 20, 300000, 1 << 20, 77777 };
	struct ckey_builder *k;

	make_layout(f, lens, ARRAY_LEN(lens), 1, 0);
	assert_int_equal(ckey_begin(f->id.size, &k), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(lens); i++)
		assert_int_equal(ckey_add(k, lens[i], &f->x[i].digest), 0);
	assert_int_equal(ckey_end(k, &f->id.ckey), 0);
}

static inline void open_body(struct fixture *f)
{
	assert_int_equal(bodies_new(f->rootfd, &f->bs), 0);
	assert_int_equal(body_open(f->bs, &f->id, &f->lay, &f->b), 0);
}

static inline void close_body(struct fixture *f)
{
	body_put(f->b);
	bodies_free(f->bs);
	f->b = NULL;
	f->bs = NULL;
}

static inline void reopen(struct fixture *f)
{
	close_body(f);
	open_body(f);
}

/* The next opening happens in another boot of the machine. */
static inline void reboot(struct fixture *f, const char *id)
{
	close_body(f);
	assert_int_equal(setenv("VS_BOOT_ID", id, 1), 0);
	open_body(f);
}

static inline int setup(void **state)
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

static inline int teardown(void **state)
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

static inline int write_bit(struct fixture *f, uint32_t bit)
{
	return body_write(f->b, &f->lay, bit, f->bytes + f->x[bit].off,
			  f->x[bit].len);
}

static inline void write_bits(struct fixture *f, uint64_t bits)
{
	for (uint32_t i = 0; i < f->id.n_extents; i++) {
		if (bits >> i & 1)
			assert_int_equal(write_bit(f, i), 0);
	}
}

#define ALL UINT64_MAX

static inline int read_at(struct fixture *f, uint64_t off, size_t len)
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

static inline int read_bit(struct fixture *f, uint32_t bit)
{
	return read_at(f, f->x[bit].off, f->x[bit].len);
}

/* Exactly the extents in @bits are served. */
static inline void expect_served(struct fixture *f, uint64_t bits)
{
	for (uint32_t i = 0; i < f->id.n_extents; i++)
		assert_int_equal(read_bit(f, i), bits >> i & 1 ? 0 : -EAGAIN);
}

static inline int open_raw(struct fixture *f, bool of_state)
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

static inline void flip(struct fixture *f, bool of_state, uint64_t off)
{
	owned(fd) int fd = open_raw(f, of_state);
	uint8_t byte;

	assert_int_equal(pread_full(fd, &byte, 1, off), 0);
	byte ^= 0x40;
	assert_int_equal(pwrite_full(fd, &byte, 1, off), 0);
}

static inline void flip_data(struct fixture *f, uint64_t off)
{
	flip(f, false, off);
}

static inline void flip_leaf(struct fixture *f, uint64_t block)
{
	flip(f, true, state_leaves_off(f->id.n_extents) + block * 32);
}

/* Copies @len bytes of data or state elsewhere, to be put back later: what a
 * power cut does to a block that was not written back. */
static inline void peek(struct fixture *f, bool of_state, uint64_t off, void *p,
			size_t len)
{
	owned(fd) int fd = open_raw(f, of_state);

	assert_int_equal(pread_full(fd, p, len, off), 0);
}

static inline void poke(struct fixture *f, bool of_state, uint64_t off,
			const void *p, size_t len)
{
	owned(fd) int fd = open_raw(f, of_state);

	assert_int_equal(pwrite_full(fd, p, len, off), 0);
}

/* Sets the bitmap on the disk, with its checksum. */
static inline void poke_bits(struct fixture *f, uint64_t bits)
{
	uint8_t sector[STATE_SECTOR_BYTES] = { 0 };
	owned(fd) int fd = open_raw(f, true);

	put_le64(sector, bits);
	assert_int_equal(state_write_bits(fd, 0, sector), 0);
}

static inline void drop_line(enum log_level level, const char *msg)
{
	(void)level;
	(void)msg;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
