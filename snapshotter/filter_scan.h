/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens and quoted text of the filter language; private to filter.c.
 * Source: containerd pkg/filters/{scanner,quote}.go.
 */
#ifndef SNAPSHOTTER_FILTER_SCAN_H
#define SNAPSHOTTER_FILTER_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum token_kind {
	TOKEN_EOF,
	TOKEN_FIELD,
	TOKEN_VALUE,
	TOKEN_QUOTED,
	TOKEN_SEPARATOR,
	TOKEN_OPERATOR,
	TOKEN_ILLEGAL,
};

struct token {
	enum token_kind kind;
	size_t pos, len; /* within scanner.s */
};

struct scanner {
	const char *s; /* valid UTF-8 */
	size_t pos;
	bool want_value; /* an operator was seen, no separator since */
	const char *error; /* of a TOKEN_ILLEGAL; or NULL */
};

#define SCAN_EOF (-1)

/* The next byte, spaces included, or SCAN_EOF. */
int filter_peek(const struct scanner *sc);

struct token filter_scan(struct scanner *sc);

/* @s with its quotes. Appends; 0, -EINVAL (also for a NUL, which no name can
 * hold), -ENOMEM. */
int filter_unquote(const char *s, size_t len, struct buf *out) must_check;

#endif
