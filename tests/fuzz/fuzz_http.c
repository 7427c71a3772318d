/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header lines of an answer, as curl hands them over, one a line of the input;
 * and the redirect that comes out of them. Blank lines are left out: behind
 * one, the response belongs to its reader.
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void feed(struct transfer *t, const uint8_t *p, size_t size)
{
	while (size) {
		const uint8_t *nl = memchr(p, '\n', size);
		size_t len = nl ? (size_t)(nl - p) + 1 : size;
		bool blank = *p == '\n' || *p == '\r';
		/* A copy of its own: reading behind the line is noticed. */
		char *line = blank ? NULL : malloc(len);

		if (line) {
			memcpy(line, p, len);
			if (transfer_header_line(line, 1, len, t) != len) {
				require(t->err.kind == ERR_UNAVAILABLE);
				size = len;
			}
			free(line);
		}
		p += len;
		size -= len;
	}
}

static void check(const struct transfer *t)
{
	const struct http_response *r = &t->resp;
	struct url to = { 0 };

	require(r->retry_after_s <= INT_MAX);
	if (r->range_first != UINT64_MAX)
		require(r->range_first <= r->range_last &&
			r->range_last < r->range_total);
	if (!t->location || url_parse(t->url.text, t->location, &to) < 0)
		return;
	/* What is spoken to next: http, a host, no one's password. */
	require(!strncmp(to.text, to.https ? "https://" : "http://",
			 to.https ? 8 : 7));
	require(to.host[0] && strlen(to.text) <= URL_MAX_LEN + 8);
	require(!strpbrk(to.text, " \r\n\t"));
	require(!strpbrk(to.host, "@/?# \r\n"));
	require(url_same_origin(&to, &to));
	(void)host_is_loopback(to.host);
	url_release(&to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct http_req req = { .url = "https://r.test:5000/v2/a/blobs/b?c=d",
				.range_off = HTTP_NO_RANGE };
	struct transfer *t = NULL;

	if (transfer_new(&req, &t, NULL) < 0)
		return 0;
	feed(t, data, size);
	check(t);
	transfer_free(t);
	return 0;
}
