/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locked memory and the pool of reply buffers; see buffers.h. The free buffers
 * are a stack, so that those in use stay warm.
 */
#include "fuse/buffers.h"

#include <sys/mman.h>

#include "base/lock.h"
#include "base/log.h"

struct buffers {
	struct lock lock; /* guards n_free and free[] */
	struct cond returned;
	size_t len;
	unsigned n, n_free;
	void *mem; /* all n of them, in one piece */
	void *free[];
};

static size_t round_to_pages(size_t len)
{
	return (len + 4095) & ~(size_t)4095;
}

int locked_alloc(size_t len, void **ret)
{
	void *p = mmap(NULL, round_to_pages(len), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	(void)madvise(p, round_to_pages(len), MADV_DONTFORK);
	/* Without CAP_IPC_LOCK the limit may be 64 KiB: swap is then the only
	 * thing that can take a page away, and service goes on. */
	if (mlock(p, round_to_pages(len)) < 0)
		log_debug("buffer is not locked: bytes=%zu err='%m'", len);
	*ret = p;
	return 0;
}

void locked_free(void *p, size_t len)
{
	if (p)
		(void)munmap(p, round_to_pages(len));
}

int buffers_new(unsigned n, size_t len, struct buffers **ret)
{
	struct buffers *b = calloc(1, sizeof(*b) + n * sizeof(b->free[0]));
	int r;

	if (!b)
		return -ENOMEM;
	r = cond_init(&b->returned);
	if (r < 0)
		goto undo_alloc;
	b->len = round_to_pages(len);
	r = locked_alloc(n * b->len, &b->mem);
	if (r < 0)
		goto undo_cond;
	lock_init(&b->lock, RANK_LEAF);
	b->n = b->n_free = n;
	for (unsigned i = 0; i < n; i++)
		b->free[i] = (char *)b->mem + i * b->len;
	*ret = b;
	return 0;
undo_cond:
	cond_release(&b->returned);
undo_alloc:
	free(b);
	return r;
}

void buffers_free(struct buffers *b)
{
	if (!b)
		return;
	locked_free(b->mem, b->n * b->len);
	cond_release(&b->returned);
	lock_release(&b->lock);
	free(b);
}

void *buffers_get(struct buffers *b)
{
	void *p;

	lock_take(&b->lock);
	while (b->n_free == 0)
		cond_wait(&b->returned, &b->lock);
	p = b->free[--b->n_free];
	lock_drop(&b->lock);
	return p;
}

void buffers_put(struct buffers *b, void *p)
{
	lock_take(&b->lock);
	b->free[b->n_free++] = p;
	cond_signal(&b->returned);
	lock_drop(&b->lock);
}

size_t buffers_len(const struct buffers *b)
{
	return b->len;
}

uint64_t buffers_bytes(const struct buffers *b)
{
	return (uint64_t)b->n * b->len;
}
