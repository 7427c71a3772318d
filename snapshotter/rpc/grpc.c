/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's framing and texts; see grpc.h. Pure functions over bytes that come
 * from outside; nothing here knows sockets, HTTP/2 or protobuf.
 */
#include "rpc/grpc.h"

#include <stdarg.h>
#include <string.h>

int grpc_fail(struct grpc_status *st, enum grpc_code code, const char *fmt, ...)
{
	va_list ap;

	st->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(st->msg, sizeof(st->msg), fmt, ap);
	va_end(ap);
	return -1;
}

const char *grpc_code_name(enum grpc_code code)
{
	switch (code) {
	case GRPC_OK:
		return "OK";
	case GRPC_CANCELLED:
		return "Canceled";
	case GRPC_UNKNOWN:
		return "Unknown";
	case GRPC_INVALID_ARGUMENT:
		return "InvalidArgument";
	case GRPC_DEADLINE_EXCEEDED:
		return "DeadlineExceeded";
	case GRPC_NOT_FOUND:
		return "NotFound";
	case GRPC_ALREADY_EXISTS:
		return "AlreadyExists";
	case GRPC_PERMISSION_DENIED:
		return "PermissionDenied";
	case GRPC_RESOURCE_EXHAUSTED:
		return "ResourceExhausted";
	case GRPC_FAILED_PRECONDITION:
		return "FailedPrecondition";
	case GRPC_UNIMPLEMENTED:
		return "Unimplemented";
	case GRPC_INTERNAL:
		return "Internal";
	case GRPC_UNAVAILABLE:
		return "Unavailable";
	case GRPC_DATA_LOSS:
		return "DataLoss";
	}
	return "Unknown";
}

/* ---- messages ---- */

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
	       (uint32_t)p[2] << 8 | p[3];
}

void grpc_reader_release(struct grpc_reader *r)
{
	buf_release(&r->msg);
	r->n_prefix = 0;
}

static int check_prefix(const struct grpc_reader *r, struct grpc_status *st)
{
	uint32_t len = get_be32(r->prefix + 1);

	if (r->prefix[0] == 1)
		return grpc_fail(st, GRPC_UNIMPLEMENTED,
				 "compressed requests are not supported");
	if (r->prefix[0] != 0)
		return grpc_fail(st, GRPC_INTERNAL,
				 "message has an unknown flag 0x%02x",
				 r->prefix[0]);
	if (len > GRPC_MESSAGE_MAX)
		return grpc_fail(st, GRPC_RESOURCE_EXHAUSTED,
				 "message of %u bytes exceeds the limit of %u",
				 len, GRPC_MESSAGE_MAX);
	return 0;
}

int grpc_reader_take(struct grpc_reader *r, const uint8_t *p, size_t len,
		     size_t *ret_used, struct grpc_status *st)
{
	size_t used = 0, need;

	while (used < len && r->n_prefix < GRPC_PREFIX_LEN) {
		r->prefix[r->n_prefix++] = p[used++];
		if (r->n_prefix == GRPC_PREFIX_LEN && check_prefix(r, st) < 0)
			return -1;
	}
	*ret_used = used;
	if (r->n_prefix < GRPC_PREFIX_LEN)
		return 0;
	need = get_be32(r->prefix + 1) - r->msg.len;
	if (need > len - used)
		need = len - used;
	if (need && buf_add(&r->msg, p + used, need) < 0)
		return grpc_fail(st, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	*ret_used = used + need;
	return r->msg.len == get_be32(r->prefix + 1);
}

int grpc_reader_feed(struct grpc_reader *r, const uint8_t *p, size_t len,
		     struct grpc_status *st)
{
	size_t used;

	if (grpc_reader_take(r, p, len, &used, st) < 0)
		return -1;
	if (used < len)
		return grpc_fail(st, GRPC_UNIMPLEMENTED,
				 "more than one message in a request");
	return 0;
}

int grpc_reader_end(const struct grpc_reader *r, struct grpc_status *st)
{
	if (r->n_prefix == 0)
		return grpc_fail(st, GRPC_UNIMPLEMENTED,
				 "request without a message");
	if (r->n_prefix < GRPC_PREFIX_LEN ||
	    r->msg.len < get_be32(r->prefix + 1))
		return grpc_fail(st, GRPC_INTERNAL,
				 "request ends in the middle of a message");
	return 0;
}

size_t grpc_frame_begin(struct buf *out)
{
	static const uint8_t prefix[GRPC_PREFIX_LEN];
	size_t begin = out->len;

	(void)buf_add(out, prefix, sizeof(prefix));
	return begin;
}

int grpc_frame_end(struct buf *out, size_t begin)
{
	size_t len;

	if (out->failed)
		return -ENOMEM;
	len = out->len - begin - GRPC_PREFIX_LEN;
	if (len > GRPC_MESSAGE_MAX)
		return -EMSGSIZE;
	for (unsigned i = 0; i < 4; i++)
		out->p[begin + 1 + i] = (uint8_t)(len >> (24 - 8 * i));
	return 0;
}

/* ---- header values ---- */

bool grpc_is_content_type(const char *s)
{
	static const char base[] = "application/grpc", proto[] = "+proto";

	if (strncmp(s, base, sizeof(base) - 1) != 0)
		return false;
	s += sizeof(base) - 1;
	if (strncmp(s, proto, sizeof(proto) - 1) == 0)
		s += sizeof(proto) - 1;
	return *s == '\0' || *s == ';';
}

int grpc_timeout_parse(const char *s, uint64_t *ret_us)
{
	uint64_t n = 0;
	unsigned n_digits = 0;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (++n_digits > 8)
			return -EINVAL;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	if (n_digits == 0 || s[0] == '\0' || s[1] != '\0')
		return -EINVAL;
	switch (s[0]) { /* at most 8 digits: no product overflows */
	case 'H':
		*ret_us = n * 3600 * 1000000;
		return 0;
	case 'M':
		*ret_us = n * 60 * 1000000;
		return 0;
	case 'S':
		*ret_us = n * 1000000;
		return 0;
	case 'm':
		*ret_us = n * 1000;
		return 0;
	case 'u':
		*ret_us = n;
		return 0;
	case 'n':
		*ret_us = (n + 999) / 1000;
		return 0;
	default:
		return -EINVAL;
	}
}

/* Number of bytes of @s without a character that was cut at its end. */
static size_t whole_chars(const uint8_t *s, size_t len)
{
	size_t i = len, need;

	while (i > 0 && len - i < 3 && (s[i - 1] & 0xc0) == 0x80)
		i--;
	if (i == 0 || s[i - 1] < 0xc0 || s[i - 1] > 0xf4)
		return len; /* ASCII, or not UTF-8 at all */
	need = s[i - 1] >= 0xf0 ? 4 : s[i - 1] >= 0xe0 ? 3 : 2;
	return len - (i - 1) < need ? i - 1 : len;
}

void grpc_percent_encode(const char *s, char *out, size_t cap)
{
	static const char hex[] = "0123456789ABCDEF";
	const uint8_t *u = (const uint8_t *)s;
	size_t len = whole_chars(u, strlen(s)), n = 0;

	for (size_t i = 0; i < len; i++) {
		bool edge = u[i] == ' ' && (i == 0 || i == len - 1);

		if (u[i] >= 0x20 && u[i] <= 0x7e && u[i] != '%' && !edge) {
			if (n + 1 >= cap)
				break;
			out[n++] = (char)u[i];
			continue;
		}
		if (n + 3 >= cap)
			break;
		out[n++] = '%';
		out[n++] = hex[u[i] >> 4];
		out[n++] = hex[u[i] & 15];
	}
	out[n] = '\0';
}
