/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request for a range looks like, and who is told what in it; see
 * registry_run.h. On the network thread.
 */
#include <string.h>
#include <strings.h>

#include "snapshotter/registry_run.h"

#define SHARE_MIN_MS 1000

bool run_at_place(const struct run *run)
{
	return url_same_origin(&run->url, &run->place->url);
}

static void set_range(const struct run *run, struct http_req *h)
{
	h->range_off = HTTP_NO_RANGE;
	switch (run->phase) {
	case PHASE_RANGE:
		h->range_off = run->q->off + run->got;
		h->range_len = run->q->len - run->got;
		break;
	case PHASE_SUFFIX:
		h->suffix_len = run->q->suffix_len;
		break;
	case PHASE_SIZE:
		h->range_off = 0;
		h->range_len = 1;
		break;
	}
}

static bool has_header(char **headers, const char *name)
{
	size_t n = strlen(name);

	for (; headers && *headers; headers++)
		if (strncasecmp(*headers, name, n) == 0 &&
		    ((*headers)[n] == ':' || (*headers)[n] == ';'))
			return true;
	return false;
}

/*
 * What is told to the place and to nobody that it redirects to: our token, and
 * the headers that are configured for it. A configured Authorization is used
 * as it is.
 */
static int make_headers(struct run *run)
{
	char **more = run_at_place(run) ? run->place->host->headers : NULL;
	const char *accept = run->place->src->accept;
	size_t n = 0, n_more = 0;

	while (more && more[n_more])
		n_more++;
	free(run->headers);
	run->headers = calloc(n_more + 3, sizeof(*run->headers));
	if (!run->headers)
		return -ENOMEM;
	if (accept)
		run->headers[n++] = accept;
	if (run_at_place(run) && run->grant.header &&
	    !has_header(more, "Authorization"))
		run->headers[n++] = run->grant.header;
	for (size_t i = 0; i < n_more; i++)
		run->headers[n++] = more[i];
	return 0;
}

/* A place that others stand behind gets a share of the time only: to wait for
 * it to the end would leave them none. */
static void set_limits(struct run *run, struct http_req *h, uint64_t left)
{
	const struct host *host = run->place->host;
	uint64_t share = left / 2;

	h->connect_timeout_ms = host->dial_ms;
	if (place_has_other(run)) {
		if (share > SHARE_MIN_MS)
			left = share;
		h->impatient = true;
	}
	h->deadline_ms = (unsigned)left;
}

int run_form_request(struct run *run, uint64_t left_ms)
{
	const struct host *host = run->place->host;
	struct http_req *h = &run->http;

	if (make_headers(run) < 0)
		return -ENOMEM;
	set_range(run, h);
	set_limits(run, h, left_ms);
	h->url = run->url.text;
	h->headers = run->headers;
	h->ca_file = run->reg->ca_file;
	h->ca_pem = host->ca_pem;
	h->skip_verify = host->skip_verify;
	if (run_at_place(run)) {
		h->client_cert = host->client_cert;
		h->client_key = host->client_key;
	}
	h->urgent = run->q->urgent;
	h->silence_ms = run->q->silence_ms;
	return 0;
}
