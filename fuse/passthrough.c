/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OPEN and RELEASE; see passthrough.h.
 *
 * An OPEN that must wait for another one, or for the notifier, is a struct
 * opening and holds no thread: a handler that waited for the notifier could
 * wait for itself.
 *
 * The notifier is asked to drop pages between the decision and the reply to the
 * first OPEN. Nobody has the inode open then, so there is no READ, and no page
 * that a READ keeps locked: the kernel's wait for it would not end with this
 * process, nor would this process end before it.
 */
#include "fuse/passthrough.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "fuse/abi.h"
#include "fuse/index.h"
#include "fuse/node.h"
#include "fuse/notify.h"
#include "fuse/opens.h"

#define LOOK_MAX 1000 /* inodes, for status */

struct passthrough {
	struct opens *opens;
	const struct source_set *sources;
	struct notifier *notifier;
	int fd;
	bool on;
	atomic_int error; /* errno that stands against it for good */
	atomic_uint n_rechecks; /* begun */
};

/* One OPEN that may have to wait. */
struct opening {
	struct open_call call;
	fuse_req_t req;
	/* of the one that decides */
	struct passthrough *p;
	struct notify_drop drop;
	int32_t backing;
	uint64_t file;
	unsigned n_rechecks; /* before the look at the file */
};

int passthrough_new(struct opens *opens, const struct source_set *sources,
		    struct passthrough **ret)
{
	struct passthrough *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->opens = opens;
	p->sources = sources;
	p->fd = -1;
	*ret = p;
	return 0;
}

void passthrough_free(struct passthrough *p)
{
	free(p);
}

void passthrough_start(struct passthrough *p, int fd, struct notifier *n,
		       bool agreed)
{
	p->fd = fd;
	p->notifier = n;
	p->on = agreed;
}

void passthrough_note_seq(struct passthrough *p, uint32_t seq)
{
	opens_note_seq(p->opens, seq);
}

int passthrough_error(struct passthrough *p)
{
	return atomic_load(&p->error);
}

/* ---- backing files ---- */

static void close_backing(struct passthrough *p, int32_t id)
{
	uint32_t arg = (uint32_t)id;

	/* ENOENT, ENODEV: the session has ended */
	if (ioctl(p->fd, ABI_BACKING_CLOSE, &arg) < 0)
		log_debug("backing file not closed: id=%d err='%m'", id);
	opens_backing_closed(p->opens);
}

/* What will not change as long as we live: the file system of the state is
 * itself stacked, we may not, the kernel cannot. */
static bool is_lasting(int error)
{
	return error == ELOOP || error == EPERM || error == EOPNOTSUPP ||
	       error == ENOTTY || error == EINVAL;
}

/* The kernel's id for @fd, or 0. */
static int32_t open_backing(struct passthrough *p, int fd)
{
	struct abi_backing_map map = { .fd = fd };
	int id = ioctl(p->fd, ABI_BACKING_OPEN, &map), error = errno;

	if (id > 0)
		return id;
	if (id < 0 && is_lasting(error))
		atomic_store(&p->error, error);
	log_debug("no backing file: id=%d err='%s'", id, strerror(error));
	return 0;
}

/* The source's file for @f, with its inode number; -errno. */
static int source_fd(struct source *src, const struct source_file *f,
		     uint64_t *ret_file)
{
	struct stat st;
	int fd;

	if (!src->ops->backing_fd)
		return -EAGAIN;
	fd = src->ops->backing_fd(src, f);
	if (fd < 0)
		return fd;
	/* The kernel takes the size from us and the bytes from the file. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != f->size) {
		(void)close(fd);
		return -EUCLEAN;
	}
	*ret_file = st.st_ino;
	return fd;
}

static void decide(struct passthrough *p, struct opening *o, struct source *src,
		   const struct source_file *f)
{
	owned(fd) int fd = -1;

	o->n_rechecks = atomic_load(&p->n_rechecks);
	if (passthrough_error(p))
		return;
	fd = source_fd(src, f, &o->file);
	if (fd >= 0)
		o->backing = open_backing(p, fd);
}

/* ---- what became of them ---- */

/* The inode number of the file that the source has for this inode; 0: none;
 * -ESTALE: the layer is gone; -errno. */
static int file_of_inode(struct passthrough *p, uint64_t node,
			 uint64_t *ret_file)
{
	struct source *src = p->sources->get(p->sources->ctx, node_seq(node));
	struct source_file f;
	struct inode ino;
	int r, fd;

	if (!src)
		return -ESTALE;
	r = src->index ? index_inode(src->index, node_nid(node), &ino) : -EIO;
	if (r == 0) {
		f = (struct source_file){ .nid = ino.nid,
					  .ino = ino.ino,
					  .size = ino.size };
		fd = source_fd(src, &f, ret_file);
		if (fd >= 0)
			(void)close(fd);
		r = fd < 0 ? fd : 0;
	}
	p->sources->put(p->sources->ctx, src);
	return r;
}

static void recheck(struct passthrough *p, const struct opens_inode *in)
{
	uint64_t file = 0;

	/* A layer that is gone is opened by nobody. No file at all is no
	 * better than another one: it is being replaced. */
	if (file_of_inode(p, in->node, &file) != -ESTALE && file != in->file)
		opens_heal(p->opens, in->node, in->file);
}

void passthrough_recheck(struct passthrough *p)
{
	owned(mem) struct opens_inode *v = NULL;
	size_t n;

	atomic_fetch_add(&p->n_rechecks, 1);
	if (opens_inodes(p->opens, OPEN_PASSTHROUGH, &v, &n) < 0)
		return; /* they read the old file until they are closed */
	for (size_t i = 0; i < n; i++)
		recheck(p, &v[i]);
}

uint32_t passthrough_n_changeable(struct passthrough *p)
{
	owned(mem) struct opens_inode *v = NULL;
	uint32_t n_found = 0;
	size_t n;

	if (opens_inodes(p->opens, OPEN_CACHED, &v, &n) < 0)
		return 0;
	for (size_t i = 0; i < n && i < LOOK_MAX; i++) {
		uint64_t file;

		n_found += file_of_inode(p, v[i].node, &file) == 0;
	}
	return n_found;
}

/* ---- OPEN ---- */

static uint32_t open_flags(enum open_mode mode)
{
	switch (mode) {
	case OPEN_PASSTHROUGH:
		return ABI_FOPEN_PASSTHROUGH | ABI_FOPEN_NOFLUSH;
	case OPEN_HEALED:
		return ABI_FOPEN_PASSTHROUGH | ABI_FOPEN_DIRECT_IO |
		       ABI_FOPEN_NOFLUSH;
	default:
		return ABI_FOPEN_KEEP_CACHE | ABI_FOPEN_NOFLUSH;
	}
}

static unsigned series_of(enum open_mode mode)
{
	switch (mode) {
	case OPEN_PASSTHROUGH:
		return METRIC_OPEN_PASSTHROUGH;
	case OPEN_HEALED:
		return METRIC_OPEN_HEALED;
	default:
		return METRIC_OPEN_CACHED;
	}
}

static void release_slot(struct passthrough *p, uint64_t slot)
{
	int32_t id = opens_released(p->opens, slot);

	if (id)
		close_backing(p, id);
}

/* The last thing that happens to the request. */
static void reply_open(struct passthrough *p, fuse_req_t req,
		       const struct open_call *c)
{
	struct {
		struct abi_out_header head;
		struct abi_open_out out;
	} r = {
		.head = { .len = sizeof(r), .unique = c->unique },
		.out = { .fh = c->slot,
			 .open_flags = open_flags(c->mode),
			 .backing_id = c->backing },
	};

	lock_assert_none();
	metrics_add(METRIC_OPENS, series_of(c->mode), 1);
	/* The opener was killed meanwhile: no RELEASE will come. */
	if (write(p->fd, &r, sizeof(r)) < 0 && errno == ENOENT &&
	    opens_releasing(p->opens, c->slot, c->node))
		release_slot(p, c->slot);
	fuse_reply_none(req);
}

static void answer_all(struct passthrough *p, struct opening *o)
{
	struct opens_inode in = { o->call.node, o->file };
	unsigned n_rechecks = o->n_rechecks;
	struct list ready, *at, *next;

	list_init(&ready);
	opens_decided(p->opens, &o->call,
		      o->backing ? OPEN_PASSTHROUGH : OPEN_CACHED, o->backing,
		      o->backing ? o->file : 0, &ready);
	/* Somebody looked for replaced files and could not see this one. */
	if (o->backing && n_rechecks != atomic_load(&p->n_rechecks))
		recheck(p, &in);
	list_each_safe (at, next, &ready) {
		struct opening *each =
			container_of(list_entry(at, struct open_call, list),
				     struct opening, call);

		reply_open(p, each->req, &each->call);
		free(each);
	}
}

static void dropped(struct notify_drop *d)
{
	struct opening *o = container_of(d, struct opening, drop);

	answer_all(o->p, o);
}

/* Never passed through: nothing is to be decided. */
static void open_fixed(struct passthrough *p, fuse_req_t req, uint64_t unique,
		       uint64_t node)
{
	struct open_call c = { .unique = unique, .node = node };
	int r = opens_begin(p->opens, &c, true);

	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		reply_open(p, req, &c);
}

void passthrough_open(struct passthrough *p, fuse_req_t req, uint64_t unique,
		      uint64_t node, struct source *src,
		      const struct source_file *f)
{
	struct opening *o;
	int r;

	if (!p->on || f->size < PASSTHROUGH_MIN_BYTES) {
		open_fixed(p, req, unique, node);
		return;
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		(void)fuse_reply_err(req, ENOMEM);
		return;
	}
	o->call.unique = unique;
	o->call.node = node;
	o->req = req;
	o->p = p;
	r = opens_begin(p->opens, &o->call, false);
	switch (r) {
	case OPENS_WAIT: /* @o may be gone by now */
		return;
	case OPENS_DECIDE:
		decide(p, o, src, f);
		if (o->backing && o->call.stale) {
			o->drop.node = node;
			o->drop.done = dropped;
			notifier_drop_pages(p->notifier, &o->drop);
		} else {
			answer_all(p, o);
		}
		return;
	case OPENS_ANSWER:
		reply_open(p, req, &o->call);
		break;
	default:
		(void)fuse_reply_err(req, -r);
	}
	free(o);
}

void passthrough_release(struct passthrough *p, fuse_req_t req, uint64_t node,
			 uint64_t fh)
{
	bool mine = opens_releasing(p->opens, fh, node);

	(void)fuse_reply_err(req, 0);
	if (mine)
		release_slot(p, fh);
}
