/* SPDX-License-Identifier: Apache-2.0 */
/* Image references, and URLs that a redirect may name. What is accepted must
 * be safe to stand in a URL, a path and a header. */
#include <stdint.h>
#include <string.h>

#include "snapshotter/registry.h"
#include "snapshotter/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void reference(const char *s)
{
	struct image_ref ref, again;
	char text[1024];

	if (image_ref_parse(s, &ref, NULL) < 0)
		return;
	require(ref.host[0] && ref.repo[0]);
	require(!strpbrk(ref.host, "/@?#% \r\n"));
	require(!strstr(ref.repo, "..") && !strstr(ref.repo, "//"));
	require(!strpbrk(ref.repo, "@?#%: \r\n\\"));
	require(!strpbrk(ref.tag, "/@?#%: \r\n\\"));
	/* The completed form says the same. */
	(void)snprintf(text, sizeof(text), "%s/%s%s%s", ref.host, ref.repo,
		       ref.tag[0] ? ":" : "", ref.tag);
	require(image_ref_parse(text, &again, NULL) == 0 ||
		!strpbrk(ref.host, ".:"));
}

static void url(const char *s)
{
	struct url u = { 0 };

	if (url_parse("https://r.io/v2/a/blobs/b?c=d", s, &u) < 0)
		return;
	require(u.host[0] && !strpbrk(u.text, " \r\n\t"));
	require(strncmp(u.text, "http", 4) == 0);
	url_release(&u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	reference(text);
	url(text);
	free(text);
	return 0;
}
