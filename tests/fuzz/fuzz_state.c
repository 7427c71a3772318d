/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of state files. The input's checksum is repaired, or the fuzzer
 * would never get past it. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "verity/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t in[STATE_SECTOR] = { 0 }, out[STATE_SECTOR];
	struct state_header h;

	memcpy(in, data, size < sizeof(in) ? size : sizeof(in));
	put_le32(in + STATE_SECTOR - 4, crc32c(in, STATE_SECTOR - 4));
	if (state_decode(in, sizeof(in), &h) == 0) {
		struct state_header again;

		/* What we accept we could have written. */
		state_encode(&h, out);
		if (state_decode(out, sizeof(out), &again) < 0 ||
		    again.kind != h.kind || again.size != h.size ||
		    again.n_extents != h.n_extents || again.phase != h.phase ||
		    strcmp(again.boot, h.boot) ||
		    !digest_equal(&again.ckey, &h.ckey))
			abort();
		if (state_file_size(&h) < STATE_BITMAP_OFF ||
		    state_file_size(&h) > 2 * STATE_SIZE_MAX)
			abort();
	}
	return 0;
}
