/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that fuse/ knows of bytes and layers. snapshotter/layer implements it,
 * unit tests fake it.
 *
 * A source is one immutable layer: an EROFS index (fuse/index reads it) and
 * the contents of its files. Contents may be absent; then the view parks the
 * request and asks for them. No function here ever waits for the network.
 */
#ifndef FUSE_SOURCE_H
#define FUSE_SOURCE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

struct source;
struct index;

/* Names one file inside a source, as its index numbers it. */
struct source_file {
	uint32_t nid; /* EROFS nid: position of the inode, see fuse/index.h */
	uint32_t ino; /* i_ino: dense ordinal 1..inos */
	uint64_t size; /* bytes */
};

/* One parked request, embedded by the view. @impl belongs to the provider. */
struct source_wait {
	/*
	 * Called exactly once after a successful want(), from any thread and
	 * with no lock held. @r: 0: read() will succeed now (unless the data is
	 * lost again: then want() anew); -errno: answer it.
	 */
	void (*done)(struct source_wait *w, int r);
	void *impl;
};

struct source_ops {
	/*
	 * Verified bytes that are on the disk. @off + @len <= file size.
	 * 0, -EAGAIN when a part is absent, -EIO and others on failure of the
	 * disk. Blocks on the disk only.
	 */
	int (*read)(struct source *s, const struct source_file *f, uint64_t off,
		    void *p, size_t len);
	/*
	 * Have the range fetched. 0: w->done will be called (possibly before
	 * want returns); -EBUSY: too many parked reads; -errno.
	 */
	int (*want)(struct source *s, const struct source_file *f, uint64_t off,
		    size_t len, struct source_wait *w);
	/* Stop waiting; w->done is called with -EINTR if it was not before.
	 * When it returns, done has returned: hold nothing that done needs,
	 * and not from done. */
	void (*cancel)(struct source *s, struct source_wait *w);
	/*
	 * A read-only fd, the caller's to close, of a file that holds exactly
	 * what this one does, for the kernel to read from without us.
	 * -EAGAIN: not (yet); -errno. May be NULL: never. Blocks on the disk.
	 */
	int (*backing_fd)(struct source *s, const struct source_file *f);
	/* May be NULL. A read ends with an errno that this provider does not
	 * know of; for its log. No lock held. */
	void (*failed)(struct source *s, const struct source_file *f,
		       uint64_t off, const char *why);
};

struct source {
	const struct source_ops *ops;
	struct index *index; /* owned by the provider; NULL: damaged, EIO */
	uint32_t seq; /* directory name below the root of the view */
	uint32_t ino_base; /* st_ino = ino_base + ordinal */
};

/* The set of layers that a view shows. Any thread; takes short locks only. */
struct source_set {
	/* NULL when there is none. A reference: put() gives it back. */
	struct source *(*get)(void *ctx, uint32_t seq);
	void (*put)(void *ctx, struct source *s);
	void *ctx;
};

#endif
