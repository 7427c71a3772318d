/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder fed with arbitrary events. Whatever it accepts, the reader of
 * the index must accept, too, down to the last path: two programs that judge
 * the same tree must agree.
 */
#include <fcntl.h>
#include <stdint.h>

#include "tests/lib/fuzz_dir.h"
#include "tests/lib/index_visit.h"
#include "tests/lib/layer_events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(struct visit *v, const char *path, const struct inode *in)
{
	uint64_t *names = v->ctx;
	char buf[4096];

	(void)path;
	names[S_ISDIR(in->mode) ? 0 : 1]++;
	if (S_ISLNK(in->mode))
		return index_readlink(v->ix, in, buf, sizeof(buf));
	if (index_listxattr(v->ix, in, NULL, 0) < 0)
		return -EUCLEAN;
	return 0;
}

static int file_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	return pread_full(*(int *)ctx, p, len, off);
}

static void check_index(int dirfd, const struct builder_result *res)
{
	owned(fd) int fd = openat(dirfd, "index", O_RDONLY | O_CLOEXEC);
	struct index_io io = { file_pread, &fd, res->index_size };
	static struct visit v;
	uint64_t n[2] = { 0 };

	if (fd < 0 || index_open(&io, &v.ix) < 0)
		abort();
	v.fn = count;
	v.ctx = n;
	if (index_visit(&v) < 0 || n[0] + n[1] < res->n_inodes ||
	    index_n_inodes(v.ix) != res->n_inodes)
		abort();
	index_close(v.ix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct events ev;
	struct builder_opts o = { .userxattr = size & 1 };
	int dirfd = fuzz_dir();
	struct builder_result res;
	struct err e = ERR_INIT;
	struct builder *b;

	memset(&ev, 0, sizeof(ev));
	ev.p = data;
	ev.end = data + size;
	if (size > 64u << 10 || builder_new(&o, &b) < 0)
		return 0;
	if (events_feed(&ev, b, &e) < 0 && e.kind != ERR_INVALID)
		goto out;
	if (builder_write(b, dirfd, &res, &e) < 0)
		goto out;
	check_index(dirfd, &res);
	(void)unlinkat(dirfd, "index", 0);
	(void)unlinkat(dirfd, "map", 0);
out:
	if (e.kind && !e.msg[0])
		abort(); /* a refusal says why */
	builder_free(b);
	return 0;
}
