/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP transfer inside the network thread: its curl options, what its
 * header lines said, and what went wrong. Private to fetch.c.
 */
#ifndef SNAPSHOTTER_TRANSFER_H
#define SNAPSHOTTER_TRANSFER_H

#include <curl/curl.h>

#include "base/buf.h"
#include "snapshotter/fetch.h"
#include "snapshotter/url.h"

struct host;

struct transfer {
	struct list node; /* in its host's queue, or among those running */
	struct http_req *req;
	struct host *host;
	struct url url;
	CURL *easy; /* NULL while queued */
	struct curl_slist *headers;
	uint64_t deadline_ms;
	uint64_t active_ms; /* when the last byte came; 0: not connected */
	uint64_t n_body;
	size_t n_header;
	bool have_header; /* on_header was called */
	bool oom;
	struct http_response resp;
	char *content_type, *location;
	struct buf www_authenticate;
	struct err err;
	char curl_text[CURL_ERROR_SIZE];
};

int transfer_new(struct http_req *req, struct transfer **ret, struct err *e)
	must_check;
void transfer_free(struct transfer *t);

/* Makes t->easy, ready to be added. On failure t->err is set. */
int transfer_prepare(struct transfer *t, CURLSH *share, bool http2) must_check;

/* Curl's verdict becomes t->err, unless that says why already. */
void transfer_set_result(struct transfer *t, CURLcode code);

/* Curl's CURLOPT_HEADERFUNCTION: one line, not terminated by NUL. Here for
 * fuzzing; @ctx is the transfer. Anything but @len: stop. */
size_t transfer_header_line(char *p, size_t one, size_t len, void *ctx);

/* For fuzzing and tests: "bytes 0-9/10". false: not of that form. */
bool http_content_range(const char *s, struct http_response *resp);

#endif
