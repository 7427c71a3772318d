/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of TOML 1.0 that our configuration and containerd's files need:
 * tables, arrays of tables, dotted and quoted keys, one-line strings, numbers,
 * booleans, arrays, inline tables, comments. Multi-line strings and dates are
 * refused by name, never misread.
 *
 * A document becomes a tree in file order. Nothing is converted; each node
 * keeps its line, so that whoever reads a value can say where it stands.
 * Source: toml.io/en/v1.0.0.
 */
#ifndef BASE_TOML_H
#define BASE_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define TOML_SIZE_MAX (1024u * 1024u)
#define TOML_DEPTH_MAX 16
#define TOML_VALUES_MAX 16384

enum toml_type {
	TOML_STRING,
	TOML_INT,
	TOML_BOOL,
	TOML_ARRAY,
	TOML_TABLE,
	TOML_FLOAT
};

/* How a table came to be, which decides who may add to it. */
enum toml_origin {
	TOML_IMPLICIT, /* named on the way to a deeper header */
	TOML_HEADER, /* [table], or the array of [[table]] */
	TOML_DOTTED, /* a.b = value */
	TOML_CLOSED, /* inline table or array */
};

/* Read only for everybody but toml.c. */
struct toml {
	struct toml *next; /* the sibling behind it in the file */
	char *key; /* NULL in an array and for the root */
	enum toml_type type;
	unsigned line; /* of its key, or of the value in an array */
	union {
		char *str; /* UTF-8 without NUL */
		int64_t num;
		bool flag;
		double real; /* finite */
		struct {
			struct toml *first, *last;
			size_t n;
		} kids; /* array, table */
	};
	enum toml_origin origin;
	unsigned depth;
};

/**
 * toml_parse() - text to tree
 * @name: of the file, for messages
 * @text: @len bytes, at most TOML_SIZE_MAX; need not be terminated
 * @ret:  out: the root table, for toml_free()
 * @e:    ERR_INVALID "NAME:LINE: what is wrong" | ERR_INTERNAL (memory)
 */
int toml_parse(const char *name, const char *text, size_t len,
	       struct toml **ret, struct err *e) must_check;
void toml_free(struct toml *t); /* accepts NULL */

/* The member @key of @table, or NULL. */
const struct toml *toml_find(const struct toml *table, const char *key);

/* "a string", "an integer", ... for messages */
const char *toml_type_name(enum toml_type type);

DEFINE_OWNED(toml, struct toml *, toml_free)

#endif
