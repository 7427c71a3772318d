/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the builder share; nobody else includes it.
 *
 *	builder.c        events in, files out
 *	builder_names.c  paths, names, the table that finds them
 *	builder_tree.c   entries become inodes; what only the end can tell
 *	builder_xattr.c  which attributes of an image are let through
 *	builder_acl.c    ACLs: the mode's word, inheritance
 *	builder_map.c    addresses, bodies, units, extents
 *
 * An inode costs about 100 bytes here, a name 24 and its letters, an extent
 * 56: a layer of 100,000 files fits in 30 MB.
 */
#ifndef SNAPSHOTTER_BUILDER_PRIV_H
#define SNAPSHOTTER_BUILDER_PRIV_H

#include "base/buf.h"
#include "snapshotter/builder.h"
#include "snapshotter/index_write.h"

/* Bounds of untrusted input, each reported by name when exceeded. */
#define PATH_LEN_MAX 4095u
#define NAME_LEN_MAX 255u
#define DEPTH_MAX 1024u
#define SYMLINK_LEN_MAX 4095u
#define N_XATTRS_MAX 128u
#define XATTRS_TOTAL_MAX (64u << 20) /* bytes in all inodes of a layer */
#define NODES_MAX (4u << 20)
#define EXTENTS_MAX (16u << 20)

#define NONE UINT32_MAX

/* index_node.flags */
#define NODE_IMPLIED 0x01 /* directory that no entry has named yet */
#define NODE_OPAQUE 0x02 /* hides the lower layers' directory */
#define NODE_WHITEOUT 0x04 /* made from a .wh. marker */
#define NODE_CHAIN 0x08 /* directory with attributes of the parent layers */

/* index_name.node of a hard link that is not resolved yet: number of the link
 * with this bit. */
#define LINK_BIT 0x80000000u

struct arena_chunk;
struct arena {
	size_t *charged; /* see charge() */
	struct arena_chunk *chunks;
	char *p;
	size_t left;
};

/*
 * charge() - may this builder grow by @bytes?
 *
 * All builders of the process share BUILDING_MAX: many hostile tables of
 * contents at once lead to ordinary mounts, not to the end of the daemon.
 * False counts as out of memory. uncharge() gives all of it back.
 */
#define BUILDING_MAX ((size_t)1 << 30)
bool charge(size_t *charged, size_t bytes) must_check;
void uncharge(size_t *charged);

void *arena_add(struct arena *a, const void *p, size_t len) must_check;
void arena_release(struct arena *a);

/* A path without ".", empty components, or slashes at its ends; "" is the
 * root. */
struct path {
	uint32_t len;
	uint32_t name; /* where the last component begins */
	char s[PATH_LEN_MAX + 1];
};

/* 0, or -EINVAL and why in *ret_why */
int path_clean(const char *p, size_t len, struct path *ret,
	       const char **ret_why) must_check;

/* A path for a message: shortened, control characters replaced. */
struct shown {
	char s[132];
};
struct shown show(const char *p, size_t len);

struct link {
	const char *target; /* cleaned path, in the arena */
	uint32_t target_len;
	uint32_t name; /* names[] */
	uint32_t seen; /* by the resolution that began at link seen - 1 */
	/* The entry's own: an unpack sets them on the inode. */
	const uint8_t *xattrs;
	int64_t mtime;
	uint32_t mtime_nsec, xattr_len, mode, uid, gid;
};

struct whiteout {
	const char *s; /* the name it hides; in the arena */
	uint32_t dir;
	uint8_t len;
};

struct builder {
	struct builder_opts o;
	struct arena arena;
	uint64_t key[2]; /* of the hash: attackers choose the names */
	struct index_node *nodes;
	struct index_name *names;
	uint32_t *slots; /* names[] + 1, open addressing; 0: empty */
	struct link *links;
	struct whiteout *whiteouts;
	uint32_t *handles; /* of the sink: node, or NONE */
	struct unit *units;
	struct extent *extents;
	uint32_t n_nodes, cap_nodes, n_names, cap_names, n_slots;
	uint32_t n_links, cap_links, n_whiteouts, cap_whiteouts;
	uint32_t n_handles, cap_handles, n_units, cap_units;
	uint32_t n_extents, cap_extents;
	uint64_t xattr_bytes;
	uint64_t prefetch_end;
	uint64_t device_size;
	bool has_acls; /* some inode */
	bool prefetch_set;
	bool spent; /* sorted and placed: takes no more events */
	bool broken; /* failed half way through that */
	uint32_t n_implied;
	size_t charged; /* to the budget of all builders */
	struct buf xattrs; /* scratch */
	struct index_image image;
	struct map_image map;
};

/* ENSURE(charged, p, n, cap): room for one more element; 0 or -ENOMEM. */
void *grow_array(size_t *charged, void *p, uint32_t *cap, size_t size)
	must_check;
#define ENSURE(charged, p, n, cap)                                             \
	__extension__({                                                        \
		void *p_ = (p);                                                \
		if ((n) == (cap))                                              \
			p_ = grow_array((charged), (p), &(cap), sizeof(*(p))); \
		if (p_)                                                        \
			(p) = p_;                                              \
		p_ ? 0 : -ENOMEM;                                              \
	})

/* builder_names.c */
uint32_t name_find(const struct builder *b, uint32_t dir, const char *s,
		   uint32_t len);
/* The name must not be there. Copies @s. */
int name_add(struct builder *b, uint32_t dir, const char *s, uint32_t len,
	     uint32_t node, uint32_t *ret) must_check;
/* Path of names[@name], for messages and hooks; cut off at PATH_LEN_MAX. */
void name_path(const struct builder *b, uint32_t name, struct path *ret);
int out_of_memory(struct err *e);

/* builder_tree.c */
int tree_init(struct builder *b) must_check;
int tree_entry(struct builder *b, const struct entry *en, uint32_t *ret_node,
	       struct err *e) must_check;
int tree_implied(struct builder *b, struct err *e) must_check;
int tree_finish(struct builder *b, struct err *e) must_check;

/* builder_xattr.c: encodes what passes into b->xattrs; @who for messages */
int xattrs_encode(struct builder *b, const struct entry *en,
		  const struct shown *who, struct err *e) must_check;
int xattrs_store(struct builder *b, struct index_node *v, struct err *e)
	must_check;
int xattrs_merge(struct builder *b, struct index_node *v,
		 const struct index_node *link, struct err *e) must_check;
int xattrs_mark_opaque(struct builder *b, struct index_node *v, struct err *e)
	must_check;

/* One attribute in the encoded area of an inode. */
struct area_entry {
	const uint8_t *raw, *value;
	const char *suffix;
	uint32_t raw_len, value_len;
	uint8_t suffix_len, index;
};

/* true and the next entry; *at is 0 at first */
bool area_next(const struct index_node *v, uint32_t *at,
	       struct area_entry *ret);
bool area_is(const struct area_entry *x, const char *name);
bool area_find(const struct index_node *v, const char *name,
	       struct area_entry *ret);
/* -E2BIG, -ENOMEM */
int area_copy(struct buf *area, const struct area_entry *x) must_check;

/* builder_acl.c */
#define ACL_ACCESS "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"
bool acl_is_valid(const uint8_t *p, size_t len);
/* All inodes, once the tree and its hard links are there. */
int acls_settle(struct builder *b, struct err *e) must_check;

/* builder_map.c */
int map_add_unit(struct builder *b, const struct unit *u, uint32_t *ret,
		 struct err *e) must_check;
int map_add_extent(struct builder *b, uint32_t node, uint64_t file_off,
		   const struct extent *x, struct err *e) must_check;
int map_check_covered(struct builder *b, struct err *e) must_check;
int map_place_files(struct builder *b, struct err *e) must_check;
int map_finish(struct builder *b, struct err *e) must_check;
void map_image_release(struct map_image *m);

#endif
