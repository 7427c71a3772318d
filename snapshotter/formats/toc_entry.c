/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry of a table of contents; see toc_entry.h. The only file of formats/
 * that knows JSON. Owns the parsed object, which all strings of the result
 * point into, until the next entry.
 *
 * json-c saturates numbers that do not fit and turns "1e3" into a double; so
 * every number must be of json_type_int and inside a range whose ends the
 * saturated values miss.
 */
#include "snapshotter/formats/toc_entry.h"

#include <json-c/json.h>
#include <stdarg.h>
#include <string.h>

#include "base/base64.h"
#include "base/buf.h"
#include "snapshotter/formats/toc_scan.h"

#define PATH_LEN_MAX 4096u /* PATH_MAX, and one slash behind a directory */
#define LINK_LEN_MAX 4095u
#define XATTR_NAME_LEN_MAX 255u
#define XATTR_VALUE_LEN_MAX (64u << 10)
#define XATTR_LIST_LEN_MAX (64u << 10)
#define ID_LAST 4294967294ll /* (uid_t)-1 means "do not change" */
#define MAJOR_LAST 4095 /* 12 and 20 bits: new_encode_dev() */
#define MINOR_LAST 1048575

struct toc_parser {
	struct json_tokener *tok;
	struct json_object *obj;
	struct buf values; /* of all attributes, one behind the other */
	struct entry_xattr xattrs[TOC_XATTRS_MAX];
};

int toc_parser_new(struct toc_parser **ret)
{
	struct toc_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->tok = json_tokener_new_ex(TOC_DEPTH_MAX + 1);
	if (!p->tok) {
		free(p);
		return -ENOMEM;
	}
	json_tokener_set_flags(p->tok, JSON_TOKENER_STRICT |
					       JSON_TOKENER_VALIDATE_UTF8);
	*ret = p;
	return 0;
}

void toc_parser_free(struct toc_parser *p)
{
	if (!p)
		return;
	json_object_put(p->obj);
	json_tokener_free(p->tok);
	buf_release(&p->values);
	free(p);
}

/* ---- messages ---- */

static void label_set(struct toc_label *l, uint32_t n, const char *path,
		      size_t len)
{
	enum { SHOWN = 96 };
	int at = snprintf(l->s, sizeof(l->s), "entry %u \"", n);

	for (size_t i = 0; i < len && i < SHOWN; i++) {
		char c = path[i];
		bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';

		l->s[at++] = plain ? c : '?';
	}
	(void)snprintf(l->s + at, sizeof(l->s) - (size_t)at, "%s\"",
		       len > SHOWN ? "..." : "");
}

int toc_err(struct err *e, enum err_kind kind, const struct toc_label *l,
	    const char *fmt, ...)
{
	char reason[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	return err_set(e, kind, "toc: %s: %s", l->s, reason);
}

/* ---- single values ---- */

static bool digits(const char **s, size_t n, int *ret)
{
	int v = 0;

	for (; n > 0; n--, (*s)++) {
		if (**s < '0' || **s > '9')
			return false;
		v = v * 10 + (**s - '0');
	}
	*ret = v;
	return true;
}

static bool eat(const char **s, char c)
{
	if (**s != c)
		return false;
	(*s)++;
	return true;
}

/* Days from 1970-01-01, proleptic Gregorian: years begin in March, so that the
 * day that some lack is their last. */
static int64_t days_from_civil(int y, int m, int d)
{
	static const short before[] = { 306, 337, 0,   31,  61,  92,
					122, 153, 184, 214, 245, 275 };

	if (m < 3)
		y--;
	/* 719468 days lie between 0000-03-01 and the epoch; y >= -1 */
	return (int64_t)y * 365 + (y + 400) / 4 - (y + 400) / 100 +
	       (y + 400) / 400 - (100 - 4 + 1) + before[m - 1] + d - 1 - 719468;
}

static bool date_valid(int y, int m, int d)
{
	static const char last[] = { 31, 29, 31, 30, 31, 30,
				     31, 31, 30, 31, 30, 31 };
	bool leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);

	if (m < 1 || m > 12 || d < 1 || d > last[m - 1])
		return false;
	return m != 2 || d < 29 || leap;
}

static bool fraction(const char **s, uint32_t *ret_nsec)
{
	uint32_t v = 0, scale = 100000000;
	size_t n = 0;

	if (!eat(s, '.'))
		return true;
	for (; **s >= '0' && **s <= '9'; (*s)++, n++) {
		v += (uint32_t)(**s - '0') * scale;
		scale /= 10;
	}
	*ret_nsec = v;
	return n > 0;
}

/* "Z", or hours and minutes to take off */
static bool zone(const char **s, int64_t *ret_off)
{
	int h, m, sign = **s == '-' ? -1 : 1;

	if (eat(s, 'Z'))
		return true;
	if (!eat(s, '+') && !eat(s, '-'))
		return false;
	if (!digits(s, 2, &h) || !eat(s, ':') || !digits(s, 2, &m) || h > 23 ||
	    m > 59)
		return false;
	*ret_off = (int64_t)sign * (h * 3600 + m * 60);
	return true;
}

int toc_parse_time(const char *s, size_t len, int64_t *ret_sec,
		   uint32_t *ret_nsec)
{
	const char *p = s;
	int y, mo, d, h, mi, sec;
	uint32_t nsec = 0;
	int64_t off = 0;

	if (strnlen(s, len) != len) /* the walk below ends at a NUL */
		return -EINVAL;
	if (!digits(&p, 4, &y) || !eat(&p, '-') || !digits(&p, 2, &mo) ||
	    !eat(&p, '-') || !digits(&p, 2, &d) || !eat(&p, 'T') ||
	    !digits(&p, 2, &h) || !eat(&p, ':') || !digits(&p, 2, &mi) ||
	    !eat(&p, ':') || !digits(&p, 2, &sec) || !fraction(&p, &nsec) ||
	    !zone(&p, &off) || p != s + len)
		return -EINVAL;
	if (!date_valid(y, mo, d) || h > 23 || mi > 59 || sec > 59)
		return -EINVAL;
	*ret_sec = days_from_civil(y, mo, d) * 86400 + h * 3600 + mi * 60 +
		   sec - off;
	*ret_nsec = nsec;
	return 0;
}

/* ---- fields of an object ---- */

struct fields {
	struct json_object *obj;
	struct toc_label *label;
	struct err *e;
};

/* Absent is 0. */
static int get_int(const struct fields *f, const char *key, int64_t max,
		   int64_t *ret)
{
	struct json_object *v;
	int64_t n;

	*ret = 0;
	if (!json_object_object_get_ex(f->obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_int))
		return toc_err(f->e, ERR_CORRUPT, f->label, "%s is no integer",
			       key);
	n = json_object_get_int64(v);
	if (n < 0 || n > max)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "%s is out of range", key);
	*ret = n;
	return 0;
}

/* Absent is NULL. NUL bytes were refused before. */
static int get_string(const struct fields *f, const char *key, size_t max,
		      const char **ret, size_t *ret_len)
{
	struct json_object *v;

	*ret = NULL;
	*ret_len = 0;
	if (!json_object_object_get_ex(f->obj, key, &v))
		return 0;
	if (!json_object_is_type(v, json_type_string))
		return toc_err(f->e, ERR_CORRUPT, f->label, "%s is no string",
			       key);
	if ((size_t)json_object_get_string_len(v) > max)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "%s is longer than %zu bytes", key, max);
	*ret = json_object_get_string(v);
	*ret_len = (size_t)json_object_get_string_len(v);
	return 0;
}

static int get_type(const struct fields *f, struct toc_entry *t)
{
	static const struct {
		const char *name;
		enum entry_type type;
	} types[] = {
		{ "dir", ENTRY_DIR },         { "reg", ENTRY_REG },
		{ "symlink", ENTRY_SYMLINK }, { "hardlink", ENTRY_HARDLINK },
		{ "char", ENTRY_CHAR },       { "block", ENTRY_BLOCK },
		{ "fifo", ENTRY_FIFO },
	};
	const char *s;
	size_t len;

	if (get_string(f, "type", 32, &s, &len) < 0)
		return -1;
	if (!s)
		return toc_err(f->e, ERR_CORRUPT, f->label, "no type");
	if (!strcmp(s, "chunk")) {
		t->is_chunk = true;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (!strcmp(s, types[i].name)) {
			t->en.type = types[i].type;
			return 0;
		}
	}
	return toc_err(f->e, ERR_UNSUPPORTED, f->label, "unknown type");
}

/* Where the contents are, of a file with contents or of a chunk. */
static int get_place(const struct fields *f, struct toc_entry *t)
{
	int64_t offset, inner, chunk_off, chunk_len;
	const char *digest;
	size_t len;

	if (get_int(f, "offset", 1ll << 60, &offset) < 0 ||
	    get_int(f, "innerOffset", UINT32_MAX, &inner) < 0 ||
	    get_int(f, "chunkOffset", TOC_FILE_MAX, &chunk_off) < 0 ||
	    get_int(f, "chunkSize", TOC_FILE_MAX, &chunk_len) < 0 ||
	    get_string(f, "chunkDigest", 255, &digest, &len) < 0)
		return -1;
	t->has_digest = len > 0;
	if (len > 0 && digest_parse(digest, &t->digest) < 0)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "chunkDigest is no SHA-256 digest");
	t->offset = (uint64_t)offset;
	t->inner = (uint32_t)inner;
	t->chunk_off = (uint64_t)chunk_off;
	t->chunk_len = (uint64_t)chunk_len;
	return 0;
}

static int get_attributes(const struct fields *f, struct entry *en)
{
	int64_t mode, major, minor, size;
	const char *time;
	size_t len;

	if (get_int(f, "mode", UINT32_MAX, &mode) < 0 ||
	    get_int(f, "uid", ID_LAST, &en->uid) < 0 ||
	    get_int(f, "gid", ID_LAST, &en->gid) < 0 ||
	    get_int(f, "size", TOC_FILE_MAX, &size) < 0 ||
	    get_int(f, "devMajor", MAJOR_LAST, &major) < 0 ||
	    get_int(f, "devMinor", MINOR_LAST, &minor) < 0 ||
	    get_string(f, "modtime", 64, &time, &len) < 0)
		return -1;
	if (len > 0 &&
	    toc_parse_time(time, len, &en->mtime, &en->mtime_nsec) < 0)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "modtime is no RFC 3339 time");
	if (size != 0 && en->type != ENTRY_REG)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "has contents and is no regular file");
	/* Some writers leave the type's bits in; type says it. */
	en->mode = (uint32_t)mode & 07777;
	en->size = (uint64_t)size;
	en->dev_major = (uint32_t)major;
	en->dev_minor = (uint32_t)minor;
	return 0;
}

static int get_link(const struct fields *f, struct entry *en)
{
	if (en->type != ENTRY_SYMLINK && en->type != ENTRY_HARDLINK)
		return 0;
	if (get_string(f, "linkName", LINK_LEN_MAX, &en->link_target,
		       &en->link_len) < 0)
		return -1;
	if (en->link_len == 0)
		return toc_err(f->e, ERR_CORRUPT, f->label, "no linkName");
	return 0;
}

/* ---- extended attributes ---- */

static bool starts_with(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* An image must not steer overlayfs, and has no say in trusted.*. Names
 * outside the kernel's name spaces cannot be set by an unpack either. */
bool toc_xattr_is_kept(const char *name)
{
	if (strstr(name, ".overlay."))
		return false;
	if (!strcmp(name, "system.posix_acl_access") ||
	    !strcmp(name, "system.posix_acl_default"))
		return true;
	return (starts_with(name, "user.") && name[5]) ||
	       (starts_with(name, "security.") && name[9]);
}

static int add_xattr(struct toc_parser *p, const struct fields *f,
		     const char *name, struct json_object *v, struct entry *en)
{
	size_t len = (size_t)json_object_get_string_len(v);
	size_t at = p->values.len;
	ssize_t n;

	/* Reserved for all at once before the first: pointers stay. */
	n = base64_decode(json_object_get_string(v), len, p->values.p + at);
	if (n < 0)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "an xattr is no base64");
	if ((size_t)n > XATTR_VALUE_LEN_MAX)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "an xattr of more than %u bytes",
			       XATTR_VALUE_LEN_MAX);
	/* struct vfs_cap_data, revisions 2 and 3 */
	if (!strcmp(name, "security.capability") && n != 20 && n != 24)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "security.capability has %zd bytes", n);
	p->values.len += (size_t)n;
	p->xattrs[en->n_xattrs++] = (struct entry_xattr){
		.name = name, .value = p->values.p + at, .len = (size_t)n
	};
	return 0;
}

/* Checks all, kept or not, and returns the room their values need. */
static int check_xattrs(const struct fields *f, struct json_object *map,
			size_t *ret_room)
{
	size_t list = 0, room = 0;
	struct json_object_iter it;

	json_object_object_foreachC(map, it)
	{
		size_t len = strlen(it.key);

		if (len == 0 || len > XATTR_NAME_LEN_MAX)
			return toc_err(f->e, ERR_CORRUPT, f->label,
				       "an xattr name of %zu bytes", len);
		if (!json_object_is_type(it.val, json_type_string))
			return toc_err(f->e, ERR_CORRUPT, f->label,
				       "an xattr is no string");
		list += len + 1;
		room += (size_t)json_object_get_string_len(it.val) / 4 * 3;
	}
	if (list > XATTR_LIST_LEN_MAX)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "xattr names of more than %u bytes",
			       XATTR_LIST_LEN_MAX);
	*ret_room = room;
	return 0;
}

static int get_xattrs(struct toc_parser *p, const struct fields *f,
		      struct entry *en)
{
	struct json_object *map;
	struct json_object_iter it;
	size_t room = 0;

	if (!json_object_object_get_ex(f->obj, "xattrs", &map))
		return 0;
	if (!json_object_is_type(map, json_type_object))
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "xattrs is no object");
	if ((unsigned)json_object_object_length(map) > TOC_XATTRS_MAX)
		return toc_err(f->e, ERR_CORRUPT, f->label,
			       "more than %u xattrs", TOC_XATTRS_MAX);
	if (check_xattrs(f, map, &room) < 0)
		return -1;
	p->values.len = 0;
	if (buf_reserve(&p->values, room) < 0)
		return err_sys(f->e, -ENOMEM, "toc: %s: xattrs", f->label->s);
	json_object_object_foreachC(map, it)
	{
		if (toc_xattr_is_kept(it.key) &&
		    add_xattr(p, f, it.key, it.val, en) < 0)
			return -1;
	}
	en->xattrs = p->xattrs;
	return 0;
}

/* ---- the whole ---- */

/* json-c cuts a key at an escaped NUL: "size\u0000x" would be "size". */
static bool has_escaped_nul(const char *text, size_t len)
{
	const char *p = text, *end = text + len;

	while ((p = memchr(p, '\\', (size_t)(end - p))) && end - p >= 2) {
		if (end - p >= 6 && !memcmp(p, "\\u0000", 6))
			return true;
		p += 2;
	}
	return false;
}

static int parse_text(struct toc_parser *p, const char *text, size_t len)
{
	json_object_put(p->obj);
	json_tokener_reset(p->tok);
	/* The NUL behind the text ends a bare number. */
	p->obj = json_tokener_parse_ex(p->tok, text, (int)len + 1);
	if (json_tokener_get_error(p->tok) != json_tokener_success ||
	    json_tokener_get_parse_end(p->tok) < len)
		return -EBADMSG;
	return 0;
}

int toc_parser_entry(struct toc_parser *p, const char *text, size_t len,
		     uint32_t n, struct toc_entry *ret, struct err *e)
{
	struct toc_entry t = { 0 };
	struct fields f = { .label = &t.label, .e = e };

	label_set(&t.label, n, "", 0);
	if (len > TOC_VALUE_MAX || has_escaped_nul(text, len))
		return toc_err(e, ERR_CORRUPT, &t.label, "a NUL in a string");
	if (parse_text(p, text, len) < 0 ||
	    !json_object_is_type(p->obj, json_type_object))
		return toc_err(e, ERR_CORRUPT, &t.label, "is no JSON object");
	f.obj = p->obj;
	if (get_string(&f, "name", PATH_LEN_MAX, &t.en.path, &t.en.path_len) <
	    0)
		return -1;
	label_set(&t.label, n, t.en.path ? t.en.path : "", t.en.path_len);
	if (get_type(&f, &t) < 0)
		return -1;
	if ((t.is_chunk || t.en.type == ENTRY_REG) && get_place(&f, &t) < 0)
		return -1;
	if (!t.is_chunk) {
		if (!t.en.path)
			return toc_err(e, ERR_CORRUPT, &t.label, "no name");
		if (get_attributes(&f, &t.en) < 0 || get_link(&f, &t.en) < 0 ||
		    get_xattrs(p, &f, &t.en) < 0)
			return -1;
	}
	*ret = t;
	return 0;
}

int toc_parser_version(struct toc_parser *p, const char *text, size_t len,
		       struct err *e)
{
	if (parse_text(p, text, len) < 0 ||
	    !json_object_is_type(p->obj, json_type_int) ||
	    json_object_get_int64(p->obj) != 1)
		return err_set(e, ERR_UNSUPPORTED, "toc: version is not 1");
	return 0;
}
