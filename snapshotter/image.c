/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests; see image.h. The only user of json-c for image metadata. */
#include "snapshotter/image.h"

#include <json-c/json.h>
#include <string.h>

#include "base/log.h"

#define ANNOTATION_TOC "containerd.io/snapshot/stargz/toc.digest"
#define JSON_DEPTH_MAX 16
#define NEWS_MS 60000u
#define MANIFEST_DEADLINE_MS 20000u

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
	struct json_object *layers;

	if (!o || !json_object_is_type(o, json_type_object))
		return err_set(e, ERR_INVALID, "manifest is not JSON");
	if (json_object_object_get_ex(o, "manifests", NULL))
		return err_set(e, ERR_INVALID, "an index, not a manifest");
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

/* ---- ahead ---- */

struct ahead {
	struct host_job job;
	struct layers *ls;
	struct registry *rg;
	struct layer_want want; /* of the layer that was asked for */
	struct digest manifest;
};

static void want_others(struct ahead *a, const struct image *im)
{
	for (size_t i = 0; i < im->n_layers; i++) {
		struct layer_want lw = a->want;
		struct layer_row row;
		struct err e = ERR_INIT;

		if (digest_is_zero(&im->layers[i].toc) ||
		    digest_equal(&im->layers[i].blob, &a->want.desc.blob))
			continue;
		lw.desc.blob = im->layers[i].blob;
		lw.desc.toc = im->layers[i].toc;
		lw.desc.size = im->layers[i].size;
		memset(&lw.desc.diff_id, 0, sizeof(lw.desc.diff_id));
		lw.chain_id[0] = '\0';
		lw.below = NULL;
		lw.n_below = 0;
		lw.below_known = false;
		if (layers_want(a->ls, &lw, NULL, &row, &e) < 0)
			log_debug("not prepared ahead: layer=%s err='%s'",
				  digest_str(&lw.desc.blob).s, e.msg);
	}
}

static void ahead_run(struct host_job *j)
{
	struct ahead *a = container_of(j, struct ahead, job);
	owned(mem) char *json = NULL;
	struct image im = { 0 };
	struct err e = ERR_INIT;
	size_t len = 0;

	if (registry_read_manifest(a->rg, &a->want.ref, &a->manifest,
				   IMAGE_MANIFEST_MAX, MANIFEST_DEADLINE_MS,
				   &json, &len, &e) < 0)
		goto out;
	if (image_parse_manifest(json, len, &im, &e) == 0)
		want_others(a, &im);
out:
	if (e.kind != ERR_NONE)
		log_debug("no layers prepared ahead: image='%s' err='%s'",
			  a->want.image, e.msg);
	image_release(&im);
	free(a);
}

void image_prepare_ahead(struct layers *ls, struct registry *rg,
			 const struct layer_labels *ll,
			 const struct layer_want *lw)
{
	struct ahead *a;

	/* Older clients name no manifest; then one layer after the other. */
	if (digest_is_zero(&ll->manifest) || ll->n_image_layers < 2 ||
	    !layers_is_news(ls, &ll->manifest, NEWS_MS))
		return;
	a = calloc(1, sizeof(*a));
	if (!a)
		return;
	a->job.run = ahead_run;
	a->ls = ls;
	a->rg = rg;
	a->want = *lw;
	a->manifest = ll->manifest;
	if (layers_add_job(ls, lw->ref.host, &a->job) < 0)
		free(a);
}
