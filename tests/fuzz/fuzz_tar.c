/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar stream, whole and in pieces: both must give the same, and what comes
 * out must be what the contract says. The first byte chooses the pieces.
 */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "snapshotter/formats/estargz.h"
#include "snapshotter/formats/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	struct estargz_tar *norm;
	uint64_t sum; /* of everything that came out */
	uint64_t next; /* contents follow one another */
	uint64_t left;
	size_t size;
};

static void mix(struct seen *s, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		s->sum = (s->sum ^ b[i]) * 0x100000001b3;
}

static void expect(bool holds)
{
	if (!holds)
		abort();
}

static int on_entry(void *ctx, const struct entry *en, struct err *e)
{
	struct seen *s = ctx;
	struct entry norm;

	(void)e;
	expect(!en->path[en->path_len] && !en->link_target[en->link_len]);
	expect(en->mtime_nsec < 1000000000 && en->mode <= 07777);
	expect(en->type == ENTRY_REG || en->size == 0);
	mix(s, en->path, en->path_len);
	mix(s, en->link_target, en->link_len);
	mix(s, &en->mtime, sizeof(en->mtime));
	mix(s, &en->size, sizeof(en->size));
	for (size_t i = 0; i < en->n_xattrs; i++) {
		mix(s, en->xattrs[i].name, strlen(en->xattrs[i].name));
		mix(s, en->xattrs[i].value, en->xattrs[i].len);
	}
	if (estargz_tar_entry(s->norm, en, &norm) == 0) {
		expect(norm.mtime_nsec == 0);
		expect(strlen(norm.path) <= norm.path_len);
		expect(norm.n_xattrs <= en->n_xattrs);
	}
	s->left = en->size;
	s->next = 0;
	return 0;
}

static int on_data(void *ctx, uint64_t off, size_t len, struct err *e)
{
	struct seen *s = ctx;

	(void)e;
	expect(len && len <= s->left && off + len <= s->size);
	expect(!s->next || off == s->next);
	s->left -= len;
	s->next = off + len;
	return 0;
}

static int run(const uint8_t *data, size_t size, size_t piece, struct seen *s)
{
	static const struct tar_ops ops = { on_entry, on_data };
	struct err e = ERR_INIT;
	struct tar *t = NULL;
	int r;

	*s = (struct seen){ .size = size };
	if (estargz_tar_new(&s->norm) < 0 || tar_new(&ops, s, &t) < 0)
		abort();
	r = 0;
	for (size_t at = 0; r == 0 && at < size; at += piece)
		r = tar_feed(t, data + at,
			     piece < size - at ? piece : size - at, &e);
	if (r == 0)
		r = tar_finish(t, &e);
	expect(r == 0 || (e.kind != ERR_NONE && e.msg[0]));
	tar_free(t);
	estargz_tar_free(s->norm);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen a, b;

	if (!size)
		return 0;
	expect(run(data + 1, size - 1, SIZE_MAX, &a) ==
	       run(data + 1, size - 1, data[0] * 7 + 1u, &b));
	expect(a.sum == b.sum);
	return 0;
}
