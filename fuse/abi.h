/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private copy of the kernel's FUSE interface, as far as we speak it ourselves
 * and not through libfuse: the header of a request, INIT, INTERRUPT, the bare
 * error reply, the answer to OPEN and the calls for backing files. Debian 12 ships the header of Linux 6.1, which lacks the
 * newer flags, and libfuse does not install its own copy.
 *
 * Source: Linux include/uapi/linux/fuse.h, protocol 7.45 (6.18).
 */
#ifndef FUSE_ABI_H
#define FUSE_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

#define ABI_MAJOR 7
#define ABI_MINOR 45 /* the newest we know; the kernel adapts to it */
#define ABI_MINOR_MIN 31 /* Linux 5.4: all structures below have this form */

struct abi_in_header {
	uint32_t len, opcode;
	uint64_t unique, nodeid;
	uint32_t uid, gid, pid;
	uint16_t total_extlen, padding;
};

struct abi_out_header {
	uint32_t len;
	int32_t error; /* -errno, or the code of a notification */
	uint64_t unique; /* 0: a notification */
};

struct abi_init_in {
	uint32_t major, minor, max_readahead, flags;
	uint32_t flags2; /* from here on only with ABI_INIT_EXT */
	uint32_t unused[11];
};

/* What every kernel since 2.6 sends of it. */
#define ABI_INIT_IN_MIN 16

struct abi_init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth;
	uint16_t request_timeout, unused[11];
};

struct abi_interrupt_in {
	uint64_t unique;
};

struct abi_open_out {
	uint64_t fh;
	uint32_t open_flags; /* ABI_FOPEN_* */
	int32_t backing_id; /* with ABI_FOPEN_PASSTHROUGH */
};

#define ABI_FOPEN_DIRECT_IO (1u << 0)
#define ABI_FOPEN_KEEP_CACHE (1u << 1)
#define ABI_FOPEN_NOFLUSH (1u << 5)
#define ABI_FOPEN_PASSTHROUGH (1u << 7)

/* ioctl(2) on the device: an fd becomes an id, which keeps the file open until
 * it is closed or the session ends. They need CAP_SYS_ADMIN. */
struct abi_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define ABI_BACKING_OPEN _IOW(229, 1, struct abi_backing_map)
#define ABI_BACKING_CLOSE _IOW(229, 2, uint32_t)

_Static_assert(sizeof(struct abi_in_header) == 40, "fuse_in_header");
_Static_assert(sizeof(struct abi_out_header) == 16, "fuse_out_header");
_Static_assert(sizeof(struct abi_init_in) == 64, "fuse_init_in");
_Static_assert(sizeof(struct abi_init_out) == 64, "fuse_init_out");
_Static_assert(sizeof(struct abi_open_out) == 16, "fuse_open_out");
_Static_assert(sizeof(struct abi_backing_map) == 16, "fuse_backing_map");

enum abi_opcode {
	ABI_FORGET = 2,
	ABI_SETATTR = 4,
	ABI_SYMLINK = 6,
	ABI_MKNOD = 8,
	ABI_MKDIR = 9,
	ABI_UNLINK = 10,
	ABI_RMDIR = 11,
	ABI_RENAME = 12,
	ABI_LINK = 13,
	ABI_READ = 15,
	ABI_WRITE = 16,
	ABI_SETXATTR = 21,
	ABI_REMOVEXATTR = 24,
	ABI_INIT = 26,
	ABI_CREATE = 35,
	ABI_INTERRUPT = 36,
	ABI_BATCH_FORGET = 42,
	ABI_FALLOCATE = 43,
	ABI_RENAME2 = 45,
	ABI_COPY_FILE_RANGE = 47,
	ABI_TMPFILE = 51,
	ABI_COPY_FILE_RANGE_64 = 53,
};

/* INIT flags; from bit 32 on they travel in flags2. */
#define ABI_ASYNC_READ (UINT64_C(1) << 0)
#define ABI_EXPORT_SUPPORT (UINT64_C(1) << 4)
#define ABI_BIG_WRITES (UINT64_C(1) << 5)
#define ABI_DO_READDIRPLUS (UINT64_C(1) << 13)
#define ABI_READDIRPLUS_AUTO (UINT64_C(1) << 14)
#define ABI_PARALLEL_DIROPS (UINT64_C(1) << 18)
#define ABI_POSIX_ACL (UINT64_C(1) << 20)
#define ABI_MAX_PAGES (UINT64_C(1) << 22)
#define ABI_CACHE_SYMLINKS (UINT64_C(1) << 23)
#define ABI_EXPLICIT_INVAL_DATA (UINT64_C(1) << 25)
#define ABI_HANDLE_KILLPRIV_V2 (UINT64_C(1) << 28)
#define ABI_INIT_EXT (UINT64_C(1) << 30)
#define ABI_PASSTHROUGH (UINT64_C(1) << 37)
#define ABI_HAS_RESEND (UINT64_C(1) << 39)
#define ABI_ALLOW_IDMAP (UINT64_C(1) << 40)

#endif
