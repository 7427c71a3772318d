/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a file by mapping it; see stream_map(). Not for the daemon: a bad
 * sector is a SIGBUS.
 *
 * A page that is touched through a mapping of a file with POSIX_FADV_NOREUSE
 * gains no recency, which read(2) cannot do without. So what an application has
 * in the page cache is looked at there, as it is, and neither kept longer nor
 * dropped; what we have brought there is dropped piece by piece. Which is which
 * mincore(2) tells (of the owner's files, or to root; Linux 5.2).
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verity/stream.h"

#define PAGE_MIN 4096u

struct piece {
	int fd;
	uint64_t off;
	size_t len, page, n;
	unsigned char *was; /* of each page: in the page cache before */
};

static bool was_cached(const struct piece *pc, size_t i)
{
	return pc->was[i] & 1;
}

/* All runs of pages that were not there. Mapped pages would stay, so after
 * munmap(). */
static void drop_new(const struct piece *pc)
{
	for (size_t i = 0, end; i < pc->n; i = end) {
		end = i + 1;
		if (was_cached(pc, i))
			continue;
		while (end < pc->n && !was_cached(pc, end))
			end++;
		stream_drop_range(pc->fd, pc->off + i * pc->page,
				  (end - i) * pc->page);
	}
}

static int show(struct piece *pc,
		int (*fn)(void *ctx, const void *p, size_t len, uint64_t off),
		void *ctx)
{
	void *p = mmap(NULL, pc->len, PROT_READ, MAP_SHARED, pc->fd,
		       (off_t)pc->off);
	int r;

	if (p == MAP_FAILED)
		return -errno;
	pc->n = (pc->len + pc->page - 1) / pc->page;
	if (mincore(p, pc->len, pc->was) < 0)
		memset(pc->was, 1, pc->n); /* not known: nothing is dropped */
	stream_readahead(pc->fd, pc->off, pc->off + pc->len);
	r = fn(ctx, p, pc->len, pc->off);
	(void)munmap(p, pc->len);
	drop_new(pc);
	return r;
}

int stream_map(int fd, uint64_t size,
	       int (*fn)(void *ctx, const void *p, size_t len, uint64_t off),
	       void *ctx)
{
	unsigned char was[STREAM_MAP_PIECE / PAGE_MIN];
	struct piece pc = { .fd = fd,
			    .page = (size_t)sysconf(_SC_PAGESIZE),
			    .was = was };
	int r = 0;

	stream_hint(fd);
	for (; r == 0 && pc.off < size; pc.off += STREAM_MAP_PIECE) {
		uint64_t left = size - pc.off;

		pc.len = left < STREAM_MAP_PIECE ? (size_t)left
						 : STREAM_MAP_PIECE;
		r = show(&pc, fn, ctx);
	}
	return r;
}
