/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decoder on any bytes: cut differently it must say the same, and what it
 * accepts zlib must accept with the same output.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "snapshotter/formats/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 20 };

static int take(void *ctx, const void *p, size_t n)
{
	struct buf *b = ctx;

	if (n == 0 || n > 256 << 10)
		abort();
	if (b->len + n > OUT_MAX)
		return 1;
	return buf_add(b, p, n);
}

static int run(struct decoder *d, const uint8_t *p, size_t len, size_t step,
	       struct buf *out)
{
	int r = decoder_reset(d, CODEC_GZIP_MEMBER);

	out->len = 0;
	for (size_t at = 0; r == 0 && at < len; at += step)
		r = decoder_feed(d, p + at, len - at < step ? len - at : step,
				 take, out);
	return r == 0 ? decoder_finish(d) : r;
}

/* All members by zlib; false: it refuses, which it does for more reasons. */
static bool by_zlib(const uint8_t *p, size_t len, struct buf *out)
{
	static uint8_t room[OUT_MAX + 1];
	z_stream z = { 0 };
	bool ok = inflateInit2(&z, MAX_WBITS + 16) == Z_OK;

	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)len;
	z.next_out = room;
	z.avail_out = sizeof(room);
	while (ok && z.avail_in > 0) {
		ok = inflate(&z, Z_FINISH) == Z_STREAM_END;
		if (ok && z.avail_in > 0)
			ok = inflateReset(&z) == Z_OK;
	}
	out->len = 0;
	if (ok && buf_add(out, room, sizeof(room) - z.avail_out) < 0)
		abort();
	(void)inflateEnd(&z);
	return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct decoder *d;
	struct buf a = { 0 }, b = { 0 };
	int r, k;

	if (size < 1)
		return 0;
	if (!d && decoder_new(CODEC_GZIP_MEMBER, &d) < 0)
		abort();
	r = run(d, data + 1, size - 1, data[0] % 40 + 1u, &a);
	k = run(d, data + 1, size - 1, size, &b);
	if (r != k && r != 1 && k != 1)
		abort();
	if (r == 0 && k == 0) {
		if (a.len != b.len || (a.len && memcmp(a.p, b.p, a.len) != 0))
			abort();
		if (by_zlib(data + 1, size - 1, &b) &&
		    (a.len != b.len || (a.len && memcmp(a.p, b.p, a.len))))
			abort();
	}
	buf_release(&a);
	buf_release(&b);
	return 0;
}
