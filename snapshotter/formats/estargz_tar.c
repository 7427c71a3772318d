/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a writer of eStargz makes of a tar header when it enters it in its
 * table: the loss is that of JSON and of the format, and a proof must not take
 * it for a lie.
 *
 * Source: stargz-snapshotter estargz/estargz.go, Writer.appendTar and
 * formatModtime; Go encoding/json (strings that are not UTF-8).
 */
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "snapshotter/formats/estargz.h"
#include "snapshotter/formats/tar.h"

struct estargz_tar {
	struct buf text; /* path, target and names of attributes, NULs behind */
	struct entry_xattr xattrs[TAR_XATTRS_MAX];
};

int estargz_tar_new(struct estargz_tar **ret)
{
	struct estargz_tar *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*ret = t;
	return 0;
}

void estargz_tar_free(struct estargz_tar *t)
{
	if (!t)
		return;
	buf_release(&t->text);
	free(t);
}

/* Each byte that belongs to no character becomes U+FFFD. */
static const char *add_text(struct buf *b, const char *p, size_t len,
			    size_t *ret_len)
{
	size_t at = b->len;

	for (size_t n, i = 0; i < len; i += n) {
		n = utf8_len(p + i, len - i);
		if (n)
			(void)buf_add(b, p + i, n);
		else
			(void)buf_add(b, "\xef\xbf\xbd", 3);
		n = n ? n : 1;
	}
	*ret_len = b->len - at;
	(void)buf_add(b, "", 1);
	return (const char *)b->p + at;
}

/* Rounded to seconds, half of one upwards; the first second of 1970 is the
 * same as none. */
static int64_t modtime(int64_t sec, uint32_t nsec)
{
	if (sec == 0)
		return 0;
	return nsec >= 500000000 && sec < INT64_MAX ? sec + 1 : sec;
}

/* Room for all of it, so that nothing moves. */
static size_t room_for(const struct entry *en)
{
	size_t n = 3 * (en->path_len + en->link_len) + 2;

	for (size_t i = 0; i < en->n_xattrs; i++)
		n += 3 * strlen(en->xattrs[i].name) + 1;
	return n;
}

int estargz_tar_entry(struct estargz_tar *t, const struct entry *en,
		      struct entry *ret)
{
	size_t len;
	int r;

	t->text.len = 0;
	r = buf_reserve(&t->text, room_for(en));
	if (r < 0)
		return r;
	*ret = *en;
	ret->path = add_text(&t->text, en->path, en->path_len, &ret->path_len);
	ret->link_target = add_text(&t->text, en->link_target, en->link_len,
				    &ret->link_len);
	ret->mtime = modtime(en->mtime, en->mtime_nsec);
	ret->mtime_nsec = 0;
	ret->xattrs = t->xattrs;
	ret->n_xattrs = 0;
	for (size_t i = 0; i < en->n_xattrs && i < TAR_XATTRS_MAX; i++) {
		struct entry_xattr x = en->xattrs[i];

		x.name = add_text(&t->text, x.name, strlen(x.name), &len);
		if (toc_xattr_is_kept(x.name))
			t->xattrs[ret->n_xattrs++] = x;
	}
	return 0;
}
