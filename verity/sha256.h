/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 through OpenSSL EVP. One context a caller, reusable; the algorithm
 * is fetched once per process. Inner tier: 0 or -errno (-ENOMEM, -EIO).
 */
#ifndef VERITY_SHA256_H
#define VERITY_SHA256_H

#include <stddef.h>

#include "base/digest.h"

struct sha256; /* one running hash; not thread safe */

int sha256_new(struct sha256 **ret) must_check; /* begun */
void sha256_free(struct sha256 *h);
int sha256_begin(struct sha256 *h) must_check;
int sha256_update(struct sha256 *h, const void *p, size_t len) must_check;
int sha256_end(struct sha256 *h, struct digest *ret) must_check;

/* All at once, with a context of the calling thread. */
int sha256_buf(const void *p, size_t len, struct digest *ret) must_check;

DEFINE_OWNED(sha256, struct sha256 *, sha256_free)

#endif
