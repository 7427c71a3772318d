/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a TOML document, and as our configuration. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/toml.h"
#include "plugin/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What toml.h promises about a tree. */
static void check(const struct toml *t, bool keyed)
{
	assert(!t->key == !keyed);
	assert(t->depth <= TOML_DEPTH_MAX && t->line >= 1);
	if (t->type == TOML_STRING)
		assert(t->str);
	if (t->type != TOML_ARRAY && t->type != TOML_TABLE)
		return;
	for (const struct toml *k = t->kids.first; k; k = k->next) {
		check(k, t->type == TOML_TABLE);
		if (k->key)
			assert(toml_find(t, k->key) == k);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned(config) struct config *c = NULL;
	owned(toml) struct toml *t = NULL;
	struct err e = ERR_INIT;
	int r = toml_parse("f", (const char *)data, size, &t, &e);

	if (r == 0)
		check(t, false);
	else
		assert(e.kind == ERR_INVALID && !strncmp(e.msg, "f:", 2));
	if (config_parse("f", (const char *)data, size, &c, &e) == 0)
		assert(r == 0 && c->prepare_budget_s >= 1);
	return 0;
}
