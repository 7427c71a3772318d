/* SPDX-License-Identifier: Apache-2.0 */
/* mountinfo: paths and options in it are chosen by whoever may mount. */
#include <stdint.h>
#include <string.h>

#include "snapshotter/broken.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned(buf) struct buf out = { 0 }, again = { 0 };
	char *text = strndup((const char *)data, size);
	char *later = text ? strdup(text) : NULL;
	struct broken *b = NULL;

	if (later && broken_find_in(text, "/r", &b) == 0) {
		broken_json_of(b, &out);
		/* The same mounts are still there. */
		broken_refresh_in(b, later);
		broken_json_of(b, &again);
		if (!out.failed && !again.failed && out.len != again.len)
			abort();
	}
	broken_free(b);
	free(text);
	free(later);
	return 0;
}
