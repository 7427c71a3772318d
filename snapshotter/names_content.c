/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a digest to chain ids: index → manifest of this node → configuration.
 * What an image says is bounded here: how deep its indexes go, how many of its
 * documents are read, how many layers all images may have together.
 */
#include <stdarg.h>
#include <string.h>

#include "snapshotter/names_priv.h"
#include "verity/sha256.h"

#define INDEX_DEPTH_MAX 3
#define READS_MAX 32 /* documents of one image */

struct walk {
	struct contents *cs;
	struct content *ct;
	struct ctd *ctd;
	const char *ns;
	unsigned n_reads;
	struct err *e;
};

struct content *content_get(struct contents *cs, const struct digest *target)
{
	struct content *ct;

	HASH_FIND(hh, cs->table, target, sizeof(*target), ct);
	if (!ct) {
		ct = calloc(1, sizeof(*ct));
		if (!ct)
			return NULL;
		ct->target = *target;
		HASH_ADD(hh, cs->table, target, sizeof(ct->target), ct);
		if (!HTAB_ADDED(ct)) {
			free(ct);
			return NULL;
		}
	}
	ct->n_users++;
	return ct;
}

void content_put(struct contents *cs, struct content *ct)
{
	if (!ct || --ct->n_users)
		return;
	HASH_DEL(cs->table, ct);
	cs->n_layers -= ct->n_layers;
	free(ct->layers);
	free(ct);
}

/* ---- following digests ---- */

/* Why not; 0, for `return reject(...)`. */
printf_like(3, 4) static int reject(struct walk *w, bool for_good,
				    const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(w->ct->reason, sizeof(w->ct->reason), fmt, ap);
	va_end(ap);
	w->ct->known = for_good;
	return 0;
}

/* 1: read, 0: no, and the reason is set, -1. */
static int read_document(struct walk *w, const char *what,
			 const struct digest *d, struct buf *ret)
{
	struct err e = ERR_INIT;

	if (w->n_reads++ == READS_MAX)
		return reject(w, true, "it has more than %d documents",
			      READS_MAX);
	if (ctd_read(w->ctd, w->ns, d, IMAGE_MANIFEST_MAX, ret, &e) == 0)
		return 1;
	switch (e.kind) {
	case ERR_NOT_FOUND:
		return reject(w, false, "its %s %s is not in containerd", what,
			      digest_str(d).s);
	case ERR_INVALID:
		return reject(w, true, "its %s is %s", what, e.msg);
	case ERR_CORRUPT:
		return reject(w, false, "%s", e.msg);
	default:
		break;
	}
	/* Of this one document only? Then the others are not to suffer. */
	if (e.kind == ERR_UNAVAILABLE && !ctd_is_broken(w->ctd))
		return reject(w, false, "%s", e.msg);
	return err_set(w->e, e.kind, "%s", e.msg);
}

/* Source: OCI image-spec config.md, "Layer ChainID". */
static int set_layers(struct walk *w, const struct image *im,
		      const struct image_config *cf)
{
	size_t n = im->n_layers;
	struct content_layer *ls;

	if (cf->n_diff_ids != n)
		return reject(w, true,
			      "its manifest has %zu layers, its "
			      "configuration %zu",
			      n, cf->n_diff_ids);
	if (n == 0)
		return reject(w, true, "it has no layers");
	if (n > CONTENT_LAYERS_MAX - w->cs->n_layers)
		return reject(w, false, "too many layers in all images");
	ls = calloc(n, sizeof(*ls));
	if (!ls)
		return err_sys(w->e, -ENOMEM, "layers of an image");
	for (size_t i = 0; i < n; i++) {
		char both[2 * DIGEST_STR_LEN + 2];
		int len = 0, r = 0;

		ls[i].blob = im->layers[i].blob;
		ls[i].toc = im->layers[i].toc;
		ls[i].chain = cf->diff_ids[i];
		if (i == 0)
			continue;
		len = snprintf(both, sizeof(both), "%s %s",
			       digest_str(&ls[i - 1].chain).s,
			       digest_str(&cf->diff_ids[i]).s);
		r = sha256_buf(both, (size_t)len, &ls[i].chain);
		if (r < 0) {
			free(ls);
			return err_sys(w->e, r, "chain id");
		}
	}
	w->ct->layers = ls;
	w->ct->n_layers = n;
	w->cs->n_layers += n;
	w->ct->reason[0] = '\0';
	w->ct->known = true;
	return 1;
}

/* As below. */
static int take_config(struct walk *w, const struct digest *manifest,
		       const struct image *im, bool platform_known)
{
	owned(buf) struct buf b = { 0 };
	struct image_config cf = { 0 };
	struct err e = ERR_INIT;
	int r;

	if (digest_is_zero(&im->config))
		return reject(w, true, "its manifest names no configuration");
	r = read_document(w, "configuration", &im->config, &b);
	if (r <= 0)
		return r;
	if (image_parse_config((const char *)b.p, b.len, &cf, &e) < 0)
		return reject(w, true, "%s", e.msg);
	if (!platform_known && !image_platform_fits(&w->cs->node, &cf.platform))
		r = reject(w, true, "it is for %s/%s, not %s/%s",
			   cf.platform.os, cf.platform.arch, w->cs->node.os,
			   w->cs->node.arch);
	else
		r = set_layers(w, im, &cf);
	if (r > 0)
		w->ct->manifest = *manifest;
	image_config_release(&cf);
	return r;
}

static int follow(struct walk *w, const struct digest *d, unsigned depth,
		  bool platform_known);

/* The best that is here of those that the node can run. */
static int follow_index(struct walk *w, const struct image_index *ix,
			unsigned depth)
{
	int r;

	(void)reject(w, true, "it has no manifest for %s/%s", w->cs->node.os,
		     w->cs->node.arch);
	for (unsigned score = 9; score > 0; score--) {
		for (size_t i = 0; i < ix->n_entries; i++) {
			const struct image_entry *en = &ix->entries[i];

			if (!en->has_platform ||
			    image_platform_fits(&w->cs->node, &en->platform) !=
				    score)
				continue;
			r = follow(w, &en->digest, depth + 1, true);
			if (r)
				return r;
		}
	}
	for (size_t i = 0; i < ix->n_entries; i++) {
		if (ix->entries[i].has_platform)
			continue;
		r = follow(w, &ix->entries[i].digest, depth + 1, false);
		if (r)
			return r;
	}
	return 0;
}

/* 1: the layers are known, 0: no, with a reason, -1. */
static int follow(struct walk *w, const struct digest *d, unsigned depth,
		  bool platform_known)
{
	owned(buf) struct buf b = { 0 };
	struct image_index ix = { 0 };
	struct image im = { 0 };
	struct err e = ERR_INIT;
	const char *json;
	int r = read_document(w, depth ? "manifest" : "target", d, &b);

	if (r <= 0)
		return r;
	json = (const char *)b.p;
	if (!image_is_index(json, b.len)) {
		if (image_parse_manifest(json, b.len, &im, &e) < 0)
			return reject(w, true, "%s", e.msg);
		r = take_config(w, d, &im, platform_known);
		image_release(&im);
		return r;
	}
	if (depth == INDEX_DEPTH_MAX)
		return reject(w, true, "its indexes are nested too deep");
	if (image_parse_index(json, b.len, &ix, &e) < 0)
		return reject(w, true, "%s", e.msg);
	r = follow_index(w, &ix, depth);
	image_index_release(&ix);
	return r;
}

int content_resolve(struct contents *cs, struct content *ct, struct ctd *c,
		    const char *ns, struct err *e)
{
	struct walk w = { .cs = cs, .ct = ct, .ctd = c, .ns = ns, .e = e };

	if (ct->known)
		return 0;
	return follow(&w, &ct->target, 0, false) < 0 ? -1 : 0;
}
