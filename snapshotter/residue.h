/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a proof of the layer will need beside the bodies: the output of each
 * unit outside its extents, that is tar headers and padding. Append only, one
 * record a unit; a damaged record counts as absent.
 *
 * Record: le32 magic | le32 unit | le32 len | le32 0 | bytes | SHA-256 of all
 * before. Written with one write(2) in append mode, so no lock is held over it.
 */
#ifndef SNAPSHOTTER_RESIDUE_H
#define SNAPSHOTTER_RESIDUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"

struct residue;

/*
 * residue_open() - the file "residue" below @dirfd, made when missing
 *
 * Scans the records; cuts the file behind the last good one. 0, or -errno when
 * that could not be done (nothing is cut then).
 */
int residue_open(int dirfd, uint32_t n_units, struct residue **ret) must_check;
void residue_close(struct residue *r);

bool residue_has(struct residue *r, uint32_t unit);
/* A unit that is there already is left alone. Any thread. 0 or -errno: the
 * record is then missing, which costs a refetch at proof time and no more. After
 * a failed write (a full disk) nothing more is kept until it is opened again. */
int residue_add(struct residue *r, uint32_t unit, const void *p, size_t len)
	must_check;

/* Nothing is added any more. The file may be removed. */
void residue_end(struct residue *r);

/* Where each record is, found by one walk over the file; for one thread, and
 * freed before the file is closed. */
struct residue_reader;
int residue_reader_new(struct residue *r, struct residue_reader **ret)
	must_check;
void residue_reader_free(struct residue_reader *rd);
/* The bytes of a unit's record, checked, in place of @buf's. 1, 0: not there
 * (a damaged one is forgotten: residue_add() takes another), -errno. */
int residue_read(struct residue_reader *rd, uint32_t unit, struct buf *buf)
	must_check;

DEFINE_OWNED(residue, struct residue *, residue_close)
DEFINE_OWNED(residue_reader, struct residue_reader *, residue_reader_free)

#endif
