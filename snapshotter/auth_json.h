/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of foreign origin, within bounds. Private to auth and credhelper. */
#ifndef SNAPSHOTTER_AUTH_JSON_H
#define SNAPSHOTTER_AUTH_JSON_H

#include <json-c/json.h>
#include <string.h>

#include "base/err.h"

#define AUTH_JSON_MAX (1024 * 1024)
#define AUTH_JSON_DEPTH 16

static inline void auth_json_put(struct json_object *o)
{
	(void)json_object_put(o);
}

DEFINE_OWNED(json, struct json_object *, auth_json_put)
DEFINE_OWNED(tokener, struct json_tokener *, json_tokener_free)

/* One object and nothing behind it. ERR_INVALID says where it went wrong,
 * never what stands there: it may be a secret. */
static inline must_check int auth_json_parse(const char *json, size_t len,
					     struct json_object **ret,
					     struct err *e)
{
	owned(tokener) struct json_tokener *t =
		json_tokener_new_ex(AUTH_JSON_DEPTH);
	struct json_object *o;
	size_t end;

	if (!t)
		return err_set(e, ERR_INTERNAL, "out of memory");
	if (len > AUTH_JSON_MAX)
		return err_set(e, ERR_INVALID, "JSON of %zu bytes", len);
	o = json_tokener_parse_ex(t, json, (int)len);
	end = json_tokener_get_parse_end(t);
	if (!o && json_tokener_get_error(t) == json_tokener_continue)
		return err_set(e, ERR_INVALID, "JSON ends too early");
	if (!o)
		return err_set(
			e, ERR_INVALID, "bad JSON at byte %zu: %s", end,
			json_tokener_error_desc(json_tokener_get_error(t)));
	while (end < len && memchr(" \t\r\n", json[end], 4))
		end++;
	if (end < len || !json_object_is_type(o, json_type_object)) {
		auth_json_put(o);
		return err_set(e, ERR_INVALID, "not one JSON object");
	}
	*ret = o;
	return 0;
}

/* A string without NUL inside; NULL when it is missing or anything else. */
static inline const char *auth_json_string(struct json_object *o,
					   const char *key)
{
	struct json_object *v;

	if (!json_object_is_type(o, json_type_object) ||
	    !json_object_object_get_ex(o, key, &v) ||
	    !json_object_is_type(v, json_type_string))
		return NULL;
	if (strlen(json_object_get_string(v)) !=
	    (size_t)json_object_get_string_len(v))
		return NULL;
	return json_object_get_string(v);
}

#endif
