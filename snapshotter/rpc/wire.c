/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A walk over protobuf bytes by the descriptors that protobuf-c generates; see
 * wire.h. It allocates nothing, and every length is compared with what is left
 * before it is used.
 */
#include "rpc/wire.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

#define DEPTH_MAX 8

enum wire_type { WIRE_VARINT, WIRE_I64, WIRE_LEN, WIRE_I32 = 5 };

struct walk {
	unsigned n_fields;
	struct err *e;
};

static int malformed(struct walk *w, const ProtobufCMessageDescriptor *d,
		     const char *what)
{
	return err_set(w->e, ERR_INVALID, "malformed %s: %s", d->short_name,
		       what);
}

/* Advances *p; false when the bytes end or it has more than ten of them. */
static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70 && *p < end; shift += 7) {
		uint8_t b = *(*p)++;

		v |= (uint64_t)(b & 0x7f) << shift;
		if (b & 0x80)
			continue;
		*ret = v;
		return true;
	}
	return false;
}

/* protobuf-c reads no length of more than five bytes. */
static bool get_length(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	return get_varint(p, end - *p > 5 ? *p + 5 : end, ret);
}

static int check_string(struct walk *w, const ProtobufCMessageDescriptor *d,
			const ProtobufCFieldDescriptor *f, const uint8_t *p,
			size_t len)
{
	if (len && memchr(p, 0, len))
		return err_set(w->e, ERR_INVALID,
			       "%s: field '%s' contains a NUL byte",
			       d->short_name, f->name);
	if (!utf8_is_valid(p, len))
		return err_set(w->e, ERR_INVALID, "%s: field '%s' is not UTF-8",
			       d->short_name, f->name);
	return 0;
}

static enum wire_type type_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return WIRE_LEN;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return WIRE_I32;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return WIRE_I64;
	default:
		return WIRE_VARINT;
	}
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *d,
			const uint8_t *p, size_t len, unsigned depth);

/* The @len bytes at @p are field @f, length-delimited. */
static int check_field(struct walk *w, const ProtobufCMessageDescriptor *d,
		       const ProtobufCFieldDescriptor *f, const uint8_t *p,
		       size_t len, unsigned depth)
{
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return check_string(w, d, f, p, len);
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return walk_message(w, f->descriptor, p, len, depth + 1);
	return 0;
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *d,
			const uint8_t *p, size_t len, unsigned depth)
{
	const uint8_t *end = p + len;

	if (depth > DEPTH_MAX)
		return malformed(w, d, "nested too deeply");
	while (p < end) {
		const ProtobufCFieldDescriptor *f;
		const uint8_t *start = p;
		uint64_t tag, n = 0;

		if (++w->n_fields > WIRE_FIELDS_MAX)
			return malformed(w, d, "too many fields");
		if (!get_varint(&p, end, &tag))
			return malformed(w, d, "cut in a tag");
		/* protobuf-c reads no tag of more than five bytes. */
		if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff || p - start > 5)
			return malformed(w, d, "impossible field number");
		f = protobuf_c_message_descriptor_get_field(
			d, (unsigned)(tag >> 3));
		if (f && type_of(f) != (enum wire_type)(tag & 7))
			return err_set(
				w->e, ERR_INVALID,
				"malformed %s: field '%s' has wire type %u",
				d->short_name, f->name, (unsigned)(tag & 7));
		switch (tag & 7) {
		case WIRE_VARINT:
			if (!get_varint(&p, end, &n))
				return malformed(w, d, "cut in a number");
			continue;
		case WIRE_I64:
			n = 8;
			break;
		case WIRE_I32:
			n = 4;
			break;
		case WIRE_LEN:
			if (!get_length(&p, end, &n))
				return malformed(w, d, "cut in a length");
			break;
		default: /* groups were gone before proto3 */
			return malformed(w, d, "unknown wire type");
		}
		if (n > (size_t)(end - p))
			return malformed(w, d,
					 "a field reaches beyond its end");
		if (f && check_field(w, d, f, p, (size_t)n, depth) < 0)
			return -1;
		p += n;
	}
	return 0;
}

int wire_check(const ProtobufCMessageDescriptor *d, const uint8_t *p,
	       size_t len, struct err *e)
{
	static const uint8_t nothing[1];
	struct walk w = { .e = e };

	/* An empty message may have no bytes at all. */
	return walk_message(&w, d, p ? p : nothing, len, 0);
}

int wire_unpack(const ProtobufCMessageDescriptor *d, const uint8_t *p,
		size_t len, ProtobufCMessage **ret, struct err *e)
{
	ProtobufCMessage *m;

	if (wire_check(d, p, len, e) < 0)
		return -1;
	m = protobuf_c_message_unpack(d, NULL, len, p);
	if (!m)
		return err_sys(e, -ENOMEM, "unpack %s", d->short_name);
	*ret = m;
	return 0;
}
