/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eStargz: a layer whose last gzip member but one is a table of contents, and
 * whose payloads begin gzip members of their own. These are the parts that
 * estargz.c is made of; callers use format_estargz (format.h).
 *
 * Source: stargz-snapshotter docs/estargz.md, "The structure".
 */
#ifndef FORMATS_ESTARGZ_H
#define FORMATS_ESTARGZ_H

#include "snapshotter/formats/toc_entry.h"

#define ESTARGZ_FOOTER_LEN 51u
#define ESTARGZ_TOC_NAME "stargz.index.json"
#define ESTARGZ_TOC_CLEN_MAX (64u << 20) /* compressed */
#define ESTARGZ_TOC_LEN_MAX (512ull << 20) /* of the JSON */
#define ESTARGZ_UNIT_CLEN_MAX (256u << 20)
#define ESTARGZ_UNIT_ULEN_MAX (1u << 30) /* needed output of one unit */
#define ESTARGZ_UNIT_EXTENTS_MAX (1u << 20)

/*
 * estargz_footer() - find the table's start from the end of the blob
 * @tail: the last @len bytes of the blob; all of it when it is shorter
 * @blob_size: of the whole blob
 *
 * Compares byte by byte; no gzip reader sees the footer. ERR_UNSUPPORTED for
 * the two known relatives, ERR_CORRUPT for everything else.
 */
int estargz_footer(const uint8_t *tail, size_t len, uint64_t blob_size,
		   uint64_t *ret_toc_off, struct err *e) must_check;

/*
 * From checked entries to what a sink wants. Keeps the extents of one unit, as
 * a unit's length is known only when the next one begins.
 *
 * The order of the table is the order of the blob: offsets rise, the pieces in
 * one member do not overlap, the pieces of a file follow one another and cover
 * it. [0, table) becomes units without a gap; some hold no extents (the bytes
 * before the first payload, landmarks): nobody reads from them, but whoever
 * wants the layer's whole tar stream needs them.
 */
struct estargz_emit;

int estargz_emit_new(const struct sink *s, void *ctx, uint64_t toc_off,
		     struct estargz_emit **ret) must_check;
void estargz_emit_free(struct estargz_emit *m);
int estargz_emit_entry(struct estargz_emit *m, const struct toc_entry *t,
		       struct err *e) must_check;
int estargz_emit_end(struct estargz_emit *m, struct err *e) must_check;

DEFINE_OWNED(estargz_emit, struct estargz_emit *, estargz_emit_free)

/* A tar header as the table would have it. */
struct estargz_tar;

int estargz_tar_new(struct estargz_tar **ret) must_check;
void estargz_tar_free(struct estargz_tar *t);
/* @ret points into @t until the next call, and into @en. 0 or -ENOMEM. */
int estargz_tar_entry(struct estargz_tar *t, const struct entry *en,
		      struct entry *ret) must_check;

DEFINE_OWNED(estargz_tar, struct estargz_tar *, estargz_tar_free)

#endif
