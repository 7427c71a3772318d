/* SPDX-License-Identifier: Apache-2.0 */
/* Text form of digests; see digest.h. */
#include "digest.h"

#include "hex.h"

static const char prefix[] = "sha256:";

int digest_parse(const char *s, struct digest *ret)
{
	struct digest d;

	if (strlen(s) != DIGEST_STR_LEN || strncmp(s, prefix, 7) != 0)
		return -EINVAL;
	if (hex_decode(s + 7, d.b, DIGEST_LEN) < 0)
		return -EINVAL;
	*ret = d;
	return 0;
}

struct digest_str digest_str(const struct digest *d)
{
	struct digest_str r;

	memcpy(r.s, prefix, 7);
	hex_encode(d->b, DIGEST_LEN, r.s + 7);
	return r;
}
