/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http and https URLs, taken apart by the same parser that libcurl uses when it
 * connects: what is checked here is what is spoken to. Pure; any thread.
 */
#ifndef SNAPSHOTTER_URL_H
#define SNAPSHOTTER_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define URL_MAX_LEN 16384

struct url {
	char *text; /* absolute, without fragment */
	bool https;
	uint16_t port; /* always known */
	char host[256]; /* lower case; IPv6 in brackets */
};

/*
 * url_parse() - an absolute URL, or one relative to @base
 * @base: absolute; may be NULL
 * @ret: its old content is released on success; may be what @base points into
 *
 * -EINVAL: no URL, another scheme, user information in it, control characters
 * or longer than URL_MAX_LEN. -ENOMEM.
 */
int url_parse(const char *base, const char *s, struct url *ret) must_check;
void url_release(struct url *u);

bool url_same_origin(const struct url *a, const struct url *b);

/* Percent-encodes what may not stand in the value of a query or form. */
void url_add_encoded(struct buf *b, const char *s, size_t len);

/* "localhost", 127.0.0.0/8 or ::1, with or without brackets; by name only, the
 * resolver is not asked. */
bool host_is_loopback(const char *host);

static inline __attribute__((unused)) void owned_url(struct url *u)
{
	url_release(u);
}

#endif
