/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a blob's last bytes to the checked JSON of its table of contents; see
 * estargz.h for the parts behind it.
 *
 * The reader's bytes are not verified, so nothing of the table is looked at
 * before its digest is known: a first pass inflates and hashes, a second one
 * inflates again and parses. The table stays compressed in between, which is
 * what keeps 100,000 entries (33 MB of JSON) within a few megabytes.
 */
#include "snapshotter/formats/estargz.h"

#include <inttypes.h>
#include <string.h>

#include "base/hex.h"
#include "snapshotter/formats/decode.h"
#include "snapshotter/formats/toc_scan.h"
#include "verity/sha256.h"

#define TAIL_LEN (64u << 10) /* first read: most tables fit */
#define TAR_BLOCK 512u
#define TAR_PADDING_MAX (64u << 10) /* behind the JSON; writers differ */
#define FEED_LEN (64u << 10)

/* ---- footer ---- */

#define LEGACY_FOOTER_LEN 47u
#define EXTERNAL_FOOTER_LEN 46u
#define OFFSET_DIGITS 16u

/* An empty gzip member: header with FEXTRA, one stored block of no bytes. */
static const uint8_t gzip_head[] = { 0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff };
static const uint8_t gzip_tail[] = {
	1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0
};

struct footer {
	size_t len;
	uint8_t xlen; /* its high byte is 0 */
	uint8_t sub_len; /* of the SG subfield; 0: there is none */
	bool has_offset;
	const char *magic;
};

static const struct footer footer_estargz = { ESTARGZ_FOOTER_LEN, 26, 22, true,
					      "STARGZ" };
static const struct footer footer_legacy = { LEGACY_FOOTER_LEN, 22, 0, true,
					     "STARGZ" };
static const struct footer footer_external = { EXTERNAL_FOOTER_LEN, 21, 17,
					       false, "STARGZEXTERNALTOC" };

static bool eat(const uint8_t **p, const void *want, size_t len)
{
	bool same = !memcmp(*p, want, len);

	*p += len;
	return same;
}

/* @ret_digits: of the offset; untouched when the footer has none */
static bool footer_matches(const struct footer *f, const uint8_t *tail,
			   size_t len, const uint8_t **ret_digits)
{
	const uint8_t xlen[] = { f->xlen, 0 };
	const uint8_t sub[] = { 'S', 'G', f->sub_len, 0 };
	const uint8_t *p;

	if (len < f->len)
		return false;
	p = tail + len - f->len;
	if (!eat(&p, gzip_head, sizeof(gzip_head)) ||
	    !eat(&p, xlen, sizeof(xlen)) ||
	    (f->sub_len && !eat(&p, sub, sizeof(sub))))
		return false;
	if (f->has_offset) {
		*ret_digits = p;
		p += OFFSET_DIGITS;
	}
	return eat(&p, f->magic, strlen(f->magic)) &&
	       eat(&p, gzip_tail, sizeof(gzip_tail));
}

int estargz_footer(const uint8_t *tail, size_t len, uint64_t blob_size,
		   uint64_t *ret_toc_off, struct err *e)
{
	const uint8_t *digits = NULL;
	uint8_t be[8];
	uint64_t off = 0;

	if (footer_matches(&footer_external, tail, len, &digits))
		return err_set(e, ERR_UNSUPPORTED,
			       "eStargz with an external table of contents");
	if (footer_matches(&footer_legacy, tail, len, &digits))
		return err_set(e, ERR_UNSUPPORTED,
			       "stargz without chunk digests (footer of "
			       "%u bytes)",
			       LEGACY_FOOTER_LEN);
	if (!footer_matches(&footer_estargz, tail, len, &digits))
		return err_set(e, ERR_CORRUPT,
			       "no eStargz footer at the end of the blob");
	/* hex_decode takes lower-case digits only: no sign, no space */
	if (hex_decode((const char *)digits, be, sizeof(be)) < 0)
		return err_set(e, ERR_CORRUPT,
			       "footer: the offset is not hexadecimal");
	for (size_t i = 0; i < sizeof(be); i++)
		off = off << 8 | be[i];
	if (off >= blob_size - ESTARGZ_FOOTER_LEN)
		return err_set(e, ERR_CORRUPT,
			       "footer: offset %" PRIu64 " is not inside the "
			       "blob of %" PRIu64 " bytes",
			       off, blob_size);
	*ret_toc_off = off;
	return 0;
}

/* ---- the compressed table ---- */

struct toc_blob {
	uint8_t *p;
	size_t len;
	uint64_t off; /* in the layer blob */
};

static int read_rest(const struct blob_reader *b, struct toc_blob *t,
		     const uint8_t *tail, size_t tail_len, struct err *e)
{
	uint64_t tail_off = b->size - tail_len;
	size_t head = 0; /* bytes of the table before the tail */

	t->p = malloc(t->len);
	if (!t->p)
		return err_sys(e, -ENOMEM, "toc of %zu bytes", t->len);
	if (t->off < tail_off) {
		head = (size_t)(tail_off - t->off);
		if (b->read(b->ctx, t->off, t->p, head, e) < 0)
			return err_wrap(e, "toc");
	} else {
		tail += t->off - tail_off;
	}
	memcpy(t->p + head, tail, t->len - head);
	return 0;
}

/* Two reads at most: the tail, and what lies before it. */
static int read_toc(const struct blob_reader *b, struct toc_blob *t,
		    struct err *e)
{
	size_t tail_len = b->size < TAIL_LEN ? (size_t)b->size : TAIL_LEN;
	owned(mem) uint8_t *tail = malloc(tail_len ? tail_len : 1);
	uint64_t len;

	if (!tail)
		return err_sys(e, -ENOMEM, "footer");
	if (b->read(b->ctx, b->size - tail_len, tail, tail_len, e) < 0)
		return err_wrap(e, "footer");
	if (estargz_footer(tail, tail_len, b->size, &t->off, e) < 0)
		return -1;
	len = b->size - ESTARGZ_FOOTER_LEN - t->off;
	if (len > ESTARGZ_TOC_CLEN_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "toc of more than %u compressed bytes",
			       ESTARGZ_TOC_CLEN_MAX);
	t->len = (size_t)len;
	return read_rest(b, t, tail, tail_len, e);
}

/* ---- from the member to the JSON ---- */

typedef int json_fn(void *ctx, const void *p, size_t len, struct err *e);

struct tar_reader {
	uint8_t header[TAR_BLOCK];
	size_t n_header;
	uint64_t left; /* bytes of the JSON */
	uint64_t n_padding;
	json_fn *json;
	void *ctx;
	struct err *e;
};

static int octal(const uint8_t *p, size_t len, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	for (; i < len && p[i] >= '0' && p[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(p[i] - '0'); /* 12 digits at most */
	if (i == 0)
		return -EINVAL;
	for (; i < len; i++) {
		if (p[i] != '\0' && p[i] != ' ')
			return -EINVAL;
	}
	*ret = v;
	return 0;
}

/* POSIX ustar: name, size, checksum with itself as spaces, type, prefix. */
static int check_header(struct tar_reader *t)
{
	const uint8_t *h = t->header;
	uint64_t want, sum = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	if (octal(h + 148, 8, &want) < 0 || want != sum)
		return err_set(t->e, ERR_CORRUPT, "toc: no tar header");
	if (memcmp(h, ESTARGZ_TOC_NAME, sizeof(ESTARGZ_TOC_NAME)) != 0 ||
	    (h[156] != '0' && h[156] != '\0') || h[345] != '\0')
		return err_set(
			t->e, ERR_CORRUPT,
			"toc: the tar entry is no file " ESTARGZ_TOC_NAME);
	if (octal(h + 124, 12, &t->left) < 0)
		return err_set(t->e, ERR_CORRUPT, "toc: no size");
	if (t->left > ESTARGZ_TOC_LEN_MAX)
		return err_set(t->e, ERR_UNSUPPORTED,
			       "toc of more than %llu bytes",
			       ESTARGZ_TOC_LEN_MAX);
	return 0;
}

static int padding(struct tar_reader *t, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != 0)
			return err_set(t->e, ERR_CORRUPT,
				       "toc: something behind its end");
	}
	t->n_padding += n;
	if (t->n_padding > TAR_PADDING_MAX)
		return err_set(t->e, ERR_CORRUPT, "toc: too much padding");
	return 0;
}

/* Output of the decoder. 1: failed, and t->e says why. */
static int on_tar(void *ctx, const void *p, size_t n)
{
	struct tar_reader *t = ctx;
	const uint8_t *b = p;
	size_t k = TAR_BLOCK - t->n_header;

	if (k > 0) {
		k = k < n ? k : n;
		memcpy(t->header + t->n_header, b, k);
		t->n_header += k;
		b += k;
		n -= k;
		if (t->n_header == TAR_BLOCK && check_header(t) < 0)
			return 1;
	}
	k = t->left < n ? (size_t)t->left : n;
	if (k > 0 && t->json(t->ctx, b, k, t->e) < 0)
		return 1;
	t->left -= k;
	return padding(t, b + k, n - k) < 0;
}

/* One pass: all of the table's JSON goes to @json. */
static int inflate_toc(const struct toc_blob *b, struct decoder *d,
		       json_fn *json, void *ctx, struct err *e)
{
	struct tar_reader t = { .json = json, .ctx = ctx, .e = e };
	int r = decoder_reset(d, CODEC_GZIP_MEMBER);

	for (size_t at = 0; r == 0 && at < b->len;) {
		size_t n = b->len - at;

		n = n < FEED_LEN ? n : FEED_LEN;
		r = decoder_feed(d, b->p + at, n, on_tar, &t);
		at += n;
	}
	if (r == 1)
		return -1;
	if (r == 0)
		r = decoder_finish(d);
	if (r < 0)
		return err_set(e, ERR_CORRUPT,
			       "toc: not a gzip member up to the footer");
	if (decoder_n_members(d) != 1)
		return err_set(e, ERR_CORRUPT,
			       "toc: more than one gzip member");
	if (t.n_header < TAR_BLOCK || t.left > 0)
		return err_set(e, ERR_CORRUPT, "toc: ends too early");
	return 0;
}

/* ---- first pass ---- */

static int hash_json(void *ctx, const void *p, size_t len, struct err *e)
{
	int r = sha256_update(ctx, p, len);

	return r < 0 ? err_sys(e, r, "toc: digest") : 0;
}

static int check_digest(const struct toc_blob *b, struct decoder *d,
			const struct digest *want, struct err *e)
{
	owned(sha256) struct sha256 *h = NULL;
	struct digest got;
	int r = sha256_new(&h);

	if (r < 0)
		return err_sys(e, r, "toc: digest");
	if (inflate_toc(b, d, hash_json, h, e) < 0)
		return -1;
	r = sha256_end(h, &got);
	if (r < 0)
		return err_sys(e, r, "toc: digest");
	if (!digest_equal(&got, want))
		return err_set(e, ERR_CORRUPT, "toc: digest is %s, not %s",
			       digest_str(&got).s, digest_str(want).s);
	return 0;
}

/* ---- second pass ---- */

struct parse {
	struct toc_parser *parser;
	struct estargz_emit *emit;
	uint32_t n_entries;
	bool has_version;
};

static int on_entry(void *ctx, const char *text, size_t len, struct err *e)
{
	struct parse *p = ctx;
	struct toc_entry t;

	if (toc_parser_entry(p->parser, text, len, p->n_entries, &t, e) < 0)
		return -1;
	p->n_entries++;
	return estargz_emit_entry(p->emit, &t, e);
}

static int on_member(void *ctx, const char *key, const char *text, size_t len,
		     struct err *e)
{
	struct parse *p = ctx;

	if (strcmp(key, "version") != 0)
		return 0;
	p->has_version = true;
	return toc_parser_version(p->parser, text, len, e);
}

static int scan_json(void *ctx, const void *p, size_t len, struct err *e)
{
	return toc_scan_feed(ctx, p, len, e);
}

static int emit_all(const struct toc_blob *b, struct decoder *d,
		    const struct sink *s, void *ctx, struct err *e)
{
	static const struct toc_scan_ops ops = { on_entry, on_member };
	owned(toc_parser) struct toc_parser *parser = NULL;
	owned(estargz_emit) struct estargz_emit *emit = NULL;
	owned(toc_scan) struct toc_scan *scan = NULL;
	struct parse p = { 0 };
	int r = toc_parser_new(&parser);

	if (r == 0)
		r = estargz_emit_new(s, ctx, b->off, &emit);
	if (r == 0)
		r = toc_scan_new(&ops, &p, &scan);
	if (r < 0)
		return err_sys(e, r, "toc");
	p.parser = parser;
	p.emit = emit;
	if (inflate_toc(b, d, scan_json, scan, e) < 0 ||
	    toc_scan_finish(scan, e) < 0)
		return -1;
	if (!p.has_version)
		return err_set(e, ERR_UNSUPPORTED, "toc: no version");
	return estargz_emit_end(emit, e);
}

static int estargz_parse(const struct blob_reader *b,
			 const struct layer_desc *d, const struct sink *s,
			 void *ctx, struct err *e)
{
	owned(mem) uint8_t *bytes = NULL;
	owned(decoder) struct decoder *dec = NULL;
	struct toc_blob toc = { 0 };
	int r;

	if (digest_is_zero(&d->toc))
		return err_set(e, ERR_UNSUPPORTED,
			       "no toc digest: cannot be verified");
	if (d->size && d->size != b->size)
		return err_set(e, ERR_CORRUPT,
			       "blob has %" PRIu64 " bytes, not %" PRIu64,
			       b->size, d->size);
	r = decoder_new(CODEC_GZIP_MEMBER, &dec);
	if (r < 0)
		return err_sys(e, r, "toc");
	r = read_toc(b, &toc, e);
	bytes = toc.p; /* owned from here on, also when that failed */
	if (r < 0 || check_digest(&toc, dec, &d->toc, e) < 0)
		return -1;
	return emit_all(&toc, dec, s, ctx, e);
}

const struct format format_estargz = {
	.id = FORMAT_ESTARGZ,
	.name = "estargz",
	.parse = estargz_parse,
};
