/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All layers of an image are prepared in parallel as soon as the first one is
 * asked for, ahead of containerd's own order. What a manifest says is a hint
 * here and no proof: each layer is keyed by its blob and TOC digests, and
 * containerd's own labels decide which of them is used.
 */
#ifndef SNAPSHOTTER_IMAGE_H
#define SNAPSHOTTER_IMAGE_H

#include "snapshotter/image_parse.h"
#include "snapshotter/labels.h"
#include "snapshotter/layer.h"
#include "snapshotter/registry.h"

/* Starts jobs for the other layers of the image, once per image and minute.
 * Never blocks; failures only mean that nothing was prepared ahead. */
void image_prepare_ahead(struct layers *ls, struct registry *rg,
			 const struct layer_labels *ll,
			 const struct layer_want *lw);

#endif
