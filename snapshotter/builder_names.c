/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths and names of the builder: cleaning, storage, and the table that finds
 * (directory, name). The table is keyed with a random number, since whoever
 * makes an image chooses all names; nothing that is written depends on it.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "snapshotter/builder_priv.h"

#define CHUNK (64u << 10)

struct arena_chunk {
	struct arena_chunk *next;
	char data[];
};

static atomic_size_t building; /* bytes of all builders */

bool charge(size_t *charged, size_t bytes)
{
	if (atomic_fetch_add(&building, bytes) + bytes > BUILDING_MAX) {
		atomic_fetch_sub(&building, bytes);
		return false;
	}
	*charged += bytes;
	return true;
}

void uncharge(size_t *charged)
{
	atomic_fetch_sub(&building, *charged);
	*charged = 0;
}

/* A copy of @len bytes, unaligned, or NULL. An empty one is not NULL. */
void *arena_add(struct arena *a, const void *p, size_t len)
{
	void *r;

	if (!a->p || len > a->left) {
		size_t size = len > CHUNK ? len : CHUNK;
		struct arena_chunk *c;

		if (!charge(a->charged, sizeof(*c) + size))
			return NULL;
		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		c->next = a->chunks;
		a->chunks = c;
		a->p = c->data;
		a->left = size;
	}
	r = a->p;
	if (len)
		memcpy(r, p, len);
	a->p += len;
	a->left -= len;
	return r;
}

void arena_release(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *c = a->chunks;

		a->chunks = c->next;
		free(c);
	}
	memset(a, 0, sizeof(*a));
}

void *grow_array(size_t *charged, void *p, uint32_t *cap, size_t size)
{
	uint32_t n = *cap ? *cap * 2 : 64;

	if (n <= *cap || !charge(charged, (size_t)(n - *cap) * size))
		return NULL;
	p = reallocarray(p, n, size);
	if (p)
		*cap = n;
	return p;
}

int out_of_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "cannot build the layer's tree");
}

/*
 * As Go's path.Clean("/" + name), which the makers of layers use, except that
 * ".." is refused instead of resolved: a layer that has it means harm.
 */
int path_clean(const char *p, size_t len, struct path *ret,
	       const char **ret_why)
{
	uint32_t depth = 0;

	ret->len = 0;
	ret->name = 0;
	if (memchr(p, '\0', len)) {
		*ret_why = "NUL in the name";
		return -EINVAL;
	}
	for (size_t n; len; p += n, len -= n) {
		const char *slash = memchr(p, '/', len);

		n = slash ? (size_t)(slash - p) : len;
		if (!n) {
			n = 1;
			continue;
		}
		if (n == 1 && p[0] == '.')
			continue;
		*ret_why = n == 2 && !memcmp(p, "..", 2) ? "'..' in the path"
			   : n > NAME_LEN_MAX ? "a component exceeds 255 bytes"
			   : ++depth > DEPTH_MAX ? "more than 1024 components"
			   : ret->len + !!ret->len + n > PATH_LEN_MAX
				   ? "the path exceeds 4095 bytes"
				   : NULL;
		if (*ret_why)
			return -EINVAL;
		if (ret->len)
			ret->s[ret->len++] = '/';
		ret->name = ret->len;
		memcpy(ret->s + ret->len, p, n);
		ret->len += (uint32_t)n;
	}
	ret->s[ret->len] = '\0';
	return 0;
}

/* Long paths keep their end, which tells more. Bytes above 127 stay: names
 * are mostly UTF-8, and what reads a message must cope with the rest. */
struct shown show(const char *p, size_t len)
{
	struct shown r;
	size_t n = 0, room = sizeof(r.s) - 1;

	if (!len) {
		p = "/";
		len = 1;
	}
	if (len > room) {
		memcpy(r.s, "...", 3);
		n = 3;
		p += len - (room - n);
		len = room - n;
	}
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)p[i];

		r.s[n++] = (char)(c < ' ' || c == 127 || c == '\'' ? '?' : c);
	}
	r.s[n] = '\0';
	return r;
}

static uint64_t rotl(uint64_t v, int n)
{
	return v << n | v >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t m)
{
	v[3] ^= m;
	sip_round(v);
	v[0] ^= m;
}

/* SipHash-1-3 (Aumasson and Bernstein), over the directory and the name. */
static uint32_t hash_name(const struct builder *b, uint32_t dir, const char *s,
			  uint32_t len)
{
	uint64_t v[4] = { b->key[0] ^ 0x736f6d6570736575,
			  b->key[1] ^ 0x646f72616e646f6d,
			  b->key[0] ^ 0x6c7967656e657261,
			  b->key[1] ^ 0x7465646279746573 };
	uint64_t m;

	sip_word(v, (uint64_t)len << 32 | dir);
	for (; len >= sizeof(m); s += sizeof(m), len -= sizeof(m)) {
		memcpy(&m, s, sizeof(m));
		sip_word(v, m);
	}
	m = 0;
	memcpy(&m, s, len);
	sip_word(v, m);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	m = v[0] ^ v[1] ^ v[2] ^ v[3];
	return (uint32_t)(m ^ m >> 32);
}

/* The slot that holds the name, or the free one where it belongs. */
static uint32_t *find_slot(const struct builder *b, uint32_t dir, const char *s,
			   uint32_t len, uint32_t hash)
{
	uint32_t mask = b->n_slots - 1, i = hash & mask;

	for (; b->slots[i]; i = (i + 1) & mask) {
		const struct index_name *n = &b->names[b->slots[i] - 1];

		if (n->hash == hash && n->dir == dir && n->len == len &&
		    !memcmp(n->s, s, len))
			break;
	}
	return &b->slots[i];
}

uint32_t name_find(const struct builder *b, uint32_t dir, const char *s,
		   uint32_t len)
{
	uint32_t *slot;

	if (!b->n_slots)
		return NONE;
	slot = find_slot(b, dir, s, len, hash_name(b, dir, s, len));
	return *slot ? *slot - 1 : NONE;
}

static int grow_slots(struct builder *b)
{
	uint32_t n = b->n_slots ? b->n_slots * 2 : 1024, mask = n - 1;
	uint32_t *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (uint32_t k = 0; k < b->n_names; k++) {
		uint32_t i = b->names[k].hash & mask;

		while (slots[i])
			i = (i + 1) & mask;
		slots[i] = k + 1;
	}
	free(b->slots);
	b->slots = slots;
	b->n_slots = n;
	return 0;
}

int name_add(struct builder *b, uint32_t dir, const char *s, uint32_t len,
	     uint32_t node, uint32_t *ret)
{
	uint32_t hash = hash_name(b, dir, s, len);
	const char *copy = arena_add(&b->arena, s, len);

	if (!copy ||
	    ENSURE(&b->charged, b->names, b->n_names, b->cap_names) < 0)
		return -ENOMEM;
	if (b->n_names >= b->n_slots / 2 && grow_slots(b) < 0)
		return -ENOMEM;
	*find_slot(b, dir, s, len, hash) = b->n_names + 1;
	b->names[b->n_names] = (struct index_name){
		.s = copy,
		.hash = hash,
		.dir = dir,
		.node = node,
		.len = (uint8_t)len,
	};
	*ret = b->n_names++;
	return 0;
}

/* From the end to the front. Every path was cleaned, so it fits. */
void name_path(const struct builder *b, uint32_t name, struct path *ret)
{
	uint32_t at = PATH_LEN_MAX;

	while (name != NONE) {
		const struct index_name *n = &b->names[name];

		if (n->len + 1u > at)
			break;
		if (at < PATH_LEN_MAX)
			ret->s[--at] = '/';
		at -= n->len;
		memcpy(ret->s + at, n->s, n->len);
		name = b->nodes[n->dir].name; /* NONE for the root */
	}
	ret->len = PATH_LEN_MAX - at;
	memmove(ret->s, ret->s + at, ret->len);
	ret->s[ret->len] = '\0';
	ret->name = 0;
}
