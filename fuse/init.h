/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is negotiated with the kernel when the session starts.
 *
 * We answer INIT ourselves, because libfuse offers neither the newer flags nor
 * a max_write below its own default on all versions. What was agreed holds for
 * the life of the mount, longer than this process may live: the request and
 * our answer are kept as they were on the wire.
 *
 * Source: Linux fs/fuse/inode.c, process_init_reply() (6.18).
 */
#ifndef FUSE_INIT_H
#define FUSE_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "fuse/abi.h"

/* Nothing is ever written, so requests are small: 8 KiB is the least that the
 * kernel accepts for reading, and this leaves room for the longest name. */
#define INIT_MAX_WRITE 4096
#define INIT_REQUEST_BYTES 12288
#define INIT_READ_BYTES (1u << 20) /* the largest READ, also the readahead */

struct init_record {
	uint32_t req_len;
	uint8_t req[256]; /* abi_in_header, abi_init_in */
	struct {
		struct abi_out_header head;
		struct abi_init_out out;
	} reply;
};

/* The flags that both sides have, flags2 in the upper half. */
uint64_t init_flags(const struct init_record *rec);

/*
 * init_negotiate() - fill in @ret from a request as it was read
 * @without: VIEW_WITHOUT_* bits
 * -EPROTO: not an INIT, or a kernel before 5.4; -EMSGSIZE: too long to keep.
 */
int init_negotiate(const void *req, size_t len, unsigned without,
		   struct init_record *ret) must_check;

/*
 * init_feed() - the same request under a unique that the kernel never uses
 *
 * For libfuse, which must see an INIT too: the kernel refuses libfuse's answer
 * to it with ENOENT, which libfuse takes for an interrupted request.
 * @buf: at least sizeof(rec->req). Returns the length.
 */
size_t init_feed(const struct init_record *rec, void *buf);

#endif
