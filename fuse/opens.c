/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open table; see opens.h. Its memory is a memfd of full size whose pages
 * appear as slots are first used. The free list runs through the free slots.
 * The records of inodes are this process' own: they follow from the slots, but
 * for the memory of which inodes left pages behind.
 */
#include "fuse/opens.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/htab.h"
#include "base/lock.h"

#define HEADER_BYTES 4096
#define RESEND_BIT (UINT64_C(1) << 63)

/* Closed inodes whose pages are remembered; 2 MB at most. The oldest is
 * forgotten: its pages stay until the kernel needs the memory. */
#define STALE_MAX 16384u
/* So many ids are handed out between two looks for the lowest one. */
#define LOW_EVERY 4096

struct inode_rec {
	uint64_t node;
	uint32_t n_open; /* slots that are OPEN or RELEASING */
	enum open_mode mode;
	int32_t backing;
	uint64_t file;
	bool deciding;
	bool stale; /* was cached: the kernel may hold pages */
	struct list waiting; /* open_call.list, while deciding */
	struct list closed; /* in opens.closed while n_open == 0 */
	UT_hash_handle hh;
};

struct opens {
	struct lock lock; /* guards all below, and the slots */
	int fd;
	size_t len;
	struct opens_header *head;
	struct opens_slot *slots; /* number 0 is never used */
	struct opens_stats stats;
	struct inode_rec *inodes;
	struct list closed; /* records with n_open == 0, oldest first */
	unsigned n_closed;
	int32_t next_backing; /* behind the highest id that was handed out */
	unsigned n_deciding, n_closing; /* ids that are in no slot, perhaps */
};

int opens_new(uint32_t n_slots, struct opens **ret)
{
	size_t len = HEADER_BYTES + (size_t)n_slots * sizeof(struct opens_slot);
	struct opens *t = calloc(1, sizeof(*t));
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
	list_init(&t->closed);
	t->len = len;
	t->head = p;
	t->slots = (struct opens_slot *)((char *)p + HEADER_BYTES);
	t->next_backing = 1;
	t->head->version = OPENS_VERSION;
	t->head->n_slots = n_slots;
	t->head->n_used = 1;
	t->head->low_backing = 1;
	t->head->magic = OPENS_MAGIC;
	*ret = t;
	return 0;
undo_fd:
	if (t->fd >= 0)
		(void)close(t->fd);
	free(t);
	return r;
}

void opens_free(struct opens *t)
{
	struct inode_rec *rec, *tmp;

	if (!t)
		return;
	htab_each (t->inodes, rec, tmp) {
		HASH_DEL(t->inodes, rec);
		free(rec);
	}
	(void)munmap(t->head, t->len);
	(void)close(t->fd);
	lock_release(&t->lock);
	free(t);
}

void opens_identify(struct opens *t, const char *store, unsigned dev_major,
		    unsigned dev_minor)
{
	lock_take(&t->lock);
	(void)snprintf(t->head->store, sizeof(t->head->store), "%s", store);
	t->head->dev_major = dev_major;
	t->head->dev_minor = dev_minor;
	lock_drop(&t->lock);
}

void opens_note_seq(struct opens *t, uint32_t seq)
{
	lock_take(&t->lock);
	if (seq >= t->head->next_seq && seq < UINT32_MAX)
		t->head->next_seq = seq + 1;
	lock_drop(&t->lock);
}

/* ---- slots ---- */

/* A reader of the memfd after our death sees no slot half written. */
static void set_state(struct opens_slot *s, enum open_state state)
{
	atomic_store_explicit((_Atomic uint32_t *)&s->state, state,
			      memory_order_release);
}

static uint32_t take_slot_locked(struct opens *t)
{
	uint32_t i = t->head->first_free;

	if (i)
		t->head->first_free = t->slots[i].next_free;
	else if (t->head->n_used < t->head->n_slots)
		i = t->head->n_used++;
	return i;
}

static void free_slot_locked(struct opens *t, uint32_t i)
{
	t->slots[i].next_free = t->head->first_free;
	set_state(&t->slots[i], OPEN_FREE);
	t->head->first_free = i;
}

static void fill_slot_locked(struct opens *t, const struct open_call *c)
{
	struct opens_slot *s = &t->slots[c->slot];

	s->unique = c->unique & ~RESEND_BIT;
	s->node = c->node;
	s->backing = c->backing;
	s->mode = c->mode;
	set_state(s, OPEN_OPEN);
	t->stats.n_open++;
	t->stats.n_mode[c->mode]++;
	if (c->mode == OPEN_PASSTHROUGH)
		t->stats.n_passthrough_total++;
}

/* A request that is sent again, and whose slot says what the answer was. */
static bool find_resent_locked(struct opens *t, struct open_call *c)
{
	for (uint32_t i = 1; i < t->head->n_used; i++) {
		const struct opens_slot *s = &t->slots[i];

		if (s->state != OPEN_OPEN || s->node != c->node ||
		    s->unique != (c->unique & ~RESEND_BIT))
			continue;
		c->slot = i;
		c->mode = s->mode;
		c->backing = s->backing;
		return true;
	}
	return false;
}

/* ---- inodes ---- */

static struct inode_rec *find_inode_locked(struct opens *t, uint64_t node)
{
	struct inode_rec *rec;

	HASH_FIND(hh, t->inodes, &node, sizeof(node), rec);
	return rec;
}

static struct inode_rec *add_inode_locked(struct opens *t, uint64_t node)
{
	struct inode_rec *rec = calloc(1, sizeof(*rec));

	if (!rec)
		return NULL;
	rec->node = node;
	list_init(&rec->waiting);
	list_init(&rec->closed);
	HASH_ADD(hh, t->inodes, node, sizeof(rec->node), rec);
	if (HTAB_ADDED(rec))
		return rec;
	free(rec);
	return NULL;
}

static void forget_inode_locked(struct opens *t, struct inode_rec *rec)
{
	HASH_DEL(t->inodes, rec);
	free(rec);
}

static void uncount_closed_locked(struct opens *t, struct inode_rec *rec)
{
	list_remove(&rec->closed);
	t->n_closed--;
}

/* Nobody has it open any more. */
static void closed_locked(struct opens *t, struct inode_rec *rec)
{
	if (rec->mode != OPEN_CACHED) {
		t->stats.n_backing--;
		t->n_closing++;
		forget_inode_locked(t, rec);
		return;
	}
	rec->stale = true;
	list_push(&t->closed, &rec->closed);
	if (t->n_closed++ < STALE_MAX)
		return;
	rec = list_first(&t->closed, struct inode_rec, closed);
	uncount_closed_locked(t, rec);
	forget_inode_locked(t, rec);
}

static void join_locked(struct opens *t, struct inode_rec *rec,
			struct open_call *c)
{
	c->mode = rec->mode;
	c->backing = rec->backing;
	rec->n_open++;
	fill_slot_locked(t, c);
}

static int begin_locked(struct opens *t, struct open_call *c, bool fixed)
{
	struct inode_rec *rec = NULL;

	if (c->unique & RESEND_BIT && find_resent_locked(t, c))
		return OPENS_ANSWER;
	if (!fixed) {
		rec = find_inode_locked(t, c->node);
		if (!rec)
			rec = add_inode_locked(t, c->node);
		if (!rec)
			return -ENOMEM;
	}
	c->slot = take_slot_locked(t);
	if (!c->slot) {
		if (rec && !rec->n_open && !rec->deciding &&
		    list_empty(&rec->closed))
			forget_inode_locked(t, rec);
		return -ENFILE;
	}
	if (fixed) {
		fill_slot_locked(t, c);
		return OPENS_ANSWER;
	}
	if (rec->deciding) {
		list_push(&rec->waiting, &c->list);
		return OPENS_WAIT;
	}
	if (rec->n_open) {
		join_locked(t, rec, c);
		return OPENS_ANSWER;
	}
	if (!list_empty(&rec->closed))
		uncount_closed_locked(t, rec);
	rec->deciding = true;
	t->n_deciding++;
	c->stale = rec->stale;
	return OPENS_DECIDE;
}

int opens_begin(struct opens *t, struct open_call *c, bool fixed)
{
	int r;

	list_init(&c->list);
	c->mode = OPEN_CACHED;
	c->backing = 0;
	c->stale = false;
	lock_take(&t->lock);
	r = begin_locked(t, c, fixed);
	lock_drop(&t->lock);
	return r;
}

void opens_decided(struct opens *t, struct open_call *c, enum open_mode mode,
		   int32_t backing, uint64_t file, struct list *ret)
{
	struct inode_rec *rec;
	struct list *p;

	lock_take(&t->lock);
	rec = find_inode_locked(t, c->node);
	rec->deciding = false;
	rec->mode = mode;
	rec->backing = backing;
	rec->file = file;
	t->n_deciding--;
	if (mode == OPEN_PASSTHROUGH) {
		rec->stale = false;
		t->stats.n_backing++;
		/* They rise until they have gone round. */
		if (backing < t->head->low_backing)
			t->head->low_backing = 1;
		if (backing >= t->next_backing && backing < INT32_MAX)
			t->next_backing = backing + 1;
	}
	list_push_front(&rec->waiting, &c->list);
	list_each (p, &rec->waiting)
		join_locked(t, rec, list_entry(p, struct open_call, list));
	list_splice(ret, &rec->waiting);
	lock_drop(&t->lock);
}

bool opens_releasing(struct opens *t, uint64_t slot, uint64_t node)
{
	bool ok = false;

	lock_take(&t->lock);
	if (slot > 0 && slot < t->head->n_used) {
		struct opens_slot *s = &t->slots[slot];

		ok = s->state == OPEN_OPEN && s->node == node;
		if (ok)
			set_state(s, OPEN_RELEASING);
	}
	lock_drop(&t->lock);
	return ok;
}

int32_t opens_released(struct opens *t, uint64_t slot)
{
	struct opens_slot *s = &t->slots[slot];
	struct inode_rec *rec;
	int32_t done = 0;

	lock_take(&t->lock);
	rec = find_inode_locked(t, s->node); /* NULL: fixed */
	t->stats.n_open--;
	t->stats.n_mode[s->mode]--;
	if (rec && --rec->n_open == 0) {
		done = rec->backing;
		closed_locked(t, rec);
	}
	free_slot_locked(t, (uint32_t)slot);
	lock_drop(&t->lock);
	return done;
}

/* ---- backing ids ---- */

/* An id that was handed out and is in no slot yet is not below next_backing,
 * for which nobody may be deciding. */
static void raise_low_locked(struct opens *t)
{
	int32_t low = t->next_backing;

	if (t->n_deciding || t->n_closing)
		return;
	if (t->stats.n_backing) {
		if (t->next_backing - t->head->low_backing < LOW_EVERY)
			return;
		for (uint32_t i = 1; i < t->head->n_used; i++) {
			const struct opens_slot *s = &t->slots[i];

			if (s->state != OPEN_FREE && s->backing &&
			    s->backing < low)
				low = s->backing;
		}
	}
	t->head->low_backing = low;
}

void opens_backing_closed(struct opens *t)
{
	lock_take(&t->lock);
	t->n_closing--;
	raise_low_locked(t);
	lock_drop(&t->lock);
}

/* ---- questions ---- */

int opens_inodes(struct opens *t, enum open_mode mode, struct opens_inode **ret,
		 size_t *ret_n)
{
	struct inode_rec *rec, *tmp;
	struct opens_inode *v;
	size_t n = 0;

	lock_take(&t->lock);
	v = calloc(HASH_COUNT(t->inodes) + 1, sizeof(*v));
	if (v) {
		htab_each (t->inodes, rec, tmp)
			if (rec->n_open && rec->mode == mode)
				v[n++] = (struct opens_inode){ rec->node,
							       rec->file };
	}
	lock_drop(&t->lock);
	if (!v)
		return -ENOMEM;
	*ret = v;
	*ret_n = n;
	return 0;
}

/* Whoever takes over must know, too, even if nobody opens it before. */
static void heal_slots_locked(struct opens *t, uint64_t node)
{
	for (uint32_t i = 1; i < t->head->n_used; i++) {
		struct opens_slot *s = &t->slots[i];

		if (s->state == OPEN_FREE || s->node != node)
			continue;
		t->stats.n_mode[s->mode]--;
		s->mode = OPEN_HEALED;
		t->stats.n_mode[s->mode]++;
	}
}

void opens_heal(struct opens *t, uint64_t node, uint64_t file)
{
	struct inode_rec *rec;

	lock_take(&t->lock);
	rec = find_inode_locked(t, node);
	if (rec && rec->n_open && rec->mode == OPEN_PASSTHROUGH &&
	    rec->file == file) {
		rec->mode = OPEN_HEALED;
		heal_slots_locked(t, node);
	}
	lock_drop(&t->lock);
}

void opens_stats(struct opens *t, struct opens_stats *ret)
{
	lock_take(&t->lock);
	*ret = t->stats;
	lock_drop(&t->lock);
}

const struct opens_header *opens_header(const struct opens *t)
{
	return t->head;
}

const struct opens_slot *opens_slot(const struct opens *t, uint32_t i)
{
	return &t->slots[i];
}
