/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree that a tar stream describes (proof_tree.c), against the one that the
 * same events make of a table of contents; and what a table makes of a header
 * (formats/estargz_tar.c). The rest of a proof is in tests/it/proof.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fs.h"
#include "snapshotter/formats/estargz.h"
#include "snapshotter/proof_tree.h"
#include "tests/lib/esgz_blob.h"
#include "tests/unit/tmpdir.h"
#include "verity/vfile.h"

enum { LEN = 1000 };

/* ---- a layer: d/, f of LEN bytes, e without any ---- */

struct layer_spec {
	struct buf tar;
	size_t split; /* the second unit's output begins here: f's contents */
	struct unit units[2];
	struct extent x;
};

static void add_header(struct buf *b, const char *name, char type,
		       uint64_t size)
{
	uint8_t h[512];
	unsigned sum = 0;

	esgz_tar_header(h, name, size);
	h[156] = (uint8_t)type;
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	(void)snprintf((char *)h + 148, 8, "%06o", sum);
	assert_int_equal(buf_add(b, h, sizeof(h)), 0);
}

static void spec_init(struct layer_spec *s)
{
	static uint8_t contents[1024];

	memset(s, 0, sizeof(*s));
	memset(contents, 'x', LEN);
	add_header(&s->tar, "d/", '5', 0);
	add_header(&s->tar, "f", '0', LEN);
	s->split = s->tar.len;
	assert_int_equal(buf_add(&s->tar, contents, sizeof(contents)), 0);
	add_header(&s->tar, "e", '0', 0);
	s->units[0] = (struct unit){ .clen = 100, .codec = CODEC_GZIP_MEMBER };
	s->units[1] = (struct unit){ .blob_off = 100,
				     .clen = 200,
				     .codec = CODEC_GZIP_MEMBER };
	s->x.len = LEN;
	assert_int_equal(sha256_buf(contents, LEN, &s->x.digest), 0);
}

struct digests {
	struct digest index, map;
};

static int fresh_folder(void **state, const char *name)
{
	owned(fd) int top = open_dir(AT_FDCWD, *state);

	int r = remove_tree(top, name);

	assert_true(r == 0 || r == -ENOENT);
	assert_int_equal(mkdirat(top, name, 0700), 0);
	return open_dir(top, name);
}

/* As a table of contents would have it. @mode: of e. */
static void build(void **state, const struct layer_spec *s, uint32_t mode,
		  struct digests *ret)
{
	owned(fd) int dirfd = fresh_folder(state, "toc");
	struct entry d = {
		.path = "d/", .path_len = 2, .type = ENTRY_DIR, .mode = 0644
	};
	struct entry f = { .path = "f",
			   .path_len = 1,
			   .type = ENTRY_REG,
			   .mode = 0644,
			   .size = LEN };
	struct entry en = {
		.path = "e", .path_len = 1, .type = ENTRY_REG, .mode = mode
	};
	struct extent x = s->x;
	struct builder_opts o = { 0 };
	struct builder_result res;
	struct builder *b = NULL;
	struct err e = ERR_INIT;
	uint32_t n, file;
	int r = builder_new(&o, &b);

	assert_int_equal(r, 0);
	r |= builder_sink.unit(b, &s->units[0], &n, &e);
	r |= builder_sink.entry(b, &d, &n, &e);
	r |= builder_sink.entry(b, &f, &file, &e);
	r |= builder_sink.unit(b, &s->units[1], &x.unit, &e);
	r |= builder_sink.extent(b, file, 0, &x, &e);
	r |= builder_sink.entry(b, &en, &n, &e);
	r |= builder_write(b, dirfd, &res, &e);
	if (r)
		fail_msg("%s", e.msg);
	builder_free(b);
	assert_int_equal(vfile_create(dirfd, "index", &ret->index), 0);
	assert_int_equal(vfile_create(dirfd, "map", &ret->map), 0);
}

/* As the tar has it; @x: the extents of the second unit. */
static int rebuild(void **state, const struct layer_spec *s,
		   const struct extent *x, uint32_t n, struct digests *ret,
		   struct err *e)
{
	owned(fd) int dirfd = fresh_folder(state, "tar");
	owned(proof_tree) struct proof_tree *t = NULL;
	struct builder_opts o = { 0 };

	assert_int_equal(proof_tree_new(&o, &t), 0);
	if (proof_tree_unit(t, &s->units[0], NULL, 0, e) < 0 ||
	    proof_tree_feed(t, s->tar.p, s->split, e) < 0 ||
	    proof_tree_unit(t, &s->units[1], x, n, e) < 0)
		return -1;
	for (size_t at = s->split; at < s->tar.len; at += 300)
		if (proof_tree_feed(t, s->tar.p + at,
				    s->tar.len - at < 300 ? s->tar.len - at
							  : 300,
				    e) < 0)
			return -1;
	return proof_tree_finish(t, 0, dirfd, &ret->index, &ret->map, e);
}

static void proof_tree_gives_what_the_table_gave(void **state)
{
	struct layer_spec s;
	struct digests a, b;
	struct err e = ERR_INIT;

	spec_init(&s);
	build(state, &s, 0644, &a);
	if (rebuild(state, &s, &s.x, 1, &b, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(digest_equal(&a.index, &b.index));
	assert_true(digest_equal(&a.map, &b.map));
	/* one attribute of one entry */
	build(state, &s, 0755, &a);
	assert_false(digest_equal(&a.index, &b.index));
	buf_release(&s.tar);
}

static void proof_tree_takes_extents_in_pieces(void **state)
{
	struct layer_spec s;
	struct digests b;
	struct err e = ERR_INIT;
	struct extent x[3];

	spec_init(&s);
	for (int i = 0; i < 3; i++) {
		x[i] = s.x;
		x[i].unit_off = (uint32_t)i * 400;
		x[i].len = i < 2 ? 400 : 200;
	}
	assert_int_equal(rebuild(state, &s, x, 3, &b, &e), 0);
	/* a gap, and a part twice */
	x[1].unit_off = 401;
	x[1].len = 399;
	assert_int_equal(rebuild(state, &s, x, 3, &b, &e), -1);
	assert_int_equal(e.kind, ERR_CORRUPT);
	buf_release(&s.tar);
}

static void proof_tree_refuses_extents_outside_of_files(void **state)
{
	static const struct {
		uint32_t off, len;
		const char *why;
	} cases[] = {
		{ 0, LEN + 1, "goes beyond a file" },
		{ LEN, 10, "outside the files" }, /* padding */
		{ 1024 + 10, 10, "outside the files" }, /* a header */
		{ 5000, 10, "outside the files" },
	};
	struct layer_spec s;

	spec_init(&s);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct extent x[2] = { s.x, s.x };
		struct err e = ERR_INIT;
		struct digests b;

		x[1].unit_off = cases[i].off;
		x[1].len = cases[i].len;
		assert_int_equal(
			rebuild(state, &s, i ? x : x + 1, i ? 2 : 1, &b, &e),
			-1);
		assert_int_equal(e.kind, ERR_CORRUPT);
		if (!strstr(e.msg, cases[i].why))
			fail_msg("'%s' is not '%s'", e.msg, cases[i].why);
	}
	buf_release(&s.tar);
}

static void proof_tree_wants_every_file_covered(void **state)
{
	struct layer_spec s;
	struct digests b;
	struct err e = ERR_INIT;

	spec_init(&s);
	assert_int_equal(rebuild(state, &s, NULL, 0, &b, &e), -1);
	assert_int_equal(e.kind, ERR_CORRUPT);
	buf_release(&s.tar);
}

/* ---- what a table can carry ---- */

static void estargz_tar_rounds_times_as_its_writer(void **state)
{
	static const struct {
		int64_t sec;
		uint32_t nsec;
		int64_t want;
	} cases[] = {
		{ 5, 0, 5 },          { 5, 499999999, 5 },
		{ 5, 500000000, 6 },  { -2, 500000000, -1 },
		{ -1, 700000000, 0 }, { 0, 900000000, 0 },
	};
	owned(estargz_tar) struct estargz_tar *t = NULL;

	(void)state;
	assert_int_equal(estargz_tar_new(&t), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct entry in = { .path = "p",
				    .path_len = 1,
				    .link_target = "",
				    .mtime = cases[i].sec,
				    .mtime_nsec = cases[i].nsec };
		struct entry out;

		assert_int_equal(estargz_tar_entry(t, &in, &out), 0);
		assert_int_equal(out.mtime, cases[i].want);
		assert_int_equal(out.mtime_nsec, 0);
	}
}

static void estargz_tar_writes_names_as_json_does(void **state)
{
	static const struct entry_xattr xattrs[] = {
		{ "user.a", "1", 1 },
		{ "trusted.overlay.opaque", "y", 1 },
		{ "user.overlay.redirect", "y", 1 },
		{ "security.capability", "2", 1 },
	};
	struct entry in = { .path = "a\xff\xc3(\xc3\xa9",
			    .path_len = 6,
			    .link_target = "\xed\xa0\x80",
			    .link_len = 3,
			    .xattrs = xattrs,
			    .n_xattrs = 4 };
	owned(estargz_tar) struct estargz_tar *t = NULL;
	struct entry out;

	(void)state;
	assert_int_equal(estargz_tar_new(&t), 0);
	assert_int_equal(estargz_tar_entry(t, &in, &out), 0);
	assert_string_equal(out.path, "a\xef\xbf\xbd\xef\xbf\xbd(\xc3\xa9");
	assert_int_equal(out.path_len, strlen(out.path));
	assert_int_equal(out.link_len, 9);
	assert_int_equal(out.n_xattrs, 2);
	assert_string_equal(out.xattrs[1].name, "security.capability");
}

#define T(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(proof_tree_gives_what_the_table_gave),
		T(proof_tree_takes_extents_in_pieces),
		T(proof_tree_refuses_extents_outside_of_files),
		T(proof_tree_wants_every_file_covered),
		cmocka_unit_test(estargz_tar_rounds_times_as_its_writer),
		cmocka_unit_test(estargz_tar_writes_names_as_json_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
