/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer's tree: entries become inodes and names while the parser runs;
 * hard links, whiteouts and implied directories are settled at the end, since
 * a layer may name things in any order.
 *
 * Refused is what two readers could understand differently. ERR_CORRUPT: no
 * honest tool makes this. ERR_UNSUPPORTED: an ordinary unpack may do better.
 */
#include <string.h>
#include <sys/stat.h>

#include "snapshotter/builder_priv.h"

/* Source: OCI image-spec layer.md, "Whiteouts". */
#define WH ".wh."
#define WH_META ".wh..wh."
#define WH_OPAQUE ".wh..wh..opq"

static int node_new(struct builder *b, uint32_t mode, uint32_t *ret,
		    struct err *e)
{
	if (b->n_nodes >= NODES_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "the layer has more than %u inodes", NODES_MAX);
	if (ENSURE(&b->charged, b->nodes, b->n_nodes, b->cap_nodes) < 0)
		return out_of_memory(e);
	b->nodes[b->n_nodes] = (struct index_node){
		.mode = mode,
		.nlink = 1,
		.name = NONE,
	};
	*ret = b->n_nodes++;
	return 0;
}

static int add_named(struct builder *b, uint32_t dir, const char *s,
		     uint32_t len, uint32_t mode, uint32_t *ret, struct err *e)
{
	uint32_t name, node = 0;

	if (node_new(b, mode, &node, e) < 0)
		return -1;
	if (name_add(b, dir, s, len, node, &name) < 0)
		return out_of_memory(e);
	b->nodes[node].name = name;
	if (S_ISDIR(mode))
		b->nodes[node].dir.parent = dir;
	*ret = node;
	return 0;
}

int tree_init(struct builder *b)
{
	uint32_t root = 0;

	if (node_new(b, S_IFDIR | 0755, &root, NULL) < 0)
		return -ENOMEM;
	b->nodes[root].flags = NODE_IMPLIED;
	return 0;
}

static bool has_prefix(const char *s, size_t len, const char *prefix)
{
	size_t n = strlen(prefix);

	return len >= n && !memcmp(s, prefix, n);
}

/*
 * The directory that holds the last component of @p, made where it is missing.
 * 1: it lies below a hidden directory (".wh..wh.plnk" of aufs), not made.
 */
static int parent_dir(struct builder *b, const struct path *p, uint32_t *ret,
		      struct err *e)
{
	uint32_t dir = 0, len;

	for (const char *s = p->s; s < p->s + p->name; s += len + 1) {
		uint32_t name, node;

		len = (uint32_t)strcspn(s, "/");
		if (has_prefix(s, len, WH_META))
			return 1;
		if (has_prefix(s, len, WH))
			return err_set(e, ERR_UNSUPPORTED,
				       "'%s': lies below a whiteout",
				       show(p->s, p->len).s);
		name = name_find(b, dir, s, len);
		if (name == NONE) {
			if (add_named(b, dir, s, len, S_IFDIR | 0755, &node,
				      e) < 0)
				return -1;
			b->nodes[node].flags = NODE_IMPLIED;
			dir = node;
			continue;
		}
		node = b->names[name].node;
		/* an unpacker would follow a symbolic link; not we */
		if (node & LINK_BIT || !S_ISDIR(b->nodes[node].mode))
			return err_set(
				e,
				node & LINK_BIT || S_ISLNK(b->nodes[node].mode)
					? ERR_UNSUPPORTED
					: ERR_CORRUPT,
				"'%s': its parent is not a directory",
				show(p->s, p->len).s);
		dir = node;
	}
	*ret = dir;
	return 0;
}

static const uint32_t type_modes[] = {
	[ENTRY_DIR] = S_IFDIR,     [ENTRY_REG] = S_IFREG,
	[ENTRY_SYMLINK] = S_IFLNK, [ENTRY_CHAR] = S_IFCHR,
	[ENTRY_BLOCK] = S_IFBLK,   [ENTRY_FIFO] = S_IFIFO,
	[ENTRY_SOCK] = S_IFSOCK,
};

static int check_symlink(const struct entry *en, const struct shown *who,
			 struct err *e)
{
	const char *why = !en->link_len ? "empty target"
			  : en->link_len > SYMLINK_LEN_MAX
				  ? "target exceeds 4095 bytes"
			  : memchr(en->link_target, '\0', en->link_len)
				  ? "NUL in the target"
				  : NULL;

	if (!why)
		return 0;
	return err_set(e, ERR_CORRUPT, "'%s': symbolic link: %s", who->s, why);
}

/* What an entry claims, before anything of it is stored. */
static int check_entry(const struct entry *en, const struct shown *who,
		       struct err *e)
{
	if ((size_t)en->type >= ARRAY_LEN(type_modes) ||
	    (!type_modes[en->type] && en->type != ENTRY_HARDLINK))
		return err_set(e, ERR_CORRUPT, "'%s': unknown type %u", who->s,
			       (unsigned)en->type);
	/* UINT32_MAX is "no change" to chown(2), and never a stored id */
	if (en->uid < 0 || en->uid >= UINT32_MAX || en->gid < 0 ||
	    en->gid >= UINT32_MAX)
		return err_set(e, ERR_CORRUPT, "'%s': owner out of range",
			       who->s);
	if (en->mtime_nsec > 999999999)
		return err_set(e, ERR_CORRUPT, "'%s': time out of range",
			       who->s);
	if ((en->type == ENTRY_CHAR || en->type == ENTRY_BLOCK) &&
	    (en->dev_major >= 1 << 12 || en->dev_minor >= 1 << 20))
		return err_set(e, ERR_CORRUPT,
			       "'%s': device number out of range", who->s);
	if (en->type == ENTRY_REG && en->size > INT64_MAX)
		return err_set(e, ERR_CORRUPT, "'%s': size out of range",
			       who->s);
	if (en->type == ENTRY_SYMLINK)
		return check_symlink(en, who, e);
	return 0;
}

/* What an unpack does with times before 1970 and those that do not fit in 63
 * bits of nanoseconds. Source: containerd archive/time.go, boundTime(). */
static void bound_time(int64_t *sec, uint32_t *nsec)
{
	if (*sec >= 0 && *sec < INT64_MAX / 1000000000)
		return;
	*sec = 0;
	*nsec = 0;
}

/* b->xattrs holds the encoded attributes. */
static int set_attrs(struct builder *b, uint32_t node, const struct entry *en,
		     struct err *e)
{
	struct index_node *v = &b->nodes[node];

	v->mode = type_modes[en->type] | (en->mode & 07777);
	v->uid = (uint32_t)en->uid;
	v->gid = (uint32_t)en->gid;
	v->mtime = en->mtime;
	v->mtime_nsec = en->mtime_nsec;
	bound_time(&v->mtime, &v->mtime_nsec);
	if (en->type == ENTRY_SYMLINK) {
		v->mode = S_IFLNK | 0777; /* as the kernel shows all of them */
		v->size = en->link_len;
		v->target = arena_add(&b->arena, en->link_target, en->link_len);
		if (!v->target)
			return out_of_memory(e);
	}
	if (en->type == ENTRY_REG)
		v->size = en->size;
	if (en->type == ENTRY_CHAR || en->type == ENTRY_BLOCK)
		v->rdev = index_rdev(en->dev_major, en->dev_minor);
	return xattrs_store(b, v, e);
}

/* The root of a snapshot is the snapshotter's: an unpack passes over the entry.
 * Source: containerd archive/tar.go, applyNaive(), "resolved to root". */
static int root_entry(const struct entry *en, struct err *e)
{
	if (en->type == ENTRY_DIR)
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "the root of the layer is not a directory");
}

static int add_link(struct builder *b, const struct entry *en, uint32_t dir,
		    const struct path *p, const struct shown *who,
		    struct err *e)
{
	const char *why, *copy;
	struct index_node at = { 0 };
	struct path target;
	uint32_t name;

	if (path_clean(en->link_target, en->link_len, &target, &why) < 0)
		return err_set(e, ERR_CORRUPT, "'%s': hard link target: %s",
			       who->s, why);
	if (xattrs_store(b, &at, e) < 0)
		return -1;
	copy = arena_add(&b->arena, target.s, target.len);
	if (!copy ||
	    ENSURE(&b->charged, b->links, b->n_links, b->cap_links) < 0 ||
	    name_add(b, dir, p->s + p->name, p->len - p->name,
		     LINK_BIT | b->n_links, &name) < 0)
		return out_of_memory(e);
	b->links[b->n_links++] = (struct link){
		.target = copy,
		.target_len = target.len,
		.name = name,
		.xattrs = at.xattrs,
		.xattr_len = at.xattr_len,
		.mtime = en->mtime,
		.mtime_nsec = en->mtime_nsec,
		.mode = en->mode & 07777,
		.uid = (uint32_t)en->uid,
		.gid = (uint32_t)en->gid,
	};
	return 0;
}

/* An entry that shall be seen under its name in @dir. */
static int add_entry(struct builder *b, const struct entry *en, uint32_t dir,
		     const struct path *p, const struct shown *who,
		     uint32_t *ret_node, struct err *e)
{
	const char *s = p->s + p->name;
	uint32_t len = p->len - p->name, node;
	uint32_t name = name_find(b, dir, s, len);

	if (name != NONE) {
		struct index_node *v;

		node = b->names[name].node;
		v = node & LINK_BIT ? NULL : &b->nodes[node];
		if (!v || !(v->flags & NODE_IMPLIED) || en->type != ENTRY_DIR)
			return err_set(e, ERR_CORRUPT, "'%s': named twice",
				       who->s);
		/* its children came first */
		v->flags &= (uint8_t)~NODE_IMPLIED;
		*ret_node = node;
		return set_attrs(b, node, en, e);
	}
	if (en->type == ENTRY_HARDLINK) {
		if (b->n_names >= NODES_MAX)
			return err_set(e, ERR_UNSUPPORTED,
				       "the layer has more than %u names",
				       NODES_MAX);
		return add_link(b, en, dir, p, who, e);
	}
	if (add_named(b, dir, s, len, type_modes[en->type], &node, e) < 0)
		return -1;
	*ret_node = node;
	return set_attrs(b, node, en, e);
}

/* Files of the format itself, not of the image: only these, and only there.
 * Source: stargz-snapshotter, docs/estargz.md. */
static bool is_format_file(const struct entry *en, const struct path *p)
{
	return p->name == 0 && en->type == ENTRY_REG &&
	       (!strcmp(p->s, "stargz.index.json") ||
		!strcmp(p->s, ".prefetch.landmark") ||
		!strcmp(p->s, ".no.prefetch.landmark"));
}

/* 0 and nothing done when the name is no marker; 1: done */
static int marker(struct builder *b, uint32_t dir, const struct path *p,
		  const struct shown *who, struct err *e)
{
	const char *s = p->s + p->name, *copy;
	size_t len = p->len - p->name;

	if (!has_prefix(s, len, WH))
		return 0;
	if (!strcmp(s, WH_OPAQUE)) {
		b->nodes[dir].flags |= NODE_OPAQUE;
		return 1;
	}
	if (has_prefix(s, len, WH_META))
		return 1; /* of aufs; no meaning for others */
	s += strlen(WH);
	len -= strlen(WH);
	if (!len || !strcmp(s, ".") || !strcmp(s, ".."))
		return err_set(e, ERR_CORRUPT, "'%s': whiteout of nothing",
			       who->s);
	copy = arena_add(&b->arena, s, len);
	if (!copy || ENSURE(&b->charged, b->whiteouts, b->n_whiteouts,
			    b->cap_whiteouts) < 0)
		return out_of_memory(e);
	b->whiteouts[b->n_whiteouts++] = (struct whiteout){
		.s = copy,
		.dir = dir,
		.len = (uint8_t)len,
	};
	return 1;
}

int tree_entry(struct builder *b, const struct entry *en, uint32_t *ret_node,
	       struct err *e)
{
	struct shown who = show(en->path, en->path_len);
	const char *why = NULL;
	uint32_t dir = 0;
	struct path p;
	int r;

	*ret_node = NONE;
	if (path_clean(en->path, en->path_len, &p, &why) < 0)
		return err_set(e, ERR_CORRUPT, "'%s': %s", who.s, why);
	if (check_entry(en, &who, e) < 0)
		return -1;
	if (is_format_file(en, &p))
		return 0;
	if (xattrs_encode(b, en, &who, e) < 0)
		return -1;
	if (!p.len)
		return root_entry(en, e);
	r = parent_dir(b, &p, &dir, e);
	if (r)
		return r < 0 ? -1 : 0;
	r = marker(b, dir, &p, &who, e);
	if (r)
		return r < 0 ? -1 : 0;
	return add_entry(b, en, dir, &p, &who, ret_node, e);
}

/* ---- at the end ---- */

/* As mkdir(2) in a directory whose group its contents take over. */
static void implied_default(struct builder *b, struct index_node *v)
{
	const struct index_node *dir = &b->nodes[b->names[v->name].dir];

	if (dir->mode & S_ISGID)
		v->gid = dir->gid;
}

static int implied_from_chain(struct builder *b, struct index_node *v,
			      const struct implied_attr *a, struct err *e)
{
	v->mode = S_IFDIR | (a->mode & 07777);
	v->uid = a->uid;
	v->gid = a->gid;
	v->mtime = a->mtime;
	v->mtime_nsec = a->mtime_nsec % 1000000000;
	v->flags |= NODE_CHAIN;
	b->n_implied++;
	if (xattrs_store(b, v, e) < 0)
		return -1;
	b->has_acls |= b->xattrs.len > 0; /* perhaps */
	return 0;
}

/* -errno of opts.implied as a refusal */
static int no_implied(const struct path *p, int r, struct err *e)
{
	if (r == -EAGAIN)
		return err_set(e, ERR_UNAVAILABLE,
			       "'%s': the parent layers are not known yet",
			       show(p->s, p->len).s);
	if (r == -ELOOP)
		return err_set(e, ERR_UNSUPPORTED,
			       "'%s': a symbolic link in the parent layers",
			       show(p->s, p->len).s);
	return err_sys(e, r, "'%s': cannot look into the parents",
		       show(p->s, p->len).s);
}

/*
 * Directories that only the names of others imply take the attributes that the
 * parent layers give them: an unpack would copy those. The root stays as it is:
 * the snapshotter looks further down for it (upper.c), so that a layer is not
 * tied to what lies below.
 */
int tree_implied(struct builder *b, struct err *e)
{
	/* a second call, after ERR_UNAVAILABLE, goes on from where it was */
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		struct index_node *v = &b->nodes[i];
		struct implied_attr a = { .xattrs = &b->xattrs };
		struct path p;
		int r = -ENOENT;

		if (!(v->flags & NODE_IMPLIED))
			continue;
		if (i > 0) {
			name_path(b, v->name, &p);
			b->xattrs.len = 0;
			if (b->o.implied)
				r = b->o.implied(b->o.ctx, p.s, &a);
			if (r < 0 && r != -ENOENT)
				return no_implied(&p, r, e);
			if (r < 0)
				implied_default(b, v);
			else if (implied_from_chain(b, v, &a, e) < 0)
				return -1;
		}
		v->flags &= (uint8_t)~NODE_IMPLIED;
	}
	return 0;
}

/*
 * A whiteout gives way to the thing it hides when the layer brings that, too:
 * it speaks of the layers below only. overlayfs wants a device 0:0.
 */
static int add_whiteouts(struct builder *b, struct err *e)
{
	for (uint32_t i = 0; i < b->n_whiteouts; i++) {
		const struct whiteout *w = &b->whiteouts[i];
		uint32_t name = name_find(b, w->dir, w->s, w->len), node;
		struct path p;

		if (name == NONE) {
			if (add_named(b, w->dir, w->s, w->len, S_IFCHR, &node,
				      e) < 0)
				return -1;
			b->nodes[node].flags = NODE_WHITEOUT;
			continue;
		}
		node = b->names[name].node;
		if (node & LINK_BIT || !(b->nodes[node].flags & NODE_WHITEOUT))
			continue;
		name_path(b, name, &p);
		return err_set(e, ERR_CORRUPT, "'%s': whiteout named twice",
			       show(p.s, p.len).s);
	}
	return 0;
}

/* names[] number of a cleaned path that is not the root, or NONE */
static uint32_t find_path(const struct builder *b, const char *s, uint32_t len)
{
	const char *end = s + len;
	uint32_t dir = 0;

	for (;;) {
		const char *slash = memchr(s, '/', (size_t)(end - s));
		uint32_t name = name_find(
			b, dir, s, (uint32_t)((slash ? slash : end) - s));

		if (name == NONE || !slash)
			return name;
		dir = b->names[name].node;
		if (dir & LINK_BIT || !S_ISDIR(b->nodes[dir].mode))
			return NONE;
		s = slash + 1;
	}
}

static int bad_link(const struct builder *b, const struct link *l,
		    enum err_kind kind, const char *why, struct err *e)
{
	struct path p;

	name_path(b, l->name, &p);
	return err_set(e, kind, "'%s': hard link to '%.60s': %s",
		       show(p.s, p.len).s, show(l->target, l->target_len).s,
		       why);
}

/*
 * Follows link @first to an inode, and leaves that inode in the names of all
 * links on the way: each is walked once, whatever the order. The mark `seen`
 * finds a chain that comes back to itself.
 */
static int resolve_link(struct builder *b, uint32_t first, struct err *e)
{
	uint32_t i = first, name, node;

	for (;;) {
		struct link *l = &b->links[i];

		l->seen = first + 1;
		if (!l->target_len)
			return bad_link(b, l, ERR_CORRUPT, "is a directory", e);
		name = find_path(b, l->target, l->target_len);
		/* perhaps in a layer below, which an unpacker may see */
		if (name == NONE ||
		    (!(b->names[name].node & LINK_BIT) &&
		     b->nodes[b->names[name].node].flags & NODE_WHITEOUT))
			return bad_link(b, l, ERR_UNSUPPORTED,
					"not in this layer", e);
		node = b->names[name].node;
		if (!(node & LINK_BIT))
			break;
		i = node & ~LINK_BIT;
		if (b->links[i].seen == first + 1)
			return bad_link(b, l, ERR_CORRUPT, "links to itself",
					e);
	}
	if (S_ISDIR(b->nodes[node].mode))
		return bad_link(b, &b->links[i], ERR_CORRUPT, "is a directory",
				e);
	for (i = first;;) {
		const struct link *l = &b->links[i];
		uint32_t next;

		name = find_path(b, l->target, l->target_len);
		next = b->names[name].node;
		b->names[l->name].node = node;
		b->nodes[node].nlink++;
		if (!(next & LINK_BIT))
			return 0;
		i = next & ~LINK_BIT;
	}
}

/* The header of a link holds attributes, too; those of the last stay. */
static int apply_link(struct builder *b, const struct link *l, struct err *e)
{
	struct index_node *v = &b->nodes[b->names[l->name].node];
	struct index_node at = { .xattrs = l->xattrs,
				 .xattr_len = l->xattr_len };

	v->uid = l->uid;
	v->gid = l->gid;
	v->mtime = l->mtime;
	v->mtime_nsec = l->mtime_nsec;
	bound_time(&v->mtime, &v->mtime_nsec);
	if (!S_ISLNK(v->mode))
		v->mode = (v->mode & S_IFMT) | l->mode;
	return xattrs_merge(b, v, &at, e);
}

static int resolve_links(struct builder *b, struct err *e)
{
	for (uint32_t i = 0; i < b->n_links; i++)
		if (b->names[b->links[i].name].node & LINK_BIT &&
		    resolve_link(b, i, e) < 0)
			return -1;
	for (uint32_t i = 0; i < b->n_links; i++)
		if (apply_link(b, &b->links[i], e) < 0)
			return -1;
	return 0;
}

static int by_dir_and_name(const void *x, const void *y)
{
	const struct index_name *a = x, *b = y;
	int c;

	if (a->dir != b->dir)
		return a->dir < b->dir ? -1 : 1;
	c = memcmp(a->s, b->s, a->len < b->len ? a->len : b->len);
	return c ? c : (int)a->len - (int)b->len;
}

/* Sorts all names, and gives each directory its part of them. */
static void sort_names(struct builder *b)
{
	if (b->n_names) /* qsort() wants no NULL */
		qsort(b->names, b->n_names, sizeof(*b->names), by_dir_and_name);
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		b->nodes[i].name = NONE;
		if (S_ISDIR(b->nodes[i].mode))
			b->nodes[i].nlink = 2;
	}
	for (uint32_t i = 0; i < b->n_names; i++) {
		struct index_node *d = &b->nodes[b->names[i].dir];

		if (!d->dir.n++)
			d->dir.first = i;
		if (S_ISDIR(b->nodes[b->names[i].node].mode))
			d->nlink++;
	}
}

int tree_finish(struct builder *b, struct err *e)
{
	if (add_whiteouts(b, e) < 0 || resolve_links(b, e) < 0 ||
	    acls_settle(b, e) < 0)
		return -1;
	for (uint32_t i = 0; i < b->n_nodes; i++)
		if (b->nodes[i].flags & NODE_OPAQUE &&
		    xattrs_mark_opaque(b, &b->nodes[i], e) < 0)
			return -1;
	/* nothing is looked up any more */
	free(b->slots);
	b->slots = NULL;
	b->n_slots = 0;
	sort_names(b);
	return 0;
}
