/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two roads to a layer's tar stream; see proof_stream.h. Both decode with
 * the same pass, which takes a unit's output apart into extents and residue.
 */
#include "snapshotter/proof_stream.h"

#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "snapshotter/formats/decode.h"
#include "snapshotter/formats/estargz.h"
#include "verity/sha256.h"

#define FETCH_LEN (4u << 20) /* of one request */
#define READ_LEN (256u << 10) /* of one read of a body */
#define FETCH_MS 60000u
#define KEEP_MAX (64u << 20) /* residue of one unit */

/* Behind the last unit: the table of contents. */
struct pass {
	const struct proof_stream *ps;
	const struct proof_sink *sink; /* NULL: only keep */
	struct layer *l;
	struct fill_ops ops;
	struct residue_reader *rd;
	struct decoder *dec;
	struct sha256 *hash; /* of the current extent */
	uint8_t *buf; /* FETCH_LEN */
	uint32_t n_units;
	uint64_t toc_off;

	/* the current unit */
	struct unit u;
	uint32_t num;
	struct extent *x;
	uint32_t *x_num;
	uint32_t cap_x;
	bool keep; /* land extents, collect residue */
	uint64_t out; /* bytes of output so far */
	uint32_t cur; /* extent */
	uint32_t x_done; /* bytes of it */
	bool land; /* it is absent: collect it in xbuf */
	uint8_t *xbuf;
	size_t xcap;
	struct buf residue;
	bool residue_lost;
	struct err *e; /* of the running call, for callbacks */
};

static void pass_free(struct pass *p)
{
	if (!p)
		return;
	residue_reader_free(p->rd);
	decoder_free(p->dec);
	sha256_free(p->hash);
	buf_release(&p->residue);
	free(p->buf);
	free(p->x);
	free(p->x_num);
	free(p->xbuf);
	free(p);
}

DEFINE_OWNED(pass, struct pass *, pass_free)

static int pass_new(const struct proof_stream *ps, struct pass **ret,
		    struct err *e)
{
	owned(pass) struct pass *p = calloc(1, sizeof(*p));
	struct unit last;
	int r = p ? 0 : -ENOMEM;

	if (r < 0)
		return err_sys(e, r, "proof");
	p->ps = ps;
	p->sink = &ps->sink;
	p->l = ps->l;
	p->n_units = map_n_units(p->l->map);
	layer_fill_ops(p->l, &p->ops);
	p->buf = malloc(FETCH_LEN);
	r = p->buf ? decoder_new(CODEC_GZIP_MEMBER, &p->dec) : -ENOMEM;
	if (r == 0)
		r = sha256_new(&p->hash);
	if (r == 0 && p->l->residue)
		r = residue_reader_new(p->l->residue, &p->rd);
	if (r == 0 && p->n_units) {
		r = map_unit(p->l->map, p->n_units - 1, &last);
		p->toc_off = last.blob_off + last.clen;
	}
	if (r < 0)
		return err_sys(e, r, "proof");
	if (p->l->row.size < ESTARGZ_FOOTER_LEN ||
	    p->toc_off > p->l->row.size - ESTARGZ_FOOTER_LEN)
		return err_set(e, ERR_CORRUPT, "no room for a table");
	*ret = take_ptr(&p);
	return 0;
}

static int check_stop(const struct pass *p, struct err *e)
{
	if (!atomic_load(p->ps->stop))
		return 0;
	return err_set(e, ERR_CANCELLED, "the daemon is stopping");
}

/* ---- units ---- */

static int room_for_extents(struct pass *p, uint32_t n)
{
	struct extent *x;
	uint32_t *num;

	if (n <= p->cap_x)
		return 0;
	x = reallocarray(p->x, n, sizeof(*x));
	if (x)
		p->x = x;
	num = x ? reallocarray(p->x_num, n, sizeof(*num)) : NULL;
	if (!num)
		return -ENOMEM;
	p->x_num = num;
	p->cap_x = n;
	return 0;
}

/* Unit @i and its extents; behind the last the table, which has none. */
static int load_unit(struct pass *p, uint32_t i, struct err *e)
{
	struct map *m = p->l->map;
	uint64_t end = p->l->row.size - ESTARGZ_FOOTER_LEN;
	int r = 0;

	p->num = i;
	p->u = (struct unit){ .blob_off = p->toc_off,
			      .clen = (uint32_t)(end - p->toc_off),
			      .codec = CODEC_GZIP_MEMBER };
	if (i < p->n_units)
		r = map_unit(m, i, &p->u);
	if (r == 0)
		r = room_for_extents(p, p->u.n_x);
	for (uint32_t k = 0; r == 0 && k < p->u.n_x; k++) {
		r = map_unit_extent(m, p->u.first_x + k, &p->x_num[k]);
		if (r == 0)
			r = map_extent(m, p->x_num[k], &p->x[k]);
	}
	return r < 0 ? err_sys(e, r, "map of layer %u", p->l->row.seq) : 0;
}

static int announce(struct pass *p, struct err *e)
{
	return p->sink->unit(p->sink->ctx, p->num < p->n_units ? &p->u : NULL,
			     p->x, p->u.n_x, e);
}

static int not_a_unit(const struct pass *p, const char *why, struct err *e)
{
	return err_set(e, ERR_CORRUPT, "%s at offset %" PRIu64 ": %s",
		       p->num < p->n_units ? "unit" : "table of contents",
		       p->u.blob_off, why);
}

/* ---- decoding ---- */

static int begin_decode(struct pass *p, bool keep, struct err *e)
{
	int r = decoder_reset(p->dec, (enum codec)p->u.codec);

	p->keep = keep;
	p->out = 0;
	p->cur = 0;
	p->x_done = 0;
	p->residue.len = 0;
	p->residue.failed = false;
	p->residue_lost = false;
	return r < 0 ? err_sys(e, r, "proof") : 0;
}

static int begin_extent(struct pass *p)
{
	const struct extent *x = &p->x[p->cur];
	uint8_t *b;

	p->land = p->keep && !p->ops.landed(p->ops.ctx, p->x_num[p->cur], x);
	if (p->land && x->len > p->xcap) {
		b = realloc(p->xbuf, x->len);
		if (!b)
			return -ENOMEM;
		p->xbuf = b;
		p->xcap = x->len;
	}
	return sha256_begin(p->hash);
}

static int end_extent(struct pass *p)
{
	const struct extent *x = &p->x[p->cur];
	struct digest d;
	int r = sha256_end(p->hash, &d);

	if (r < 0)
		return r;
	if (!digest_equal(&d, &x->digest))
		return -EBADMSG;
	if (p->land)
		r = p->ops.land(p->ops.ctx, p->x_num[p->cur], x, p->xbuf,
				x->len);
	p->cur++;
	p->x_done = 0;
	return r;
}

static int take_extent(struct pass *p, const uint8_t *b, size_t n)
{
	int r = p->x_done ? 0 : begin_extent(p);

	if (r == 0)
		r = sha256_update(p->hash, b, n);
	if (r < 0)
		return r;
	if (p->land)
		memcpy(p->xbuf + p->x_done, b, n);
	p->x_done += (uint32_t)n;
	return p->x_done == p->x[p->cur].len ? end_extent(p) : 0;
}

static void take_residue(struct pass *p, const void *b, size_t n)
{
	if (!p->keep || p->residue_lost)
		return;
	p->residue_lost =
		n > KEEP_MAX - p->residue.len || buf_add(&p->residue, b, n) < 0;
}

/* Output of the decoder. 1: the sink has set p->e. */
static int take_output(void *ctx, const void *data, size_t len)
{
	struct pass *p = ctx;
	const uint8_t *b = data;

	if (p->sink && p->sink->bytes(p->sink->ctx, b, len, p->e) < 0)
		return 1;
	while (len) {
		size_t n = len;
		bool inside = false;
		int r = 0;

		if (p->cur < p->u.n_x) {
			const struct extent *x = &p->x[p->cur];
			uint64_t begin = x->unit_off;

			inside = p->out >= begin;
			begin += inside ? x->len : 0;
			n = n < begin - p->out ? n : (size_t)(begin - p->out);
		}
		if (inside)
			r = take_extent(p, b, n);
		else
			take_residue(p, b, n);
		if (r < 0)
			return r;
		p->out += n;
		b += n;
		len -= n;
	}
	return 0;
}

/* 0; -1 with ERR_CORRUPT when it is the bytes' fault */
static int decode(struct pass *p, const void *b, size_t len, struct err *e)
{
	int r;

	p->e = e;
	r = decoder_feed(p->dec, b, len, take_output, p);
	if (r == -EBADMSG)
		return not_a_unit(p, "not what the table says", e);
	if (r < 0)
		return err_sys(e, r, "proof of layer %u", p->l->row.seq);
	return r ? -1 : 0;
}

static int end_decode(struct pass *p, struct err *e)
{
	if (decoder_finish(p->dec) < 0)
		return not_a_unit(p, "does not end with a gzip member", e);
	if (p->cur < p->u.n_x)
		return not_a_unit(p, "ends before its last chunk", e);
	if (p->num == p->n_units && decoder_n_members(p->dec) != 1)
		return not_a_unit(p, "more than one gzip member", e);
	return 0;
}

/* ---- from the disk ---- */

static int fetch(struct pass *p, uint64_t off, void *b, size_t len,
		 struct err *e)
{
	if (check_stop(p, e) < 0 ||
	    blob_read_once(p->l->blob, off, b, len, FETCH_MS, e) < 0)
		return -1;
	atomic_fetch_add(&p->l->proof_fetched, len);
	return 0;
}

static int may_fetch(const struct pass *p, struct err *e)
{
	if (p->ps->may_fetch)
		return 0;
	return err_set(e, ERR_UNAVAILABLE,
		       "waits for bytes that nobody has read yet");
}

/* The current unit once more, to the disk; its residue is in p->residue. */
static int refetch(struct pass *p, struct err *e)
{
	if (may_fetch(p, e) < 0 || begin_decode(p, true, e) < 0)
		return -1;
	p->sink = NULL;
	if (p->u.n_x)
		atomic_fetch_add(&p->l->proof_refetched, p->u.clen);
	for (uint32_t at = 0; at < p->u.clen;) {
		uint32_t n = p->u.clen - at;

		n = n < FETCH_LEN ? n : FETCH_LEN;
		if (fetch(p, p->u.blob_off + at, p->buf, n, e) < 0 ||
		    decode(p, p->buf, n, e) < 0)
			return -1;
		at += n;
	}
	if (end_decode(p, e) < 0)
		return -1;
	p->sink = &p->ps->sink;
	if (p->residue_lost)
		return not_a_unit(p, "more than 64 MiB between files", e);
	p->ops.residue(p->ops.ctx, p->num, p->residue.p, p->residue.len);
	return 0;
}

/* A unit's residue comes behind its last extent, which may just have made the
 * layer complete: then it is on its way. 1: it is there; 0; -errno. */
static int await_residue(struct pass *p)
{
	struct layer *l = p->l;
	int r;

	for (int i = 0; i < 500 && fill_is_fetching(l->fill, p->num) &&
			!atomic_load(p->ps->stop);
	     i++)
		(void)usleep(20000);
	if (!p->rd || !residue_has(l->residue, p->num))
		return 0;
	residue_reader_free(p->rd);
	p->rd = NULL;
	r = residue_reader_new(l->residue, &p->rd);
	return r < 0 ? r : residue_read(p->rd, p->num, &p->residue);
}

/* p->residue of the current unit, from the disk or the registry. */
static int get_residue(struct pass *p, struct err *e)
{
	int r = p->rd ? residue_read(p->rd, p->num, &p->residue) : 0;

	if (r == 0)
		r = await_residue(p);
	if (r < 0)
		return err_sys(e, r, "residue of layer %u", p->l->row.seq);
	return r ? 0 : refetch(p, e);
}

static int give(struct pass *p, const void *b, size_t n, struct err *e)
{
	return n ? p->sink->bytes(p->sink->ctx, b, n, e) : 0;
}

/* Bytes of extent @k, checked; an absent one is fetched first. */
static int read_extent(struct pass *p, uint32_t k, uint32_t off, size_t n,
		       struct err *e)
{
	int r = layer_read_extent(p->l, p->x_num[k], &p->x[k], off, p->buf, n);

	if (r == -EAGAIN) {
		/* what refetch() collects is here already */
		struct buf mine = p->residue;

		p->residue = (struct buf){ 0 };
		r = refetch(p, e);
		buf_release(&p->residue);
		p->residue = mine;
		if (r < 0)
			return -1;
		r = layer_read_extent(p->l, p->x_num[k], &p->x[k], off, p->buf,
				      n);
	}
	return r < 0 ? err_sys(e, r, "contents of layer %u", p->l->row.seq) : 0;
}

static int give_extent(struct pass *p, uint32_t k, struct err *e)
{
	for (uint32_t at = 0; at < p->x[k].len;) {
		uint32_t n = p->x[k].len - at;

		n = n < READ_LEN ? n : READ_LEN;
		if (check_stop(p, e) < 0 || read_extent(p, k, at, n, e) < 0 ||
		    give(p, p->buf, n, e) < 0)
			return -1;
		at += n;
	}
	return 0;
}

/* Residue and extents in turns, as they were in the unit's output. */
static int give_unit(struct pass *p, struct err *e)
{
	uint64_t out = 0; /* of the unit's output */
	size_t used = 0; /* of its residue */

	if (announce(p, e) < 0 || get_residue(p, e) < 0)
		return -1;
	for (uint32_t k = 0; k < p->u.n_x; k++) {
		const struct extent *x = &p->x[k];

		if (x->unit_off < out ||
		    x->unit_off - out > p->residue.len - used)
			return not_a_unit(p, "residue is too short", e);
		if (give(p, p->residue.p + used, x->unit_off - out, e) < 0 ||
		    give_extent(p, k, e) < 0)
			return -1;
		used += x->unit_off - out;
		out = (uint64_t)x->unit_off + x->len;
	}
	return give(p, p->residue.p + used, p->residue.len - used, e);
}

/* The table was kept compressed when the layer was made. */
static int give_table(struct pass *p, struct err *e)
{
	int r = p->rd ? residue_read(p->rd, p->num, &p->residue) : 0;
	struct buf toc;

	if (r < 0)
		return err_sys(e, r, "residue of layer %u", p->l->row.seq);
	if (r == 0) {
		if (may_fetch(p, e) < 0)
			return -1;
		if (p->u.clen > ESTARGZ_TOC_CLEN_MAX ||
		    buf_reserve(&p->residue, p->u.clen) < 0)
			return err_sys(e, -ENOMEM, "table of contents");
		if (fetch(p, p->u.blob_off, p->residue.p, p->u.clen, e) < 0)
			return -1;
		p->residue.len = p->u.clen;
		atomic_fetch_add(&p->l->proof_refetched, p->u.clen);
		p->ops.residue(p->ops.ctx, p->num, p->residue.p,
			       p->residue.len);
	}
	toc = p->residue;
	p->residue = (struct buf){ 0 };
	r = announce(p, e);
	if (r == 0)
		r = begin_decode(p, false, e);
	if (r == 0)
		r = decode(p, toc.p, toc.len, e);
	buf_release(&toc);
	return r < 0 ? -1 : end_decode(p, e);
}

int proof_stream_local(const struct proof_stream *ps, struct err *e)
{
	owned(pass) struct pass *p = NULL;

	if (pass_new(ps, &p, e) < 0)
		return -1;
	for (uint32_t i = 0; i < p->n_units; i++)
		if (load_unit(p, i, e) < 0 || give_unit(p, e) < 0)
			return -1;
	if (load_unit(p, p->n_units, e) < 0)
		return -1;
	return give_table(p, e);
}

/* ---- from the blob ---- */

struct blob_pass {
	struct pass *p;
	uint64_t off; /* of the blob */
	bool bad; /* *why says why; go on for the blob's digest only */
	struct err why;
	uint8_t footer[ESTARGZ_FOOTER_LEN];
};

/* 0 also when the bytes are bad: that is kept for the end. */
static int judge(struct blob_pass *b, int r, const struct err *found,
		 struct err *e)
{
	if (r == 0)
		return 0;
	if (found->kind != ERR_CORRUPT) {
		*e = *found;
		return -1;
	}
	b->bad = true;
	b->why = *found;
	return 0;
}

static int enter_unit(struct blob_pass *b, struct err *e)
{
	struct pass *p = b->p;
	struct err found = ERR_INIT;
	int r = load_unit(p, p->num, &found);

	if (r == 0)
		r = announce(p, &found);
	if (r == 0)
		r = begin_decode(p, false, &found);
	return judge(b, r, &found, e);
}

/* A piece of the blob goes to the units that it lies in. */
static int take_blob(struct blob_pass *b, const uint8_t *d, size_t len,
		     struct err *e)
{
	struct pass *p = b->p;
	uint64_t toc_end = p->l->row.size - ESTARGZ_FOOTER_LEN;

	while (len && !b->bad) {
		uint64_t end = p->u.blob_off + p->u.clen;
		struct err found = ERR_INIT;
		size_t n = len;
		int r;

		if (b->off >= toc_end) {
			memcpy(b->footer + (b->off - toc_end), d, len);
			b->off += len;
			return 0;
		}
		n = n < end - b->off ? n : (size_t)(end - b->off);
		r = decode(p, d, n, &found);
		b->off += n;
		d += n;
		len -= n;
		if (r == 0 && b->off == end)
			r = end_decode(p, &found);
		if (judge(b, r, &found, e) < 0)
			return -1;
		if (b->bad || b->off < end || p->num == p->n_units)
			continue;
		p->num++;
		if (enter_unit(b, e) < 0)
			return -1;
	}
	b->off += len;
	return 0;
}

static int check_footer(struct blob_pass *b)
{
	uint64_t off = 0;

	if (b->bad || estargz_footer(b->footer, sizeof(b->footer),
				     b->p->l->row.size, &off, &b->why) < 0)
		return -1;
	if (off == b->p->toc_off)
		return 0;
	return err_set(&b->why, ERR_CORRUPT,
		       "footer: the table is at %" PRIu64 ", not at %" PRIu64,
		       off, b->p->toc_off);
}

int proof_stream_blob(const struct proof_stream *ps, bool *ret_same,
		      struct err *e)
{
	owned(pass) struct pass *p = NULL;
	owned(sha256) struct sha256 *h = NULL;
	struct blob_pass b = { 0 };
	uint64_t size = ps->l->row.size;
	struct digest d;
	int r;

	if (pass_new(ps, &p, e) < 0)
		return -1;
	b.p = p;
	r = sha256_new(&h);
	if (r < 0)
		return err_sys(e, r, "proof");
	if (enter_unit(&b, e) < 0)
		return -1;
	for (uint64_t at = 0; at < size;) {
		size_t n =
			size - at < FETCH_LEN ? (size_t)(size - at) : FETCH_LEN;

		if (fetch(p, at, p->buf, n, e) < 0)
			return -1;
		atomic_fetch_add(&p->l->proof_refetched, n);
		r = sha256_update(h, p->buf, n);
		if (r < 0)
			return err_sys(e, r, "proof");
		if (take_blob(&b, p->buf, n, e) < 0)
			return -1;
		at += n;
	}
	r = sha256_end(h, &d);
	if (r < 0)
		return err_sys(e, r, "proof");
	*ret_same = digest_equal(&d, &ps->l->row.blob);
	if (!*ret_same) /* the next pass asks somebody else, if there is */
		(void)blob_distrust(ps->l->blob);
	if (check_footer(&b) < 0) {
		*e = b.why;
		return -1;
	}
	return 0;
}
