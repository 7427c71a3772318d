/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the kernel's log: who may write to /dev/kmsg chooses the text. */
#include <stdint.h>
#include <stdlib.h>

#include "verity/kmsg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t ino = UINT64_MAX;
	int r = kmsg_parse((const char *)data, size, &ino);

	if (r != 0 && r != 1)
		abort();
	/* The kernel's own have a priority of one digit. */
	if (r == 1 && (size < 2 || data[0] < '0' || data[0] > '9'))
		abort();
	if (r == 0 && ino != UINT64_MAX)
		abort();
	return 0;
}
