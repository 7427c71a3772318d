/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN and RELEASE, and which files the kernel reads without us.
 *
 * A file that its source gives an fd for is opened with passthrough: the kernel
 * reads and maps the file behind that fd, whose pages are the only copy in the
 * page cache. All other files are cached: READs come to us, the kernel keeps
 * the pages. Which of the two is decided at the first OPEN of an inode and
 * holds until its last RELEASE (opens.h); what became complete meanwhile goes
 * over at the next first OPEN, behind an invalidation of the pages that the
 * cached time has left.
 *
 * OPEN is answered by hand: libfuse can do it only from 3.17 on.
 */
#ifndef FUSE_PASSTHROUGH_H
#define FUSE_PASSTHROUGH_H

#include <stdbool.h>
#include <stdint.h>

#include "fuse/ops.h"
#include "fuse/source.h"

struct passthrough;
struct opens;
struct notifier;

/* Smaller files share a body with others; a backing file is always whole. */
#define PASSTHROUGH_MIN_BYTES (128u << 10)

/* @opens and @sources outlive the object. Off until passthrough_start(). */
int passthrough_new(struct opens *opens, const struct source_set *sources,
		    struct passthrough **ret) must_check;
void passthrough_free(struct passthrough *p);

/*
 * passthrough_start() - before the first OPEN
 * @fd: of the session, borrowed
 * @agreed: the kernel knows of passthrough
 */
void passthrough_start(struct passthrough *p, int fd, struct notifier *n,
		       bool agreed);

/* One OPEN, for reading; consumes @req. @src is borrowed for the call. Waits
 * for the disk. */
void passthrough_open(struct passthrough *p, fuse_req_t req, uint64_t unique,
		      uint64_t node, struct source *src,
		      const struct source_file *f);
/* One RELEASE; consumes @req. */
void passthrough_release(struct passthrough *p, fuse_req_t req, uint64_t node,
			 uint64_t fh);

/*
 * passthrough_recheck() - some backing file may have got a successor
 *
 * Inodes that are open with another file than their source has now become
 * OPEN_HEALED: who opens them from now on reads the new file. Waits for the
 * disk.
 */
void passthrough_recheck(struct passthrough *p);

/* Inodes that are open and cached, and would be passed through if they were
 * opened for the first time now. Waits for the disk; not more than a thousand
 * are looked at. */
uint32_t passthrough_n_changeable(struct passthrough *p);

/* The kernel is about to know nodes of this layer. */
void passthrough_note_seq(struct passthrough *p, uint32_t seq);

/* Why the kernel refuses backing files: an errno, or 0. */
int passthrough_error(struct passthrough *p);

#endif
