/* SPDX-License-Identifier: Apache-2.0 */
/*
 * onethread URL: fetches a gzip blob, inflates it and hashes what comes out,
 * all in one thread, and prints megabytes of output a second. What a reader of
 * a whole layer could get at best without a second processor.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/io.h"
#include "snapshotter/formats/decode.h"
#include "verity/sha256.h"

struct sum {
	struct decoder *dec;
	struct sha256 *hash;
	uint64_t n_bytes;
	int err;
};

static int take_output(void *ctx, const void *p, size_t n)
{
	struct sum *s = ctx;

	s->n_bytes += n;
	return sha256_update(s->hash, p, n);
}

static size_t take_data(char *p, size_t size, size_t n, void *ctx)
{
	struct sum *s = ctx;

	s->err = decoder_feed(s->dec, p, size * n, take_output, s);
	return s->err ? 0 : size * n;
}

static int fetch(const char *url, struct sum *s)
{
	CURL *c = curl_easy_init();
	CURLcode res;

	if (!c)
		return -1;
	(void)curl_easy_setopt(c, CURLOPT_URL, url);
	(void)curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
	(void)curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 512L * 1024);
	(void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_data);
	(void)curl_easy_setopt(c, CURLOPT_WRITEDATA, s);
	res = curl_easy_perform(c);
	curl_easy_cleanup(c);
	if (res == CURLE_OK && !s->err)
		return 0;
	(void)fprintf(stderr, "onethread: %s, %d\n", curl_easy_strerror(res),
		      s->err);
	return -1;
}

int main(int argc, char **argv)
{
	owned(decoder) struct decoder *dec = NULL;
	owned(sha256) struct sha256 *hash = NULL;
	struct sum s = { 0 };
	struct digest d;
	uint64_t begin;

	if (argc != 2 || decoder_new(CODEC_GZIP_MEMBER, &dec) < 0 ||
	    sha256_new(&hash) < 0)
		return 2;
	s.dec = dec;
	s.hash = hash;
	begin = now_ns();
	if (fetch(argv[1], &s) < 0 || sha256_end(hash, &d) < 0)
		return 1;
	printf("%.3f\n",
	       (double)s.n_bytes / 1e6 / ((double)(now_ns() - begin) / 1e9));
	return 0;
}
