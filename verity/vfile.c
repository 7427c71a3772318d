/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Immutable files that are checked as they are read; see vfile.h. Owns the
 * block cache of the process. The leaves of an open file stay in memory: they
 * were checked against the wanted digest once, and a cache miss then costs one
 * pread and one hash, whatever has become of the state file since. Of a sealed
 * file neither is needed: the kernel has measured the wanted digest.
 *
 * Never maps a file: a bad sector would be SIGBUS for the whole daemon.
 */
#include "verity/vfile.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include <libfsverity.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "verity/kernel.h"
#include "verity/leaves.h"
#include "verity/state.h"
#include "verity/stream.h"

#define N_WAYS 8 /* blocks that one set can hold */
#define N_SETS (VFILE_CACHE_BYTES / LEAF_BLOCK / N_WAYS)
#define N_LOCKS 16 /* set i is guarded by lock i % N_LOCKS */
#define DIRECT_MIN (32u << 10) /* bytes read past the cache */
#define CREATE_PIECE (256u << 10)
#define DESC_ROOT_HASH 16 /* in struct fsverity_descriptor of the kernel */

struct vfile {
	int fd;
	uint64_t id; /* of this opening; never reused */
	uint64_t size;
	atomic_uint n_part_bytes; /* see stream_count_part() */
	struct digest *leaves; /* NULL: the kernel checks what is read */
	atomic_bool is_damaged; /* and that was logged */
	char name[64]; /* for the log */
};

struct way {
	uint64_t file, block;
	uint64_t used; /* the set's clock at the last use; 0: empty */
	uint8_t *data; /* LEAF_BLOCK bytes, allocated at the first use */
};

struct set {
	uint64_t clock;
	struct way way[N_WAYS];
};

static struct set sets[N_SETS];
static struct lock locks[N_LOCKS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint_fast64_t next_id = 1;

static void init_locks(void)
{
	for (int i = 0; i < N_LOCKS; i++)
		lock_init(&locks[i], RANK_CACHE);
}

static size_t set_of(uint64_t file, uint64_t block)
{
	/* Fibonacci hashing: the high bits of the product are well mixed. */
	uint64_t h = (file << 32 ^ block) * 0x9e3779b97f4a7c15u;

	return (size_t)((h ^ h >> 32) % N_SETS);
}

static struct way *find_way_locked(struct set *s, uint64_t file, uint64_t block)
{
	for (struct way *w = s->way; w < s->way + N_WAYS; w++) {
		if (w->used && w->block == block && w->file == file)
			return w;
	}
	return NULL;
}

static bool cache_get(const struct vfile *v, uint64_t block, size_t at, void *p,
		      size_t len)
{
	size_t i = set_of(v->id, block);
	struct set *s = &sets[i];
	struct way *w;

	lock_take(&locks[i % N_LOCKS]);
	w = find_way_locked(s, v->id, block);
	if (w) {
		w->used = ++s->clock;
		memcpy(p, w->data + at, len);
	}
	lock_drop(&locks[i % N_LOCKS]);
	return w;
}

/* Out of memory means not cached, nothing else. */
static void cache_put(const struct vfile *v, uint64_t block,
		      const uint8_t data[LEAF_BLOCK])
{
	size_t i = set_of(v->id, block);
	struct set *s = &sets[i];
	struct way *w;

	lock_take(&locks[i % N_LOCKS]);
	w = find_way_locked(s, v->id, block);
	if (!w) {
		w = s->way;
		for (int k = 1; k < N_WAYS; k++) {
			if (s->way[k].used < w->used)
				w = &s->way[k];
		}
		if (!w->data)
			w->data = malloc(LEAF_BLOCK);
		if (w->data) {
			memcpy(w->data, data, LEAF_BLOCK);
			w->file = v->id;
			w->block = block;
			w->used = ++s->clock;
		}
	}
	lock_drop(&locks[i % N_LOCKS]);
}

/* Nothing can ask for this opening's blocks again: their memory goes with it. */
static void cache_drop(uint64_t file)
{
	for (size_t i = 0; i < N_SETS; i++) {
		lock_take(&locks[i % N_LOCKS]);
		for (struct way *w = sets[i].way; w < sets[i].way + N_WAYS;
		     w++) {
			if (!w->used || w->file != file)
				continue;
			free(take_ptr(&w->data));
			w->used = 0;
		}
		lock_drop(&locks[i % N_LOCKS]);
	}
}

static int damaged(struct vfile *v, uint64_t block)
{
	metrics_add(METRIC_VERIFICATION_FAILURES, METRIC_BAD_INDEX, 1);
	if (!atomic_exchange(&v->is_damaged, true))
		log_err("file is damaged on disk: name=%s block=%" PRIu64,
			v->name, block);
	return -EUCLEAN;
}

/* Reads and checks blocks from @block on; @len ends at a block's or the file's
 * end. */
static int read_blocks(struct vfile *v, uint64_t block, void *p, size_t len)
{
	const uint8_t *b = p;
	int r;

	if (len >= DIRECT_MIN) {
		r = stream_read(v->fd, p, len, block * LEAF_BLOCK);
	} else {
		r = stream_read_part(v->fd, p, len, block * LEAF_BLOCK);
		stream_count_part(v->fd, &v->n_part_bytes, len);
	}
	if (r == -ENODATA || (r == -EIO && !v->leaves))
		return damaged(v, block);
	if (r < 0 || !v->leaves)
		return r;
	for (; len; block++) {
		size_t n = len < LEAF_BLOCK ? len : LEAF_BLOCK;
		struct digest d;

		r = leaf_hash(b, n, &d);
		if (r < 0)
			return r;
		if (!digest_equal(&d, &v->leaves[block]))
			return damaged(v, block);
		b += n;
		len -= n;
	}
	return 0;
}

static int read_through_cache(struct vfile *v, uint64_t block, size_t at,
			      void *p, size_t len)
{
	uint8_t data[LEAF_BLOCK];
	uint64_t left = v->size - block * LEAF_BLOCK;
	size_t n = left < LEAF_BLOCK ? (size_t)left : LEAF_BLOCK;
	int r;

	if (cache_get(v, block, at, p, len))
		return 0;
	r = read_blocks(v, block, data, n);
	if (r < 0)
		return r;
	memset(data + n, 0, sizeof(data) - n);
	memcpy(p, data + at, len);
	cache_put(v, block, data);
	return 0;
}

int vfile_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	struct vfile *v = ctx;
	uint8_t *b = p;

	if (off > v->size || len > v->size - off)
		return -EINVAL;
	while (len) {
		uint64_t block = off / LEAF_BLOCK;
		size_t at = off % LEAF_BLOCK;
		size_t n = LEAF_BLOCK - at;
		int r;

		if (at == 0 && len >= DIRECT_MIN) {
			n = len - len % LEAF_BLOCK;
			r = read_blocks(v, block, b, n);
		} else {
			if (n > len)
				n = len;
			r = read_through_cache(v, block, at, b, n);
		}
		if (r < 0)
			return r;
		b += n;
		off += n;
		len -= n;
	}
	return 0;
}

static int state_name(const char *name, char ret[NAME_MAX + 1])
{
	int n = snprintf(ret, NAME_MAX + 1, "%s.state", name);

	return n > NAME_MAX ? -ENAMETOOLONG : 0;
}

/* What libfsverity reads, and where the leaves go that it finds on its way. */
struct creation {
	int fd, state_fd;
	uint64_t size, off; /* of the file; read so far */
	uint64_t n_leaves;
	uint64_t leaves_off; /* of the bottom level in its tree */
	uint8_t *data; /* CREATE_PIECE bytes, from the last multiple of it */
};

static int give_data(void *ctx, void *buf, size_t len)
{
	struct creation *c = ctx;
	uint8_t *b = buf;

	while (len) {
		size_t at = c->off % CREATE_PIECE;
		size_t n = CREATE_PIECE - at < len ? CREATE_PIECE - at : len;

		if (at == 0) {
			uint64_t left = c->size - c->off;
			int r = stream_read_part(c->fd, c->data,
						 left < CREATE_PIECE
							 ? (size_t)left
							 : CREATE_PIECE,
						 c->off);

			if (r < 0)
				return r;
		}
		memcpy(b, c->data + at, n);
		c->off += n;
		b += n;
		len -= n;
	}
	return 0;
}

/* The bottom level comes last in the layout of a tree. */
static int take_tree_size(void *ctx, uint64_t size)
{
	struct creation *c = ctx;
	uint64_t bottom = leaves_count(c->n_leaves * DIGEST_LEN) * LEAF_BLOCK;

	if (c->n_leaves > 1 && size < bottom)
		return -EINVAL;
	c->leaves_off = c->n_leaves > 1 ? size - bottom : 0;
	return 0;
}

static int take_tree_block(void *ctx, const void *block, size_t len,
			   uint64_t off)
{
	const struct creation *c = ctx;
	uint64_t first, left;

	if (off < c->leaves_off)
		return 0;
	first = (off - c->leaves_off) / DIGEST_LEN;
	if (first >= c->n_leaves)
		return -EINVAL;
	left = c->n_leaves - first;
	return state_write_leaves(
		c->state_fd, 0, first,
		left < len / DIGEST_LEN ? left : len / DIGEST_LEN, block);
}

/* A file of one block has no tree: its only leaf is the root hash. */
static int take_descriptor(void *ctx, const void *desc, size_t len)
{
	const struct creation *c = ctx;
	struct digest root;

	if (len < DESC_ROOT_HASH + DIGEST_LEN)
		return -EINVAL;
	if (c->n_leaves != 1)
		return 0;
	memcpy(root.b, (const uint8_t *)desc + DESC_ROOT_HASH, DIGEST_LEN);
	return state_write_leaves(c->state_fd, 0, 0, 1, &root);
}

/*
 * Hashes the file behind @fd into the leaf log behind @state_fd. The digest is
 * libfsverity's; every opening derives it again from the leaves by our own
 * code, so that neither can be wrong unnoticed.
 */
static int write_leaves(int fd, int state_fd, uint64_t size, struct digest *ret)
{
	owned(mem) uint8_t *data = malloc(CREATE_PIECE);
	owned(mem) struct libfsverity_digest *d = NULL;
	struct creation c = { .fd = fd,
			      .state_fd = state_fd,
			      .size = size,
			      .n_leaves = leaves_count(size),
			      .data = data };
	const struct libfsverity_metadata_callbacks callbacks = {
		.ctx = &c,
		.merkle_tree_size = take_tree_size,
		.merkle_tree_block = take_tree_block,
		.descriptor = take_descriptor,
	};
	const struct libfsverity_merkle_tree_params params = {
		.version = 1,
		.hash_algorithm = FS_VERITY_HASH_ALG_SHA256,
		.file_size = size,
		.block_size = LEAF_BLOCK,
		.metadata_callbacks = &callbacks,
	};
	int r;

	if (!data)
		return -ENOMEM;
	r = libfsverity_compute_digest(&c, give_data, &params, &d);
	if (r < 0)
		return r;
	if (d->digest_size != DIGEST_LEN)
		return -EBADMSG;
	memcpy(ret->b, d->digest, DIGEST_LEN);
	return 0;
}

static int create_state(int dirfd, const char *name, int fd, struct digest *ret)
{
	struct state_header h = { .kind = STATE_VFILE,
				  .phase = STATE_COMPLETE };
	char state[NAME_MAX + 1];
	owned(fd) int state_fd = -1;
	struct digest d;
	struct stat st;
	int r = state_name(name, state);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > STATE_SIZE_MAX)
		return -EINVAL;
	h.size = (uint64_t)st.st_size;
	state_boot_id(h.boot);
	r = state_create(dirfd, state, &h, &state_fd);
	if (r < 0)
		return r;
	r = write_leaves(fd, state_fd, h.size, &d);
	if (r == 0)
		r = fault_point("vfile_leaves_written");
	if (r == 0 && fsync(state_fd) < 0)
		r = -errno;
	if (r == 0)
		r = state_publish(dirfd, state);
	if (r == 0)
		r = fault_point("vfile_state_published");
	if (r < 0) {
		(void)state_unlink(dirfd, state);
		return r;
	}
	*ret = d;
	return 0;
}

int vfile_create(int dirfd, const char *name, struct digest *ret)
{
	owned(fd) int fd =
		openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		return -errno;
	return create_state(dirfd, name, fd, ret);
}

/* Loads the leaves and compares what follows from them with @want. */
static int load_leaves(struct vfile *v, int state_fd, const struct digest *want)
{
	uint64_t n = leaves_count(v->size);
	struct state_header h;
	struct digest d;
	int r = state_read_header(state_fd, &h);

	if (r < 0)
		return r;
	if (h.kind != STATE_VFILE || h.size != v->size)
		return -EUCLEAN;
	if (n > SIZE_MAX / sizeof(*v->leaves))
		return -ENOMEM;
	v->leaves = malloc(n ? n * sizeof(*v->leaves) : 1);
	if (!v->leaves)
		return -ENOMEM;
	r = state_read_leaves(state_fd, 0, 0, n, v->leaves);
	if (r == 0)
		r = leaves_root(v->leaves, v->size, &d);
	if (r < 0)
		return r;
	return digest_equal(&d, want) ? 0 : -EUCLEAN;
}

/* 1: a sealed file with the digest @want, which the kernel enforces. 0: not a
 * sealed one. -EUCLEAN: sealed, and another file. */
static int is_sealed(int fd, const struct digest *want)
{
	struct digest d;
	int r = kernel_measure(fd, &d);

	if (r == 0)
		return digest_equal(&d, want) ? 1 : -EUCLEAN;
	return r == -EBADMSG ? -EUCLEAN : 0;
}

static int open_leaves(struct vfile *v, int dirfd, const char *name,
		       const struct digest *want)
{
	char state[NAME_MAX + 1];
	owned(fd) int fd = -1;
	int r = state_name(name, state);

	if (r < 0)
		return r;
	fd = openat(dirfd, state, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : load_leaves(v, fd, want);
}

int vfile_open(int dirfd, const char *name, const struct digest *want,
	       struct vfile **ret)
{
	owned(vfile) struct vfile *v = calloc(1, sizeof(*v));
	struct stat st;
	int r;

	if (!v)
		return -ENOMEM;
	v->fd = -1;
	(void)pthread_once(&once, init_locks);
	v->fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (v->fd < 0 || fstat(v->fd, &st) < 0)
		return -errno;
	stream_hint(v->fd);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > STATE_SIZE_MAX)
		return -EUCLEAN;
	v->size = (uint64_t)st.st_size;
	v->id = atomic_fetch_add(&next_id, 1);
	(void)snprintf(v->name, sizeof(v->name), "%s", name);
	r = is_sealed(v->fd, want);
	if (r == 0)
		r = open_leaves(v, dirfd, name, want);
	if (r < 0)
		return r;
	*ret = take_ptr(&v);
	return 0;
}

int vfile_renew_state(int dirfd, const char *name, const struct digest *want)
{
	struct vfile v = { .fd = -1 };
	struct digest d;
	struct stat st;
	int r;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	v.size = (uint64_t)st.st_size;
	r = open_leaves(&v, dirfd, name, want);
	free(v.leaves);
	if (r == 0 || (r != -EUCLEAN && r != -ENOENT && r != -EIO))
		return r;
	r = vfile_create(dirfd, name, &d);
	if (r == 0 && fsync(dirfd) < 0)
		r = -errno;
	if (r < 0)
		return r;
	return digest_equal(&d, want) ? 1 : -EUCLEAN;
}

static int copy_to(struct vfile *v, int to)
{
	owned(mem) void *data = malloc(CREATE_PIECE);
	int r = data ? 0 : -ENOMEM;

	for (uint64_t off = 0; r == 0 && off < v->size; off += CREATE_PIECE) {
		uint64_t left = v->size - off;
		size_t len = left < CREATE_PIECE ? (size_t)left : CREATE_PIECE;

		r = vfile_pread(v, data, len, off);
		if (r == 0)
			r = stream_write(to, data, len, off, v->size);
	}
	return r == 0 && fsync(to) < 0 ? -errno : r;
}

int vfile_restore(struct vfile *v, int dirfd, const char *name)
{
	char tmp[NAME_MAX + 1];
	owned(fd) int to = -1;
	int r;

	if (snprintf(tmp, sizeof(tmp), "%s.tmp", name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (unlinkat(dirfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	to = openat(dirfd, tmp,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	r = copy_to(v, to);
	if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, tmp, 0);
		return r;
	}
	return fsync(dirfd) < 0 ? -errno : 0;
}

void vfile_close(struct vfile *v)
{
	if (!v)
		return;
	if (v->id)
		cache_drop(v->id);
	if (v->fd >= 0) {
		stream_drop(v->fd);
		(void)close(v->fd);
	}
	free(v->leaves);
	free(v);
}

int vfile_check(struct vfile *v)
{
	owned(mem) void *data = malloc(CREATE_PIECE);
	int r = data ? 0 : -ENOMEM;

	for (uint64_t off = 0; r == 0 && off < v->size; off += CREATE_PIECE) {
		uint64_t left = v->size - off;
		size_t len = left < CREATE_PIECE ? (size_t)left : CREATE_PIECE;

		r = read_blocks(v, off / LEAF_BLOCK, data, len);
	}
	return r;
}

bool vfile_is_sealed(const struct vfile *v)
{
	return !v->leaves;
}

bool vfile_is_damaged(const struct vfile *v)
{
	return atomic_load(&v->is_damaged);
}

uint64_t vfile_size(const struct vfile *v)
{
	return v->size;
}
