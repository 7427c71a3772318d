/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gRPC puts on top of HTTP/2, without any I/O: length-prefixed messages,
 * status codes, the text of status messages and of timeouts.
 *
 * Source: grpc doc/PROTOCOL-HTTP2.md and doc/statuscodes.md.
 */
#ifndef RPC_GRPC_H
#define RPC_GRPC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"

/* As containerd's own limit, in both directions. */
#define GRPC_MESSAGE_MAX (16u << 20)
#define GRPC_PREFIX_LEN 5u

enum grpc_code {
	GRPC_OK = 0,
	GRPC_CANCELLED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_ALREADY_EXISTS = 6,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_FAILED_PRECONDITION = 9,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_DATA_LOSS = 15,
};

/* How a call ended. Fixed size: reporting allocates nothing. */
struct grpc_status {
	enum grpc_code code;
	char msg[256]; /* for people; "" with GRPC_OK */
};

/* Always -1, for `return grpc_fail(...)`. */
printf_like(3, 4) int grpc_fail(struct grpc_status *st, enum grpc_code code,
				const char *fmt, ...);

/* "NotFound" and so on, for the log. */
const char *grpc_code_name(enum grpc_code code);

/* ---- messages ---- */

/*
 * Takes exactly one message out of a stream of bytes. Zero-initialised is
 * ready. Memory grows with the bytes that have come, not with the length that
 * the client announced.
 */
struct grpc_reader {
	uint8_t prefix[GRPC_PREFIX_LEN];
	unsigned n_prefix;
	struct buf msg;
};

void grpc_reader_release(struct grpc_reader *r);

/*
 * grpc_reader_feed() - the next bytes of the request
 * 0, or -1: UNIMPLEMENTED (compressed, or a second message),
 * RESOURCE_EXHAUSTED (above GRPC_MESSAGE_MAX, or no memory), INTERNAL
 */
int grpc_reader_feed(struct grpc_reader *r, const uint8_t *p, size_t len,
		     struct grpc_status *st) must_check;

/*
 * grpc_reader_take() - for a stream of messages: no further than to an end
 * @ret_used: of @len
 *
 * 1: r->msg is a whole message; grpc_reader_release() makes room for the next.
 * 0: all of @p is taken. -1 as above, but for the second message.
 */
int grpc_reader_take(struct grpc_reader *r, const uint8_t *p, size_t len,
		     size_t *ret_used, struct grpc_status *st) must_check;

/* The request has ended. 0, or -1: INTERNAL (in the middle of a message),
 * UNIMPLEMENTED (there was none). */
int grpc_reader_end(const struct grpc_reader *r, struct grpc_status *st)
	must_check;

/*
 * grpc_frame_begin() - room for a prefix at the end of @out
 * grpc_frame_end() - fill it in; the message is all that came after it
 *
 * Failed appends are seen in out->failed. grpc_frame_end() returns -EMSGSIZE
 * above GRPC_MESSAGE_MAX and -ENOMEM after a failed append.
 */
size_t grpc_frame_begin(struct buf *out);
int grpc_frame_end(struct buf *out, size_t begin) must_check;

/* ---- header values ---- */

/* "application/grpc", alone or with +proto, with or without parameters */
bool grpc_is_content_type(const char *s);

/* grpc-timeout: one to eight digits and one of H M S m u n. -EINVAL.
 * Nanoseconds are rounded up. */
int grpc_timeout_parse(const char *s, uint64_t *ret_us) must_check;

/*
 * grpc_percent_encode() - grpc-message
 * @out: room for @cap bytes; always terminated; cut at a whole character
 *
 * A blank at either end is encoded too: HTTP/2 peers may refuse it there.
 */
#define GRPC_ENCODED_MAX (3 * sizeof(((struct grpc_status *)0)->msg))
void grpc_percent_encode(const char *s, char *out, size_t cap);

#endif
