/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry of an eStargz table of contents, from JSON to checked values.
 *
 * What is checked here needs only the entry itself: types, ranges, syntax,
 * the limits of extended attributes. What needs its neighbours (chunks that
 * cover a file, offsets that rise) is estargz_emit.c's, what needs the tree
 * (names, links, duplicates) is builder.c's.
 *
 * Source: stargz-snapshotter docs/estargz.md, "TOC"; limits of the kernel's
 * xattr(7), VFS and RFC 3339.
 */
#ifndef FORMATS_TOC_ENTRY_H
#define FORMATS_TOC_ENTRY_H

#include "snapshotter/formats/format.h"

#define TOC_FILE_MAX (1ull << 40) /* bytes of one file */
#define TOC_XATTRS_MAX 128u /* of one entry */

/* Numbered and quoted, for messages: entry 17 "usr/bin/x" */
struct toc_label {
	char s[144];
};

struct toc_entry {
	bool is_chunk; /* of the file before it; then .en holds no more */
	struct entry en;
	struct toc_label label;
	/* Where the contents are; regular files and chunks */
	uint64_t offset; /* of the gzip member in the blob */
	uint32_t inner; /* bytes of its output to skip */
	uint64_t chunk_off; /* in the file */
	uint64_t chunk_len; /* 0: to the end of the file */
	bool has_digest;
	struct digest digest; /* of the chunk */
};

struct toc_parser;

int toc_parser_new(struct toc_parser **ret) must_check;
void toc_parser_free(struct toc_parser *p);

/*
 * toc_parser_entry() - parse and check one entry
 * @text: one JSON object, NUL behind @len
 * @n: number of the entry from 0, for messages
 * @ret: valid until the next call
 *
 * ERR_CORRUPT or ERR_UNSUPPORTED with entry and reason. Attributes that an
 * image must not set (trusted.*, anything of overlayfs) are left out.
 */
int toc_parser_entry(struct toc_parser *p, const char *text, size_t len,
		     uint32_t n, struct toc_entry *ret, struct err *e)
	must_check;

/* "version" of the table: 1, or ERR_UNSUPPORTED. */
int toc_parser_version(struct toc_parser *p, const char *text, size_t len,
		       struct err *e) must_check;

/* Does an attribute of this name reach the tree? */
bool toc_xattr_is_kept(const char *name);

/* err_set() with the entry in front: <label>: <reason> */
printf_like(4, 5) int toc_err(struct err *e, enum err_kind kind,
			      const struct toc_label *l, const char *fmt, ...);

/* RFC 3339 to seconds and nanoseconds since 1970; s[len] is a NUL; -EINVAL */
int toc_parse_time(const char *s, size_t len, int64_t *ret_sec,
		   uint32_t *ret_nsec) must_check;

DEFINE_OWNED(toc_parser, struct toc_parser *, toc_parser_free)

#endif
