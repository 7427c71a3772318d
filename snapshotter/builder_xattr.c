/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which extended attributes of an image reach the index. An image must not
 * speak to overlayfs (redirects would let it read other layers' files), and
 * must not hold a value that the kernel would reject when it is set: an index
 * is never set, so the checks of setxattr(2) are made here.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/erofs_fs.h"
#include "snapshotter/builder_priv.h"

/* ---- the encoded area, see index_xattr_add() ---- */

bool area_next(const struct index_node *v, uint32_t *at, struct area_entry *ret)
{
	const uint8_t *p;

	if (!*at)
		*at = EROFS_XATTR_HEADER;
	if (*at >= v->xattr_len)
		return false;
	p = v->xattrs + *at;
	ret->raw = p;
	ret->index = p[1];
	ret->suffix_len = p[0];
	ret->suffix = (const char *)p + EROFS_XATTR_ENTRY;
	ret->value = p + EROFS_XATTR_ENTRY + p[0];
	ret->value_len = get_le16(p + 2);
	ret->raw_len = (uint32_t)erofs_round_up(
		EROFS_XATTR_ENTRY + p[0] + ret->value_len, 4);
	*at += ret->raw_len;
	return true;
}

bool area_is(const struct area_entry *x, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(erofs_xattr_prefixes); i++) {
		const struct erofs_xattr_prefix *q = &erofs_xattr_prefixes[i];

		if (q->index == x->index && !strncmp(name, q->s, q->len) &&
		    strlen(name) == q->len + (size_t)x->suffix_len)
			return !memcmp(name + q->len, x->suffix, x->suffix_len);
	}
	return false;
}

/* At most EROFS_NAME_MAX letters: see index_xattr_add(). */
static void area_name(const struct area_entry *x, char *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(erofs_xattr_prefixes); i++) {
		const struct erofs_xattr_prefix *q = &erofs_xattr_prefixes[i];

		if (q->index == x->index) {
			n = q->len;
			memcpy(ret, q->s, n);
		}
	}
	memcpy(ret + n, x->suffix, x->suffix_len);
	ret[n + x->suffix_len] = '\0';
}

bool area_find(const struct index_node *v, const char *name,
	       struct area_entry *ret)
{
	uint32_t at = 0;

	while (area_next(v, &at, ret))
		if (area_is(ret, name))
			return true;
	return false;
}

int area_copy(struct buf *area, const struct area_entry *x)
{
	static const uint8_t zero[EROFS_XATTR_HEADER];

	if (!area->len && buf_add(area, zero, sizeof(zero)) < 0)
		return -ENOMEM;
	if (area->len + x->raw_len > EROFS_XATTR_AREA_MAX)
		return -E2BIG;
	return buf_add(area, x->raw, x->raw_len) < 0 ? -ENOMEM : 0;
}

/* ---- what gets through ---- */

/* struct vfs_cap_data and vfs_ns_cap_data: revision 2 and 3. */
static bool capability_is_valid(const uint8_t *p, size_t len)
{
	if (len != 20 && len != 24)
		return false;
	return get_le32(p) >> 24 == (len == 20 ? 2 : 3);
}

/* Names that an image may not set, or that no file system of ours has; an
 * ordinary unpack passes over the latter, too. */
static bool is_dropped(const struct entry *en, const struct entry_xattr *x)
{
	const char *dot = strchr(x->name, '.');

	if (!strncmp(x->name, "trusted.", 8) ||
	    (dot && !strncmp(dot, ".overlay.", 9)))
		return true;
	if (!strcmp(x->name, ACL_ACCESS))
		return en->type == ENTRY_SYMLINK;
	if (!strcmp(x->name, ACL_DEFAULT))
		return en->type != ENTRY_DIR;
	/* xattr(7): user.* is for files and directories; of the target of a
	 * hard link we shall know later. */
	return !strncmp(x->name, "user.", 5) && en->type != ENTRY_REG &&
	       en->type != ENTRY_DIR && en->type != ENTRY_HARDLINK;
}

static bool is_acl(const char *name)
{
	return !strcmp(name, ACL_ACCESS) || !strcmp(name, ACL_DEFAULT);
}

static const char *bad_value(const struct entry_xattr *x)
{
	if (is_acl(x->name) && !acl_is_valid(x->value, x->len))
		return "not an ACL";
	if (!strcmp(x->name, "security.capability") &&
	    !capability_is_valid(x->value, x->len))
		return "not a file capability";
	return NULL;
}

static bool is_repeated(const struct entry *en, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!strcmp(en->xattrs[k].name, en->xattrs[i].name))
			return true;
	return false;
}

/* By name: a table of contents and a tar header may list them differently, and
 * the index must not depend on it. */
static void sort_by_name(const struct entry *en, uint8_t *order)
{
	for (size_t i = 0; i < en->n_xattrs; i++) {
		size_t k = i;

		for (; k && strcmp(en->xattrs[order[k - 1]].name,
				   en->xattrs[i].name) > 0;
		     k--)
			order[k] = order[k - 1];
		order[k] = (uint8_t)i;
	}
}

int xattrs_encode(struct builder *b, const struct entry *en,
		  const struct shown *who, struct err *e)
{
	uint8_t order[N_XATTRS_MAX];

	b->xattrs.len = 0;
	if (en->n_xattrs > N_XATTRS_MAX)
		return err_set(e, ERR_CORRUPT,
			       "'%s': more than %u extended attributes", who->s,
			       N_XATTRS_MAX);
	sort_by_name(en, order);
	for (size_t i = 0; i < en->n_xattrs; i++) {
		const struct entry_xattr *x = &en->xattrs[order[i]];
		const char *why = is_repeated(en, order[i]) ? "named twice"
							    : bad_value(x);
		struct shown name = show(x->name, strlen(x->name));
		int r = 0;

		if (is_dropped(en, x))
			continue;
		b->has_acls |= is_acl(x->name);
		if (!why)
			r = index_xattr_add(&b->xattrs, x->name, x->value,
					    x->len);
		if (r == -ENOMEM)
			return out_of_memory(e);
		if (r == -ERANGE)
			why = "name or value has a length out of range";
		if (r == -E2BIG)
			why = "more than 256 KiB of extended attributes";
		if (why)
			return err_set(e, ERR_CORRUPT,
				       "'%s': extended attribute '%.60s': %s",
				       who->s, name.s, why);
	}
	return 0;
}

int xattrs_store(struct builder *b, struct index_node *v, struct err *e)
{
	v->xattr_len = 0;
	if (!b->xattrs.len)
		return 0;
	b->xattr_bytes += b->xattrs.len;
	if (b->xattr_bytes > XATTRS_TOTAL_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "more than 64 MiB of extended attributes");
	v->xattrs = arena_add(&b->arena, b->xattrs.p, b->xattrs.len);
	if (!v->xattrs)
		return out_of_memory(e);
	v->xattr_len = (uint32_t)b->xattrs.len;
	return 0;
}

int xattrs_mark_opaque(struct builder *b, struct index_node *v, struct err *e)
{
	const char *name = b->o.userxattr ? "user.overlay.opaque"
					  : "trusted.overlay.opaque";
	int r;

	b->xattrs.len = 0;
	if (buf_add(&b->xattrs, v->xattrs, v->xattr_len) < 0)
		return out_of_memory(e);
	r = index_xattr_add(&b->xattrs, name, "y", 1);
	if (r == -E2BIG)
		return err_set(e, ERR_CORRUPT,
			       "more than 256 KiB of extended attributes");
	if (r < 0)
		return out_of_memory(e);
	return xattrs_store(b, v, e);
}

/* As an unpack does it: chown(2) takes the capability away, then the link's
 * attributes are set on the inode that is there. */
int xattrs_merge(struct builder *b, struct index_node *v,
		 const struct index_node *link, struct err *e)
{
	bool user = S_ISREG(v->mode), acl = !S_ISLNK(v->mode);
	struct area_entry x, other;
	uint32_t at = 0;
	char name[256];
	int r = 0;

	if (!v->xattr_len && !link->xattr_len)
		return 0;
	b->xattrs.len = 0;
	while (r == 0 && area_next(v, &at, &x)) {
		area_name(&x, name);
		if (strcmp(name, "security.capability") != 0 &&
		    !area_find(link, name, &other))
			r = area_copy(&b->xattrs, &x);
	}
	at = 0;
	while (r == 0 && area_next(link, &at, &x)) {
		area_name(&x, name);
		if (strncmp(name, "user.", 5) ? acl || !is_acl(name) : user)
			r = area_copy(&b->xattrs, &x);
	}
	if (r == -E2BIG)
		return err_set(e, ERR_CORRUPT,
			       "more than 256 KiB of extended attributes");
	if (r < 0)
		return out_of_memory(e);
	return xattrs_store(b, v, e);
}
