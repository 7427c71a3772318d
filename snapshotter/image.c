/* SPDX-License-Identifier: Apache-2.0 */
/* The other layers of an image, prepared ahead; see image.h. */
#include "snapshotter/image.h"

#include <string.h>

#include "base/log.h"

#define NEWS_MS 60000u
#define MANIFEST_DEADLINE_MS 20000u

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
