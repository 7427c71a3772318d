/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image metadata; see image_parse.h. The only user of json-c for it. Everything
 * here was written by whoever made the image.
 */
#include "snapshotter/image_parse.h"

#include <json-c/json.h>
#include <string.h>
#include <sys/utsname.h>

#define ANNOTATION_TOC "containerd.io/snapshot/stargz/toc.digest"
#define JSON_DEPTH_MAX 16

DEFINE_OWNED(json, struct json_object *, json_object_put)

void image_release(struct image *im)
{
	free(im->layers);
	memset(im, 0, sizeof(*im));
}

static struct json_object *member(struct json_object *o, const char *key,
				  enum json_type type)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, key, &v) ||
	    !json_object_is_type(v, type))
		return NULL;
	return v;
}

static int parse_layer(struct json_object *o, struct image_layer *ret,
		       struct err *e)
{
	/* member() of what is not an object is NULL */
	struct json_object *d = member(o, "digest", json_type_string);
	struct json_object *s = member(o, "size", json_type_int);
	struct json_object *a = member(o, "annotations", json_type_object);
	struct json_object *t =
		a ? member(a, ANNOTATION_TOC, json_type_string) : NULL;

	if (!json_object_is_type(o, json_type_object))
		return err_set(e, ERR_INVALID, "layer is not an object");
	if (!d || digest_parse(json_object_get_string(d), &ret->blob) < 0)
		return err_set(e, ERR_INVALID, "layer without a valid digest");
	if (!s || json_object_get_int64(s) < 0)
		return err_set(e, ERR_INVALID, "layer without a valid size");
	ret->size = (uint64_t)json_object_get_int64(s);
	if (t && digest_parse(json_object_get_string(t), &ret->toc) < 0)
		return err_set(e, ERR_INVALID, "TOC digest is not a digest");
	return 0;
}

static bool only_space(const char *s, size_t from, size_t len)
{
	while (from < len && strchr(" \t\r\n", s[from]) && s[from])
		from++;
	return from == len;
}

static struct json_object *parse_json(const char *json, size_t len)
{
	struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX);
	struct json_object *o;

	if (!tok || len > INT32_MAX) {
		if (tok)
			json_tokener_free(tok);
		return NULL;
	}
	o = json_tokener_parse_ex(tok, json, (int)len);
	if (json_tokener_get_error(tok) != json_tokener_success ||
	    !only_space(json, json_tokener_get_parse_end(tok), len)) {
		json_object_put(o);
		o = NULL;
	}
	json_tokener_free(tok);
	return o;
}

int image_parse_manifest(const char *json, size_t len, struct image *ret,
			 struct err *e)
{
	owned(json) struct json_object *o = parse_json(json, len);
	struct image im = { 0 };
	struct json_object *layers, *config;

	if (!o || !json_object_is_type(o, json_type_object))
		return err_set(e, ERR_INVALID, "manifest is not JSON");
	if (json_object_object_get_ex(o, "manifests", NULL))
		return err_set(e, ERR_INVALID, "an index, not a manifest");
	config = member(o, "config", json_type_object);
	config = config ? member(config, "digest", json_type_string) : NULL;
	if (!config ||
	    digest_parse(json_object_get_string(config), &im.config) < 0)
		memset(&im.config, 0, sizeof(im.config));
	layers = member(o, "layers", json_type_array);
	if (!layers)
		return err_set(e, ERR_INVALID, "manifest has no layers");
	im.n_layers = json_object_array_length(layers);
	if (im.n_layers > IMAGE_LAYERS_MAX)
		return err_set(e, ERR_INVALID, "manifest has %zu layers",
			       im.n_layers);
	im.layers = calloc(im.n_layers + 1, sizeof(*im.layers));
	if (!im.layers)
		return err_sys(e, -ENOMEM, "manifest");
	for (size_t i = 0; i < im.n_layers; i++) {
		struct json_object *l = json_object_array_get_idx(layers, i);

		if (parse_layer(l, &im.layers[i], e) < 0) {
			image_release(&im);
			return err_wrap(e, "layer %zu", i);
		}
	}
	*ret = im;
	return 0;
}

/* ---- platforms ---- */

/* Too long is unknown, and fits nothing. */
static void copy_text(struct json_object *o, const char *key, char *to,
		      size_t size)
{
	struct json_object *v = member(o, key, json_type_string);
	const char *s = v ? json_object_get_string(v) : "";

	(void)snprintf(to, size, "%s", strlen(s) < size ? s : "?");
}

static void parse_platform(struct json_object *o, struct image_platform *ret)
{
	copy_text(o, "os", ret->os, sizeof(ret->os));
	copy_text(o, "architecture", ret->arch, sizeof(ret->arch));
	copy_text(o, "variant", ret->variant, sizeof(ret->variant));
}

void image_platform_node(struct image_platform *ret)
{
	/* Go's names of what uname() calls the machine. */
	static const struct {
		const char *machine, *arch, *variant;
	} known[] = {
		{ "x86_64", "amd64", "" },    { "aarch64", "arm64", "v8" },
		{ "armv8l", "arm", "v8" },    { "armv7l", "arm", "v7" },
		{ "armv6l", "arm", "v6" },    { "i686", "386", "" },
		{ "ppc64le", "ppc64le", "" }, { "s390x", "s390x", "" },
		{ "riscv64", "riscv64", "" }, { "loongarch64", "loong64", "" },
	};
	struct utsname u;

	*ret = (struct image_platform){ .os = "linux" };
	if (uname(&u) < 0)
		return;
	(void)snprintf(ret->arch, sizeof(ret->arch), "%.15s", u.machine);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(u.machine, known[i].machine) != 0)
			continue;
		(void)snprintf(ret->arch, sizeof(ret->arch), "%s",
			       known[i].arch);
		(void)snprintf(ret->variant, sizeof(ret->variant), "%s",
			       known[i].variant);
	}
}

/* "v7" is 7; what is not named is the common one; 0: not understood. */
static unsigned variant_number(const struct image_platform *p)
{
	const char *v = p->variant;

	if (!*v && !strcmp(p->arch, "arm64"))
		return 8;
	if (!*v && !strcmp(p->arch, "arm"))
		return 7;
	if (!*v)
		return 1;
	v += *v == 'v';
	return v[0] >= '1' && v[0] <= '9' && !v[1] ? (unsigned)(v[0] - '0') : 0;
}

unsigned image_platform_fits(const struct image_platform *node,
			     const struct image_platform *image)
{
	unsigned has = variant_number(node), wants = variant_number(image);

	if (strcmp(node->os, image->os) != 0 ||
	    strcmp(node->arch, image->arch) != 0)
		return 0;
	/* The older variants of 32-bit ARM run on the newer ones. */
	if (!strcmp(node->arch, "arm"))
		return wants <= has ? wants : 0;
	return wants == has;
}

/* ---- index ---- */

void image_index_release(struct image_index *ix)
{
	free(ix->entries);
	memset(ix, 0, sizeof(*ix));
}

bool image_is_index(const char *json, size_t len)
{
	owned(json) struct json_object *o = parse_json(json, len);

	/* member() of NULL, or of what is not an object, is NULL */
	return o && member(o, "manifests", json_type_array);
}

/* Entries whose digest we could not check anyway are left out. */
static void add_entry(struct image_index *ix, struct json_object *o)
{
	struct image_entry *en = &ix->entries[ix->n_entries];
	struct json_object *d = member(o, "digest", json_type_string);
	struct json_object *p = member(o, "platform", json_type_object);

	if (!d || digest_parse(json_object_get_string(d), &en->digest) < 0)
		return;
	en->has_platform = p != NULL;
	if (p)
		parse_platform(p, &en->platform);
	ix->n_entries++;
}

int image_parse_index(const char *json, size_t len, struct image_index *ret,
		      struct err *e)
{
	owned(json) struct json_object *o = parse_json(json, len);
	struct json_object *list =
		o ? member(o, "manifests", json_type_array) : NULL;
	struct image_index ix = { 0 };
	size_t n;

	if (!list)
		return err_set(e, ERR_INVALID, "not an index");
	if (json_object_object_get_ex(o, "layers", NULL))
		return err_set(e, ERR_INVALID, "an index with layers");
	n = json_object_array_length(list);
	if (n > IMAGE_MANIFESTS_MAX)
		return err_set(e, ERR_INVALID, "index has %zu manifests", n);
	ix.entries = calloc(n + 1, sizeof(*ix.entries));
	if (!ix.entries)
		return err_sys(e, -ENOMEM, "index");
	for (size_t i = 0; i < n; i++)
		add_entry(&ix, json_object_array_get_idx(list, i));
	*ret = ix;
	return 0;
}

/* ---- configuration ---- */

void image_config_release(struct image_config *c)
{
	free(c->diff_ids);
	memset(c, 0, sizeof(*c));
}

int image_parse_config(const char *json, size_t len, struct image_config *ret,
		       struct err *e)
{
	owned(json) struct json_object *o = parse_json(json, len);
	struct json_object *fs =
		o ? member(o, "rootfs", json_type_object) : NULL;
	struct json_object *ids =
		fs ? member(fs, "diff_ids", json_type_array) : NULL;
	struct image_config c = { 0 };

	if (!ids)
		return err_set(e, ERR_INVALID,
			       "configuration has no rootfs.diff_ids");
	c.n_diff_ids = json_object_array_length(ids);
	if (c.n_diff_ids > IMAGE_LAYERS_MAX)
		return err_set(e, ERR_INVALID, "configuration has %zu layers",
			       c.n_diff_ids);
	c.diff_ids = calloc(c.n_diff_ids + 1, sizeof(*c.diff_ids));
	if (!c.diff_ids)
		return err_sys(e, -ENOMEM, "configuration");
	for (size_t i = 0; i < c.n_diff_ids; i++) {
		struct json_object *d = json_object_array_get_idx(ids, i);

		if (json_object_is_type(d, json_type_string) &&
		    digest_parse(json_object_get_string(d), &c.diff_ids[i]) ==
			    0)
			continue;
		image_config_release(&c);
		return err_set(e, ERR_INVALID, "diff id %zu is not a digest",
			       i);
	}
	parse_platform(o, &c.platform);
	*ret = c;
	return 0;
}
