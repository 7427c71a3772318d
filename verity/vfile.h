/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An immutable file checked on every read: the index and the map of a layer.
 *
 * Beside NAME lies NAME.state, its leaf log (the same format as a body's, see
 * verity/state.h, without bitmap). Opening recomputes the fs-verity digest
 * from the leaves and compares it with the expected one; reading hashes each
 * block against its leaf. A sealed file needs neither: the kernel's digest is
 * compared, and the kernel checks what is read. Verified blocks are kept in one cache for the whole
 * process (VFILE_CACHE_BYTES), shared by all files.
 */
#ifndef VERITY_VFILE_H
#define VERITY_VFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

#define VFILE_CACHE_BYTES (4u << 20)

struct vfile;

/*
 * vfile_create() - write @name.state for the complete file @name
 *
 * Reads the file, writes its leaves, returns the digest. Both files are on
 * stable storage when it returns 0; their names are not: the caller syncs the
 * directory, once for all the files it makes there.
 */
int vfile_create(int dirfd, const char *name, struct digest *ret) must_check;

/* -EUCLEAN: leaves or size do not give @want, or the file is sealed with
 * another digest; -ENOENT: a file is missing */
int vfile_open(int dirfd, const char *name, const struct digest *want,
	       struct vfile **ret) must_check;
/*
 * What lies beside the file @v that is open, as it must be for the next opening:
 * vfile_renew_state() writes the leaf log of the good file @name anew unless it
 * gives @want. vfile_restore() puts a copy of @v in the place of what has the
 * name @name now. 0; 1: the leaf log was written; -errno. Both are durable.
 */
int vfile_renew_state(int dirfd, const char *name, const struct digest *want)
	must_check;
int vfile_restore(struct vfile *v, int dirfd, const char *name) must_check;

void vfile_close(struct vfile *v);
/* Does the kernel check it? As it was when it was opened. */
bool vfile_is_sealed(const struct vfile *v);
uint64_t vfile_size(const struct vfile *v);
/* Reads all of it. 0, or as vfile_pread(). */
int vfile_check(struct vfile *v) must_check;
/* Has a read of it found a block that does not match? */
bool vfile_is_damaged(const struct vfile *v);

DEFINE_OWNED(vfile, struct vfile *, vfile_close)

/*
 * vfile_pread() - exactly @len verified bytes
 *
 * -EUCLEAN (does not match; logged once a file), -EINVAL (beyond the end),
 * -errno. Any thread; takes rank 44, and holds nothing over the disk. Reads of
 * 32 KiB and more go past the cache. Its type fits struct index_io.pread.
 */
int vfile_pread(void *v, void *p, size_t len, uint64_t off) must_check;

#endif
