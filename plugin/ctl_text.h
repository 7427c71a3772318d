/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What verityctl shows to people. Names come from images, registries and other
 * programs: what could act on a terminal is replaced before it is printed.
 */
#ifndef PLUGIN_CTL_TEXT_H
#define PLUGIN_CTL_TEXT_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define CTL_CELL_MAX 256

DEFINE_OWNED(json, struct json_object *, json_object_put)

/* Copies @s, which is UTF-8: C0 and C1 controls and DEL become '?', and no
 * sequence is cut in the middle. */
void ctl_clean(char *out, size_t size, const char *s);

/* Characters, not bytes; wide ones count as one. */
int ctl_width(const char *s);

/* "12.3 MiB" */
void ctl_human_size(char *out, size_t size, uint64_t bytes);

/* A member, or NULL; borrowed. */
struct json_object *ctl_get(struct json_object *o, const char *name);

/* A member as clean text; "-" when it is missing or empty. */
void ctl_get_text(struct json_object *o, const char *name, char *out,
		  size_t size);

/* A member that is a number from 0 on, or 0. */
uint64_t ctl_get_num(struct json_object *o, const char *name);

/* Elements of a member that is an array, or 0. */
size_t ctl_get_array(struct json_object *o, const char *name,
		     struct json_object **ret);

#endif
