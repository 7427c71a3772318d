/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers of requests; see ops.h. All attributes come from the index. Nothing
 * here holds a lock, and after a reply nothing of the request is touched.
 */
#include "fuse/ops.h"

#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "fuse/index.h"
#include "fuse/init.h"
#include "fuse/node.h"
#include "fuse/passthrough.h"
#include "fuse/read.h"
#include "fuse/source.h"

#define NAME_MAX_BYTES 255

__thread struct ops_call ops_call;

/* A node with the source that holds it. */
struct found {
	const struct source_set *set;
	struct source *src;
	struct inode in;
};

static void owned_found(struct found *f)
{
	if (f->src)
		f->set->put(f->set->ctx, f->src);
}

static const struct ops_ctx *ctx_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* What an application may see of -errno @r from the index. Damage and missing
 * inodes are input errors; ENOENT is only said of a name that was looked up. */
static int visible_errno(int r)
{
	switch (-r) {
	case ENOMEM:
	case ENOTDIR:
	case ENODATA:
	case ERANGE:
	case EINVAL:
	case ESTALE:
	case ENAMETOOLONG:
		return -r;
	default:
		return EIO;
	}
}

static void reply_error(fuse_req_t req, int r)
{
	(void)fuse_reply_err(req, visible_errno(r));
}

/* -ESTALE: the layer has gone, while the kernel still held the node. */
static int find(fuse_req_t req, fuse_ino_t node, struct found *f)
{
	f->set = ctx_of(req)->sources;
	if (node >> 32 == 0)
		return -ESTALE;
	f->src = f->set->get(f->set->ctx, node_seq(node));
	if (!f->src)
		return -ESTALE;
	if (!f->src->index)
		return -EIO;
	return index_inode(f->src->index, node_nid(node), &f->in);
}

static struct source_file file_of(const struct inode *in)
{
	return (struct source_file){ .nid = in->nid,
				     .ino = in->ino,
				     .size = in->size };
}

static void root_stat(struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = NODE_ROOT_INO;
	st->st_mode = S_IFDIR | 0755;
	st->st_nlink = 2;
	st->st_blksize = 4096;
}

static void fill_stat(const struct source *s, const struct inode *in,
		      struct stat *st)
{
	memset(st, 0, sizeof(*st));
	/* Below 2^32, which whoever gave the base has seen to: 32-bit programs
	 * get EOVERFLOW above. */
	st->st_ino = (ino_t)s->ino_base + in->ino;
	st->st_mode = in->mode;
	st->st_nlink = in->nlink;
	st->st_uid = in->uid;
	st->st_gid = in->gid;
	st->st_rdev = in->rdev;
	st->st_size = (off_t)in->size;
	st->st_blksize = 4096;
	if (S_ISREG(in->mode) || S_ISDIR(in->mode))
		st->st_blocks =
			(blkcnt_t)(in->size / 4096 + (in->size % 4096 != 0)) *
			8;
	/* In whole blocks, as ext4 and xfs have it: du and ls agree. */
	if (S_ISDIR(in->mode))
		st->st_size = st->st_blocks * 512;
	st->st_mtim.tv_sec = in->mtime;
	st->st_mtim.tv_nsec = in->mtime_nsec;
	st->st_atim = st->st_ctim = st->st_mtim;
}

static void fill_entry(const struct source *s, const struct inode *in,
		       struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = node_id(s->seq, in->nid);
	e->attr_timeout = e->entry_timeout = OPS_TIMEOUT;
	fill_stat(s, in, &e->attr);
}

static void reply_root_entry(fuse_req_t req)
{
	struct fuse_entry_param e = { .ino = NODE_ROOT };

	root_stat(&e.attr);
	(void)fuse_reply_entry(req, &e);
}

static bool is_dot(const char *name, size_t len)
{
	return len == 1 && name[0] == '.';
}

static bool is_dotdot(const char *name, size_t len)
{
	return len == 2 && name[0] == '.' && name[1] == '.';
}

/* Names of layers. What is not there may come at any time: not kept. */
static void lookup_layer(fuse_req_t req, const char *name, size_t len)
{
	owned(found) struct found f = { .src = NULL };
	struct fuse_entry_param e;
	uint32_t seq;
	int r;

	if (is_dot(name, len) || is_dotdot(name, len)) {
		reply_root_entry(req);
		return;
	}
	if (node_parse_seq(name, &seq) < 0) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	r = find(req, node_id(seq, INDEX_ROOT_NID), &f);
	if (!f.src) {
		(void)fuse_reply_err(req, ENOENT);
		return;
	}
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	fill_entry(f.src, &f.in, &e);
	passthrough_note_seq(ctx_of(req)->passthrough, seq);
	(void)fuse_reply_entry(req, &e);
}

/* "." and ".." come from the decoding of file handles only. */
static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	owned(found) struct found f = { .src = NULL };
	struct fuse_entry_param e = { .entry_timeout = OPS_TIMEOUT };
	size_t len = strlen(name);
	uint32_t nid;
	int r;

	if (node_is_root(parent)) {
		lookup_layer(req, name, len);
		return;
	}
	r = find(req, parent, &f);
	if (r == 0 && is_dotdot(name, len) && f.in.nid == INDEX_ROOT_NID) {
		reply_root_entry(req);
		return;
	}
	if (r == 0 && len > NAME_MAX_BYTES)
		r = -ENAMETOOLONG;
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	if (is_dot(name, len)) {
		nid = f.in.nid;
	} else {
		r = index_lookup(f.src->index, &f.in, name, len, &nid);
		if (r == -ENOENT) { /* and it never will be there */
			(void)fuse_reply_entry(req, &e);
			return;
		}
	}
	if (r == 0)
		r = index_inode(f.src->index, nid, &f.in);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	fill_entry(f.src, &f.in, &e);
	(void)fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node,
		       struct fuse_file_info *fi)
{
	owned(found) struct found f = { .src = NULL };
	struct stat st;
	int r;

	(void)fi;
	if (node_is_root(node)) {
		root_stat(&st);
		(void)fuse_reply_attr(req, &st, 1.0);
		return;
	}
	r = find(req, node, &f);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	fill_stat(f.src, &f.in, &st);
	(void)fuse_reply_attr(req, &st, OPS_TIMEOUT);
}

static void op_readlink(fuse_req_t req, fuse_ino_t node)
{
	owned(found) struct found f = { .src = NULL };
	char *target = ops_call.scratch;
	int r = node_is_root(node) ? -EINVAL : find(req, node, &f);

	if (r == 0)
		r = index_readlink(f.src->index, &f.in, target,
				   OPS_SCRATCH_BYTES);
	if (r < 0)
		reply_error(req, r);
	else
		(void)fuse_reply_readlink(req, target);
}

/* The kernel then opens directories without us and keeps their listings; what
 * we answer to READDIR depends on node and offset alone. */
static void op_opendir(fuse_req_t req, fuse_ino_t node,
		       struct fuse_file_info *fi)
{
	(void)node;
	(void)fi;
	(void)fuse_reply_err(req, ENOSYS);
}

/* A piece of a listing, being put together. */
struct listing {
	fuse_req_t req;
	struct source *src;
	uint32_t dir_nid;
	bool plus;
	char *p;
	size_t len, cap;
};

/* 1: the piece is full */
static int add_entry(struct listing *l, const char *name,
		     struct fuse_entry_param *e, uint64_t next)
{
	size_t left = l->cap - l->len, n;

	if (l->plus)
		n = fuse_add_direntry_plus(l->req, l->p + l->len, left, name, e,
					   (off_t)next);
	else
		n = fuse_add_direntry(l->req, l->p + l->len, left, name,
				      &e->attr, (off_t)next);
	if (n > left)
		return 1;
	l->len += n;
	return 0;
}

static int list_one(void *ctx, const struct dirent_pos *d)
{
	struct listing *l = ctx;
	struct fuse_entry_param e;
	char name[NAME_MAX_BYTES + 1];
	struct inode in;
	int r;

	if (d->name_len > NAME_MAX_BYTES || d->nid > UINT32_MAX)
		return -EUCLEAN;
	memcpy(name, d->name, d->name_len);
	name[d->name_len] = '\0';
	if (is_dotdot(d->name, d->name_len) && l->dir_nid == INDEX_ROOT_NID) {
		memset(&e, 0, sizeof(e));
		root_stat(&e.attr);
		return add_entry(l, name, &e, d->next);
	}
	/* The inode is needed even for a plain listing: d_ino is st_ino. */
	r = index_inode(l->src->index, (uint32_t)d->nid, &in);
	if (r < 0)
		return r;
	if (in.mode >> 12 != d->dtype)
		return -EUCLEAN;
	fill_entry(l->src, &in, &e);
	if (is_dot(d->name, d->name_len) || is_dotdot(d->name, d->name_len))
		e.ino = 0; /* makes no entry in the kernel's cache */
	return add_entry(l, name, &e, d->next);
}

/* The root lists no layers: who knows a name may look it up. */
static int list_root(struct listing *l, off_t off)
{
	static const char *const names[] = { ".", ".." };
	struct fuse_entry_param e = { .ino = 0 };

	root_stat(&e.attr);
	for (; off >= 0 && off < (off_t)ARRAY_LEN(names); off++)
		if (add_entry(l, names[off], &e, (uint64_t)off + 1))
			break;
	return 0;
}

static void list(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		 bool plus)
{
	owned(found) struct found f = { .src = NULL };
	struct listing l = {
		.req = req,
		.plus = plus,
		.p = ops_call.scratch,
		.cap = size < OPS_SCRATCH_BYTES ? size : OPS_SCRATCH_BYTES,
	};
	int r;

	if (node_is_root(node)) {
		r = list_root(&l, off);
	} else {
		r = find(req, node, &f);
		if (r == 0) {
			l.src = f.src;
			l.dir_nid = f.in.nid;
			r = index_readdir(f.src->index, &f.in, (uint64_t)off,
					  list_one, &l);
		}
	}
	/* What came before a bad entry is good; the next call meets it again. */
	if (r < 0 && l.len == 0)
		reply_error(req, r);
	else
		(void)fuse_reply_buf(req, l.p, l.len);
}

static void op_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)fi;
	list(req, node, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size,
			   off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	list(req, node, size, off, true);
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	owned(found) struct found f = { .src = NULL };
	struct source_file sf;
	int r;

	/* Only a remount can let this through. */
	if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC) {
		(void)fuse_reply_err(req, EROFS);
		return;
	}
	r = find(req, node, &f);
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	sf = file_of(&f.in);
	passthrough_open(ctx_of(req)->passthrough, req, ops_call.unique, node,
			 f.src, &sf);
}

static void op_release(fuse_req_t req, fuse_ino_t node,
		       struct fuse_file_info *fi)
{
	passthrough_release(ctx_of(req)->passthrough, req, node, fi->fh);
}

static void op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	owned(found) struct found f = { .src = NULL };
	struct read_request rq = { .req = req, .off = (uint64_t)off };
	int r = node_is_root(node) ? -EINVAL : find(req, node, &f);

	(void)fi;
	if (r == 0 && (!S_ISREG(f.in.mode) || off < 0))
		r = -EINVAL;
	/* Never a short answer: the kernel would take it for the end. */
	if (r == 0 && size > INIT_READ_BYTES)
		r = -EIO;
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	if (rq.off >= f.in.size || size == 0) {
		(void)fuse_reply_buf(req, NULL, 0);
		return;
	}
	rq.len = f.in.size - rq.off < size ? f.in.size - rq.off : size;
	rq.file = file_of(&f.in);
	rq.unique = ops_call.unique;
	rq.n_interrupts = ops_call.n_interrupts;
	rq.pid = fuse_req_ctx(req)->pid;
	rq.src = take_ptr(&f.src);
	reads_handle(ctx_of(req)->reads, &rq);
}

/* The kernel keeps no attribute values, and exec through an overlay asks for
 * security.capability each time: most inodes have none, known at once. */
static void op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name,
			size_t size)
{
	owned(found) struct found f = { .src = NULL };
	char *value = ops_call.scratch;
	ssize_t n = node_is_root(node) ? -ENODATA : find(req, node, &f);

	if (n == 0 && f.in.xattr_len == 0)
		n = -ENODATA;
	if (n == 0)
		n = index_getxattr(
			f.src->index, &f.in, name, value,
			size < OPS_SCRATCH_BYTES ? size : OPS_SCRATCH_BYTES);
	if (n < 0)
		reply_error(req, (int)n);
	else if (size == 0)
		(void)fuse_reply_xattr(req, (size_t)n);
	else
		(void)fuse_reply_buf(req, value, (size_t)n);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	owned(found) struct found f = { .src = NULL };
	char *names = ops_call.scratch;
	ssize_t n = node_is_root(node) ? 0 : find(req, node, &f);

	if (n == 0 && f.src && f.in.xattr_len > 0)
		n = index_listxattr(
			f.src->index, &f.in, names,
			size < OPS_SCRATCH_BYTES ? size : OPS_SCRATCH_BYTES);
	if (n < 0)
		reply_error(req, (int)n);
	else if (size == 0)
		(void)fuse_reply_xattr(req, (size_t)n);
	else
		(void)fuse_reply_buf(req, names, (size_t)n);
}

/* Like squashfs: nothing is free. Sizes would have to be added up over layers
 * that share their bytes, and no number would be right. */
static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	static const struct statvfs st = {
		.f_bsize = 4096,
		.f_frsize = 4096,
		.f_namemax = NAME_MAX_BYTES,
		.f_flag = ST_RDONLY,
	};

	(void)node;
	(void)fuse_reply_statfs(req, &st);
}

/* FS_IOC_GETFLAGS of an overlay's copy-up must end so, else copy-up fails. */
static void op_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags,
		     const void *in_buf, size_t in_size, size_t out_size)
{
	(void)node;
	(void)cmd;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)in_buf;
	(void)in_size;
	(void)out_size;
	(void)fuse_reply_err(req, ENOTTY);
}

/* All else, FLUSH and STATX among it, is ENOSYS from libfuse, which the kernel
 * remembers. */
const struct fuse_lowlevel_ops ops_table = {
	.lookup = op_lookup,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.open = op_open,
	.read = op_read,
	.release = op_release,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.ioctl = op_ioctl,
};
