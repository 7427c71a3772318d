/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of builder and index: feed entries to a builder as a parser would,
 * write the two files into a folder of their own, and open the index again.
 */
#ifndef TESTS_LAYER_TREE_H
#define TESTS_LAYER_TREE_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/io.h"
#include "fuse/index.h"
#include "snapshotter/builder_priv.h"

struct tree {
	struct builder *b;
	struct err e;
	uint32_t handle; /* of the last entry */
	uint64_t blob_off; /* where the next unit begins */
	struct builder_result res;
	char *path; /* one of tree_folders */
	int dirfd;
	int index_fd;
	struct index *ix;
};

/* Folders that exist. A test that fails jumps over its own tree_release(), so
 * the teardown looks here, too. */
static char tree_folders[4][32];

static inline void tree_remove_folder(char *path)
{
	owned(fd) int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (path[0] && remove_tree(tmp, path + strlen("/tmp/")) < 0)
		(void)fprintf(stderr, "left behind: %s\n", path);
	path[0] = '\0';
}

static inline void tree_setup(struct tree *t, const struct builder_opts *o)
{
	static const struct builder_opts none;
	size_t i = 0;

	memset(t, 0, sizeof(*t));
	t->index_fd = -1;
	while (i < ARRAY_LEN(tree_folders) && tree_folders[i][0])
		i++;
	if (i == ARRAY_LEN(tree_folders))
		abort();
	t->path = tree_folders[i];
	(void)snprintf(t->path, sizeof(tree_folders[i]), "/tmp/vs-tree-XXXXXX");
	if (!mkdtemp(t->path))
		abort();
	t->dirfd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->dirfd < 0 || builder_new(o ? o : &none, &t->b) < 0)
		abort();
}

static inline void tree_release(struct tree *t)
{
	index_close(t->ix);
	if (t->index_fd >= 0)
		(void)close(t->index_fd);
	builder_free(t->b);
	(void)close(t->dirfd);
	tree_remove_folder(t->path);
}

static inline void tree_sweep(void)
{
	for (size_t i = 0; i < ARRAY_LEN(tree_folders); i++)
		tree_remove_folder(tree_folders[i]);
}

static inline int tree_add(struct tree *t, const struct entry *en)
{
	t->e = (struct err)ERR_INIT;
	return builder_sink.entry(t->b, en, &t->handle, &t->e);
}

/* add(t, "a/b", ENTRY_DIR, .mode = 0755) */
#define add(t, p, kind, ...)                                  \
	tree_add((t), &(struct entry){ .path = (p),           \
				       .path_len = strlen(p), \
				       .type = (kind),        \
				       __VA_ARGS__ })
#define add_dir(t, p) add(t, p, ENTRY_DIR, .mode = 0755)
#define add_empty(t, p) add(t, p, ENTRY_REG, .mode = 0644)
#define add_link(t, p, to) \
	add(t, p, ENTRY_HARDLINK, .link_target = (to), .link_len = strlen(to))
#define add_symlink(t, p, to) \
	add(t, p, ENTRY_SYMLINK, .link_target = (to), .link_len = strlen(to))

static inline int tree_unit(struct tree *t, uint32_t clen, uint32_t *ret)
{
	struct unit u = { .blob_off = t->blob_off,
			  .clen = clen,
			  .codec = CODEC_GZIP_MEMBER };

	t->blob_off += clen;
	return builder_sink.unit(t->b, &u, ret, &t->e);
}

static inline int tree_extent(struct tree *t, uint64_t off, uint32_t len,
			      uint32_t unit, uint32_t unit_off, uint8_t digest)
{
	struct extent x = { .len = len, .unit = unit, .unit_off = unit_off };

	memset(x.digest.b, unit == UNIT_HOLE ? 0 : digest, DIGEST_LEN);
	return builder_sink.extent(t->b, t->handle, off, &x, &t->e);
}

/* A file of @size bytes in chunks of up to 64 KiB, one unit each; @digest
 * stands for its contents. */
static inline int tree_file(struct tree *t, const char *path, uint64_t size,
			    uint8_t digest)
{
	uint32_t unit, len;

	if (add(t, path, ENTRY_REG, .mode = 0644, .size = size) < 0)
		return -1;
	for (uint64_t off = 0; off < size; off += len) {
		len = size - off < 65536 ? (uint32_t)(size - off) : 65536;
		if (tree_unit(t, len / 2 + 1, &unit) < 0 ||
		    tree_extent(t, off, len, unit, 0, digest) < 0)
			return -1;
	}
	return 0;
}

static inline int tree_pread(void *ctx, void *p, size_t len, uint64_t off)
{
	return pread_full(*(int *)ctx, p, len, off);
}

/* Writes both files, opens the index. */
static inline int tree_build(struct tree *t)
{
	struct index_io io = { .pread = tree_pread, .ctx = &t->index_fd };
	struct stat st;

	t->e = (struct err)ERR_INIT;
	if (builder_write(t->b, t->dirfd, &t->res, &t->e) < 0)
		return -1;
	t->index_fd = openat(t->dirfd, "index", O_RDONLY | O_CLOEXEC);
	if (t->index_fd < 0 || fstat(t->index_fd, &st) < 0)
		abort();
	io.size = (uint64_t)st.st_size;
	return index_open(&io, &t->ix);
}

static inline int tree_stat(struct tree *t, const char *path, struct inode *in)
{
	return index_walk(t->ix, path, in);
}

static inline int setup_tree(void **state)
{
	static struct tree t;

	tree_setup(&t, NULL);
	*state = &t;
	return 0;
}

static inline int teardown_tree(void **state)
{
	tree_release(*state);
	tree_sweep();
	return 0;
}

#define assert_refused(t, call, want_kind, want_msg)        \
	do {                                                \
		assert_int_equal((call), -1);               \
		assert_string_equal((t)->e.msg, want_msg);  \
		assert_int_equal((t)->e.kind, (want_kind)); \
	} while (0)

#endif
