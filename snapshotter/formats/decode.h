/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming decompression of one unit: ISA-L for gzip, or zlib where the build
 * says HAVE_ISAL=0. Memory is the decoder's state and one output window,
 * whatever the input claims. Not thread safe; one decoder a job.
 */
#ifndef FORMATS_DECODE_H
#define FORMATS_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "snapshotter/map.h"

struct decoder;

/* -EOPNOTSUPP: no decoder for this codec; -ENOMEM */
int decoder_new(enum codec codec, struct decoder **ret) must_check;
void decoder_free(struct decoder *d);

/* Begins another unit. Allocates nothing. -EOPNOTSUPP as above. */
int decoder_reset(struct decoder *d, enum codec codec) must_check;

/*
 * decoder_feed() - compressed bytes in order, in pieces of any size
 *
 * Calls @out with pieces of output until the input is used up or @out returns
 * non-zero (which ends the unit: the return value is passed on). Goes on over
 * the end of a gzip member. All output that the input so far allows is given
 * before it returns. -EBADMSG: not a valid stream; -EINVAL: the unit has ended
 * with an error or by @out, and was not reset.
 */
int decoder_feed(struct decoder *d, const void *in, size_t len,
		 int (*out)(void *ctx, const void *p, size_t n), void *ctx)
	must_check;

/* 0 when the fed input ends at the end of a member, else -EBADMSG. */
int decoder_finish(struct decoder *d) must_check;

/* Members that have ended, checksum included, since the last reset. */
uint64_t decoder_n_members(const struct decoder *d);

DEFINE_OWNED(decoder, struct decoder *, decoder_free)

#endif
