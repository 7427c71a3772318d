/* SPDX-License-Identifier: Apache-2.0 */
/* Image manifests. What is accepted keeps its bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "snapshotter/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct image im;

	if (image_parse_manifest((const char *)data, size, &im, &e) < 0) {
		if (e.kind != ERR_INVALID || !e.msg[0])
			abort();
		return 0;
	}
	if (im.n_layers > IMAGE_LAYERS_MAX)
		abort();
	for (size_t i = 0; i < im.n_layers; i++)
		if (im.layers[i].size > INT64_MAX)
			abort();
	image_release(&im);
	return 0;
}
