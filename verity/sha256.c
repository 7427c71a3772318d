/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 through OpenSSL. Owns the one fetched EVP_MD of the process and one
 * context per thread. EVP_sha256() would look the algorithm up again at every
 * begin, which at 4 KiB blocks costs a third of the time.
 */
#include "verity/sha256.h"

#include <pthread.h>
#include <stdbool.h>

#include <openssl/evp.h>

struct sha256 {
	EVP_MD_CTX *ctx;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MD *md; /* NULL: out of memory, or a libcrypto without SHA-256 */
static pthread_key_t thread_key;
static bool have_key;
static __thread struct sha256 *thread_hash;

static void free_thread_hash(void *h)
{
	thread_hash = NULL;
	sha256_free(h);
}

static void init_once(void)
{
	md = EVP_MD_fetch(NULL, "SHA256", NULL);
	have_key = pthread_key_create(&thread_key, free_thread_hash) == 0;
}

int sha256_new(struct sha256 **ret)
{
	owned(sha256) struct sha256 *h = NULL;
	int r;

	(void)pthread_once(&once, init_once);
	if (!md)
		return -EIO;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->ctx = EVP_MD_CTX_new();
	if (!h->ctx)
		return -ENOMEM;
	r = sha256_begin(h);
	if (r < 0)
		return r;
	*ret = take_ptr(&h);
	return 0;
}

void sha256_free(struct sha256 *h)
{
	if (!h)
		return;
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

int sha256_begin(struct sha256 *h)
{
	return EVP_DigestInit_ex2(h->ctx, md, NULL) == 1 ? 0 : -EIO;
}

int sha256_update(struct sha256 *h, const void *p, size_t len)
{
	return EVP_DigestUpdate(h->ctx, p, len) == 1 ? 0 : -EIO;
}

int sha256_end(struct sha256 *h, struct digest *ret)
{
	struct digest d;

	if (EVP_DigestFinal_ex(h->ctx, d.b, NULL) != 1)
		return -EIO;
	*ret = d;
	return 0;
}

static int get_thread_hash(struct sha256 **ret)
{
	int r;

	if (thread_hash) {
		*ret = thread_hash;
		return 0;
	}
	r = sha256_new(ret);
	if (r < 0)
		return r;
	/* Without the key nothing would free it when the thread ends. */
	if (!have_key || pthread_setspecific(thread_key, *ret)) {
		sha256_free(*ret);
		return -ENOMEM;
	}
	thread_hash = *ret;
	return 0;
}

int sha256_buf(const void *p, size_t len, struct digest *ret)
{
	struct sha256 *h;
	int r = get_thread_hash(&h);

	if (r == 0)
		r = sha256_begin(h);
	if (r == 0)
		r = sha256_update(h, p, len);
	if (r == 0)
		r = sha256_end(h, ret);
	return r;
}
