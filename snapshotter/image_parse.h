/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images as registries describe them: index, manifest, configuration. Pure
 * functions over bytes whose digest the caller has checked; any thread.
 *
 * @json is never NUL-terminated. All fail with ERR_INVALID and the reason.
 * Source: OCI image-spec image-index.md, manifest.md, config.md, descriptor.md.
 */
#ifndef SNAPSHOTTER_IMAGE_PARSE_H
#define SNAPSHOTTER_IMAGE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

#define IMAGE_MANIFEST_MAX (4u << 20)
#define IMAGE_LAYERS_MAX 512
#define IMAGE_MANIFESTS_MAX 1024 /* in one index */

struct image_layer {
	struct digest blob;
	struct digest toc; /* zero: not an eStargz layer */
	uint64_t size;
};

struct image {
	struct image_layer *layers; /* lowest first */
	size_t n_layers;
	struct digest config; /* zero: none, or not sha256 */
};
void image_release(struct image *im);

/*
 * image_parse_manifest() - the layers of an image manifest
 *
 * Accepts OCI and Docker schema 2; refuses an object with both layers and
 * manifests (CVE-2021-41190), and an index.
 */
int image_parse_manifest(const char *json, size_t len, struct image *ret,
			 struct err *e) must_check;

/* Is it an index? Only then for image_parse_index(). False for no JSON. */
bool image_is_index(const char *json, size_t len);

/* As in the fields of an index and a configuration. Unknown ones are "". */
struct image_platform {
	char os[16], arch[16], variant[16];
};
/* Of this machine. */
void image_platform_node(struct image_platform *ret);
/*
 * How well the node runs an image: 0 not at all, higher is better. A variant
 * that is not named is the common one: v8 of arm64, v7 of arm, v1 of amd64.
 * Source: containerd platforms, "Only" and the normalization behind it.
 */
unsigned image_platform_fits(const struct image_platform *node,
			     const struct image_platform *image);

struct image_entry {
	struct digest digest;
	bool has_platform; /* else its configuration tells */
	struct image_platform platform;
};
struct image_index {
	struct image_entry *entries; /* in order, with a valid digest */
	size_t n_entries;
};
void image_index_release(struct image_index *ix);
int image_parse_index(const char *json, size_t len, struct image_index *ret,
		      struct err *e) must_check;

struct image_config {
	struct image_platform platform;
	struct digest *diff_ids; /* lowest first */
	size_t n_diff_ids;
};
void image_config_release(struct image_config *c);
int image_parse_config(const char *json, size_t len, struct image_config *ret,
		       struct err *e) must_check;

#endif
