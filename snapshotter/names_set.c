/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names stand for, as immutable objects that any thread may hold: an image
 * is one allocation, a set is an array of references to images.
 */
#include <stdatomic.h>
#include <string.h>

#include "snapshotter/names_priv.h"
#include "snapshotter/registry.h"

struct image_object {
	atomic_uint refs;
	struct names_image im;
	uint32_t *layers;
	char strings[]; /* name, ns, host, repository, suffix, reason */
};

struct set_object {
	atomic_uint refs;
	struct names_set set;
	const struct names_image *images[];
};

/* ---- one image ---- */

/* The layer of this image that is here, or NULL: same place in the chain, same
 * bytes, same table of contents. */
static const struct lazy_chain *find_lazy(const struct names_facts *f,
					  const struct content_layer *l)
{
	size_t lo = 0, hi = f->n_chains;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (memcmp(f->chains[mid].chain.b, l->chain.b, DIGEST_LEN) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (;
	     lo < f->n_chains && digest_equal(&f->chains[lo].chain, &l->chain);
	     lo++)
		if (digest_equal(&f->chains[lo].blob, &l->blob) &&
		    digest_equal(&f->chains[lo].toc, &l->toc))
			return &f->chains[lo];
	return NULL;
}

/* Top first into @ret; false with the reason. */
static bool find_layers(const struct names_facts *f, uint32_t *ret,
			char *reason, size_t size)
{
	const struct content *ct = f->content;

	for (size_t i = 0; i < ct->n_layers; i++) {
		const struct content_layer *l = &ct->layers[i];
		const struct lazy_chain *lc = find_lazy(f, l);

		if (!lc) {
			(void)snprintf(reason, size, "layer %zu of %zu %s: %s",
				       i + 1, ct->n_layers,
				       digest_is_zero(&l->toc)
					       ? "is not in a lazy format"
					       : "is not here as a lazy layer",
				       digest_str(&l->blob).s);
			return false;
		}
		ret[ct->n_layers - 1 - i] = lc->seq;
	}
	return true;
}

static bool repository_is_path(const char *repo)
{
	for (const char *s = repo;; s++) {
		size_t n = strcspn(s, "/");

		if (n == 0 || (n <= 2 && strspn(s, ".") >= n))
			return false;
		s += n;
		if (!*s)
			return true;
	}
}

/* Only a name that is written as a reference is in full: two names never fall
 * together. */
static bool split_name(const char *name, struct image_ref *ref,
		       const char **ret_suffix)
{
	size_t n_host, n_repo;
	const char *s;

	if (image_ref_parse(name, ref, NULL) < 0)
		return false;
	n_host = strlen(ref->host);
	n_repo = strlen(ref->repo);
	if (strncmp(name, ref->host, n_host) != 0 || name[n_host] != '/' ||
	    strncmp(name + n_host + 1, ref->repo, n_repo) != 0)
		return false;
	s = name + n_host + 1 + n_repo;
	if ((*s != ':' && *s != '@') || strchr(s, '/') || ref->host[0] == '.' ||
	    strlen(s) + strlen(strrchr(ref->repo, '/') ? strrchr(ref->repo, '/')
						       : ref->repo) >
		    255 ||
	    !repository_is_path(ref->repo))
		return false;
	*ret_suffix = s;
	return true;
}

static char *put(char **at, const char *s)
{
	size_t n = strlen(s) + 1;
	char *to = *at;

	memcpy(to, s, n);
	*at += n;
	return to;
}

struct names_image *names_image_new(const struct names_facts *f)
{
	const struct content *ct = f->content;
	size_t n = ct ? ct->n_layers : 0;
	struct image_ref ref = { 0 };
	const char *suffix = "";
	char reason[256] = "";
	struct image_object *m;
	char *at;

	m = calloc(1, sizeof(*m) + 2 * strlen(f->name) + strlen(f->ns) +
			      sizeof(ref) + sizeof(reason) + 8);
	if (!m)
		return NULL;
	m->layers = n ? calloc(n, sizeof(*m->layers)) : NULL;
	if (n && !m->layers) {
		free(m);
		return NULL;
	}
	atomic_init(&m->refs, 1);
	if (!split_name(f->name, &ref, &suffix)) {
		ref = (struct image_ref){ 0 };
		(void)snprintf(reason, sizeof(reason),
			       "its name is not host/repository:tag");
	} else if (!f->target) {
		(void)snprintf(reason, sizeof(reason),
			       "its digest is not SHA-256");
	} else if (!ct || ct->reason[0] || !ct->known) {
		(void)snprintf(reason, sizeof(reason), "%s",
			       ct && ct->reason[0] ? ct->reason
						   : "not looked at yet");
	} else if (find_layers(f, m->layers, reason, sizeof(reason))) {
		m->im.layers = m->layers;
	}
	at = m->strings;
	m->im.name = put(&at, f->name);
	m->im.ns = put(&at, f->ns);
	m->im.host = put(&at, ref.host);
	m->im.repository = put(&at, ref.repo);
	m->im.suffix = put(&at, suffix);
	m->im.reason = put(&at, reason);
	m->im.n_layers = n;
	if (f->target)
		m->im.target = *f->target;
	if (ct)
		m->im.manifest = ct->manifest;
	return &m->im;
}

static struct image_object *image_of(const struct names_image *im)
{
	return container_of((uintptr_t)im, struct image_object, im);
}

void names_image_ref(const struct names_image *im)
{
	atomic_fetch_add_explicit(&image_of(im)->refs, 1, memory_order_relaxed);
}

void names_image_unref(const struct names_image *im)
{
	struct image_object *m;

	if (!im)
		return;
	m = image_of(im);
	if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(m->layers);
	free(m);
}

bool names_image_equal(const struct names_image *a, const struct names_image *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->ns, b->ns) &&
	       !strcmp(a->reason, b->reason) &&
	       digest_equal(&a->target, &b->target) &&
	       digest_equal(&a->manifest, &b->manifest) &&
	       a->n_layers == b->n_layers && !a->layers == !b->layers &&
	       (!a->layers || !memcmp(a->layers, b->layers,
				      a->n_layers * sizeof(*a->layers)));
}

/* ---- sets ---- */

struct names_set *names_set_new(size_t n, const struct names_image ***ret)
{
	struct set_object *s = calloc(1, sizeof(*s) + n * sizeof(*s->images));

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	s->set.n = n;
	s->set.images = s->images;
	*ret = s->images;
	return &s->set;
}

static struct set_object *set_of(const struct names_set *set)
{
	return container_of((uintptr_t)set, struct set_object, set);
}

const struct names_set *names_set_ref(const struct names_set *set)
{
	if (set)
		atomic_fetch_add_explicit(&set_of(set)->refs, 1,
					  memory_order_relaxed);
	return set;
}

void names_set_unref(const struct names_set *set)
{
	struct set_object *s;

	if (!set)
		return;
	s = set_of(set);
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t i = 0; i < set->n; i++)
		names_image_unref(s->images[i]);
	free(s);
}

const struct names_image *names_set_find(const struct names_set *set,
					 const char *ns, const char *name)
{
	size_t lo = 0, hi = set ? set->n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct names_image *im = set->images[mid];
		int r = strcmp(im->ns, ns);

		if (r == 0)
			r = strcmp(im->name, name);
		if (r == 0)
			return im;
		if (r < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}
