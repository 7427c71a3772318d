/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The labels of a Prepare, one "key=value" a line; "~" and "^" at the start of
 * a key stand for the prefixes of the two families. What is accepted must say
 * the same when it is read from a copy.
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static int set_line(struct labels *l, char *line)
{
	char *value = strchr(line, '=');
	char key[300];
	const char *prefix = "";

	if (!value)
		return labels_set(l, line, NULL);
	*value++ = '\0';
	if (*line == '~' || *line == '^')
		prefix = *line++ == '~'
				 ? "containerd.io/snapshot/cri."
				 : "containerd.io/snapshot/remote/stargz.";
	(void)snprintf(key, sizeof(key), "%s%.200s", prefix, line);
	return labels_set(l, key, value);
}

static void check_set(const struct labels *l)
{
	for (size_t i = 0; i < l->n; i++) {
		require(l->v[i].value[0]);
		require(!i || strcmp(l->v[i - 1].key, l->v[i].key) < 0);
		require(labels_get(l, l->v[i].key) == l->v[i].value);
	}
}

static void check_accepted(const struct labels *l, const struct layer_labels *a)
{
	owned(labels) struct labels copy = { 0 };
	struct layer_labels b;

	require(a->n_image_layers <= LABEL_LAYERS_MAX);
	require(a->prefetch_size <= INT64_MAX);
	require(!a->ref || a->ref == labels_get(l, LABEL_REF));
	require(digest_is_zero(&a->ref_digest) || a->ref);
	if (labels_copy(l, &copy) < 0)
		return;
	require(labels_parse(&copy, &b, NULL) == 0);
	require(a->n_image_layers == b.n_image_layers);
	require(!memcmp(&a->layer, &b.layer, sizeof(b.layer)));
	require(!memcmp(&a->toc, &b.toc, sizeof(b.toc)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned(labels) struct labels l = { 0 };
	owned(mem) char *text = strndup((const char *)data, size);
	struct layer_labels ll;
	struct err e = ERR_INIT;
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n")))
		if (set_line(&l, line) < 0)
			return 0;
	check_set(&l);
	if (labels_parse(&l, &ll, &e) == 0)
		check_accepted(&l, &ll);
	else
		require(e.kind == ERR_INVALID && e.msg[0]);
	return 0;
}
