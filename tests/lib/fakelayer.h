/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: a layer made from a directory. The index is a real one, the bytes
 * come from the files of the directory, and those of files whose names begin
 * with "slow" are absent until the test lets them arrive.
 *
 * The tree may hold everything a layer may: links, devices (0:0 is a whiteout),
 * trusted.* and security.* attributes.
 */
#ifndef TESTS_FAKELAYER_H
#define TESTS_FAKELAYER_H

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/list.h"
#include "base/lock.h"
#include "fuse/index.h"
#include "fuse/source.h"
#include "snapshotter/index_write.h"

/* Where a file's bytes come from. */
struct fake_file {
	char *path;
	bool slow;
};

struct fake_layer {
	struct source src;
	int index_fd;
	uint32_t n_files;
	struct fake_file *files; /* by ordinal - 1 */
	struct lock lock; /* guards what follows */
	struct cond changed;
	bool arrived; /* "slow" files can be read */
	bool sync; /* want() calls done() itself */
	bool pass; /* the kernel may read all files, "slow" ones, too */
	unsigned n_lose; /* so many reads after a done() find nothing again */
	int fail; /* done() gets this, if not 0 */
	int busy; /* want() returns this, if not 0 */
	struct list waits;
	unsigned n_waits, n_wants;
	unsigned n_refs; /* held by the view */
	atomic_bool gone;
	atomic_uint n_failed; /* reads that failed for the view's reasons */
};

struct fake_wait {
	struct list node;
	struct source_wait *w;
	bool running; /* done() has been called, and has not returned */
};

/* ---- the tree ---- */

struct fake_builder {
	struct index_node *nodes;
	struct index_name *names;
	struct fake_file *files; /* by node */
	struct {
		dev_t dev;
		ino_t ino;
	} * ids; /* by node, for hard links */
	uint32_t n_nodes, n_names, cap;
	uint64_t next_addr;
};

static inline void *fake_must(void *p)
{
	if (!p)
		abort();
	return p;
}

static inline uint32_t fake_new_node(struct fake_builder *b)
{
	if (b->n_nodes == b->cap || b->n_names == b->cap) {
		b->cap = b->cap ? b->cap * 2 : 64;
		b->nodes = fake_must(
			realloc(b->nodes, b->cap * sizeof(*b->nodes)));
		b->names = fake_must(
			realloc(b->names, b->cap * sizeof(*b->names)));
		b->files = fake_must(
			realloc(b->files, b->cap * sizeof(*b->files)));
		b->ids = fake_must(realloc(b->ids, b->cap * sizeof(*b->ids)));
	}
	memset(&b->nodes[b->n_nodes], 0, sizeof(*b->nodes));
	memset(&b->files[b->n_nodes], 0, sizeof(*b->files));
	return b->n_nodes++;
}

static inline void fake_xattrs(struct index_node *n, const char *path)
{
	static char names[65536], value[65536];
	struct buf area = { 0 };
	ssize_t len = llistxattr(path, names, sizeof(names));

	for (char *s = names; len > 0 && s < names + len; s += strlen(s) + 1) {
		ssize_t v = lgetxattr(path, s, value, sizeof(value));

		if (v < 0 || index_xattr_add(&area, s, value, (size_t)v) < 0)
			abort();
	}
	n->xattrs = area.p;
	n->xattr_len = (uint32_t)area.len;
}

/* Returns the node of @path, a new one unless it is a known hard link. */
static inline uint32_t fake_add(struct fake_builder *b, const char *path)
{
	const char *base = strrchr(path, '/') + 1;
	char target[4096];
	struct stat st;
	uint32_t i;

	if (lstat(path, &st) < 0)
		abort();
	for (i = 0; !S_ISDIR(st.st_mode) && st.st_nlink > 1 && i < b->n_nodes;
	     i++)
		if (b->ids[i].ino == st.st_ino && b->ids[i].dev == st.st_dev) {
			b->nodes[i].nlink++;
			return i;
		}
	i = fake_new_node(b);
	b->ids[i].dev = st.st_dev;
	b->ids[i].ino = st.st_ino;
	struct index_node *n = &b->nodes[i];

	n->mode = st.st_mode;
	n->uid = st.st_uid;
	n->gid = st.st_gid;
	n->nlink = S_ISDIR(st.st_mode) ? 2 : 1;
	n->mtime = st.st_mtim.tv_sec;
	n->mtime_nsec = (uint32_t)st.st_mtim.tv_nsec;
	fake_xattrs(n, path);
	if (S_ISREG(st.st_mode)) {
		n->size = (uint64_t)st.st_size;
		n->file.addr = n->size ? b->next_addr : 0;
		b->next_addr += (n->size + 4095) & ~UINT64_C(4095);
		b->files[i].path = fake_must(strdup(path));
		b->files[i].slow = strncmp(base, "slow", 4) == 0;
	} else if (S_ISLNK(st.st_mode)) {
		n->size = (uint64_t)st.st_size;
		if (readlink(path, target, sizeof(target)) != st.st_size)
			abort();
		target[st.st_size] = '\0';
		n->target = fake_must(strdup(target));
	} else if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) {
		n->rdev = index_rdev(major(st.st_rdev), minor(st.st_rdev));
	}
	return i;
}

static inline int fake_by_bytes(const struct dirent **x,
				const struct dirent **y)
{
	return strcmp((*x)->d_name, (*y)->d_name);
}

static inline int fake_no_dots(const struct dirent *d)
{
	return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static inline void fake_add_dir(struct fake_builder *b, const char *path,
				uint32_t dir)
{
	struct dirent **list;
	int n = scandir(path, &list, fake_no_dots, fake_by_bytes);
	uint32_t first = b->n_names;
	char child[4096];

	if (n < 0)
		abort();
	for (int i = 0; i < n; i++) {
		(void)snprintf(child, sizeof(child), "%s/%s", path,
			       list[i]->d_name);
		uint32_t node = fake_add(b, child);

		b->names[b->n_names++] = (struct index_name){
			.s = fake_must(strdup(list[i]->d_name)),
			.dir = dir,
			.node = node,
			.len = (uint8_t)strlen(list[i]->d_name),
		};
	}
	b->nodes[dir].dir.first = first;
	b->nodes[dir].dir.n = (uint32_t)n;
	for (int i = 0; i < n; i++) {
		uint32_t node = b->names[first + (uint32_t)i].node;

		if (S_ISDIR(b->nodes[node].mode)) {
			b->nodes[dir].nlink++;
			b->nodes[node].dir.parent = dir;
			(void)snprintf(child, sizeof(child), "%s/%s", path,
				       list[i]->d_name);
			fake_add_dir(b, child, node);
		}
		free(list[i]);
	}
	free(list);
}

static inline int fake_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	struct fake_layer *l = ctx;

	return pread_full(l->index_fd, p, len, off);
}

static inline void fake_index(struct fake_layer *l, struct fake_builder *b)
{
	struct index_image img = {
		.nodes = b->nodes,
		.names = b->names,
		.n_nodes = b->n_nodes,
		.n_names = b->n_names,
		.device_size = b->next_addr,
		.uuid = { 1 },
	};
	struct index_io io = { .pread = fake_pread, .ctx = l };
	char dir[] = "/tmp/fakelayer-XXXXXX", path[64];
	struct err e = ERR_INIT;
	struct stat st;
	int dirfd;

	if (!mkdtemp(dir))
		abort();
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0 || index_place(&img, &e) < 0 ||
	    index_write(&img, dirfd, "index", &e) < 0) {
		(void)fprintf(stderr, "fake index: %s\n", e.msg);
		abort();
	}
	l->index_fd = openat(dirfd, "index", O_RDONLY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%s/index", dir);
	(void)unlink(path);
	(void)rmdir(dir);
	(void)close(dirfd);
	if (l->index_fd < 0 || fstat(l->index_fd, &st) < 0)
		abort();
	io.size = (uint64_t)st.st_size;
	if (index_open(&io, &l->src.index) < 0)
		abort();
	free(img.order);
}

/* ---- the source ---- */

static inline struct fake_layer *fake_of(struct source *s)
{
	return container_of(s, struct fake_layer, src);
}

static inline int fake_read(struct source *s, const struct source_file *f,
			    uint64_t off, void *p, size_t len)
{
	struct fake_layer *l = fake_of(s);
	struct fake_file *ff = &l->files[f->ino - 1];
	bool absent = false;

	lock_take(&l->lock);
	if (ff->slow && l->arrived && l->n_lose) {
		l->n_lose--;
		absent = true;
	} else if (ff->slow) {
		absent = !l->arrived;
	}
	lock_drop(&l->lock);
	if (absent)
		return -EAGAIN;
	owned(fd) int fd = open(ff->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return pread_full(fd, p, len, off);
}

static inline int fake_backing_fd(struct source *s, const struct source_file *f)
{
	struct fake_layer *l = fake_of(s);
	bool pass;
	int fd;

	lock_take(&l->lock);
	pass = l->pass;
	lock_drop(&l->lock);
	if (!pass)
		return -EAGAIN;
	fd = open(l->files[f->ino - 1].path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static inline void fake_run(struct fake_layer *l, struct fake_wait *fw, int r)
{
	fw->w->done(fw->w, r);
	lock_take(&l->lock);
	list_remove(&fw->node);
	l->n_waits--;
	cond_broadcast(&l->changed);
	lock_drop(&l->lock);
	free(fw);
}

static inline int fake_want(struct source *s, const struct source_file *f,
			    uint64_t off, size_t len, struct source_wait *w)
{
	struct fake_layer *l = fake_of(s);
	struct fake_wait *fw = fake_must(calloc(1, sizeof(*fw)));
	int busy, fail;

	(void)f;
	(void)off;
	(void)len;
	fw->w = w;
	list_init(&fw->node);
	lock_take(&l->lock);
	l->n_wants++;
	busy = l->busy;
	fail = l->fail;
	if (!busy) {
		fw->running = l->sync || l->arrived;
		list_push(&l->waits, &fw->node);
		l->n_waits++;
		if (l->sync)
			l->arrived = true;
		cond_broadcast(&l->changed);
	}
	bool run = fw->running;

	lock_drop(&l->lock);
	if (busy) {
		free(fw);
		return busy;
	}
	if (run)
		fake_run(l, fw, fail);
	return 0;
}

static inline struct fake_wait *fake_find(struct fake_layer *l,
					  struct source_wait *w)
{
	struct list *p;

	list_each (p, &l->waits)
		if (list_entry(p, struct fake_wait, node)->w == w)
			return list_entry(p, struct fake_wait, node);
	return NULL;
}

static inline void fake_cancel(struct source *s, struct source_wait *w)
{
	struct fake_layer *l = fake_of(s);
	struct fake_wait *fw;

	lock_take(&l->lock);
	while ((fw = fake_find(l, w)) && fw->running)
		cond_wait(&l->changed, &l->lock);
	if (fw)
		fw->running = true;
	lock_drop(&l->lock);
	if (fw)
		fake_run(l, fw, -EINTR);
}

/* The bytes of "slow" files are there from now on. Returns who waited. */
static inline unsigned fake_arrive(struct fake_layer *l)
{
	unsigned n = 0;

	lock_take(&l->lock);
	l->arrived = true;
	for (;;) {
		struct fake_wait *fw = NULL;
		struct list *p;
		int fail = l->fail;

		list_each (p, &l->waits)
			if (!list_entry(p, struct fake_wait, node)->running) {
				fw = list_entry(p, struct fake_wait, node);
				break;
			}
		if (!fw)
			break;
		fw->running = true;
		lock_drop(&l->lock);
		fake_run(l, fw, fail);
		n++;
		lock_take(&l->lock);
	}
	lock_drop(&l->lock);
	return n;
}

/* false: not so within the time */
static inline bool fake_wait_for(struct fake_layer *l, unsigned n_waits,
				 unsigned timeout_ms)
{
	uint64_t end = now_ms() + timeout_ms;
	int r = 0;

	lock_take(&l->lock);
	while (l->n_waits != n_waits && r == 0)
		r = cond_wait_until(&l->changed, &l->lock, end);
	lock_drop(&l->lock);
	return r == 0;
}

static inline void fake_failed(struct source *s, const struct source_file *f,
			       uint64_t off, const char *why)
{
	struct fake_layer *l = container_of(s, struct fake_layer, src);

	(void)f;
	(void)off;
	(void)why;
	atomic_fetch_add(&l->n_failed, 1);
}

static const struct source_ops fake_source_ops = {
	.failed = fake_failed,
	.read = fake_read,
	.want = fake_want,
	.cancel = fake_cancel,
	.backing_fd = fake_backing_fd,
};

static inline struct fake_layer *fake_layer_new(const char *dir, uint32_t seq,
						uint32_t ino_base)
{
	struct fake_layer *l = fake_must(calloc(1, sizeof(*l)));
	struct fake_builder b = { .next_addr = 0 };

	l->src.ops = &fake_source_ops;
	l->src.seq = seq;
	l->src.ino_base = ino_base;
	lock_init(&l->lock, RANK_LEAF);
	list_init(&l->waits);
	if (cond_init(&l->changed) < 0)
		abort();
	uint32_t root = fake_add(&b, dir);

	b.nodes[root].dir.parent = root;
	fake_add_dir(&b, dir, root);
	fake_index(l, &b);
	l->n_files = b.n_nodes;
	l->files = fake_must(calloc(b.n_nodes, sizeof(*l->files)));
	for (uint32_t i = 0; i < b.n_nodes; i++) {
		l->files[b.nodes[i].ino - 1] = b.files[i];
		free((void *)(uintptr_t)b.nodes[i].xattrs);
		if (S_ISLNK(b.nodes[i].mode))
			free((void *)(uintptr_t)b.nodes[i].target);
	}
	for (uint32_t i = 0; i < b.n_names; i++)
		free((void *)(uintptr_t)b.names[i].s);
	free(b.nodes);
	free(b.names);
	free(b.files);
	free(b.ids);
	return l;
}

static inline void fake_layer_free(struct fake_layer *l)
{
	for (uint32_t i = 0; i < l->n_files; i++)
		free(l->files[i].path);
	free(l->files);
	index_close(l->src.index);
	(void)close(l->index_fd);
	cond_release(&l->changed);
	lock_release(&l->lock);
	free(l);
}

/* ---- the set ---- */

#define FAKE_MAX 16
struct fake_set {
	atomic_uint n; /* stored last */
	struct fake_layer *layers[FAKE_MAX];
};

static inline struct source *fake_get(void *ctx, uint32_t seq)
{
	struct fake_set *fs = ctx;

	for (unsigned i = 0; i < fs->n; i++) {
		struct fake_layer *l = fs->layers[i];

		if (l->src.seq != seq || atomic_load(&l->gone))
			continue;
		lock_take(&l->lock);
		l->n_refs++;
		lock_drop(&l->lock);
		return &l->src;
	}
	return NULL;
}

static inline void fake_put(void *ctx, struct source *s)
{
	struct fake_layer *l = fake_of(s);

	(void)ctx;
	lock_take(&l->lock);
	l->n_refs--;
	lock_drop(&l->lock);
}

static inline struct source_set fake_sources(struct fake_set *fs)
{
	return (struct source_set){ .get = fake_get,
				    .put = fake_put,
				    .ctx = fs };
}

static inline struct fake_layer *fake_set_add(struct fake_set *fs,
					      const char *dir, uint32_t seq,
					      uint32_t ino_base)
{
	if (fs->n == FAKE_MAX)
		abort();
	struct fake_layer *l = fake_layer_new(dir, seq, ino_base);

	fs->layers[fs->n] = l;
	atomic_fetch_add(&fs->n, 1);
	return l;
}

static inline void fake_set_free(struct fake_set *fs)
{
	for (unsigned i = 0; i < fs->n; i++)
		fake_layer_free(fs->layers[i]);
	fs->n = 0;
}

#endif
