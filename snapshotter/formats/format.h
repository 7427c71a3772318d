/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every lazy format gives: a parser that turns a layer's table of contents
 * into entries, units and extents. builder.c sorts, checks and writes them.
 */
#ifndef FORMATS_FORMAT_H
#define FORMATS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "snapshotter/map.h"

enum format_id { FORMAT_NONE, FORMAT_ESTARGZ };

/* What the labels say of a layer, and what the registry adds. */
struct layer_desc {
	struct digest blob; /* of the compressed layer */
	struct digest toc; /* of the uncompressed table of contents */
	struct digest diff_id; /* zero when no label told it */
	uint64_t size; /* compressed bytes; 0 until resolved */
	enum format_id format;
};

/* Random access to the compressed blob, for parsers only. Blocking, with a
 * deadline of its own; exactly @len bytes. Not verified! */
struct blob_reader {
	int (*read)(void *ctx, uint64_t off, void *p, size_t len,
		    struct err *e);
	void *ctx;
	uint64_t size;
};

enum entry_type {
	ENTRY_DIR,
	ENTRY_REG,
	ENTRY_SYMLINK,
	ENTRY_HARDLINK, /* link_target: path in the layer */
	ENTRY_CHAR,
	ENTRY_BLOCK,
	ENTRY_FIFO,
	ENTRY_SOCK,
};

struct entry_xattr {
	const char *name; /* with prefix */
	const void *value;
	size_t len;
};

/* All pointers are valid during the call only. */
struct entry {
	const char *path; /* as the format has it; the builder cleans it */
	size_t path_len;
	enum entry_type type;
	uint32_t mode; /* 07777 bits */
	int64_t uid, gid;
	int64_t mtime;
	uint32_t mtime_nsec;
	uint64_t size; /* regular files */
	const char *link_target;
	size_t link_len;
	uint32_t dev_major, dev_minor;
	const struct entry_xattr *xattrs;
	size_t n_xattrs;
};

/* Each returns 0, or -1 with *e set; the parser then stops. Handles are
 * numbers from 0 in the order of the calls. */
struct sink {
	int (*entry)(void *ctx, const struct entry *en, uint32_t *ret,
		     struct err *e);
	int (*unit)(void *ctx, const struct unit *u, uint32_t *ret,
		    struct err *e);
	/* @entry: handle of a regular file. Pieces of one file come in order
	 * and cover it without gap. x->unit: handle; x->addr, x->ino unused. */
	int (*extent)(void *ctx, uint32_t entry, uint64_t file_off,
		      const struct extent *x, struct err *e);
	/* bytes [0, end) of the blob are wanted early; at most once */
	int (*prefetch)(void *ctx, uint64_t end, struct err *e);
};

struct format {
	enum format_id id;
	const char *name;
	/*
	 * Reads and checks the table of contents against d->toc, then emits
	 * everything. Memory is bounded whatever the size of the table.
	 * ERR_CORRUPT and ERR_UNSUPPORTED messages name the entry and reason.
	 */
	int (*parse)(const struct blob_reader *b, const struct layer_desc *d,
		     const struct sink *s, void *ctx, struct err *e);
};

extern const struct format format_estargz;
const struct format *format_find(enum format_id id);

#endif
