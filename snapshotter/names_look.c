/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of names: what containerd says of them, asked for by name when an
 * event names them, or all together. Only a full look that was complete takes
 * away what it did not see.
 */
#include <string.h>

#include "base/log.h"
#include "snapshotter/names_priv.h"

#define NAMESPACES_MAX 1024
#define PENDING_MAX 1024
#define NAME_MAX_BYTES 1024
#define NS_MAX_BYTES 76 /* containerd identifiers */

/* ---- entries ---- */

const char *names_entry_name(const struct names_entry *en)
{
	return strchr(en->key, '/') + 1;
}

/* As containerd's identifiers: it is going to be the name of a folder. */
static bool ns_is_valid(const char *s)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strlen(s);

	return n > 0 && n <= NS_MAX_BYTES && strspn(s, letters) > 0 &&
	       s[strspn(s, "-_.abcdefghijklmnopqrstuvwxyz"
			   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] == '\0';
}

/* *ret is heap; -1 for what cannot be a name, and is left out. */
static int make_key(const char *ns, const char *name, char **ret)
{
	if (!ns_is_valid(ns) || strlen(name) > NAME_MAX_BYTES)
		return -1;
	return asprintf(ret, "%s/%s", ns, name) < 0 ? -1 : 0;
}

static struct names_entry *entry_find(struct names *n, const char *key)
{
	struct names_entry *en;

	HASH_FIND_STR(n->entries, key, en);
	return en;
}

static struct names_entry *entry_new(struct names *n, const char *key)
{
	struct names_entry *en;

	if (HASH_COUNT(n->entries) >= NAMES_IMAGES_MAX) {
		log_limited(LOG_LEVEL_WARN, NULL,
			    "image left out: image='%s' reason='more than %u "
			    "images'",
			    key, NAMES_IMAGES_MAX);
		return NULL;
	}
	en = calloc(1, sizeof(*en) + strlen(key) + 1);
	if (!en)
		return NULL;
	memcpy(en->key, key, strlen(key) + 1);
	HASH_ADD_STR(n->entries, key, en);
	if (HTAB_ADDED(en))
		return en;
	free(en);
	return NULL;
}

void names_entry_drop(struct names *n, struct names_entry *en)
{
	n->changed |= en->shown != NULL;
	HASH_DEL(n->entries, en);
	content_put(&n->contents, en->content);
	names_image_unref(en->shown);
	free(en);
}

/* What containerd says of a name; out of memory leaves it for the next look. */
static void entry_set(struct names *n, const char *key, const char *target)
{
	struct names_entry *en = entry_find(n, key);
	struct content *ct = NULL;
	struct digest d = { 0 };
	bool valid = digest_parse(target, &d) == 0;

	if (!en)
		en = entry_new(n, key);
	if (!en)
		return;
	en->look = n->look;
	if (en->shown && en->has_target == valid &&
	    digest_equal(&en->target, &d)) {
		/* The same again may mean: more of it is here now. */
		en->dirty |= valid && !en->content->known;
		return;
	}
	if (valid) {
		ct = content_get(&n->contents, &d);
		if (!ct)
			return;
	}
	content_put(&n->contents, en->content);
	en->content = ct;
	en->target = d;
	en->has_target = valid;
	en->dirty = true;
}

/* ---- events ---- */

static void all_changed(void *ctx)
{
	struct names *n = ctx;

	n->look_at_all = true;
}

static void image_changed(void *ctx, const char *ns, const char *name)
{
	struct names *n = ctx;
	struct names_pending *p;
	char *key = NULL;

	if (make_key(ns, name, &key) < 0)
		return;
	HASH_FIND_STR(n->pending, key, p);
	if (!p && HASH_COUNT(n->pending) < PENDING_MAX) {
		p = calloc(1, sizeof(*p) + strlen(key) + 1);
		if (p) {
			memcpy(p->key, key, strlen(key) + 1);
			HASH_ADD_STR(n->pending, key, p);
			if (!HTAB_ADDED(p)) {
				free(p);
				p = NULL;
			}
		}
	}
	n->look_at_all |= !p;
	free(key);
}

const struct ctd_ops names_events = { .image_changed = image_changed,
				      .all_changed = all_changed };

void names_drop_pending(struct names *n)
{
	struct names_pending *p, *tmp;

	htab_each (n->pending, p, tmp) {
		HASH_DEL(n->pending, p);
		free(p);
	}
}

struct asking {
	struct names *n;
	const char *ns;
	bool found;
};

static int on_image(void *ctx, const struct ctd_image *im,
		    struct err *e unused_arg)
{
	struct asking *a = ctx;
	owned(mem) char *key = NULL;

	if (make_key(a->ns, im->name, &key) == 0)
		entry_set(a->n, key, im->target);
	a->found = true;
	return 0;
}

/* One name. */
static int look_at(struct names *n, const char *key, struct err *e)
{
	const char *slash = strchr(key, '/');
	owned(mem) char *ns = strndup(key, (size_t)(slash - key));
	struct asking a = { .n = n, .ns = ns };
	struct names_entry *en;

	if (!ns)
		return err_sys(e, -ENOMEM, "image");
	if (ctd_image(n->ctd, ns, slash + 1, on_image, &a, e) < 0) {
		if (e->kind != ERR_NOT_FOUND)
			return -1;
		*e = (struct err)ERR_INIT;
	}
	en = entry_find(n, key);
	if (en && !a.found)
		names_entry_drop(n, en);
	return 0;
}

/* What comes while this runs is pending again afterwards. */
int names_look_at_pending(struct names *n, struct err *e)
{
	struct names_pending *list = n->pending, *p, *tmp;
	int r = 0;

	n->pending = NULL;
	htab_each (list, p, tmp) {
		HASH_DEL(list, p);
		if (r == 0)
			r = look_at(n, p->key, e);
		free(p);
	}
	n->look_at_all |= r < 0;
	return r;
}

/* ---- the full look ---- */

static int on_namespace(void *ctx, const char *ns, struct err *e)
{
	struct names *n = ctx;

	if (!ns_is_valid(ns))
		return 0;
	if (n->n_namespaces == NAMESPACES_MAX)
		return err_set(e, ERR_INVALID, "more than %d namespaces",
			       NAMESPACES_MAX);
	n->namespaces[n->n_namespaces] = strdup(ns);
	if (!n->namespaces[n->n_namespaces])
		return err_sys(e, -ENOMEM, "namespace");
	n->n_namespaces++;
	return 0;
}

static int look_into_namespaces(struct names *n, struct err *e)
{
	if (ctd_namespaces(n->ctd, on_namespace, n, e) < 0)
		return -1;
	for (size_t i = 0; i < n->n_namespaces; i++) {
		struct asking a = { .n = n, .ns = n->namespaces[i] };

		if (ctd_images(n->ctd, a.ns, on_image, &a, e) == 0)
			continue;
		if (e->kind != ERR_NOT_FOUND) /* it went meanwhile */
			return -1;
		*e = (struct err)ERR_INIT;
	}
	return 0;
}

/* Only a look that was complete takes names away. */
int names_look_at_everything(struct names *n, struct err *e)
{
	struct names_entry *en, *tmp;
	int r;

	n->look_at_all = false;
	n->look++;
	n->namespaces = calloc(NAMESPACES_MAX, sizeof(*n->namespaces));
	r = n->namespaces ? look_into_namespaces(n, e)
			  : err_sys(e, -ENOMEM, "namespaces");
	while (n->n_namespaces)
		free(n->namespaces[--n->n_namespaces]);
	free(n->namespaces);
	n->namespaces = NULL;
	n->look_at_all |= r < 0;
	if (r < 0)
		return -1;
	htab_each (n->entries, en, tmp)
		if (en->look != n->look)
			names_entry_drop(n, en);
	return 0;
}
