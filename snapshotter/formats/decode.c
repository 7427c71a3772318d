/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framing of gzip (RFC 1952: headers, members one after the other) is read
 * here, byte by byte, because it decides where a unit may end; the deflate
 * stream and the trailer behind it are the library's. Two backends with the
 * same four functions: ISA-L, and zlib for machines that lack it.
 *
 * Output leaves in pieces of at most one window. Nothing is ever sized by a
 * number found in the input.
 */
#include "snapshotter/formats/decode.h"

#include <stdbool.h>
#include <string.h>

#include "base/io.h"

#ifndef HAVE_ISAL
#define HAVE_ISAL 1
#endif

#if HAVE_ISAL
#include <isa-l/igzip_lib.h>
#else
#include <zlib.h>
#endif

#define WINDOW (128u << 10) /* half of a typical L2: the hash reads it next */

/* Go's reader refuses longer names and comments, so no image has them. */
#define GZIP_TEXT_MAX 512u

enum gzip_flag {
	GZIP_FHCRC = 1 << 1,
	GZIP_FEXTRA = 1 << 2,
	GZIP_FNAME = 1 << 3,
	GZIP_FCOMMENT = 1 << 4,
	GZIP_RESERVED = 0xe0,
};

enum gzip_state {
	GZ_FIXED, /* the ten bytes that each header begins with */
	GZ_EXTRA_LEN,
	GZ_EXTRA,
	GZ_NAME,
	GZ_COMMENT,
	GZ_HCRC,
	GZ_BODY, /* deflate stream and trailer: the backend's */
};

struct backend {
#if HAVE_ISAL
	struct inflate_state st;
#else
	z_stream zs;
	uint32_t crc;
	uint8_t trailer[8];
	unsigned n_trailer;
	bool in_trailer;
#endif
};

struct decoder {
	enum codec codec;
	bool ended;
	enum gzip_state state;
	uint32_t n; /* bytes seen of the current header field */
	uint32_t extra_len;
	uint8_t flags;
	uint64_t n_members;
	struct backend be;
	uint8_t window[WINDOW];
};

/*
 * A backend inflates from *in to *out and advances both. 1: the member has
 * ended and its checksum is right, *in is behind its trailer; 0: more input or
 * more room is needed; -EBADMSG.
 */
#if HAVE_ISAL

static int backend_init(struct backend *b)
{
	isal_inflate_init(&b->st);
	b->st.crc_flag = ISAL_GZIP_NO_HDR_VER;
	return 0;
}

static void backend_release(struct backend *b unused_arg)
{
}

static void backend_reset(struct backend *b)
{
	isal_inflate_reset(&b->st);
	b->st.crc_flag = ISAL_GZIP_NO_HDR_VER;
}

static int backend_run(struct backend *b, const uint8_t **in, size_t *n_in,
		       uint8_t **out, size_t *n_out)
{
	/* avail_in has 32 bits; the caller comes again for the rest */
	uint32_t take = *n_in > (1u << 30) ? 1u << 30 : (uint32_t)*n_in;
	int r;

	/* The library's pointer is not const, but it only reads through it. */
	b->st.next_in = (uint8_t *)(uintptr_t)*in;
	b->st.avail_in = take;
	b->st.next_out = *out;
	b->st.avail_out = (uint32_t)*n_out;
	r = isal_inflate(&b->st);
	*in += take - b->st.avail_in;
	*n_in -= take - b->st.avail_in;
	*out = b->st.next_out;
	*n_out = b->st.avail_out;
	if (r != ISAL_DECOMP_OK && r != ISAL_END_INPUT &&
	    r != ISAL_OUT_OVERFLOW)
		return -EBADMSG;
	return b->st.block_state == ISAL_BLOCK_FINISH;
}

#else

static int backend_init(struct backend *b)
{
	memset(b, 0, sizeof(*b));
	return inflateInit2(&b->zs, -MAX_WBITS) == Z_OK ? 0 : -ENOMEM;
}

static void backend_release(struct backend *b)
{
	(void)inflateEnd(&b->zs);
}

static void backend_reset(struct backend *b)
{
	(void)inflateReset(&b->zs); /* fails only for a broken stream object */
	b->crc = 0;
	b->n_trailer = 0;
	b->in_trailer = false;
}

/* CRC32 and length modulo 2^32, in any pieces. */
static int run_trailer(struct backend *b, const uint8_t **in, size_t *n_in)
{
	for (; *n_in && b->n_trailer < 8; (*in)++, (*n_in)--)
		b->trailer[b->n_trailer++] = **in;
	if (b->n_trailer < 8)
		return 0;
	if (get_le32(b->trailer) != b->crc ||
	    get_le32(b->trailer + 4) != (uint32_t)b->zs.total_out)
		return -EBADMSG;
	return 1;
}

static int backend_run(struct backend *b, const uint8_t **in, size_t *n_in,
		       uint8_t **out, size_t *n_out)
{
	uInt take = *n_in > (1u << 30) ? 1u << 30 : (uInt)*n_in;
	size_t made;
	int r;

	if (b->in_trailer)
		return run_trailer(b, in, n_in);
	b->zs.next_in = (Bytef *)(uintptr_t)*in;
	b->zs.avail_in = take;
	b->zs.next_out = *out;
	b->zs.avail_out = (uInt)*n_out;
	r = inflate(&b->zs, Z_NO_FLUSH);
	made = *n_out - b->zs.avail_out;
	b->crc = (uint32_t)crc32(b->crc, *out, (uInt)made);
	*in += take - b->zs.avail_in;
	*n_in -= take - b->zs.avail_in;
	*out += made;
	*n_out -= made;
	if (r == Z_STREAM_END) {
		b->in_trailer = true;
		return run_trailer(b, in, n_in);
	}
	return r == Z_OK || r == Z_BUF_ERROR ? 0 : -EBADMSG;
}

#endif

static bool codec_known(enum codec codec)
{
	return codec == CODEC_NONE || codec == CODEC_GZIP_MEMBER;
}

int decoder_new(enum codec codec, struct decoder **ret)
{
	struct decoder *d;
	int r;

	if (!codec_known(codec))
		return -EOPNOTSUPP;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	r = backend_init(&d->be);
	if (r < 0) {
		free(d);
		return r;
	}
	d->codec = codec;
	*ret = d;
	return 0;
}

void decoder_free(struct decoder *d)
{
	if (!d)
		return;
	backend_release(&d->be);
	free(d);
}

int decoder_reset(struct decoder *d, enum codec codec)
{
	if (!codec_known(codec))
		return -EOPNOTSUPP;
	backend_reset(&d->be);
	d->codec = codec;
	d->ended = false;
	d->state = GZ_FIXED;
	d->n = 0;
	d->n_members = 0;
	return 0;
}

uint64_t decoder_n_members(const struct decoder *d)
{
	return d->n_members;
}

/* The next field that this header has, at or behind state @s. */
static void enter(struct decoder *d, enum gzip_state s)
{
	static const struct {
		enum gzip_state state;
		uint8_t flag;
	} fields[] = {
		{ GZ_EXTRA_LEN, GZIP_FEXTRA },
		{ GZ_NAME, GZIP_FNAME },
		{ GZ_COMMENT, GZIP_FCOMMENT },
		{ GZ_HCRC, GZIP_FHCRC },
	};

	d->n = 0;
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (fields[i].state >= s && d->flags & fields[i].flag) {
			d->state = fields[i].state;
			return;
		}
	}
	d->state = GZ_BODY;
	backend_reset(&d->be);
}

static int fixed_byte(struct decoder *d, uint8_t c)
{
	switch (d->n++) {
	case 0:
		return c == 0x1f ? 0 : -EBADMSG;
	case 1:
		return c == 0x8b ? 0 : -EBADMSG;
	case 2:
		return c == 8 ? 0 : -EBADMSG;
	case 3:
		d->flags = c;
		return c & GZIP_RESERVED ? -EBADMSG : 0;
	case 9:
		enter(d, GZ_EXTRA_LEN);
		return 0;
	default: /* time, level, system: nobody's business */
		return 0;
	}
}

/* The header's own checksum is skipped: what it guards is never used, and the
 * bytes that are used have a digest. */
static int header_byte(struct decoder *d, uint8_t c)
{
	switch (d->state) {
	case GZ_FIXED:
		return fixed_byte(d, c);
	case GZ_EXTRA_LEN:
		d->extra_len = d->n ? d->extra_len | (uint32_t)c << 8 : c;
		if (++d->n < 2)
			return 0;
		d->n = 0;
		d->state = GZ_EXTRA;
		if (d->extra_len == 0)
			enter(d, GZ_NAME);
		return 0;
	case GZ_EXTRA:
		if (++d->n == d->extra_len)
			enter(d, GZ_NAME);
		return 0;
	case GZ_NAME:
	case GZ_COMMENT:
		if (c == 0)
			enter(d, d->state + 1);
		else if (++d->n >= GZIP_TEXT_MAX)
			return -EBADMSG;
		return 0;
	case GZ_HCRC:
		if (++d->n == 2)
			enter(d, GZ_BODY);
		return 0;
	case GZ_BODY:
		break;
	}
	return -EBADMSG;
}

static int feed_body(struct decoder *d, const uint8_t **in, size_t *len,
		     int (*out)(void *ctx, const void *p, size_t n), void *ctx)
{
	for (;;) {
		uint8_t *end = d->window;
		size_t room = WINDOW, before = *len;
		int r = backend_run(&d->be, in, len, &end, &room), o = 0;

		if (r < 0)
			return r;
		if (end != d->window)
			o = out(ctx, d->window, (size_t)(end - d->window));
		if (o != 0)
			return o;
		if (r == 1) {
			d->n_members++;
			d->state = GZ_FIXED;
			d->n = 0;
			return 0;
		}
		/* Room left means that it wants input, and nothing else. */
		if (room > 0 && (*len == 0 || *len == before))
			return *len == 0 ? 0 : -EBADMSG;
	}
}

int decoder_feed(struct decoder *d, const void *in, size_t len,
		 int (*out)(void *ctx, const void *p, size_t n), void *ctx)
{
	const uint8_t *p = in;
	int r = 0;

	if (d->ended)
		return -EINVAL;
	if (d->codec == CODEC_NONE) {
		r = len ? out(ctx, p, len) : 0;
	} else {
		while (r == 0 && len > 0) {
			if (d->state == GZ_BODY) {
				r = feed_body(d, &p, &len, out, ctx);
			} else {
				r = header_byte(d, *p++);
				len--;
			}
		}
	}
	d->ended = r != 0;
	return r;
}

int decoder_finish(struct decoder *d)
{
	if (d->ended)
		return -EBADMSG;
	if (d->codec == CODEC_NONE)
		return 0;
	return d->state == GZ_FIXED && d->n == 0 && d->n_members > 0 ? 0
								     : -EBADMSG;
}
