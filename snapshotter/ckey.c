/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content key of a large file: what names its body, so that two images with
 * the same file share download, disk and page cache. Computable from a table of
 * contents alone:
 *
 *	SHA-256("vs-body-1\0" | le64 size | per extent, in file order:
 *		le32 length | 32-byte digest, zeros for a hole)
 *
 * The extents' lengths are part of it: bodies are fetched, checked and marked
 * by extent, so the same bytes cut differently are another body.
 */
#include "base/io.h"
#include "snapshotter/body.h"
#include "verity/sha256.h"

struct ckey_builder {
	struct sha256 *hash;
	uint64_t size;
	uint64_t n_bytes; /* of the extents so far */
};

static const char prefix[] = "vs-body-1"; /* the NUL counts */

DEFINE_OWNED(ckey_builder, struct ckey_builder *, ckey_free)

void ckey_free(struct ckey_builder *k)
{
	if (!k)
		return;
	sha256_free(k->hash);
	free(k);
}

int ckey_begin(uint64_t size, struct ckey_builder **ret)
{
	owned(ckey_builder) struct ckey_builder *k = calloc(1, sizeof(*k));
	uint8_t le[8];
	int r;

	if (!k)
		return -ENOMEM;
	k->size = size;
	put_le64(le, size);
	r = sha256_new(&k->hash);
	if (r == 0)
		r = sha256_update(k->hash, prefix, sizeof(prefix));
	if (r == 0)
		r = sha256_update(k->hash, le, sizeof(le));
	if (r < 0)
		return r;
	*ret = take_ptr(&k);
	return 0;
}

int ckey_add(struct ckey_builder *k, uint32_t len, const struct digest *d)
{
	uint8_t record[4 + DIGEST_LEN] = { 0 };

	if (len == 0 || len > k->size - k->n_bytes)
		return -EINVAL;
	put_le32(record, len);
	if (d)
		memcpy(record + 4, d->b, DIGEST_LEN);
	k->n_bytes += len;
	return sha256_update(k->hash, record, sizeof(record));
}

int ckey_end(struct ckey_builder *k, struct digest *ret)
{
	owned(ckey_builder) struct ckey_builder *mine = k;

	if (mine->n_bytes != mine->size)
		return -EINVAL;
	return sha256_end(mine->hash, ret);
}
