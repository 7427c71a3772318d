/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eStargz blobs around any table of contents, for tests and fuzzers: payload
 * bytes that nobody decodes, the table in one gzip member, the footer.
 */
#ifndef TESTS_ESGZ_BLOB_H
#define TESTS_ESGZ_BLOB_H

#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/io.h"
#include "snapshotter/formats/format.h"
#include "verity/sha256.h"

struct esgz_blob {
	struct buf b;
	uint64_t toc_off;
	struct digest toc;
};

/* One gzip member of @len bytes. */
static inline int esgz_member(struct buf *out, const void *p, size_t len,
			      int level)
{
	z_stream z = { 0 };
	size_t cap;

	if (deflateInit2(&z, level, Z_DEFLATED, MAX_WBITS + 16, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	cap = deflateBound(&z, (uLong)len) + 32;
	if (buf_reserve(out, cap) < 0) {
		(void)deflateEnd(&z);
		return -ENOMEM;
	}
	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)len;
	z.next_out = out->p + out->len;
	z.avail_out = (uInt)cap;
	if (deflate(&z, Z_FINISH) != Z_STREAM_END) {
		(void)deflateEnd(&z);
		return -EIO;
	}
	out->len += z.total_out;
	return deflateEnd(&z) == Z_OK ? 0 : -EIO;
}

static inline void esgz_tar_header(uint8_t *h, const char *name, uint64_t size)
{
	unsigned sum = 0;

	memset(h, 0, 512);
	(void)snprintf((char *)h, 100, "%s", name);
	(void)snprintf((char *)h + 100, 8, "%07o", 0644);
	(void)snprintf((char *)h + 124, 12, "%011llo",
		       (unsigned long long)size & 077777777777);
	memset(h + 148, ' ', 8);
	h[156] = '0';
	memcpy(h + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	(void)snprintf((char *)h + 148, 8, "%06o", sum);
}

static inline int esgz_footer(struct buf *out, uint64_t toc_off)
{
	char digits[17];

	(void)snprintf(digits, sizeof(digits), "%016llx",
		       (unsigned long long)toc_off);
	(void)buf_add(out, "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x1a\0SG\x16\0", 16);
	(void)buf_add(out, digits, 16);
	(void)buf_add(out, "STARGZ\x01\0\0\xff\xff\0\0\0\0\0\0\0\0", 19);
	return out->failed ? -ENOMEM : 0;
}

/* The tar around a table: header, text, padding and two blocks of zeros. */
static inline int esgz_tar(struct buf *tar, const void *json, size_t len)
{
	static const uint8_t zeros[2048];
	uint8_t h[512];

	esgz_tar_header(h, "stargz.index.json", len);
	(void)buf_add(tar, h, sizeof(h));
	(void)buf_add(tar, json, len);
	(void)buf_add(tar, zeros, (512 - len % 512) % 512 + 1024);
	return tar->failed ? -ENOMEM : 0;
}

/* @payload bytes in front of a table with the text @json */
static inline int esgz_build(struct esgz_blob *e, const void *json, size_t len,
			     size_t payload, int level)
{
	struct buf tar = { 0 };
	int r = esgz_tar(&tar, json, len);

	memset(e, 0, sizeof(*e));
	if (r == 0)
		r = buf_reserve(&e->b, payload);
	if (r == 0) {
		memset(e->b.p, 0xaa, payload);
		e->b.len = payload;
		e->toc_off = payload;
		r = sha256_buf(json, len, &e->toc);
	}
	if (r == 0)
		r = esgz_member(&e->b, tar.p, tar.len, level);
	if (r == 0)
		r = esgz_footer(&e->b, payload);
	buf_release(&tar);
	return r;
}

/* struct blob_reader over a buffer: ctx is the struct buf */
static inline int esgz_read(void *ctx, uint64_t off, void *p, size_t len,
			    struct err *e)
{
	const struct buf *b = ctx;

	if (off > b->len || len > b->len - off)
		return err_set(e, ERR_UNAVAILABLE, "beyond the blob");
	memcpy(p, b->p + off, len);
	return 0;
}

#endif
