/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of labels, and what the label families of containerd and of
 * stargz-snapshotter say of a layer. Values come from whoever made the image:
 * each is checked here, and nothing is believed beyond its syntax.
 */
#include "labels.h"

#include <limits.h>
#include <string.h>

/* The binary search: index of @key, or of its place. */
static size_t find_place(const struct labels *l, const char *key, bool *ret_hit)
{
	size_t lo = 0, hi = l->n;

	*ret_hit = false;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(l->v[mid].key, key);

		if (c == 0) {
			*ret_hit = true;
			return mid;
		}
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void label_free(struct label *v)
{
	free(v->key);
	free(v->value);
}

void labels_release(struct labels *l)
{
	for (size_t i = 0; i < l->n; i++)
		label_free(&l->v[i]);
	free(l->v);
	*l = (struct labels){ 0 };
}

static void remove_at(struct labels *l, size_t at)
{
	label_free(&l->v[at]);
	memmove(&l->v[at], &l->v[at + 1], (l->n - at - 1) * sizeof(l->v[0]));
	l->n--;
}

static int insert_at(struct labels *l, size_t at, const char *key,
		     const char *value)
{
	owned(mem) char *k = strdup(key);
	owned(mem) char *v = strdup(value);
	struct label *bigger;

	if (!k || !v)
		return -ENOMEM;
	bigger = reallocarray(l->v, l->n + 1, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	l->v = bigger;
	memmove(&l->v[at + 1], &l->v[at], (l->n - at) * sizeof(l->v[0]));
	l->v[at] = (struct label){ .key = take_ptr(&k), .value = take_ptr(&v) };
	l->n++;
	return 0;
}

int labels_set(struct labels *l, const char *key, const char *value)
{
	bool hit;
	size_t at = find_place(l, key, &hit);
	char *copy;

	if (!value || !*value) {
		if (hit)
			remove_at(l, at);
		return 0;
	}
	if (!hit)
		return insert_at(l, at, key, value);
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(l->v[at].value);
	l->v[at].value = copy;
	return 0;
}

const char *labels_get(const struct labels *l, const char *key)
{
	bool hit;
	size_t at = find_place(l, key, &hit);

	return hit ? l->v[at].value : NULL;
}

int labels_copy(const struct labels *from, struct labels *to)
{
	struct labels tmp = { 0 };

	for (size_t i = 0; i < from->n; i++) {
		/* Sorted already: each goes to the end. */
		int r = insert_at(&tmp, i, from->v[i].key, from->v[i].value);

		if (r < 0) {
			labels_release(&tmp);
			return r;
		}
	}
	labels_release(to);
	*to = tmp;
	return 0;
}

/* ---- the families ---- */

#define CRI(name) "containerd.io/snapshot/cri." name
#define STARGZ(name) "containerd.io/snapshot/remote/stargz." name

/* First one that is there; containerd's own family wins. */
static const char *get_either(const struct labels *l, const char *a,
			      const char *b, const char **ret_key)
{
	const char *v = labels_get(l, a);

	*ret_key = v ? a : b;
	return v || !b ? v : labels_get(l, b);
}

static int get_digest(const struct labels *l, const char *a, const char *b,
		      struct digest *ret, struct err *e)
{
	const char *key, *v = get_either(l, a, b, &key);

	if (!v)
		return 0;
	if (digest_parse(v, ret) < 0)
		return err_set(e, ERR_INVALID,
			       "label '%s' is not a sha256 digest: '%.80s'",
			       key, v);
	return 0;
}

/*
 * The list serves to prepare neighbours ahead, so it is read as far as it can
 * be: clients cut it to the size of a label, and other digest algorithms end
 * it.
 */
static void get_image_layers(const struct labels *l, struct layer_labels *ret)
{
	const char *key,
		*p = get_either(l, CRI("image-layers"), STARGZ("layers"), &key);
	char one[DIGEST_STR_LEN + 1];

	while (p && *p && ret->n_image_layers < LABEL_LAYERS_MAX) {
		size_t len = strcspn(p, ",");

		if (len >= sizeof(one))
			return;
		memcpy(one, p, len);
		one[len] = '\0';
		if (digest_parse(one, &ret->image_layers[ret->n_image_layers]))
			return;
		ret->n_image_layers++;
		p += len + (p[len] == ',');
	}
}

static int get_prefetch(const struct labels *l, uint64_t *ret, struct err *e)
{
	static const char key[] = STARGZ("prefetch");
	const char *v = labels_get(l, key);
	uint64_t n = 0;

	if (!v)
		return 0;
	for (const char *p = v; *p; p++) {
		if (*p < '0' || *p > '9' ||
		    n > (INT64_MAX - (uint64_t)(*p - '0')) / 10)
			return err_set(e, ERR_INVALID,
				       "label '%s' is not a size: '%.80s'", key,
				       v);
		n = n * 10 + (uint64_t)(*p - '0');
	}
	*ret = n;
	return 0;
}

int labels_parse(const struct labels *l, struct layer_labels *ret,
		 struct err *e)
{
	struct layer_labels ll = { .ref = labels_get(l, LABEL_REF) };
	const char *key;

	ll.image_ref =
		get_either(l, CRI("image-ref"), STARGZ("reference"), &key);
	/* Any text may be a ref; only a lazy layer wants a digest there. */
	if (ll.ref && digest_parse(ll.ref, &ll.ref_digest) < 0)
		ll.ref_digest = (struct digest){ 0 };
	if (get_digest(l, CRI("layer-digest"), STARGZ("digest"), &ll.layer, e) <
		    0 ||
	    get_digest(l, CRI("manifest-digest"), NULL, &ll.manifest, e) < 0 ||
	    get_digest(l, LABEL_TOC_DIGEST, NULL, &ll.toc, e) < 0 ||
	    get_digest(l, LABEL_DIFF_ID, NULL, &ll.diff_id, e) < 0 ||
	    get_prefetch(l, &ll.prefetch_size, e) < 0)
		return -1;
	get_image_layers(l, &ll);
	*ret = ll;
	return 0;
}
