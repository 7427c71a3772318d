/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels of a Prepare, in both families: containerd.io/snapshot/cri.* of
 * containerd and containerd.io/snapshot/remote/stargz.* of older clients.
 * Sources: containerd pkg/snapshotters/annotations.go, stargz-snapshotter
 * fs/source/source.go.
 */
#ifndef SNAPSHOTTER_LABELS_H
#define SNAPSHOTTER_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

struct label {
	char *key, *value;
};

/* A set of labels, owned; sorted by key; unique keys; no empty value. */
struct labels {
	struct label *v;
	size_t n;
};
void labels_release(struct labels *l);
int labels_set(struct labels *l, const char *key, const char *value)
	must_check; /* empty or no value: removes; 0 or -ENOMEM */
const char *labels_get(const struct labels *l, const char *key);
/* Replaces what is in @to; on -ENOMEM @to is as it was. */
int labels_copy(const struct labels *from, struct labels *to) must_check;

static inline __attribute__((unused)) void owned_labels(struct labels *l)
{
	labels_release(l);
}

#define LABEL_REF "containerd.io/snapshot.ref"
#define LABEL_TOC_DIGEST "containerd.io/snapshot/stargz/toc.digest"
#define LABEL_DIFF_ID "containerd.io/snapshot/diff-id" /* containerd 2.3 */
#define LABEL_PARENT_CHAIN_ID "containerd.io/snapshot/parent-chain-id" /* 2.3 */
#define LABEL_LAYERS_MAX 128

/* What a client says of the layer that it wants. */
struct layer_labels {
	const char *ref; /* chain id text; NULL: an ordinary Prepare */
	const char *image_ref; /* NULL: no lazy family present */
	struct digest layer, toc, manifest, diff_id; /* zero: not told */
	struct digest ref_digest;
	uint64_t prefetch_size; /* stargz.prefetch; 0: not told */
	/* this layer and the ones above it, as listed; may be cut short */
	struct digest image_layers[LABEL_LAYERS_MAX];
	size_t n_image_layers;
};

/*
 * labels_parse() - take the families apart; containerd's wins over stargz's
 *
 * Strings are borrowed from @l. ERR_INVALID names the label that is malformed.
 * A damaged list of image layers is no error: it is read as far as it goes.
 */
int labels_parse(const struct labels *l, struct layer_labels *ret,
		 struct err *e) must_check;

#endif
