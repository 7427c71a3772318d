/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hashing, checking and sealing cost; for tests/bench/seal.sh.
 *
 *	sealbench hashes          CPU seconds: the hash of chunks; with the leaves
 *	sealbench checked DIR     CPU seconds: SHA-256 of 64 MiB; reading them from a
 *	                          body in the page cache, each block checked
 *	sealbench seal FILE       through the sealer: seconds, bytes read from the disk
 *	sealbench cached FILE     the same for a file in the page cache
 *	sealbench bare FILE       the ioctl alone: seconds
 *	sealbench random FILE     the ioctl alone, without the kernel's readahead
 *
 * With SEALBENCH_AS_KERNEL in the environment nothing is sealed: FILE is read and
 * hashed in the way of the kernel.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/lock.h"
#include "snapshotter/body.h"
#include "verity/kernel.h"
#include "verity/leaves.h"
#include "verity/sealer.h"
#include "verity/sha256.h"

#define CHUNK (4u << 20)
#define N_CHUNKS 16u
#define PIECE (1u << 20) /* one READ of the view */
#define ROUNDS 7

static double cpu(void)
{
	struct rusage u;

	(void)getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Both in turns, so that whatever disturbs them disturbs both. */
static int compare(int (*one)(void *ctx), int (*other)(void *ctx), void *ctx)
{
	double a[ROUNDS], b[ROUNDS];
	int r = 0;

	for (int i = 0; r == 0 && i < ROUNDS; i++) {
		double t = cpu();

		r = one(ctx);
		a[i] = cpu() - t;
		t = cpu();
		if (r == 0)
			r = other(ctx);
		b[i] = cpu() - t;
	}
	if (r < 0)
		return r;
	qsort(a, ROUNDS, sizeof(*a), by_value);
	qsort(b, ROUNDS, sizeof(*b), by_value);
	(void)printf("%.4f %.4f\n", a[ROUNDS / 2], b[ROUNDS / 2]);
	return 0;
}

/* ---- hashing ---- */

/* One chunk, over and over: the fastest that SHA-256 can be. */
static uint8_t *make_bytes(void)
{
	uint8_t *p = malloc(CHUNK);

	for (uint32_t i = 0; p && i < CHUNK; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 24);
	return p;
}

static int hash_chunks(void *p)
{
	struct digest d;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < N_CHUNKS; i++)
		r = sha256_buf(p, CHUNK, &d);
	return r;
}

/* What a decode thread does with each extent. */
static int hash_both(void *p)
{
	static struct digest leaves[CHUNK / LEAF_BLOCK];
	struct digest d;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < N_CHUNKS; i++) {
		r = sha256_buf(p, CHUNK, &d);
		if (r == 0)
			r = leaves_hash(p, CHUNK, leaves);
	}
	return r;
}

/* ---- checked reads ---- */

struct subject {
	struct body *b;
	struct body_layout lay;
	struct digest digest; /* of each chunk */
	uint8_t *bytes, *to;
};

static int get_extent(void *ctx, uint32_t bit, struct body_extent *ret)
{
	const struct subject *s = ctx;

	*ret = (struct body_extent){ .off = (uint64_t)bit * CHUNK,
				     .len = CHUNK,
				     .digest = s->digest };
	return 0;
}

static int find_extent(void *ctx, uint64_t off, uint32_t *ret_bit)
{
	(void)ctx;
	*ret_bit = (uint32_t)(off / CHUNK);
	return 0;
}

static int hash_it(void *ctx)
{
	const struct subject *s = ctx;

	return hash_chunks(s->bytes);
}

static int read_it(void *ctx)
{
	const struct subject *s = ctx;
	int r = 0;

	for (uint64_t off = 0; r == 0 && off < (uint64_t)N_CHUNKS * CHUNK;
	     off += PIECE)
		r = body_read(s->b, &s->lay, off, s->to, PIECE);
	return r;
}

static int fill(struct subject *s)
{
	int r = 0;

	for (uint32_t bit = 0; r == 0 && bit < N_CHUNKS; bit++)
		r = body_write(s->b, &s->lay, bit, s->bytes, CHUNK);
	return r == 0 ? body_complete(s->b, &s->lay) : r;
}

static int checked(const char *path)
{
	owned(fd) int rootfd = open_dir(AT_FDCWD, path);
	owned(mem) uint8_t *bytes = make_bytes();
	owned(mem) uint8_t *to = malloc(PIECE);
	const struct body_id id = { .seq = 1,
				    .size = (uint64_t)N_CHUNKS * CHUNK,
				    .n_extents = N_CHUNKS };
	struct subject s = { .bytes = bytes, .to = to };
	struct bodies *bs;
	int r;

	if (!bytes || !to || rootfd < 0)
		return rootfd < 0 ? rootfd : -ENOMEM;
	if (mkdirat(rootfd, "layer", 0700) < 0 ||
	    mkdirat(rootfd, "layer/1", 0700) < 0)
		return -errno;
	s.lay = (struct body_layout){ get_extent, find_extent, &s, true };
	r = sha256_buf(bytes, CHUNK, &s.digest);
	if (r == 0)
		r = bodies_new(rootfd, &bs);
	if (r < 0)
		return r;
	bodies_keep_cached(bs, true);
	r = body_open(bs, &id, &s.lay, &s.b);
	if (r == 0) {
		r = fill(&s);
		if (r == 0)
			r = compare(hash_it, read_it, &s);
		body_put(s.b);
	}
	bodies_free(bs);
	return r;
}

/* ---- sealing ---- */

static bool is_enabled; /* one file a process */

struct wait {
	struct seal_job job;
	struct lock lock;
	struct cond done;
	bool is_done;
	struct seal_result res;
};

static void sealed(struct seal_job *j, const struct seal_result *res)
{
	struct wait *w = container_of(j, struct wait, job);

	lock_take(&w->lock);
	w->res = *res;
	w->is_done = true;
	cond_signal(&w->done);
	lock_drop(&w->lock);
}

static int seal(const char *path, bool cached)
{
	owned(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	owned(sealer) struct sealer *s = NULL;
	struct wait w = { .job = { .cached = cached, .done = sealed } };
	struct helper_status hs;
	struct stat st;
	uint64_t begin;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || cond_init(&w.done) < 0)
		return -errno;
	lock_init(&w.lock, RANK_LEAF);
	w.job.size = (uint64_t)st.st_size;
	r = sealer_new(SEALER_MEMORY, &s);
	if (r < 0)
		return r;
	do { /* its start is not what is measured */
		(void)usleep(1000);
		sealer_get_status(s, &hs);
	} while (hs.pid == 0 || hs.cgroup[0] == '\0');
	begin = now_ns();
	r = sealer_submit(s, &w.job, fd);
	lock_take(&w.lock);
	while (r == 0 && !w.is_done)
		cond_wait(&w.done, &w.lock);
	lock_drop(&w.lock);
	if (r == 0)
		r = w.res.err;
	if (r == 0)
		(void)printf("%.4f %" PRIu64 "\n",
			     (double)(now_ns() - begin) / 1e9,
			     w.res.bytes_read);
	return r;
}

/* Reads and hashes as FS_IOC_ENABLE_VERITY does, for kernels that lack it: block
 * by block, in order, one thread. Marks nothing. */
static int as_enable(int fd)
{
	uint8_t block[LEAF_BLOCK];
	struct digest leaf;
	uint64_t off = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 &&
	       (n = pread(fd, block, sizeof(block), (off_t)off)) > 0) {
		r = leaf_hash(block, (size_t)n, &leaf);
		off += (uint64_t)n;
	}
	is_enabled = true;
	return r;
}

static int as_measure(int fd, struct digest *ret)
{
	(void)fd;
	memset(ret, 0, sizeof(*ret));
	return is_enabled ? 0 : -ENODATA;
}

static const struct kernel_ops as_kernel = { as_enable, as_measure };

static int bare(const char *path, int advice)
{
	owned(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t begin = now_ns();
	int r;

	if (fd < 0)
		return -errno;
	r = -posix_fadvise(fd, 0, 0, advice);
	if (r == 0)
		r = kernel_enable(fd);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0)
		(void)printf("%.4f\n", (double)(now_ns() - begin) / 1e9);
	return r;
}

static int hashes(void)
{
	owned(mem) uint8_t *bytes = make_bytes();

	return bytes ? compare(hash_chunks, hash_both, bytes) : -ENOMEM;
}

static int run(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "hashes"))
		return hashes();
	if (argc != 3)
		return -EINVAL;
	if (!strcmp(argv[1], "checked"))
		return checked(argv[2]);
	if (!strcmp(argv[1], "seal") || !strcmp(argv[1], "cached"))
		return seal(argv[2], argv[1][0] == 'c');
	if (!strcmp(argv[1], "bare"))
		return bare(argv[2], POSIX_FADV_NORMAL);
	if (!strcmp(argv[1], "random"))
		return bare(argv[2], POSIX_FADV_RANDOM);
	return -EINVAL;
}

int main(int argc, char **argv)
{
	static const char option[] = "--helper=";
	int r;

	if (getenv("SEALBENCH_AS_KERNEL"))
		kernel_set_ops(&as_kernel);
	/* The sealer is this program once more. */
	if (argc == 2 && !strncmp(argv[1], option, sizeof(option) - 1))
		return helper_main(argv[1] + sizeof(option) - 1);
	r = run(argc, argv);
	if (r < 0)
		(void)fprintf(stderr, "sealbench: %s\n", strerror(-r));
	return r < 0;
}
