/* SPDX-License-Identifier: Apache-2.0 */
/* Image manifests, indexes, configurations. What is accepted keeps its bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "snapshotter/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
	if (!ok)
		abort();
}

static void fuzz_platform(const struct image_platform *p)
{
	static const struct image_platform nodes[] = {
		{ "linux", "amd64", "" },
		{ "linux", "arm64", "v8" },
		{ "linux", "arm", "v7" },
	};

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		require(image_platform_fits(&nodes[i], p) <= 9);
}

static void fuzz_index(const char *json, size_t size)
{
	struct err e = ERR_INIT;
	struct image_index ix;

	if (image_parse_index(json, size, &ix, &e) < 0) {
		require(e.kind == ERR_INVALID && e.msg[0]);
		return;
	}
	require(image_is_index(json, size));
	require(ix.n_entries <= IMAGE_MANIFESTS_MAX);
	for (size_t i = 0; i < ix.n_entries; i++)
		fuzz_platform(&ix.entries[i].platform);
	image_index_release(&ix);
}

static void fuzz_config(const char *json, size_t size)
{
	struct err e = ERR_INIT;
	struct image_config c;

	if (image_parse_config(json, size, &c, &e) < 0) {
		require(e.kind == ERR_INVALID && e.msg[0]);
		return;
	}
	require(c.n_diff_ids <= IMAGE_LAYERS_MAX);
	fuzz_platform(&c.platform);
	image_config_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct image im;

	fuzz_index((const char *)data, size);
	fuzz_config((const char *)data, size);
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
