/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar stream as Go's archive/tar reads it, since that is what an unpack by
 * containerd sees: ustar, PAX and GNU headers, in pieces cut anywhere. Where
 * Go would report an error, or where two readers are known to differ (sparse
 * files, repeated extended headers, unknown types), this refuses.
 *
 * Contents are not passed on, only where they lie: whoever wants them has them.
 *
 * Source: Go src/archive/tar (reader.go, strconv.go, format.go); POSIX pax.
 */
#ifndef FORMATS_TAR_H
#define FORMATS_TAR_H

#include "snapshotter/formats/format.h"

#define TAR_SPECIAL_MAX (1u << 20) /* bytes of an extended header, as in Go */
#define TAR_XATTRS_MAX 128u /* of one entry */

struct tar;

/* Each returns 0, or -1 with *e set, which ends the parse. */
struct tar_ops {
	/* @en: path and link_target end with a NUL that their length does not
	 * count; xattrs in the order of the header, names not repeated. */
	int (*entry)(void *ctx, const struct entry *en, struct err *e);
	/* @len bytes of the last entry's contents lie at @off of the stream */
	int (*data)(void *ctx, uint64_t off, size_t len, struct err *e);
};

/* @ops must outlive it. -ENOMEM */
int tar_new(const struct tar_ops *ops, void *ctx, struct tar **ret) must_check;
void tar_free(struct tar *t);

/* ERR_CORRUPT with the offset of the header; ERR_UNSUPPORTED; what a callback
 * set. After a failure the parse is over. Bytes behind the archive's end are
 * passed over, as an unpack does. */
int tar_feed(struct tar *t, const void *p, size_t len, struct err *e)
	must_check;
/* The stream is over: ERR_CORRUPT inside an entry. Its end may lack the blocks
 * of zeros. */
int tar_finish(struct tar *t, struct err *e) must_check;

DEFINE_OWNED(tar, struct tar *, tar_free)

#endif
