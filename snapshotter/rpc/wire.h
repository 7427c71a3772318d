/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What protobuf-c does not check in bytes from outside: it cuts a string at a
 * NUL, takes text that is not UTF-8, and turns a few bytes into many small
 * allocations.
 */
#ifndef RPC_WIRE_H
#define RPC_WIRE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define WIRE_FIELDS_MAX 65536u /* in one message, those inside it included */

/*
 * wire_check() - is this a message of type @d?
 * @p: may be NULL when @len is 0
 *
 * 0, or -1: ERR_INVALID, which names the field. Unknown fields are fine.
 * Source: protobuf.dev/programming-guides/encoding.
 */
int wire_check(const ProtobufCMessageDescriptor *d, const uint8_t *p,
	       size_t len, struct err *e) must_check;

/*
 * wire_unpack() - check, then unpack
 * @ret: for protobuf_c_message_free_unpacked()
 * @e: ERR_INVALID, or ERR_INTERNAL without memory
 */
int wire_unpack(const ProtobufCMessageDescriptor *d, const uint8_t *p,
		size_t len, ProtobufCMessage **ret, struct err *e) must_check;

#endif
