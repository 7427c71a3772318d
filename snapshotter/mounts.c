/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mount lists. Pure: looks at no file, so that it can name folders below our
 * own FUSE mount without touching them.
 */
#include "mounts.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"

static void entry_release(struct mount_entry *m)
{
	free(m->type);
	free(m->source);
	for (size_t i = 0; i < m->n_options; i++)
		free(m->options[i]);
	free(m->options);
}

void mount_list_release(struct mount_list *m)
{
	for (size_t i = 0; i < m->n; i++)
		entry_release(&m->v[i]);
	free(m->v);
	*m = (struct mount_list){ 0 };
}

bool mounts_probe_index_off(void)
{
	return access("/sys/module/overlay/parameters/index", F_OK) == 0;
}

bool mounts_root_is_usable(const char *root)
{
	/* containerd passes the options on as one string and uses the same
	 * paths itself, so nothing can be escaped: overlayfs splits lowerdir
	 * at ':', mount(2) options end at ',', both take '\\' as escape. */
	return root[0] == '/' && !strpbrk(root, ":,\\\"");
}

/* A mount of @type with up to @n_max options; buffers are checked at the end. */
static int add_mount(struct mount_list *m, const char *type, const char *source,
		     size_t n_max)
{
	struct mount_entry *me = calloc(1, sizeof(*me));

	if (!me)
		return -ENOMEM;
	m->v = me;
	m->n = 1;
	me->type = strdup(type);
	me->source = strdup(source);
	me->options = calloc(n_max, sizeof(*me->options));
	return me->type && me->source && me->options ? 0 : -ENOMEM;
}

static int add_option(struct mount_list *m, const char *text)
{
	struct mount_entry *me = &m->v[0];
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	me->options[me->n_options++] = copy;
	return 0;
}

/* "…/s/<id>/<leaf>", or for a lazy layer "…/l/<seq>" */
static int add_path(struct buf *b, const char *root, const struct snap_link *l,
		    const char *leaf)
{
	if (l->seq != NO_LAYER)
		return buf_addf(b, "%s/l/%" PRIu32, root, l->seq);
	return buf_addf(b, "%s/s/%" PRIu64 "/%s", root, l->id, leaf);
}

static bool is_repeated(const struct snap_link *chain, size_t at)
{
	/* Only a lazy layer can be at two places: ids are unique. */
	if (chain[at].seq == NO_LAYER)
		return false;
	for (size_t i = 1; i < at; i++)
		if (chain[i].seq == chain[at].seq)
			return true;
	return false;
}

/* "lowerdir=…", nearest first; *ret_n: how many there are. */
static int lower_option(const char *root, const struct snap_link *chain,
			size_t n, struct buf *out, size_t *ret_n)
{
	*ret_n = 0;
	for (size_t i = 1; i < n; i++) {
		if (is_repeated(chain, i))
			continue;
		if (buf_adds(out, *ret_n ? ":" : "lowerdir=") < 0 ||
		    add_path(out, root, &chain[i], "fs") < 0)
			return -ENOMEM;
		(*ret_n)++;
	}
	return 0;
}

static int make_bind(const char *root, const struct snap_link *source,
		     const char *mode, struct mount_list *m)
{
	owned(buf) struct buf path = { 0 };

	if (add_path(&path, root, source, "fs") < 0 ||
	    add_mount(m, "bind", (const char *)path.p, 2) < 0 ||
	    add_option(m, mode) < 0)
		return -ENOMEM;
	return add_option(m, "rbind");
}

static int add_path_option(struct mount_list *m, const char *name,
			   const char *root, const struct snap_link *top,
			   const char *leaf)
{
	owned(buf) struct buf b = { 0 };

	if (buf_adds(&b, name) < 0 || add_path(&b, root, top, leaf) < 0)
		return -ENOMEM;
	return add_option(m, (const char *)b.p);
}

static int make_overlay(const struct mounts_env *env,
			const struct snap_link *top, const char *lower,
			struct mount_list *m)
{
	if (add_mount(m, "overlay", "overlay", 4) < 0)
		return -ENOMEM;
	if (top->kind == SNAP_KIND_ACTIVE &&
	    (add_path_option(m, "workdir=", env->root, top, "work") < 0 ||
	     add_path_option(m, "upperdir=", env->root, top, "fs") < 0))
		return -ENOMEM;
	if (add_option(m, lower) < 0)
		return -ENOMEM;
	return env->index_off ? add_option(m, "index=off") : 0;
}

static int make(const struct mounts_env *env, const struct snap_link *chain,
		size_t n, struct mount_list *m)
{
	bool view = chain[0].kind == SNAP_KIND_VIEW;
	owned(buf) struct buf lower = { 0 };
	size_t n_lower;

	if (n == 1)
		return make_bind(env->root, &chain[0], view ? "ro" : "rw", m);
	if (lower_option(env->root, chain, n, &lower, &n_lower) < 0)
		return -ENOMEM;
	if (view && n_lower == 1)
		return make_bind(env->root, &chain[1], "ro", m);
	return make_overlay(env, &chain[0], (const char *)lower.p, m);
}

int mounts_make(const struct mounts_env *env, const struct snap_link *chain,
		size_t n, struct mount_list *ret, struct err *e)
{
	struct mount_list m = { 0 };

	if (n == 0 || chain[0].kind == SNAP_KIND_COMMITTED)
		return err_set(e, ERR_PRECONDITION,
			       "a committed snapshot has no mounts");
	if (make(env, chain, n, &m) < 0) {
		mount_list_release(&m);
		return err_sys(e, -ENOMEM, "mounts");
	}
	*ret = m;
	return 0;
}
