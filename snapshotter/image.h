/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images as registries describe them: the manifest, and what it says of layers.
 * Used ahead of containerd's own order: all layers of an image are prepared in
 * parallel as soon as the first one is asked for. What a manifest says is a
 * hint here and no proof: each layer is keyed by its blob and TOC digests, and
 * containerd's own labels decide which of them is used.
 *
 * Source: OCI image-spec manifest.md, descriptor.md.
 */
#ifndef SNAPSHOTTER_IMAGE_H
#define SNAPSHOTTER_IMAGE_H

#include "snapshotter/labels.h"
#include "snapshotter/layer.h"
#include "snapshotter/registry.h"

#define IMAGE_MANIFEST_MAX (4u << 20)
#define IMAGE_LAYERS_MAX 512

struct image_layer {
	struct digest blob;
	struct digest toc; /* zero: not an eStargz layer */
	uint64_t size;
};

struct image {
	struct image_layer *layers; /* lowest first */
	size_t n_layers;
};
void image_release(struct image *im);

/*
 * image_parse_manifest() - the layers of an image manifest
 *
 * @json: not NUL-terminated. Accepts OCI and Docker schema 2; refuses an object
 * with both layers and manifests (CVE-2021-41190), and an index.
 * ERR_INVALID with the reason.
 */
int image_parse_manifest(const char *json, size_t len, struct image *ret,
			 struct err *e) must_check;

/* Starts jobs for the other layers of the image, once per image and minute.
 * Never blocks; failures only mean that nothing was prepared ahead. */
void image_prepare_ahead(struct layers *ls, struct registry *rg,
			 const struct layer_labels *ll,
			 const struct layer_want *lw);

#endif
