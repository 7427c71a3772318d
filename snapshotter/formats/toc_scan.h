/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes a table of contents apart without holding it: finds where each value of
 *
 *	{"version": 1, "entries": [ {...}, {...} ], "other": ...}
 *
 * begins and ends, in a stream cut anywhere, so that a JSON parser sees one
 * entry at a time. Memory: one value, at most TOC_VALUE_MAX bytes.
 *
 * The scanner looks only at strings, brackets and separators. Whether the text
 * of a value is JSON is for the parser behind it to say (strictly).
 */
#ifndef FORMATS_TOC_SCAN_H
#define FORMATS_TOC_SCAN_H

#include <stddef.h>

#include "base/err.h"

#define TOC_VALUE_MAX (1u << 20) /* bytes of one entry, or other value */
#define TOC_ENTRIES_MAX (4u << 20)
#define TOC_DEPTH_MAX 8u /* nested brackets inside one value */

struct toc_scan;

/* Texts are valid during the call and end with a NUL that @len does not count.
 * Each returns 0, or -1 with *e set, which ends the scan. */
struct toc_scan_ops {
	/* @text: an object, brackets included */
	int (*entry)(void *ctx, const char *text, size_t len, struct err *e);
	/* any key but "entries"; @key without quotes */
	int (*member)(void *ctx, const char *key, const char *text, size_t len,
		      struct err *e);
};

/* @ops must outlive it. -ENOMEM */
int toc_scan_new(const struct toc_scan_ops *ops, void *ctx,
		 struct toc_scan **ret) must_check;
void toc_scan_free(struct toc_scan *t);

/* ERR_CORRUPT (with the byte offset); ERR_UNSUPPORTED above a limit; what a
 * callback set. After a failure the scan is over. */
int toc_scan_feed(struct toc_scan *t, const void *p, size_t len, struct err *e)
	must_check;
/* The stream is over: ERR_CORRUPT when the table is not complete. */
int toc_scan_finish(struct toc_scan *t, struct err *e) must_check;

DEFINE_OWNED(toc_scan, struct toc_scan *, toc_scan_free)

#endif
