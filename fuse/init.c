/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to INIT; see init.h. Every flag that is asked for is masked with
 * what the kernel offers, so that one binary serves 5.4 to the newest.
 *
 * Decisions that hold for the life of a mount:
 * - EXPORT_SUPPORT: yes. Node ids are a pure function, so a file handle
 *   (overlay's index, open_by_handle_at) can be opened after the inode has left
 *   the cache; LOOKUP of "." and ".." costs us nothing. A directory that the
 *   kernel must first connect to the root stays ESTALE: the root lists nothing.
 * - POSIX_ACL: yes. Otherwise an access ACL in an image would be readable but
 *   not enforced, and its mask, which stands in the group bits, would widen
 *   what the group may do. An inode without ACL costs one GETXATTR.
 * - ALLOW_IDMAP: yes. Permissions are the kernel's business alone
 *   (default_permissions), we never look at a caller's ids.
 * - AUTO_INVAL_DATA: no, EXPLICIT_INVAL_DATA instead: contents never change.
 * - PASSTHROUGH: yes, unless VIEW_WITHOUT_PASSTHROUGH. Our mount then counts as
 *   a stacked file system of depth 1, of the 2 that the kernel allows: one
 *   overlay fits above it, an overlay on that one does not.
 * - REQUEST_TIMEOUT: never, it ends the whole connection.
 */
#include "fuse/init.h"

#include <string.h>

#include "fuse/view.h"

/* All readahead is background, and a parked read holds its place: the limit is
 * for the connection, so it has room for several registries that are silent. */
#define MAX_BACKGROUND 16384

/* Even, as requests are, and out of reach of a counter that starts at 0. */
#define FEED_UNIQUE UINT64_C(0x7ffffffffffffff0)

static const uint64_t wanted =
	ABI_ASYNC_READ | ABI_EXPORT_SUPPORT | ABI_BIG_WRITES |
	ABI_DO_READDIRPLUS | ABI_READDIRPLUS_AUTO | ABI_PARALLEL_DIROPS |
	ABI_POSIX_ACL | ABI_MAX_PAGES | ABI_CACHE_SYMLINKS |
	ABI_EXPLICIT_INVAL_DATA | ABI_HANDLE_KILLPRIV_V2 | ABI_INIT_EXT |
	ABI_PASSTHROUGH | ABI_HAS_RESEND | ABI_ALLOW_IDMAP;

/* Of the backing files: their file system is no overlay. */
#define STACK_DEPTH 1

static uint64_t masked(unsigned without)
{
	uint64_t mask = 0;

	if (without & VIEW_WITHOUT_READDIRPLUS)
		mask |= ABI_DO_READDIRPLUS | ABI_READDIRPLUS_AUTO;
	if (without & VIEW_WITHOUT_RESEND)
		mask |= ABI_HAS_RESEND;
	if (without & VIEW_WITHOUT_PASSTHROUGH)
		mask |= ABI_PASSTHROUGH;
	if (without & VIEW_WITHOUT_BIG_READS)
		mask |= ABI_MAX_PAGES;
	return mask;
}

uint64_t init_flags(const struct init_record *rec)
{
	return rec->reply.out.flags | (uint64_t)rec->reply.out.flags2 << 32;
}

int init_negotiate(const void *req, size_t len, unsigned without,
		   struct init_record *ret)
{
	struct init_record rec = { .req_len = (uint32_t)len };
	struct abi_init_out *out = &rec.reply.out;
	struct abi_in_header head;
	struct abi_init_in in = { 0 };
	uint64_t flags;

	if (len > sizeof(rec.req))
		return -EMSGSIZE;
	if (len < sizeof(head) + ABI_INIT_IN_MIN)
		return -EPROTO;
	memcpy(rec.req, req, len);
	memcpy(&head, req, sizeof(head));
	len -= sizeof(head);
	memcpy(&in, rec.req + sizeof(head),
	       len < sizeof(in) ? len : sizeof(in));
	if (head.opcode != ABI_INIT || in.major != ABI_MAJOR ||
	    in.minor < ABI_MINOR_MIN)
		return -EPROTO;

	flags = in.flags;
	if (flags & ABI_INIT_EXT)
		flags |= (uint64_t)in.flags2 << 32;
	flags &= wanted & ~masked(without);

	out->major = ABI_MAJOR;
	out->minor = in.minor < ABI_MINOR ? in.minor : ABI_MINOR;
	out->flags = (uint32_t)flags;
	out->flags2 = (uint32_t)(flags >> 32);
	out->max_readahead = INIT_READ_BYTES;
	out->max_background = MAX_BACKGROUND;
	out->congestion_threshold = MAX_BACKGROUND;
	out->max_write = INIT_MAX_WRITE;
	out->time_gran = 1;
	if (flags & ABI_MAX_PAGES)
		out->max_pages =
			(uint16_t)(INIT_READ_BYTES / sysconf(_SC_PAGESIZE));
	if (flags & ABI_PASSTHROUGH)
		out->max_stack_depth = STACK_DEPTH;
	rec.reply.head.len = sizeof(rec.reply);
	rec.reply.head.unique = head.unique;
	*ret = rec;
	return 0;
}

size_t init_feed(const struct init_record *rec, void *buf)
{
	struct abi_in_header head;

	memcpy(buf, rec->req, rec->req_len);
	memcpy(&head, buf, sizeof(head));
	head.unique = FEED_UNIQUE;
	memcpy(buf, &head, sizeof(head));
	return rec->req_len;
}
