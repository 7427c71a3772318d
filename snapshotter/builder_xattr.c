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
#include "snapshotter/builder_priv.h"

/* Source: Linux include/uapi/linux/posix_acl_xattr.h, posix_acl.h. */
#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"
#define ACL_VERSION 2
#define ACL_HEADER 4u
#define ACL_ENTRY 8u
enum {
	ACL_USER_OBJ = 0x01,
	ACL_USER = 0x02,
	ACL_GROUP_OBJ = 0x04,
	ACL_GROUP = 0x08,
	ACL_MASK = 0x10,
	ACL_OTHER = 0x20,
};

/* As posix_acl_valid(): the tags in this order, and a mask where a named user
 * or group asks for one. */
static bool acl_is_valid(const uint8_t *p, size_t len)
{
	uint32_t seen = 0;

	if (len < ACL_HEADER || (len - ACL_HEADER) % ACL_ENTRY ||
	    get_le32(p) != ACL_VERSION)
		return false;
	for (p += ACL_HEADER, len -= ACL_HEADER; len;
	     p += ACL_ENTRY, len -= ACL_ENTRY) {
		uint32_t tag = get_le16(p), id = get_le32(p + 4);
		bool named = tag == ACL_USER || tag == ACL_GROUP;

		if (get_le16(p + 2) > 7 || !tag || tag & (tag - 1) ||
		    tag > ACL_OTHER ||
		    tag < 1u << (31 - __builtin_clz(seen | 1)))
			return false;
		if (named ? id == UINT32_MAX : !!(seen & tag))
			return false;
		seen |= tag;
	}
	if (seen & (ACL_USER | ACL_GROUP) && !(seen & ACL_MASK))
		return false;
	return (seen & (ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER)) ==
	       (ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER);
}

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
		return en->type == ENTRY_SYMLINK || x->len == ACL_HEADER;
	if (!strcmp(x->name, ACL_DEFAULT))
		return en->type != ENTRY_DIR || x->len == ACL_HEADER;
	return false;
}

static const char *bad_value(const struct entry_xattr *x)
{
	if ((!strcmp(x->name, ACL_ACCESS) || !strcmp(x->name, ACL_DEFAULT)) &&
	    !acl_is_valid(x->value, x->len))
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

int xattrs_encode(struct builder *b, const struct entry *en,
		  const struct shown *who, struct err *e)
{
	b->xattrs.len = 0;
	if (en->n_xattrs > N_XATTRS_MAX)
		return err_set(e, ERR_CORRUPT,
			       "'%s': more than %u extended attributes", who->s,
			       N_XATTRS_MAX);
	for (size_t i = 0; i < en->n_xattrs; i++) {
		const struct entry_xattr *x = &en->xattrs[i];
		const char *why =
			is_repeated(en, i) ? "named twice" : bad_value(x);
		struct shown name = show(x->name, strlen(x->name));
		int r = 0;

		if (is_dropped(en, x))
			continue;
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
