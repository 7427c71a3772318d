/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine over 512-byte blocks; see tar.h. An extended header ('x',
 * 'L', 'K') is collected whole, at most TAR_SPECIAL_MAX bytes, and applied to
 * the entry that follows; contents are counted, not kept.
 */
#include "snapshotter/formats/tar.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"

#define BLOCK 512u

/* A field of the header, with its place (POSIX ustar). */
struct field {
	uint16_t off, len;
};
static const struct field f_name = { 0, 100 }, f_mode = { 100, 8 },
			  f_uid = { 108, 8 }, f_gid = { 116, 8 },
			  f_size = { 124, 12 }, f_mtime = { 136, 12 },
			  f_chksum = { 148, 8 }, f_link = { 157, 100 },
			  f_major = { 329, 8 }, f_minor = { 337, 8 },
			  f_prefix = { 345, 155 }, f_star_prefix = { 345, 131 },
			  f_atime = { 345, 12 }, f_ctime = { 357, 12 };
#define OFF_TYPE 156
#define OFF_MAGIC 257
#define OFF_STAR_TRAILER 508

enum dialect {
	DIALECT_NONE,
	DIALECT_V7,
	DIALECT_USTAR,
	DIALECT_STAR,
	DIALECT_GNU
};

enum tar_state {
	TAR_HEADER,
	TAR_SPECIAL, /* contents of an extended header */
	TAR_DATA, /* contents of a file */
	TAR_ZERO, /* one block of zeros was seen */
	TAR_END,
};

/* What the extended headers before an entry say; strings lie in its text. */
struct pax {
	struct buf text;
	const char *path, *link; /* NULL: not said */
	size_t path_len, link_len;
	int64_t size, uid, gid, mtime;
	uint32_t mtime_nsec;
	bool seen, has_size, has_uid, has_gid, has_mtime;
	struct entry_xattr xattrs[TAR_XATTRS_MAX];
	size_t n_xattrs;
};

struct tar {
	const struct tar_ops *ops;
	void *ctx;
	enum tar_state state;
	bool broken;
	uint64_t off; /* of the stream: bytes seen */
	uint64_t header_off; /* where the current header lies, for messages */
	uint8_t block[BLOCK];
	size_t n_block;
	uint64_t left; /* of the contents */
	uint32_t pad; /* behind them */
	char special; /* type of the extended header that is being read */
	struct pax pax;
	struct buf name, link; /* of GNU 'L' and 'K', then of the entry */
	bool has_name, has_link;
	struct buf path; /* of the entry, when it is put together */
};

int tar_new(const struct tar_ops *ops, void *ctx, struct tar **ret)
{
	struct tar *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = ops;
	t->ctx = ctx;
	*ret = t;
	return 0;
}

void tar_free(struct tar *t)
{
	if (!t)
		return;
	buf_release(&t->pax.text);
	buf_release(&t->name);
	buf_release(&t->link);
	buf_release(&t->path);
	free(t);
}

static int refuse(const struct tar *t, enum err_kind kind, const char *why,
		  struct err *e)
{
	return err_set(e, kind, "tar: header at %" PRIu64 ": %s", t->header_off,
		       why);
}

static int no_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "tar");
}

/* ---- values ---- */

static size_t text_len(const uint8_t *h, struct field f)
{
	return strnlen((const char *)h + f.off, f.len);
}

/* Octal between blanks and NULs; all blank is 0. */
static int parse_octal(const uint8_t *p, size_t len, int64_t *ret)
{
	uint64_t v = 0;

	while (len && (*p == ' ' || *p == '\0')) {
		p++;
		len--;
	}
	while (len && (p[len - 1] == ' ' || p[len - 1] == '\0'))
		len--;
	for (; len; p++, len--) {
		if (*p == '\0') /* Go stops at it: what follows is no matter */
			break;
		if (*p < '0' || *p > '7' || v >> 61)
			return -EINVAL;
		v = v << 3 | (uint64_t)(*p - '0');
	}
	if (v > INT64_MAX)
		return -EINVAL;
	*ret = (int64_t)v;
	return 0;
}

/* Octal, or two's complement when the first bit is set (GNU). */
static int parse_number(const uint8_t *h, struct field f, int64_t *ret)
{
	const uint8_t *p = h + f.off;
	uint8_t inv = p[0] & 0x40 ? 0xff : 0;
	uint64_t v = 0;

	if (!(p[0] & 0x80))
		return parse_octal(p, f.len, ret);
	for (size_t i = 0; i < f.len; i++) {
		uint8_t c = p[i] ^ inv;

		if (i == 0)
			c &= 0x7f;
		if (v >> 56)
			return -EINVAL;
		v = v << 8 | c;
	}
	if (v >> 63)
		return -EINVAL;
	*ret = inv ? (int64_t)~v : (int64_t)v;
	return 0;
}

/* Decimal with an optional minus, in all of @len bytes. */
static int parse_decimal(const char *p, size_t len, int64_t *ret)
{
	bool minus = len && *p == '-';
	int64_t v = 0;

	p += minus;
	len -= minus;
	if (!len)
		return -EINVAL;
	for (; len; p++, len--) {
		int d = *p - '0';

		if (d < 0 || d > 9 || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, d, &v))
			return -EINVAL;
	}
	*ret = minus ? -v : v;
	return 0;
}

/* Seconds with a fraction, which counts away from zero as the sign does. */
static int parse_time(const char *p, size_t len, int64_t *ret_sec,
		      uint32_t *ret_nsec)
{
	const char *dot = memchr(p, '.', len);
	size_t whole = dot ? (size_t)(dot - p) : len;
	uint32_t nsec = 0, scale = 100000000;
	int64_t sec;

	if (parse_decimal(p, whole, &sec) < 0)
		return -EINVAL;
	for (size_t i = whole + 1; i < len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -EINVAL;
		nsec += (uint32_t)(p[i] - '0') * scale;
		scale /= 10;
	}
	if (*p == '-' && nsec) {
		if (sec == INT64_MIN)
			return -EINVAL;
		sec--;
		nsec = 1000000000 - nsec;
	}
	*ret_sec = sec;
	*ret_nsec = nsec;
	return 0;
}

/* ---- PAX ---- */

#define XATTR_PREFIX "SCHILY.xattr."

static bool key_is(const char *key, size_t len, const char *want)
{
	return len == strlen(want) && !memcmp(key, want, len);
}

/* The last of several with one name counts, as in Go's map. */
static int pax_xattr(struct pax *x, char *name, const char *value, size_t len)
{
	size_t i = 0;

	while (i < x->n_xattrs && strcmp(x->xattrs[i].name, name) != 0)
		i++;
	if (i == TAR_XATTRS_MAX)
		return -E2BIG;
	x->xattrs[i] = (struct entry_xattr){ .name = name,
					     .value = value,
					     .len = len };
	if (i == x->n_xattrs)
		x->n_xattrs++;
	return 0;
}

/* One record; @key ends with a NUL, the value with one behind it. */
static int pax_record(struct pax *x, char *key, size_t key_len, const char *v,
		      size_t len, const char **ret_why)
{
	bool text = key_is(key, key_len, "path") ||
		    key_is(key, key_len, "linkpath") ||
		    key_is(key, key_len, "uname") ||
		    key_is(key, key_len, "gname");
	int64_t sec;
	uint32_t nsec;
	int r = 0;

	*ret_why = "a PAX record with a bad value";
	if (!key_len || memchr(text ? v : key, '\0', text ? len : key_len))
		return -EINVAL;
	if (!strncmp(key, "GNU.sparse.", 11)) {
		*ret_why = "a sparse file";
		return -EOPNOTSUPP;
	}
	if (!strncmp(key, XATTR_PREFIX, strlen(XATTR_PREFIX))) {
		*ret_why = "more than 128 extended attributes";
		return pax_xattr(x, key + strlen(XATTR_PREFIX), v, len);
	}
	if (!len) /* the ustar value stays */
		return 0;
	if (key_is(key, key_len, "path")) {
		x->path = v;
		x->path_len = len;
	} else if (key_is(key, key_len, "linkpath")) {
		x->link = v;
		x->link_len = len;
	} else if (key_is(key, key_len, "size")) {
		r = parse_decimal(v, len, &x->size);
		x->has_size = true;
	} else if (key_is(key, key_len, "uid")) {
		r = parse_decimal(v, len, &x->uid);
		x->has_uid = true;
	} else if (key_is(key, key_len, "gid")) {
		r = parse_decimal(v, len, &x->gid);
		x->has_gid = true;
	} else if (key_is(key, key_len, "mtime")) {
		r = parse_time(v, len, &x->mtime, &x->mtime_nsec);
		x->has_mtime = true;
	} else if (key_is(key, key_len, "atime") ||
		   key_is(key, key_len, "ctime")) {
		r = parse_time(v, len, &sec, &nsec);
	}
	return r;
}

/* "LENGTH KEY=VALUE\n", one behind the other; LENGTH counts all of it. NULs
 * are put behind keys and values. */
static int pax_parse(struct pax *x, const char **ret_why)
{
	char *p = (char *)x->text.p;
	char *end = x->text.len ? p + x->text.len : p;

	while (p < end) {
		char *space = memchr(p, ' ', (size_t)(end - p)), *eq, *nl;
		int64_t n;
		int r;

		*ret_why = "a PAX record that is malformed";
		if (!space || *p == '-' ||
		    parse_decimal(p, (size_t)(space - p), &n) < 0 || n < 5 ||
		    n > end - p || space + 1 >= p + n - 1)
			return -EINVAL;
		nl = p + n - 1;
		eq = memchr(space + 1, '=', (size_t)(nl - space - 1));
		if (*nl != '\n' || !eq)
			return -EINVAL;
		*eq = *nl = '\0';
		r = pax_record(x, space + 1, (size_t)(eq - space - 1), eq + 1,
			       (size_t)(nl - eq - 1), ret_why);
		if (r < 0)
			return r;
		p = nl + 1;
	}
	return 0;
}

static void pax_clear(struct pax *x)
{
	struct buf text = x->text;

	text.len = 0;
	*x = (struct pax){ .text = text };
}

/* ---- headers ---- */

static bool checksum_fits(const uint8_t *h)
{
	int64_t want, u = 0, s = 0;

	if (parse_octal(h + f_chksum.off, f_chksum.len, &want) < 0)
		return false;
	for (size_t i = 0; i < BLOCK; i++) {
		bool self = i >= f_chksum.off &&
			    i < (size_t)f_chksum.off + f_chksum.len;

		u += self ? ' ' : h[i];
		s += self ? ' ' : (int8_t)h[i];
	}
	return want == u || want == s;
}

static enum dialect dialect_of(const uint8_t *h)
{
	if (!checksum_fits(h))
		return DIALECT_NONE;
	if (!memcmp(h + OFF_MAGIC, "ustar\0", 6))
		return memcmp(h + OFF_STAR_TRAILER, "tar\0", 4) ? DIALECT_USTAR
								: DIALECT_STAR;
	if (!memcmp(h + OFF_MAGIC, "ustar  \0", 8))
		return DIALECT_GNU;
	return DIALECT_V7;
}

/* prefix/name, with a NUL behind it */
static int header_path(struct tar *t, enum dialect d)
{
	const uint8_t *h = t->block;
	struct field prefix = d == DIALECT_STAR ? f_star_prefix : f_prefix;
	size_t n = d == DIALECT_USTAR || d == DIALECT_STAR ? text_len(h, prefix)
							   : 0;

	t->path.len = 0;
	t->path.failed = false;
	if (n) {
		(void)buf_add(&t->path, h + prefix.off, n);
		(void)buf_add(&t->path, "/", 1);
	}
	(void)buf_add(&t->path, h + f_name.off, text_len(h, f_name));
	return t->path.failed ? -ENOMEM : 0;
}

/* '0' and others to types; -1: unknown. @slash: the name ends with one. */
static int type_of(uint8_t flag, bool slash)
{
	switch (flag) {
	case '0':
		return ENTRY_REG;
	case '\0': /* from before there were types */
		return slash ? ENTRY_DIR : ENTRY_REG;
	case '1':
		return ENTRY_HARDLINK;
	case '2':
		return ENTRY_SYMLINK;
	case '3':
		return ENTRY_CHAR;
	case '4':
		return ENTRY_BLOCK;
	case '5':
		return ENTRY_DIR;
	case '6':
		return ENTRY_FIFO;
	default:
		return -1;
	}
}

struct numbers {
	int64_t mode, uid, gid, size, mtime, major, minor;
};

static int parse_numbers(const uint8_t *h, enum dialect d, struct numbers *n)
{
	int64_t unused;

	*n = (struct numbers){ 0 };
	if (parse_number(h, f_mode, &n->mode) < 0 ||
	    parse_number(h, f_uid, &n->uid) < 0 ||
	    parse_number(h, f_gid, &n->gid) < 0 ||
	    parse_number(h, f_size, &n->size) < 0 ||
	    parse_number(h, f_mtime, &n->mtime) < 0)
		return -EINVAL;
	if (d == DIALECT_V7)
		return 0;
	/* Go takes a malformed one for a prefix in a buggy archive. */
	if (d == DIALECT_GNU &&
	    ((h[f_atime.off] && parse_number(h, f_atime, &unused) < 0) ||
	     (h[f_ctime.off] && parse_number(h, f_ctime, &unused) < 0)))
		return -EINVAL;
	return parse_number(h, f_major, &n->major) < 0 ||
			       parse_number(h, f_minor, &n->minor) < 0
		       ? -EINVAL
		       : 0;
}

static void set_left(struct tar *t, uint64_t size)
{
	t->left = size;
	t->pad = (uint32_t)(-size % BLOCK);
	t->state = t->left || t->pad ? TAR_DATA : TAR_HEADER;
}

/* 'x', 'g', 'L', 'K': their contents are collected. */
static int begin_special(struct tar *t, char flag, int64_t size, struct err *e)
{
	bool again = flag == 'L'   ? t->has_name
		     : flag == 'K' ? t->has_link
				   : t->pax.seen;

	/* Readers differ in which one of two counts, and in what a global one
	 * does to an extended one before it. */
	if (again || (flag == 'g' && (t->has_name || t->has_link)))
		return refuse(t, ERR_UNSUPPORTED,
			      "repeated or mixed extended headers", e);
	if (size < 0 || size > TAR_SPECIAL_MAX)
		return refuse(t, ERR_UNSUPPORTED,
			      "an extended header of more than 1 MiB", e);
	t->special = flag;
	if (flag == 'x' || flag == 'g')
		pax_clear(&t->pax);
	if (flag == 'L')
		t->name.len = 0;
	if (flag == 'K')
		t->link.len = 0;
	set_left(t, (uint64_t)size);
	t->state = TAR_SPECIAL;
	return 0;
}

static struct buf *special_buf(struct tar *t)
{
	return t->special == 'L'   ? &t->name
	       : t->special == 'K' ? &t->link
				   : &t->pax.text;
}

static size_t cut_at_nul(struct buf *b)
{
	if (b->len)
		b->len = strnlen((char *)b->p, b->len);
	return b->len;
}

/* The contents and padding of an extended header are here. */
static int end_special(struct tar *t, struct err *e)
{
	const char *why = NULL;
	int r;

	t->state = TAR_HEADER;
	if (special_buf(t)->failed)
		return no_memory(e);
	switch (t->special) {
	case 'L':
		t->has_name = cut_at_nul(&t->name) > 0;
		return 0;
	case 'K':
		t->has_link = cut_at_nul(&t->link) > 0;
		return 0;
	default:
		r = pax_parse(&t->pax, &why);
		if (r < 0)
			return refuse(
				t, r == -EINVAL ? ERR_CORRUPT : ERR_UNSUPPORTED,
				why, e);
		t->pax.seen = t->special == 'x';
		if (t->special == 'g') /* an unpack passes over it */
			pax_clear(&t->pax);
		return 0;
	}
}

static void apply_pax(struct tar *t, struct entry *en, int64_t *size)
{
	const struct pax *x = &t->pax;

	if (x->path) {
		en->path = x->path;
		en->path_len = x->path_len;
	}
	if (x->link) {
		en->link_target = x->link;
		en->link_len = x->link_len;
	}
	/* GNU's names are applied last, as Go does. */
	if (t->has_name) {
		en->path = (const char *)t->name.p;
		en->path_len = t->name.len;
	}
	if (t->has_link) {
		en->link_target = (const char *)t->link.p;
		en->link_len = t->link.len;
	}
	if (x->has_size)
		*size = x->size;
	if (x->has_uid)
		en->uid = x->uid;
	if (x->has_gid)
		en->gid = x->gid;
	if (x->has_mtime) {
		en->mtime = x->mtime;
		en->mtime_nsec = x->mtime_nsec;
	}
	en->xattrs = x->xattrs;
	en->n_xattrs = x->n_xattrs;
}

static int give_entry(struct tar *t, enum dialect d, const struct numbers *n,
		      struct err *e)
{
	char link[101];
	struct entry en = { .mode = (uint32_t)n->mode & 07777,
			    .uid = n->uid,
			    .gid = n->gid,
			    .mtime = n->mtime,
			    .link_target = link };
	int64_t size = n->size;
	int type;

	if (header_path(t, d) < 0)
		return no_memory(e);
	en.path = t->path.p ? (const char *)t->path.p : "";
	en.path_len = t->path.len;
	en.link_len = text_len(t->block, f_link);
	memcpy(link, t->block + f_link.off, en.link_len);
	link[en.link_len] = '\0';
	apply_pax(t, &en, &size);
	type = type_of(t->block[OFF_TYPE],
		       en.path_len && en.path[en.path_len - 1] == '/');
	if (t->block[OFF_TYPE] == 'S')
		return refuse(t, ERR_UNSUPPORTED, "a sparse file", e);
	if (type < 0)
		return refuse(t, ERR_UNSUPPORTED, "an unknown type", e);
	if (size < 0 || n->size < 0)
		return refuse(t, ERR_CORRUPT, "a negative size", e);
	if (n->major < 0 || n->major > UINT32_MAX || n->minor < 0 ||
	    n->minor > UINT32_MAX)
		return refuse(t, ERR_CORRUPT, "a device number out of range",
			      e);
	en.type = (enum entry_type)type;
	en.dev_major = (uint32_t)n->major;
	en.dev_minor = (uint32_t)n->minor;
	/* Others than files have no contents, whatever their size says. */
	en.size = type == ENTRY_REG ? (uint64_t)size : 0;
	set_left(t, en.size);
	if (t->ops->entry(t->ctx, &en, e) < 0)
		return -1;
	pax_clear(&t->pax);
	t->has_name = t->has_link = false;
	return 0;
}

static int on_header(struct tar *t, struct err *e)
{
	uint8_t flag = t->block[OFF_TYPE];
	struct numbers n;
	enum dialect d;

	t->header_off = t->off - BLOCK;
	if (t->block[0] == 0 && !memcmp(t->block, t->block + 1, BLOCK - 1)) {
		t->state = t->state == TAR_ZERO ? TAR_END : TAR_ZERO;
		return 0;
	}
	if (t->state == TAR_ZERO)
		return refuse(t, ERR_CORRUPT, "behind a single block of zeros",
			      e);
	d = dialect_of(t->block);
	if (d == DIALECT_NONE)
		return refuse(t, ERR_CORRUPT, "its checksum is wrong", e);
	if (parse_numbers(t->block, d, &n) < 0)
		return refuse(t, ERR_CORRUPT, "a number is malformed", e);
	if (flag == 'x' || flag == 'g' || flag == 'L' || flag == 'K')
		return begin_special(t, (char)flag, n.size, e);
	return give_entry(t, d, &n, e);
}

/* ---- the stream ---- */

/* Takes what the current state wants of @len bytes; returns how many, or -1. */
static ssize_t take(struct tar *t, const uint8_t *p, size_t len, struct err *e)
{
	size_t n;

	switch (t->state) {
	case TAR_HEADER:
	case TAR_ZERO:
		n = BLOCK - t->n_block < len ? BLOCK - t->n_block : len;
		memcpy(t->block + t->n_block, p, n);
		t->n_block += n;
		t->off += n;
		if (t->n_block < BLOCK)
			return (ssize_t)n;
		t->n_block = 0;
		return on_header(t, e) < 0 ? -1 : (ssize_t)n;
	case TAR_SPECIAL:
	case TAR_DATA:
		break;
	case TAR_END:
		t->off += len;
		return (ssize_t)len;
	}
	if (t->left) {
		n = t->left < len ? (size_t)t->left : len;
		if (t->state == TAR_SPECIAL)
			(void)buf_add(special_buf(t), p, n);
		else if (t->ops->data(t->ctx, t->off, n, e) < 0)
			return -1;
		t->left -= n;
	} else {
		n = t->pad < len ? t->pad : len;
		t->pad -= (uint32_t)n;
	}
	t->off += n;
	if (t->left || t->pad)
		return (ssize_t)n;
	if (t->state == TAR_SPECIAL)
		return end_special(t, e) < 0 ? -1 : (ssize_t)n;
	t->state = TAR_HEADER;
	return (ssize_t)n;
}

int tar_feed(struct tar *t, const void *data, size_t len, struct err *e)
{
	const uint8_t *p = data;

	if (t->broken)
		return err_set(e, ERR_CORRUPT, "tar: broken before");
	while (len) {
		ssize_t n = take(t, p, len, e);

		if (n < 0) {
			t->broken = true;
			return -1;
		}
		p += n;
		len -= (size_t)n;
		/* An extended header of no bytes ends where it began. */
		if (t->state == TAR_SPECIAL && !t->left && !t->pad &&
		    end_special(t, e) < 0) {
			t->broken = true;
			return -1;
		}
	}
	return 0;
}

int tar_finish(struct tar *t, struct err *e)
{
	if (t->broken)
		return err_set(e, ERR_CORRUPT, "tar: broken before");
	if ((t->state != TAR_HEADER && t->state != TAR_ZERO &&
	     t->state != TAR_END) ||
	    t->n_block || t->pax.seen || t->has_name || t->has_link)
		return err_set(e, ERR_CORRUPT,
			       "tar: ends inside an entry, at %" PRIu64,
			       t->off);
	return 0;
}
