/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which repositories have the blob of a layer. One layer serves images of many
 * repositories, and outlives the one it was first asked for with; a read goes
 * to whichever still has it. Names are kept in the database and here, since
 * the threads that open layers may not ask the database.
 */
#include <string.h>

#include "base/log.h"
#include "snapshotter/layer_priv.h"

static int name_of(const struct image_ref *ref, char *out, size_t cap)
{
	int n = snprintf(out, cap, "%s/%s", ref->host, ref->repo);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

/* "host/repo", never a familiar name: a host may have neither dot nor port, and
 * what completes familiar names would ask another registry. */
static int ref_of(const char *name, struct image_ref *ret)
{
	const char *slash = strchr(name, '/');
	size_t n = slash ? (size_t)(slash - name) : 0;

	memset(ret, 0, sizeof(*ret));
	if (n == 0 || n >= sizeof(ret->host) ||
	    strlen(slash + 1) >= sizeof(ret->repo))
		return -EINVAL;
	memcpy(ret->host, name, n);
	memcpy(ret->repo, slash + 1, strlen(slash + 1) + 1);
	return 0;
}

static bool knows(const struct layer *l, const char *name)
{
	for (unsigned i = 0; i < l->n_repos; i++)
		if (!strcmp(l->repos[i], name))
			return true;
	return false;
}

static int add_to_blob(struct layer *l, const char *name)
{
	struct image_ref ref;
	int r = ref_of(name, &ref);

	if (r < 0)
		return r;
	if (l->blob)
		return blob_add_source(l->blob, &ref);
	r = blob_new(l->ls->o.registry, &ref, &l->row.blob, &l->blob);
	if (r == 0)
		blob_set_size(l->blob, l->row.size);
	return r;
}

static int add_name(struct layer *l, const char *name)
{
	char **v;
	char *copy;

	if (knows(l, name) || l->n_repos == LAYER_REPOS_MAX)
		return 0;
	v = realloc(l->repos, (l->n_repos + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	l->repos = v;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	v[l->n_repos++] = copy;
	return 0;
}

static int add_loaded(void *ctx, const char *name)
{
	struct layer *l = ctx;

	return l->n_repos == LAYER_REPOS_MAX || add_name(l, name) < 0;
}

int layer_load_repos(struct layer *l, struct err *e)
{
	struct err bad = ERR_INIT;
	struct image_ref ref;
	char name[REPO_NAME_MAX];

	if (image_ref_parse(l->row.image, &ref, &bad) < 0)
		log_warn("layer has no usable source: layer=%s err='%s'",
			 digest_str(&l->row.blob).s, bad.msg);
	else if (name_of(&ref, name, sizeof(name)) == 0 &&
		 add_name(l, name) < 0)
		return err_sys(e, -ENOMEM, "sources of layer %u", l->row.seq);
	return store_sources(l->ls->o.store, &l->row.blob, add_loaded, l, e);
}

void layer_free_repos(struct layer *l)
{
	for (unsigned i = 0; i < l->n_repos; i++)
		free(l->repos[i]);
	free(l->repos);
	l->repos = NULL;
	l->n_repos = 0;
}

int layer_open_blob(struct layer *l)
{
	int r = -EINVAL;

	lock_take(&l->ls->lock);
	for (unsigned i = 0; i < l->n_repos; i++)
		r = add_to_blob(l, l->repos[i]);
	lock_drop(&l->ls->lock);
	return l->blob ? 0 : r;
}

void layer_use_repos_locked(struct layer *l)
{
	for (unsigned i = 0; i < l->n_repos; i++)
		if (add_to_blob(l, l->repos[i]) < 0)
			log_warn("source not used: seq=%u repo='%s'",
				 l->row.seq, l->repos[i]);
}

static bool is_known(struct layers *ls, uint32_t seq, const char *name)
{
	struct layer *l;
	bool known;

	lock_take(&ls->lock);
	HASH_FIND(hh, ls->table, &seq, sizeof(seq), l);
	known = !l || knows(l, name);
	lock_drop(&ls->lock);
	return known;
}

void layer_learn_repo(struct layers *ls, const struct layer_row *row,
		      const struct image_ref *ref)
{
	struct err e = ERR_INIT;
	char name[REPO_NAME_MAX];
	struct layer *l, *tmp;

	if (name_of(ref, name, sizeof(name)) < 0 ||
	    is_known(ls, row->seq, name))
		return;
	if (store_add_source(ls->o.store, &row->blob, name, &e) < 0)
		log_warn("source not kept: seq=%u repo='%s' err='%s'", row->seq,
			 name, e.msg);
	lock_take(&ls->lock);
	htab_each (ls->table, l, tmp) {
		if (!digest_equal(&l->row.blob, &row->blob))
			continue;
		if (add_name(l, name) < 0)
			continue; /* the next start knows it */
		if (l->state == LAYER_OPEN)
			layer_use_repos_locked(l);
	}
	lock_drop(&ls->lock);
}
