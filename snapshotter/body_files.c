/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies on disk: where their files lie, how they are created, what is found
 * when they are opened, how they go. Runs without locks, on a body that is
 * marked busy in the table.
 *
 * The name of the state file decides: what has no state has nothing landed, and
 * its bytes are thrown away.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"
#include "snapshotter/body_priv.h"

#define HOLE_RUN 256 /* leaves of a hole written at once */

static bool is_pack(const struct body_id *id)
{
	return digest_is_zero(&id->ckey);
}

void body_path(const struct body_id *id, const char *suffix,
	       char ret[BODY_PATH_MAX])
{
	char hex[DIGEST_HEX_LEN + 1];

	if (is_pack(id)) {
		(void)snprintf(ret, BODY_PATH_MAX, "layer/%" PRIu32 "/pack%s",
			       id->seq, suffix);
		return;
	}
	hex_encode(id->ckey.b, DIGEST_LEN, hex);
	(void)snprintf(ret, BODY_PATH_MAX, BODY_FANOUT "/%.2s/%s%s", hex, hex,
		       suffix);
}

void body_fanout_path(const struct body_id *id, char ret[BODY_PATH_MAX])
{
	(void)snprintf(ret, BODY_PATH_MAX, BODY_FANOUT "/%02x", id->ckey.b[0]);
}

/* Holes are landed from the start: the file is full of zeros where nothing has
 * been written, so that their leaves are known. */
static int land_holes(struct body *b, const struct body_layout *lay, int fd,
		      uint8_t *bits)
{
	static const uint8_t zeros[LEAF_BLOCK];
	struct digest run[HOLE_RUN];
	int r = leaf_hash(zeros, sizeof(zeros), &run[0]);

	for (size_t i = 1; i < HOLE_RUN; i++)
		run[i] = run[0];
	for (uint32_t bit = 0; r == 0 && bit < b->id.n_extents; bit++) {
		struct body_extent x;
		uint64_t block, end;

		r = body_extent(b, lay, bit, &x);
		if (r < 0 || !x.hole)
			continue;
		bits[bit / 8] |= (uint8_t)(1u << bit % 8);
		block = x.off / LEAF_BLOCK;
		end = leaves_count(x.off + x.len);
		while (r == 0 && block < end) {
			size_t n = end - block < HOLE_RUN
					   ? (size_t)(end - block)
					   : HOLE_RUN;

			r = state_write_leaves(fd, b->id.n_extents, block, n,
					       run);
			block += n;
		}
	}
	return r;
}

static int create_data(struct body *b)
{
	char path[BODY_PATH_MAX];
	owned(fd) int fd = -1;

	/* A new inode: whoever still has the old one open keeps what it has. */
	body_path(&b->id, "", path);
	if (unlinkat(b->bs->rootfd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(b->bs->rootfd, path,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)b->id.size) < 0) {
		int r = -errno;

		(void)unlinkat(b->bs->rootfd, path, 0);
		return r;
	}
	return fault_point("body_data_created");
}

static struct state_header new_header(const struct body *b)
{
	struct state_header h = {
		.kind = is_pack(&b->id) ? STATE_PACK : STATE_FILE,
		.phase = STATE_PARTIAL,
		.size = b->id.size,
		.n_extents = b->id.n_extents,
		.ckey = b->id.ckey,
	};

	memcpy(h.boot, b->bs->boot, sizeof(h.boot));
	return h;
}

static int create_state(struct body *b, const struct body_layout *lay,
			int *ret_fd)
{
	struct state_header h = new_header(b);
	uint32_t n_sectors = state_n_bit_sectors(b->id.n_extents);
	owned(mem) uint8_t *bits = calloc(n_sectors, STATE_SECTOR_BYTES);
	char path[BODY_PATH_MAX];
	owned(fd) int fd = -1;
	int r;

	if (!bits)
		return -ENOMEM;
	body_path(&b->id, ".state", path);
	r = state_create(b->bs->rootfd, path, &h, &fd);
	if (r < 0)
		return r;
	if (!lay->no_holes) {
		r = land_holes(b, lay, fd, bits);
		for (uint32_t i = 0; r == 0 && i < n_sectors; i++)
			r = state_write_bits(
				fd, i, bits + (size_t)i * STATE_SECTOR_BYTES);
	}
	if (r == 0)
		r = fault_point("body_state_written");
	if (r == 0)
		r = state_publish(b->bs->rootfd, path);
	if (r == 0)
		r = fault_point("body_created");
	if (r < 0) {
		(void)state_unlink(b->bs->rootfd, path);
		return r;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

/* Both files anew. On failure neither name stays, unless removal fails too;
 * then the next opening does it. */
static int create_files(struct body *b, const struct body_layout *lay,
			int *ret_fd)
{
	char path[BODY_PATH_MAX];
	int r = 0;

	/* bodies_unlink() of a neighbour may remove the empty folder. */
	for (int i = 0; i < 4; i++) {
		if (!is_pack(&b->id)) {
			body_fanout_path(&b->id, path);
			r = mkdir_exact(b->bs->rootfd, path, 0700);
		}
		if (r == 0)
			r = create_data(b);
		if (r != -ENOENT || is_pack(&b->id))
			break;
	}
	if (r == 0)
		r = create_state(b, lay, ret_fd);
	if (r < 0) {
		body_path(&b->id, "", path);
		(void)unlinkat(b->bs->rootfd, path, 0);
	}
	return r;
}

static void warn_about(const struct body *b, const char *what)
{
	char path[BODY_PATH_MAX];

	body_path(&b->id, "", path);
	log_warn("%s: body=%s", what, path);
}

/* 0; -ESTALE: begin again; -EUCLEAN: somebody else's. */
static int check_header(struct body *b, int fd, struct state_header *ret)
{
	struct state_header want = new_header(b);
	int r = state_read_header(fd, ret);

	/* A sector that cannot be read is lost like any other. */
	if (r == -EUCLEAN || r == -EIO) {
		warn_about(b, "state is damaged, fetching the contents again");
		return -ESTALE;
	}
	if (r < 0)
		return r;
	if (ret->kind != want.kind || ret->size != want.size ||
	    ret->n_extents != want.n_extents ||
	    !digest_equal(&ret->ckey, &want.ckey))
		return -EUCLEAN;
	return 0;
}

/* A file cut short gets its size back. What is missing reads as zeros then and
 * matches nothing, so that only the lost part is fetched again. */
static int restore_size(struct body *b, const char *path, uint64_t size,
			bool allocate)
{
	owned(fd) int fd = -1;
	struct stat st;

	if (fstatat(b->bs->rootfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	if ((uint64_t)st.st_size == size)
		return 0;
	log_warn("file of a body has another size, repairing: path=%s", path);
	fd = openat(b->bs->rootfd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return -errno;
	return allocate ? -posix_fallocate(fd, 0, (off_t)size) : 0;
}

/* A finished file is left as it is, whatever its size: where it does not match
 * it is replaced. -ESTALE: there is none. */
static int find_frozen(struct body *b, const char *path)
{
	struct stat st;

	if (fstatat(b->bs->rootfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return S_ISREG(st.st_mode) ? 0 : -ESTALE;
}

/* Opens what is there. -ESTALE: begin again. */
static int open_files(struct body *b, int *ret_fd)
{
	struct state_header h;
	char path[BODY_PATH_MAX];
	owned(fd) int fd = -1;
	int r;

	body_path(&b->id, ".state", path);
	fd = openat(b->bs->rootfd, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EROFS)
		fd = openat(b->bs->rootfd, path,
			    O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	r = check_header(b, fd, &h);
	if (r == 0)
		r = restore_size(b, path, state_file_size(&h), true);
	if (r == 0) {
		body_path(&b->id, "", path);
		r = h.frozen ? find_frozen(b, path)
			     : restore_size(b, path, h.size, false);
	}
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

static void count_bits(struct body *b)
{
	size_t len = bitmap_bytes(b);
	unsigned n_landed = 0;

	/* bits of extents that do not exist */
	for (uint32_t bit = b->id.n_extents; bit / 8 < len; bit++)
		b->bits[bit / 8] &= (uint8_t) ~(1u << bit % 8);
	for (size_t i = 0; i < len; i++)
		n_landed += (unsigned)__builtin_popcount(b->bits[i]);
	atomic_store(&b->n_landed, n_landed);
}

/* 0; 1: loaded, but not to be trusted. */
static int load_bits(struct body *b, int fd)
{
	uint8_t sector[STATE_SECTOR_BYTES];
	int doubt = 0;

	b->bits = calloc(bitmap_bytes(b), sizeof(*b->bits));
	if (!b->bits)
		return -ENOMEM;
	for (uint32_t i = 0; i < state_n_bit_sectors(b->id.n_extents); i++) {
		int r = state_read_bits(fd, i, sector);

		if (r == -EIO)
			memset(sector, 0, sizeof(sector));
		if (r == -EIO || r == -EUCLEAN)
			doubt = 1;
		else if (r < 0)
			return r;
		for (size_t k = 0; k < bit_sector_bytes(b, i); k++)
			b->bits[(size_t)i * STATE_SECTOR_BYTES + k] = sector[k];
	}
	count_bits(b);
	return doubt;
}

/* Everything that landed is to be hashed before use, however often this process
 * ends before it has been: until then no boot vouches for it. */
static int distrust(struct body *b, int fd)
{
	warn_about(b, "bitmap is damaged, checking all that is there");
	b->header.phase = STATE_PARTIAL;
	memset(&b->header.seal, 0, sizeof(b->header.seal));
	b->header.boot[0] = '\0';
	return state_write_header(fd, &b->header);
}

/* Rule 4: what another boot has written and not completed is in doubt. */
static int doubt_landed(struct body *b, int fd)
{
	if (state_same_boot(b->header.boot, b->bs->boot))
		return 0;
	if (atomic_load(&b->n_landed) == 0) {
		memcpy(b->header.boot, b->bs->boot, sizeof(b->header.boot));
		return state_write_header(fd, &b->header);
	}
	b->unsure = calloc(bitmap_bytes(b), sizeof(*b->unsure));
	if (!b->unsure)
		return -ENOMEM;
	for (size_t i = 0; i < bitmap_bytes(b); i++)
		b->unsure[i] = b->bits[i];
	atomic_store(&b->n_unsure, atomic_load(&b->n_landed));
	return 0;
}

/* A complete body that lacks a bit: the disk has lost it. */
static bool bits_contradict_header(const struct body *b)
{
	return (b->header.phase == STATE_COMPLETE ||
		b->header.phase == STATE_SEALED) &&
	       atomic_load(&b->n_landed) != b->id.n_extents;
}

/* The state of a body that was sealed: as recorded, if that is the file which
 * is there. Then all of it has landed, whatever the bitmap says. */
static int load_sealed(struct body *b)
{
	char path[BODY_PATH_MAX];
	owned(fd) int fd = -1;

	body_path(&b->id, "", path);
	fd = openat(b->bs->rootfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!body_fd_is_sealed(fd, &b->header.seal)) {
		warn_about(
			b,
			"file is not the one that was sealed, its blocks are checked by their leaves");
		return 0;
	}
	for (uint32_t bit = 0; bit < b->id.n_extents; bit++)
		b->bits[bit / 8] |= (uint8_t)(1u << bit % 8);
	atomic_store(&b->n_landed, b->id.n_extents);
	b->seal = b->header.seal;
	return 1;
}

int body_load(struct body *b, const struct body_layout *lay)
{
	char path[BODY_PATH_MAX];
	owned(fd) int fd = -1;
	int r = open_files(b, &fd), sealed = 0;
	bool doubt;

	if (r == -ESTALE) {
		/* The state goes first: without it nothing counts. */
		body_path(&b->id, ".state", path);
		r = state_unlink(b->bs->rootfd, path);
		if (r == 0)
			r = create_files(b, lay, &fd);
	}
	if (r == 0)
		r = state_read_header(fd, &b->header);
	if (r == 0)
		r = load_bits(b, fd);
	if (r < 0)
		return r;
	doubt = r == 1;
	if (b->header.phase == STATE_SEALED)
		sealed = r = load_sealed(b);
	if (r >= 0 && sealed != 1 && b->header.phase != STATE_BAD &&
	    (doubt || bits_contradict_header(b)))
		r = distrust(b, fd);
	if (r >= 0 && b->header.phase == STATE_PARTIAL)
		r = doubt_landed(b, fd);
	if (r < 0)
		return r;
	atomic_store(&b->frozen, b->header.frozen);
	atomic_store(&b->state, b->header.phase == STATE_SEALED && !sealed
					? BODY_COMPLETE
					: (int)b->header.phase);
	return 0;
}

int body_unlink_files(struct bodies *bs, const struct body_id *id)
{
	char path[BODY_PATH_MAX];
	int r;

	body_path(id, ".state", path);
	r = state_unlink(bs->rootfd, path);
	if (r < 0)
		return r;
	(void)fault_point("body_state_unlinked");
	body_path(id, ".tmp", path);
	if (unlinkat(bs->rootfd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	body_path(id, "", path);
	if (unlinkat(bs->rootfd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	if (is_pack(id))
		return 0;
	body_fanout_path(id, path);
	/* Neighbours may be in it: not an error. */
	if (unlinkat(bs->rootfd, path, AT_REMOVEDIR) < 0 &&
	    errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT)
		return -errno;
	return 0;
}
