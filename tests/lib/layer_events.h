/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the calls of a parser as a stream of bytes, so that a script or a
 * fuzzer can drive the builder. All numbers little endian.
 *
 *	u8 kind, then
 *	0  an entry; a regular file gets contents that cover it
 *	1  an entry, nothing more
 *		u8 type, u32 mode, i64 uid, i64 gid, i64 mtime, u32 nsec,
 *		u64 size, u32 major, u32 minor, u16 path_len, u16 link_len,
 *		u16 n_xattrs, path, link,
 *		per xattr: u16 name_len, u32 value_len, name, value
 *	2  a unit: u64 blob_off, u32 clen
 *	3  an extent: u32 entry, u64 file_off, u32 len, u32 unit, u32 unit_off
 *	4  prefetch: u64 end
 */
#ifndef TESTS_LIB_LAYER_EVENTS_H
#define TESTS_LIB_LAYER_EVENTS_H

#include <string.h>

#include "base/io.h"
#include "snapshotter/builder.h"

#define EVENT_XATTRS_MAX 200

struct events {
	const uint8_t *p, *end;
	uint64_t blob_off; /* of the next unit of kind 0 */
	uint32_t n_files;
	struct entry_xattr xattrs[EVENT_XATTRS_MAX];
	char names[EVENT_XATTRS_MAX][301];
};

static inline const uint8_t *ev_take(struct events *ev, size_t len)
{
	const uint8_t *p = ev->p;

	if (!p || len > (size_t)(ev->end - p)) {
		ev->p = NULL; /* the stream ends inside an event */
		return NULL;
	}
	ev->p += len;
	return p;
}

static inline bool ev_xattr(struct events *ev, size_t i)
{
	const uint8_t *head = ev_take(ev, 6), *name, *value;
	size_t name_len, value_len;

	if (!head)
		return false;
	name_len = get_le16(head);
	value_len = get_le32(head + 2);
	name = ev_take(ev, name_len);
	value = ev_take(ev, value_len);
	if (!value || name_len >= sizeof(ev->names[0]))
		return false;
	memcpy(ev->names[i], name, name_len);
	ev->names[i][name_len] = '\0';
	ev->xattrs[i] = (struct entry_xattr){ ev->names[i], value, value_len };
	return true;
}

static inline bool ev_entry(struct events *ev, struct entry *en)
{
	const uint8_t *h = ev_take(ev, 55);

	if (!h)
		return false;
	*en = (struct entry){
		.type = h[0],
		.mode = get_le32(h + 1),
		.uid = (int64_t)get_le64(h + 5),
		.gid = (int64_t)get_le64(h + 13),
		.mtime = (int64_t)get_le64(h + 21),
		.mtime_nsec = get_le32(h + 29),
		.size = get_le64(h + 33),
		.dev_major = get_le32(h + 41),
		.dev_minor = get_le32(h + 45),
		.path_len = get_le16(h + 49),
		.link_len = get_le16(h + 51),
		.n_xattrs = get_le16(h + 53),
		.xattrs = ev->xattrs,
	};
	en->path = (const char *)ev_take(ev, en->path_len);
	en->link_target = (const char *)ev_take(ev, en->link_len);
	if (!en->link_target || en->n_xattrs > EVENT_XATTRS_MAX)
		return false;
	for (size_t i = 0; i < en->n_xattrs; i++)
		if (!ev_xattr(ev, i))
			return false;
	return true;
}

/* Units of a MiB with made-up digests; holes where the file is too large for
 * that, nothing where it is absurd. */
static inline int ev_contents(struct events *ev, struct builder *b,
			      uint32_t handle, uint64_t size, struct err *e)
{
	bool hole = size > 64u << 20;
	uint32_t step = hole ? MAP_EXTENT_MAX : 1u << 20;

	if (size > UINT64_C(1) << 42)
		return 0;
	ev->n_files++;
	for (uint64_t off = 0; off < size; off += step) {
		struct extent x = { .unit = UNIT_HOLE };

		x.len = size - off < step ? (uint32_t)(size - off) : step;
		if (!hole) {
			struct unit u = { .blob_off = ev->blob_off,
					  .clen = x.len / 2 + 1,
					  .codec = CODEC_GZIP_MEMBER };

			ev->blob_off += u.clen;
			put_le32(x.digest.b, ev->n_files);
			x.digest.b[DIGEST_LEN - 1] = 1;
			if (builder_sink.unit(b, &u, &x.unit, e) < 0)
				return -1;
		}
		if (builder_sink.extent(b, handle, off, &x, e) < 0)
			return -1;
	}
	return 0;
}

static inline int ev_unit(struct events *ev, struct builder *b, struct err *e)
{
	const uint8_t *h = ev_take(ev, 12);
	struct unit u = { .codec = CODEC_GZIP_MEMBER };
	uint32_t n;

	if (!h)
		return err_set(e, ERR_INVALID, "unit cut off");
	u.blob_off = get_le64(h);
	u.clen = get_le32(h + 8);
	return builder_sink.unit(b, &u, &n, e);
}

static inline int ev_extent(struct events *ev, struct builder *b, struct err *e)
{
	const uint8_t *h = ev_take(ev, 24);
	struct extent x = { 0 };

	if (!h)
		return err_set(e, ERR_INVALID, "extent cut off");
	x.len = get_le32(h + 12);
	x.unit = get_le32(h + 16);
	x.unit_off = get_le32(h + 20);
	memset(x.digest.b, x.unit == UNIT_HOLE ? 0 : 1, DIGEST_LEN);
	return builder_sink.extent(b, get_le32(h), get_le64(h + 4), &x, e);
}

/* All events; 0, or -1 at the first that the builder refuses. */
static inline int events_feed(struct events *ev, struct builder *b,
			      struct err *e)
{
	while (ev->p != ev->end) {
		const uint8_t *kind = ev_take(ev, 1), *h;
		struct entry en;
		uint32_t handle;
		int r = 0;

		switch (*kind) {
		case 0:
		case 1:
			if (!ev_entry(ev, &en))
				return err_set(e, ERR_INVALID, "entry cut off");
			r = builder_sink.entry(b, &en, &handle, e);
			if (r == 0 && *kind == 0 && en.type == ENTRY_REG)
				r = ev_contents(ev, b, handle, en.size, e);
			break;
		case 2:
			r = ev_unit(ev, b, e);
			break;
		case 3:
			r = ev_extent(ev, b, e);
			break;
		case 4:
			h = ev_take(ev, 8);
			if (!h)
				return err_set(e, ERR_INVALID, "cut off");
			r = builder_sink.prefetch(b, get_le64(h), e);
			break;
		default:
			return err_set(e, ERR_INVALID, "unknown event");
		}
		if (r < 0)
			return -1;
	}
	return 0;
}

#endif
