/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people, members of documents; see ctl_text.h. */
#include "plugin/ctl_text.h"

#include <stdbool.h>
#include <string.h>

void ctl_clean(char *out, size_t size, const char *s)
{
	size_t n = 0;

	while (*s && n + 4 < size) {
		unsigned char c = (unsigned char)*s;
		bool c1 = c == 0xc2 && (unsigned char)s[1] >= 0x80 &&
			  (unsigned char)s[1] <= 0x9f;

		if (c < 0x20 || c == 0x7f || c1) {
			out[n++] = '?';
			s += c1 ? 2 : 1;
			continue;
		}
		do
			out[n++] = *s++;
		while (n + 1 < size && ((unsigned char)*s & 0xc0) == 0x80);
	}
	out[n] = '\0';
}

int ctl_width(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void ctl_human_size(char *out, size_t size, uint64_t bytes)
{
	static const char *const units[] = { "B",   "KiB", "MiB",
					     "GiB", "TiB", "PiB" };
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(*units)) {
		v /= 1024;
		u++;
	}
	(void)snprintf(out, size, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

struct json_object *ctl_get(struct json_object *o, const char *name)
{
	struct json_object *v = NULL;

	(void)json_object_object_get_ex(o, name, &v);
	return v;
}

void ctl_get_text(struct json_object *o, const char *name, char *out,
		  size_t size)
{
	struct json_object *v = ctl_get(o, name);
	const char *s = v ? json_object_get_string(v) : NULL;

	ctl_clean(out, size, s && *s ? s : "-");
}

uint64_t ctl_get_num(struct json_object *o, const char *name)
{
	struct json_object *v = ctl_get(o, name);
	int64_t n = json_object_is_type(v, json_type_int)
			    ? json_object_get_int64(v)
			    : 0;

	return n > 0 ? (uint64_t)n : 0;
}

size_t ctl_get_array(struct json_object *o, const char *name,
		     struct json_object **ret)
{
	*ret = ctl_get(o, name);
	return json_object_is_type(*ret, json_type_array)
		       ? json_object_array_length(*ret)
		       : 0;
}
