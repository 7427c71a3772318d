/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the filler: a blob of gzip members with a real map over it, and
 * a network of its own, a thread that answers, breaks off or stays silent as a
 * test wants it. Defines the blob_* functions that the filler calls. Include
 * after <cmocka.h>, in one file of a test only.
 */
#ifndef TESTS_UNIT_FILL_WORLD_H
#define TESTS_UNIT_FILL_WORLD_H

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/fs.h"
#include "base/io.h"
#include "snapshotter/fill.h"
#include "snapshotter/map.h"
#include "tests/unit/tmpdir.h"
#include "verity/sha256.h"

#ifndef N_UNITS /* a test may have its own layer */
#define N_UNITS 40u
#define BODY_LEN 30000u /* contents of each unit */
#define SLOT 32768ull /* of an extent in its body */
#define MULTI 5u /* this unit has three extents, all others one */
#endif
#define HEAD 512u /* in front of each unit's first extent, and between two */
#define N_EXTENTS (N_UNITS + 2u)
#define FETCHES_MAX 512

struct blob {
	char host[32];
	const char *elsewhere; /* another registry that has it; NULL: none */
	uint8_t *p;
	size_t len;
	atomic_int n_refs;
};

/* ---- the network ---- */

enum net_fault {
	NET_GOOD,
	NET_TAMPER,
	NET_SHORT,
	NET_STALL,
	NET_FAIL,
	NET_TOO_MUCH, /* no answer to a question for more bytes than that */
	NET_NO_BLOB
};

struct fetch {
	struct blob_req *q;
	uint64_t off, len;
	bool urgent, cancelled, running, over, told_late;
};

static struct net {
	pthread_mutex_t m;
	pthread_cond_t c;
	pthread_t thread;
	struct fetch fetches[FETCHES_MAX];
	unsigned n_fetches;
	bool hold, stop;
	const char *hold_host; /* of one registry only */
	const struct blob *let; /* this one's are not held */
	int n_let_fail; /* nor are so many others, which fail */
	const char *failing_host; /* blobs that are elsewhere, too, move */
	/* of the next fault_count answers */
	enum net_fault fault;
	uint64_t fault_arg; /* offset in the blob, bytes, or the err_kind */
	int fault_count;
	unsigned n_blamed; /* calls of blob_blame() */
	void (*before_start)(void);
	void (*after_cancel)(void);
} net = { .m = PTHREAD_MUTEX_INITIALIZER, .c = PTHREAD_COND_INITIALIZER };

const char *blob_host(const struct blob *b)
{
	return b->host;
}

const char *blob_good_host(struct blob *b, const char *now)
{
	const char *host = now;

	pthread_mutex_lock(&net.m);
	if (b->elsewhere && net.failing_host && !strcmp(now, net.failing_host))
		host = b->elsewhere;
	pthread_mutex_unlock(&net.m);
	return host;
}

struct blob *blob_ref(struct blob *b)
{
	atomic_fetch_add(&b->n_refs, 1);
	return b;
}

void blob_unref(struct blob *b)
{
	if (b)
		atomic_fetch_sub(&b->n_refs, 1);
}

int blob_fetch(struct blob_req *q, struct err *e)
{
	struct fetch *f;

	if (net.before_start)
		net.before_start();
	pthread_mutex_lock(&net.m);
	assert_true(net.n_fetches < FETCHES_MAX);
	if (q->off + q->len > q->blob->len || !q->len) {
		pthread_mutex_unlock(&net.m);
		return err_set(e, ERR_INVALID, "beyond the blob");
	}
	f = &net.fetches[net.n_fetches++];
	*f = (struct fetch){
		.q = q, .off = q->off, .len = q->len, .urgent = q->urgent
	};
	q->impl = (struct run *)f;
	q->silent = q->no_blob = false;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
	return 0;
}

void blob_cancel(struct blob_req *q)
{
	struct fetch *f;

	pthread_mutex_lock(&net.m);
	f = (struct fetch *)q->impl;
	if (f && f->q == q && !f->over)
		f->cancelled = true;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
	if (net.after_cancel)
		net.after_cancel();
}

void blob_blame(struct blob_req *q, uint64_t off, uint64_t len)
{
	assert_true(off + len <= q->blob->len);
	pthread_mutex_lock(&net.m);
	net.n_blamed++;
	pthread_mutex_unlock(&net.m);
}

/* With net.m held, which it drops meanwhile. */
static void net_give(struct fetch *f, uint64_t upto, uint64_t tamper)
{
	struct blob_req *q = f->q;
	uint64_t pos = 0;

	pthread_mutex_unlock(&net.m);
	while (pos < upto) {
		uint8_t piece[4096];
		size_t n = upto - pos < sizeof(piece) ? (size_t)(upto - pos)
						      : sizeof(piece);

		memcpy(piece, q->blob->p + f->off + pos, n);
		if (tamper >= f->off + pos && tamper - f->off - pos < n)
			piece[tamper - f->off - pos] ^= 0x55;
		if (q->on_data(q, f->off + pos, piece, n) != 0)
			break;
		pos += n;
	}
	pthread_mutex_lock(&net.m);
}

static void net_end(struct fetch *f, enum err_kind kind)
{
	struct blob_req *q = f->q;
	struct err e = ERR_INIT;

	f->over = true;
	q->impl = NULL;
	f->q = NULL;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
	if (kind != ERR_NONE)
		(void)err_set(&e, kind, "as the test wants it");
	q->done(q, &e);
	pthread_mutex_lock(&net.m);
}

static void net_answer(struct fetch *f)
{
	enum net_fault fault = net.fault_count ? net.fault : NET_GOOD;
	uint64_t arg = net.fault_arg;

	if (net.n_let_fail) {
		net.n_let_fail--;
		net_end(f, ERR_UNAVAILABLE);
		return;
	}
	if (net.fault_count)
		net.fault_count--;
	switch (fault) {
	case NET_GOOD:
		net_give(f, f->len, UINT64_MAX);
		net_end(f, ERR_NONE);
		break;
	case NET_TAMPER:
		net_give(f, f->len, arg);
		net_end(f, ERR_NONE);
		break;
	case NET_SHORT:
		net_give(f, arg < f->len ? arg : f->len, UINT64_MAX);
		net_end(f, ERR_UNAVAILABLE);
		break;
	case NET_STALL: /* until it is cancelled */
		net_give(f, arg < f->len ? arg : f->len, UINT64_MAX);
		break;
	case NET_FAIL:
		net_end(f, (enum err_kind)arg);
		break;
	case NET_TOO_MUCH:
		f->q->silent = f->len > arg;
		if (!f->q->silent)
			net_give(f, f->len, UINT64_MAX);
		net_end(f, f->q->silent ? ERR_UNAVAILABLE : ERR_NONE);
		break;
	case NET_NO_BLOB:
		f->q->no_blob = true;
		net_end(f, ERR_UNAVAILABLE);
	}
}

static struct fetch *net_next(void)
{
	for (unsigned i = 0; i < net.n_fetches; i++) {
		struct fetch *f = &net.fetches[i];

		if (f->over)
			continue;
		if (f->cancelled ||
		    (!f->running &&
		     (!net.hold || net.n_let_fail || net.let == f->q->blob) &&
		     !(net.hold_host &&
		       !strcmp(f->q->blob->host, net.hold_host))))
			return f;
	}
	return NULL;
}

static void *net_main(void *arg)
{
	pthread_mutex_lock(&net.m);
	while (!net.stop) {
		struct fetch *f = net_next();

		if (!f) {
			pthread_cond_wait(&net.c, &net.m);
		} else if (f->cancelled) {
			net_end(f, ERR_CANCELLED);
		} else {
			f->running = true;
			net_answer(f);
		}
	}
	pthread_mutex_unlock(&net.m);
	return arg;
}

static void net_fault(enum net_fault fault, uint64_t arg, int count)
{
	pthread_mutex_lock(&net.m);
	net.fault = fault;
	net.fault_arg = arg;
	net.fault_count = count;
	pthread_mutex_unlock(&net.m);
}

static void net_hold(bool hold)
{
	pthread_mutex_lock(&net.m);
	net.hold = hold;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
}

/* The next @n of the registry fail, the rest is held back but for @but. */
static inline void net_fail_host(const char *host, int n,
				 const struct blob *but)
{
	pthread_mutex_lock(&net.m);
	net.failing_host = host;
	net.n_let_fail = n;
	net.let = but;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
}

static unsigned net_count(void)
{
	unsigned n;

	pthread_mutex_lock(&net.m);
	n = net.n_fetches;
	pthread_mutex_unlock(&net.m);
	return n;
}

static struct fetch net_fetch(unsigned i)
{
	struct fetch f;

	pthread_mutex_lock(&net.m);
	assert_true(i < net.n_fetches);
	f = net.fetches[i];
	pthread_mutex_unlock(&net.m);
	return f;
}

/* ---- a layer ---- */

struct world {
	char *dir;
	struct unit units[N_UNITS];
	struct extent extents[N_EXTENTS];
	uint32_t listed[N_EXTENTS];
	struct map_file files[N_EXTENTS];
	uint8_t *plain[N_UNITS]; /* output of each unit */
	size_t plain_len[N_UNITS];
	struct blob blob;
	int map_fd;
	atomic_int map_error;
	struct map *map;
	struct filler *fl;
	struct fill *fill;
	struct fill_ops ops;
	atomic_int land_error;
	atomic_int n_landed[N_EXTENTS], n_residue[N_UNITS];
};

static int map_read(void *ctx, void *p, size_t len, uint64_t off)
{
	struct world *w = ctx;
	int r = atomic_load(&w->map_error);

	return r ? r : pread_full(w->map_fd, p, len, off);
}

static int land(void *ctx, uint32_t i, const struct extent *x, const void *p,
		size_t len)
{
	struct world *w = ctx;
	int r = atomic_load(&w->land_error);

	if (r)
		return r;
	assert_int_equal(len, w->extents[i].len);
	assert_int_equal(x->unit, w->extents[i].unit);
	/* Whatever the network did: nothing else is ever handed out. */
	assert_memory_equal(p, w->plain[x->unit] + x->unit_off, len);
	atomic_fetch_add(&w->n_landed[i], 1);
	return 0;
}

static bool landed(void *ctx, uint32_t i, const struct extent *x)
{
	struct world *w = ctx;

	(void)x;
	return atomic_load(&w->n_landed[i]) > 0;
}

static void residue(void *ctx, uint32_t unit, const void *p, size_t len)
{
	struct world *w = ctx;
	const uint8_t *b = p;
	size_t want = HEAD * (unit == MULTI ? 4 : 2);

	assert_int_equal(len, want);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(b[i], 'h');
	atomic_fetch_add(&w->n_residue[unit], 1);
}

static void gzip_append(struct blob *b, const uint8_t *p, size_t len)
{
	z_stream z = { 0 };
	size_t room = len + 1000;

	b->p = realloc(b->p, b->len + room);
	assert_non_null(b->p);
	assert_int_equal(deflateInit2(&z, 0, Z_DEFLATED, 31, 8, 0), Z_OK);
	z.next_in = (uint8_t *)(uintptr_t)p;
	z.avail_in = (unsigned)len;
	z.next_out = b->p + b->len;
	z.avail_out = (unsigned)room;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	b->len += z.total_out;
	deflateEnd(&z);
}

/* Header, contents, [header, contents,]* header; contents are random. */
static void make_unit(struct world *w, uint32_t u, uint32_t *x, uint32_t *seed)
{
	uint32_t n = u == MULTI ? 3 : 1, each = BODY_LEN / n;
	size_t len = HEAD * (n + 1) + BODY_LEN, before = w->blob.len;
	uint8_t *p = malloc(len);

	assert_non_null(p);
	memset(p, 'h', len);
	w->units[u] = (struct unit){ .blob_off = before,
				     .first_x = *x,
				     .n_x = n,
				     .codec = CODEC_GZIP_MEMBER };
	for (uint32_t i = 0; i < n; i++) {
		struct extent *e = &w->extents[*x];

		*e = (struct extent){ .addr = *x * SLOT,
				      .len = each,
				      .unit = u,
				      .ino = *x + 1,
				      .unit_off = HEAD + i * (HEAD + each) };
		for (uint32_t k = 0; k < each; k++) {
			*seed = *seed * 1664525u + 1013904223u;
			p[e->unit_off + k] = (uint8_t)(*seed >> 24);
		}
		assert_int_equal(sha256_buf(p + e->unit_off, each, &e->digest),
				 0);
		w->files[*x] = (struct map_file){ .addr = e->addr,
						  .size = each,
						  .body_off = *x * SLOT,
						  .first_bit = *x,
						  .first_extent = *x,
						  .n_extents = 1,
						  .nid = *x + 40 };
		w->listed[*x] = *x;
		w->units[u].ulen = e->unit_off + each;
		(*x)++;
	}
	gzip_append(&w->blob, p, len);
	w->units[u].clen = (uint32_t)(w->blob.len - before);
	w->plain[u] = p;
	w->plain_len[u] = len;
}

static void make_map(struct world *w)
{
	struct map_body body = { .size = N_EXTENTS * SLOT,
				 .n_extents = N_EXTENTS };
	struct map_image img = { .units = w->units,
				 .extents = w->extents,
				 .unit_extents = w->listed,
				 .files = w->files,
				 .bodies = &body,
				 .n_units = N_UNITS,
				 .n_extents = N_EXTENTS,
				 .n_files = N_EXTENTS,
				 .n_bodies = 1,
				 .device_size = N_EXTENTS * SLOT };
	struct map_io io = { .pread = map_read, .ctx = w };
	owned(fd) int dirfd = open_dir(AT_FDCWD, w->dir);
	struct err e = ERR_INIT;
	struct stat st;

	assert_int_equal(map_write(dirfd, "map", &img), 0);
	w->map_fd = openat(dirfd, "map", O_RDONLY | O_CLOEXEC);
	assert_true(w->map_fd >= 0);
	assert_int_equal(fstat(w->map_fd, &st), 0);
	io.size = (uint64_t)st.st_size;
	if (map_open_io(&io, &w->map, &e) < 0)
		fail_msg("map: %s", e.msg);
}

static void filler_start(struct world *w, unsigned ranges, unsigned timeout_s)
{
	struct filler_opts o = { .n_decode = 2,
				 .ranges_per_host = ranges,
				 .read_timeout_s = timeout_s };

	assert_int_equal(filler_new(&o, &w->fl), 0);
	assert_int_equal(fill_new(w->fl, w->map, &w->blob, &w->ops, &w->fill),
			 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	uint32_t x = 0, seed = 7;

	assert_non_null(w);
	*state = w;
	assert_int_equal(tmpdir_setup((void **)&w->dir), 0);
	(void)snprintf(w->blob.host, sizeof(w->blob.host), "one.test");
	atomic_store(&w->blob.n_refs, 1);
	for (uint32_t u = 0; u < N_UNITS; u++)
		make_unit(w, u, &x, &seed);
	make_map(w);
	w->ops = (struct fill_ops){
		.land = land, .landed = landed, .residue = residue, .ctx = w
	};
	net.n_fetches = 0;
	net.hold = net.stop = false;
	net.hold_host = net.failing_host = NULL;
	net.let = NULL;
	net.n_let_fail = 0;
	net.fault_count = 0;
	net.n_blamed = 0;
	net.before_start = NULL;
	net.after_cancel = NULL;
	return -pthread_create(&net.thread, NULL, net_main, NULL);
}

static int teardown(void **state)
{
	struct world *w = *state;

	fill_free(w->fill);
	filler_free(w->fl);
	pthread_mutex_lock(&net.m);
	net.stop = true;
	pthread_cond_broadcast(&net.c);
	pthread_mutex_unlock(&net.m);
	(void)pthread_join(net.thread, NULL);
	for (unsigned i = 0; i < net.n_fetches; i++)
		assert_true(net.fetches[i].over);
	assert_int_equal(atomic_load(&w->blob.n_refs), 1);
	map_close(w->map);
	(void)close(w->map_fd);
	free(w->blob.p);
	for (uint32_t u = 0; u < N_UNITS; u++)
		free(w->plain[u]);
	assert_int_equal(tmpdir_teardown((void **)&w->dir), 0);
	free(w);
	return 0;
}

/* ---- who waits ---- */

struct probe {
	struct fill_waiter w;
	struct err e;
	atomic_int n_done;
	uint64_t at_ms;
	int linger_ms; /* in done() */
	atomic_bool left; /* done() */
};

static void probe_done(struct fill_waiter *w, const struct err *e)
{
	struct probe *p =
		(struct probe *)((char *)w - offsetof(struct probe, w));

	int linger_ms = p->linger_ms;

	p->e = *e;
	p->at_ms = now_ms();
	atomic_fetch_add(&p->n_done, 1); /* p may be gone from here on */
	if (linger_ms) {
		(void)usleep((useconds_t)linger_ms * 1000);
		atomic_store(&p->left, true);
	}
}

static uint32_t extent_of(uint32_t unit)
{
	return unit <= MULTI ? unit : unit + 2;
}

static void want_extent(struct world *w, struct probe *p, uint32_t unit,
			uint32_t extent)
{
	memset(&p->e, 0, sizeof(p->e));
	atomic_store(&p->n_done, 0);
	p->w.done = probe_done;
	assert_int_equal(fill_want(w->fill, unit, extent, &p->w), 0);
}

static void want(struct world *w, struct probe *p, uint32_t unit)
{
	want_extent(w, p, unit, extent_of(unit));
}

#define wait_until(cond, ms)                                        \
	do {                                                        \
		uint64_t until_ = now_ms() + 30000 + (ms);          \
		while (!(cond) && now_ms() < until_)                \
			(void)usleep(1000);                         \
		if (!(cond))                                        \
			fail_msg("%d ms in vain: %s", (ms), #cond); \
	} while (0)

static void assert_told(struct probe *p, enum err_kind kind)
{
	wait_until(atomic_load(&p->n_done), 10000);
	if (p->e.kind != kind)
		print_error("%s: %s\n", err_kind_name(p->e.kind), p->e.msg);
	assert_int_equal(p->e.kind, kind);
	assert_int_equal(atomic_load(&p->n_done), 1);
}

static unsigned n_landed(struct world *w, uint32_t first, uint32_t last)
{
	unsigned n = 0;

	for (uint32_t u = first; u < last; u++)
		n += atomic_load(&w->n_landed[extent_of(u)]) > 0;
	return n;
}

static uint64_t bytes_of(struct world *w, uint32_t first, uint32_t last)
{
	uint64_t n = 0;

	for (uint32_t u = first; u < last; u++)
		n += w->units[u].clen;
	return n;
}

/* Times that any byte of the unit was asked for. */
static unsigned n_asked(struct world *w, uint32_t unit)
{
	const struct unit *u = &w->units[unit];
	unsigned n = 0;

	for (unsigned i = 0; i < net_count(); i++) {
		struct fetch f = net_fetch(i);

		n += f.off < u->blob_off + u->clen &&
		     u->blob_off < f.off + f.len;
	}
	return n;
}

#endif
