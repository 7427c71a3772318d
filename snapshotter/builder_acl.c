/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX ACLs as an unpack leaves them. It sets an entry's ACL and its mode
 * after that, so the mode has the last word; and what it creates in a directory
 * with a default ACL inherits that, whether the archive says so or not. Both
 * happen in the kernel there, and are done here by the same rules.
 * Source: Linux fs/posix_acl.c, posix_acl_create(), posix_acl_chmod(),
 * posix_acl_equiv_mode(); containerd archive/tar.go, createTarFile().
 */
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "snapshotter/builder_priv.h"

/* Source: Linux include/uapi/linux/posix_acl_xattr.h, posix_acl.h. */
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
bool acl_is_valid(const uint8_t *p, size_t len)
{
	uint32_t seen = 0;

	if (len < ACL_HEADER || (len - ACL_HEADER) % ACL_ENTRY ||
	    get_le32(p) != ACL_VERSION)
		return false;
	if (len == ACL_HEADER) /* takes an ACL away */
		return true;
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

/* Says nothing that the mode does not say: is not stored. */
static bool acl_is_mode(const struct area_entry *a)
{
	for (uint32_t i = ACL_HEADER; i < a->value_len; i += ACL_ENTRY)
		if (get_le16(a->value + i) & (ACL_USER | ACL_GROUP | ACL_MASK))
			return false;
	return true;
}

static uint32_t permissions(uint32_t tag, uint32_t mode, bool has_mask)
{
	switch (tag) {
	case ACL_USER_OBJ:
		return mode >> 6 & 7;
	case ACL_GROUP_OBJ:
		return has_mask ? UINT32_MAX : mode >> 3 & 7;
	case ACL_MASK:
		return mode >> 3 & 7;
	case ACL_OTHER:
		return mode & 7;
	default:
		return UINT32_MAX;
	}
}

/* An access ACL that is not just the mode always has a mask. */
static int add_access(struct builder *b, const struct area_entry *a,
		      uint32_t mode)
{
	size_t at;
	int r = index_xattr_add(&b->xattrs, ACL_ACCESS, a->value, a->value_len);

	if (r < 0)
		return r;
	/* 4-byte padding is none here: both lengths are multiples of 4 */
	at = b->xattrs.len - a->value_len + ACL_HEADER;
	for (; at < b->xattrs.len; at += ACL_ENTRY) {
		uint8_t *p = b->xattrs.p + at;
		uint32_t perm = permissions(get_le16(p), mode, true);

		if (perm != UINT32_MAX)
			put_le16(p + 2, (uint16_t)perm);
	}
	return 0;
}

struct acls {
	struct area_entry access, dflt;
	bool has_access, has_dflt;
};

static void find_acls(const struct index_node *v, struct acls *ret)
{
	ret->has_access = area_find(v, ACL_ACCESS, &ret->access);
	ret->has_dflt = area_find(v, ACL_DEFAULT, &ret->dflt);
}

static int rewrite(struct builder *b, struct index_node *v,
		   const struct acls *a)
{
	struct area_entry x;
	uint32_t at = 0;
	int r = 0;

	b->xattrs.len = 0;
	while (r == 0 && area_next(v, &at, &x))
		if (!area_is(&x, ACL_ACCESS) && !area_is(&x, ACL_DEFAULT))
			r = area_copy(&b->xattrs, &x);
	if (r == 0 && a->has_access)
		r = add_access(b, &a->access, v->mode);
	if (r == 0 && a->has_dflt)
		r = index_xattr_add(&b->xattrs, ACL_DEFAULT, a->dflt.value,
				    a->dflt.value_len);
	return r;
}

/* @dir has been settled before: parents have lower numbers. */
static int settle(struct builder *b, uint32_t i, struct err *e)
{
	struct index_node *v = &b->nodes[i];
	struct acls own, up = { .has_dflt = false };
	bool chain = v->flags & NODE_CHAIN;
	int r;

	find_acls(v, &own);
	if (i > 0)
		find_acls(&b->nodes[b->names[v->name].dir], &up);
	if (!own.has_access && !own.has_dflt && !up.has_dflt)
		return 0;
	/* What an entry brings comes last. What an implied directory gets from
	 * the parent layers does not replace what it inherits. */
	if (up.has_dflt && !acl_is_mode(&up.dflt) &&
	    (!own.has_access || chain)) {
		own.access = up.dflt;
		own.has_access = true;
	}
	if (up.has_dflt && S_ISDIR(v->mode) && (!own.has_dflt || chain)) {
		own.dflt = up.dflt;
		own.has_dflt = true;
	}
	if (own.has_access && acl_is_mode(&own.access))
		own.has_access = false;
	if (own.has_dflt && own.dflt.value_len == ACL_HEADER)
		own.has_dflt = false;
	r = rewrite(b, v, &own);
	if (r == -E2BIG)
		return err_set(e, ERR_CORRUPT,
			       "more than 256 KiB of extended attributes");
	if (r < 0)
		return out_of_memory(e);
	return xattrs_store(b, v, e);
}

int acls_settle(struct builder *b, struct err *e)
{
	for (uint32_t i = 0; b->has_acls && i < b->n_nodes; i++) {
		const struct index_node *v = &b->nodes[i];

		if (S_ISLNK(v->mode) || v->flags & NODE_WHITEOUT)
			continue;
		if (settle(b, i, e) < 0)
			return -1;
	}
	return 0;
}
