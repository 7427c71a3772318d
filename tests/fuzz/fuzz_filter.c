/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of List: lines of the input are a list of filters. What parses must
 * also match without trouble, and parse again to the same answers. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshotter/filter.h"

#define FILTERS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(const char *const *texts, size_t n, const struct snap *sp)
{
	owned(filters) struct filters *f = NULL;
	struct err e = ERR_INIT;
	const char *ref;
	int match;

	if (filters_parse(texts, n, &f, &e) < 0) {
		if (e.kind != ERR_INVALID || !e.msg[0])
			abort();
		return -1;
	}
	match = filters_match(f, sp);
	ref = filters_ref(f);
	/* The shortcut may not lose what the filter lets through. */
	if (match && ref && strcmp(ref, sp->labels.v[0].value) != 0)
		abort();
	return match;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct label label = { (char[]){ LABEL_REF },
			       (char[]){ "sha256:9fd2" } };
	struct snap sp = { .name = (char[]){ "ns1/7/foo bar" },
			   .parent = (char[]){ "ns1/7/sha256:ab" },
			   .kind = SNAP_KIND_COMMITTED,
			   .labels = { &label, 1 } };
	const char *texts[FILTERS_MAX];
	size_t n = 0;
	char *copy = malloc(size + 1);

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	for (char *p = copy; p && n < FILTERS_MAX;) {
		char *end = strchr(p, '\n');

		if (end)
			*end++ = '\0';
		texts[n++] = p;
		p = end;
	}
	if (parse(texts, n, &sp) != parse(texts, n, &sp))
		abort();
	free(copy);
	return 0;
}
