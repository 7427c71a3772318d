/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: build an index from a stream of events (layer_events.h), or print
 * one as our own reader sees it.
 *
 *	indextool build DIR <EVENTS     writes DIR/index and DIR/map
 *	indextool list INDEX            a line for each path, byte strings in hex:
 *		PATH nid ino mode uid gid nlink size rdev mtime nsec addr
 *		[-> TARGET] [NAME=VALUE...]
 */
#include <fcntl.h>
#include <inttypes.h>

#include "base/buf.h"
#include "tests/lib/index_visit.h"
#include "tests/lib/layer_events.h"

static int die(const char *what, int r)
{
	(void)fprintf(stderr, "indextool: %s: %s\n", what, strerror(-r));
	return 1;
}

static int read_all(int fd, struct buf *b)
{
	uint8_t p[65536];
	ssize_t n;

	while ((n = read(fd, p, sizeof(p))) > 0)
		if (buf_add(b, p, (size_t)n) < 0)
			return -ENOMEM;
	return n < 0 ? -errno : 0;
}

static int build(const char *dir)
{
	owned(fd) int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	owned(mem) struct events *ev = calloc(1, sizeof(*ev));
	owned(buf) struct buf in = { 0 };
	struct builder_opts o = { .uuid = "indextool-layer" };
	struct builder_result res;
	struct err e = ERR_INIT;
	struct builder *b;
	int r;

	if (dirfd < 0 || !ev)
		return die(dir, -errno);
	r = read_all(0, &in);
	if (r == 0)
		r = builder_new(&o, &b);
	if (r < 0)
		return die("start", r);
	ev->p = in.p;
	ev->end = in.p + in.len;
	r = events_feed(ev, b, &e);
	if (r == 0)
		r = builder_write(b, dirfd, &res, &e);
	builder_free(b);
	if (r < 0) {
		(void)fprintf(stderr, "indextool: %s: %s\n",
			      err_kind_name(e.kind), e.msg);
		return 1;
	}
	printf("inodes=%" PRIu64 " index=%" PRIu64 " payload=%" PRIu64
	       " usage=%" PRIu64 " implied=%u bodies=%u\n",
	       res.n_inodes, res.index_size, res.payload, res.usage,
	       res.n_implied, res.n_bodies);
	return 0;
}

static void put_hex(const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		printf("%02x", b[i]);
}

static int list_xattrs(struct index *ix, const struct inode *in)
{
	static char names[70000], value[65536];
	ssize_t len = index_listxattr(ix, in, names, sizeof(names));

	if (len < 0)
		return (int)len;
	for (const char *n = names; n < names + len; n += strlen(n) + 1) {
		ssize_t v = index_getxattr(ix, in, n, value, sizeof(value));

		if (v < 0)
			return (int)v;
		putchar(' ');
		put_hex(n, strlen(n));
		putchar('=');
		put_hex(value, (size_t)v);
	}
	return 0;
}

static int list_path(struct visit *v, const char *path, const struct inode *in)
{
	char target[4096];
	int r;

	put_hex(path, strlen(path));
	printf(" %u %u %o %u %u %u %" PRIu64 " %u %" PRId64 " %u %" PRIu64,
	       in->nid, in->ino, in->mode, in->uid, in->gid, in->nlink,
	       in->size, in->rdev, in->mtime, in->mtime_nsec, in->addr);
	if (S_ISLNK(in->mode)) {
		r = index_readlink(v->ix, in, target, sizeof(target));
		if (r < 0)
			return r;
		printf(" -> ");
		put_hex(target, strlen(target));
	}
	r = list_xattrs(v->ix, in);
	putchar('\n');
	return r;
}

static int file_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	return pread_full(*(int *)ctx, p, len, off);
}

static int list(const char *path)
{
	owned(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct index_io io = { .pread = file_pread, .ctx = &fd };
	static struct visit v;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return die(path, -errno);
	io.size = (uint64_t)st.st_size;
	r = index_open(&io, &v.ix);
	if (r < 0)
		return die("open index", r);
	v.fn = list_path;
	r = index_visit(&v);
	if (r < 0)
		(void)die(v.path, r);
	index_close(v.ix);
	return r < 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "build"))
		return build(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "list"))
		return list(argv[2]);
	(void)fprintf(stderr, "usage: indextool build DIR | list INDEX\n");
	return 2;
}
