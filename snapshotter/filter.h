/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd's filter language, as List uses it.
 *
 *	filter   := selector ("," selector)*		all must match
 *	selector := path [("==" | "!=" | "~=") value]	without: is it there?
 *	path     := field ("." field)*
 *	field    := quoted | [A-Za-z0-9_]+
 *	value    := quoted | [^\s,]+
 *	quoted   := "..." with the escapes of Go; after ~= also /.../ and |...|
 *
 * Several filters: one must match. Paths: name, parent, kind (active, view,
 * committed), labels.KEY (the rest of the path, joined with dots).
 *
 * One difference from containerd: ~= takes POSIX extended regular expressions
 * over bytes where containerd has Go's (RE2): no \d, no (?i), no lazy
 * operators. An expression that does not compile is ERR_INVALID here and
 * matches nothing there. Backreferences, expressions over 512 bytes, and those
 * whose repetitions ("+" counts 2, "{n,m}" m) multiply to more than 4096 are
 * refused: glibc would need exponential time or memory for them.
 *
 * Source: containerd pkg/filters/{parser,scanner,quote,filter}.go and
 * core/snapshots/storage/bolt.go, adaptSnapshot().
 */
#ifndef SNAPSHOTTER_FILTER_H
#define SNAPSHOTTER_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "snapshotter/store.h"

struct filters;

/*
 * filters_parse() - parse a list; no text at all, or an empty one, matches all
 * ERR_INVALID says where; ERR_INTERNAL out of memory.
 */
int filters_parse(const char *const *texts, size_t n, struct filters **ret,
		  struct err *e) must_check;
void filters_free(struct filters *f);

/* Any thread, also several at once. */
bool filters_match(const struct filters *f, const struct snap *sp);

/*
 * filters_ref() - the value V when a snapshot can only match if its label
 * containerd.io/snapshot.ref equals V; else NULL. Borrowed. This is the query
 * of containerd's metadata layer after each AlreadyExists.
 */
const char *filters_ref(const struct filters *f);

DEFINE_OWNED(filters, struct filters *, filters_free)

#endif
