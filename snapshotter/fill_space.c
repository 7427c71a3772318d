/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a range works with: its buffers, decoder and hash. A range lives for some
 * milliseconds and its buffers have megabytes, so they are kept for the next
 * ones: getting them from the kernel anew, page by page, costs as much as
 * hashing them. When nothing has been fetched for a while they are given back.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "snapshotter/fill_priv.h"

#define KEEP_MAX 8u /* spaces */
#define KEEP_MS 1000u

static void space_free(struct range_space *s)
{
	if (!s)
		return;
	decoder_free(s->dec);
	sha256_free(s->hash);
	free(s->xbuf);
	free(s->buf);
	free(s);
}

static struct range_space *take_kept(struct filler *fl)
{
	struct range_space *s = NULL;

	lock_take(&fl->lock);
	if (!list_empty(&fl->spaces)) {
		s = list_first(&fl->spaces, struct range_space, node);
		list_remove(&s->node);
		fl->n_spaces--;
	}
	lock_drop(&fl->lock);
	return s;
}

static int space_new(struct range_space **ret)
{
	struct range_space *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	list_init(&s->node);
	r = sha256_new(&s->hash);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* What @p held is not kept. */
static int grow(uint8_t **p, size_t *cap, size_t len)
{
	uint8_t *n;

	if (len <= *cap)
		return 0;
	n = malloc(len);
	if (!n)
		return -ENOMEM;
	free(*p);
	*p = n;
	*cap = len;
	return 0;
}

int space_want_extent(struct range_space *s, size_t len)
{
	return grow(&s->xbuf, &s->xcap, len);
}

int space_get(struct filler *fl, size_t len, struct range_space **ret)
{
	struct range_space *s = take_kept(fl);
	int r = s ? 0 : space_new(&s);

	if (r == 0)
		r = grow(&s->buf, &s->cap, len);
	if (r < 0) {
		space_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void space_put_locked(struct filler *fl, struct range_space *s)
{
	if (!s)
		return;
	/* A unit of unusual size would hold its memory for all later ones. */
	if (fl->n_spaces >= KEEP_MAX || s->cap > RANGE_MAX ||
	    s->xcap > RANGE_MAX) {
		space_free(s);
		return;
	}
	/* The last one is the warmest. */
	list_push_front(&fl->spaces, &s->node);
	fl->n_spaces++;
	fl->spaces_until_ms = now_ms() + KEEP_MS;
}

void spaces_trim_locked(struct filler *fl, uint64_t now)
{
	if (now < fl->spaces_until_ms)
		return;
	while (!list_empty(&fl->spaces)) {
		struct range_space *s =
			list_first(&fl->spaces, struct range_space, node);

		list_remove(&s->node);
		space_free(s);
	}
	fl->n_spaces = 0;
}
