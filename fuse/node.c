/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of layers and the open table; see node.h. The table's memory is a
 * memfd of full size whose pages appear as slots are first used. The free list
 * runs through the free slots, so all state of the table is in the file.
 */
#include "fuse/node.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"

#define HEADER_BYTES 4096

struct open_table {
	struct lock lock; /* guards all below, and the slots */
	int fd;
	size_t len;
	struct open_header *head;
	struct open_slot *slots; /* number 0 is never used */
	uint32_t n_open;
};

int node_parse_seq(const char *name, uint32_t *ret)
{
	uint64_t v = 0;
	size_t i;

	if (name[0] == '0' && name[1] != '\0')
		return -ENOENT;
	for (i = 0; name[i]; i++) {
		if (name[i] < '0' || name[i] > '9' || i == 10)
			return -ENOENT;
		v = v * 10 + (uint64_t)(name[i] - '0');
	}
	/* seq + 1 is the upper half of a node id */
	if (i == 0 || v >= UINT32_MAX)
		return -ENOENT;
	*ret = (uint32_t)v;
	return 0;
}

int open_table_new(uint32_t n_slots, struct open_table **ret)
{
	size_t len = HEADER_BYTES + (size_t)n_slots * sizeof(struct open_slot);
	struct open_table *t = calloc(1, sizeof(*t));
	void *p;
	int r;

	if (!t)
		return -ENOMEM;
	t->fd = memfd_create("vs-open-table", MFD_CLOEXEC);
	if (t->fd < 0 || ftruncate(t->fd, (off_t)len) < 0) {
		r = -errno;
		goto undo_fd;
	}
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
	if (p == MAP_FAILED) {
		r = -errno;
		goto undo_fd;
	}
	lock_init(&t->lock, RANK_NODE);
	t->len = len;
	t->head = p;
	t->slots = (struct open_slot *)((char *)p + HEADER_BYTES);
	t->head->version = OPEN_VERSION;
	t->head->n_slots = n_slots;
	t->head->n_used = 1;
	t->head->magic = OPEN_MAGIC;
	*ret = t;
	return 0;
undo_fd:
	if (t->fd >= 0)
		(void)close(t->fd);
	free(t);
	return r;
}

void open_table_free(struct open_table *t)
{
	if (!t)
		return;
	(void)munmap(t->head, t->len);
	(void)close(t->fd);
	lock_release(&t->lock);
	free(t);
}

/* A reader of the memfd after our death sees no slot half written. */
static void set_state(struct open_slot *s, enum open_state state)
{
	atomic_store_explicit((_Atomic uint32_t *)&s->state, state,
			      memory_order_release);
}

uint32_t open_table_take(struct open_table *t, uint64_t unique, uint64_t node)
{
	uint32_t i;

	lock_take(&t->lock);
	i = t->head->first_free;
	if (i)
		t->head->first_free = t->slots[i].next_free;
	else if (t->head->n_used < t->head->n_slots)
		i = t->head->n_used++;
	if (i) {
		struct open_slot *s = &t->slots[i];

		s->unique = unique & ~(UINT64_C(1) << 63);
		s->node = node;
		s->backing = 0;
		s->mode = OPEN_MODE_CACHED;
		set_state(s, OPEN_OPEN);
		t->n_open++;
	}
	lock_drop(&t->lock);
	return i;
}

bool open_table_releasing(struct open_table *t, uint64_t slot, uint64_t node)
{
	bool ok = false;

	lock_take(&t->lock);
	if (slot > 0 && slot < t->head->n_used) {
		struct open_slot *s = &t->slots[slot];

		ok = s->state == OPEN_OPEN && s->node == node;
		if (ok)
			set_state(s, OPEN_RELEASING);
	}
	lock_drop(&t->lock);
	return ok;
}

void open_table_released(struct open_table *t, uint64_t slot)
{
	struct open_slot *s = &t->slots[slot];

	lock_take(&t->lock);
	s->next_free = t->head->first_free;
	set_state(s, OPEN_FREE);
	t->head->first_free = (uint32_t)slot;
	t->n_open--;
	lock_drop(&t->lock);
}

uint32_t open_table_n_open(struct open_table *t)
{
	uint32_t n;

	lock_take(&t->lock);
	n = t->n_open;
	lock_drop(&t->lock);
	return n;
}
