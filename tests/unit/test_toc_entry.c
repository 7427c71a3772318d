/* SPDX-License-Identifier: Apache-2.0 */
/* One entry: values that must come out, and values that must not pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/buf.h"
#include "snapshotter/formats/toc_entry.h"
#include "snapshotter/formats/toc_scan.h"

static int parse(struct toc_parser *p, const char *text, struct toc_entry *t,
		 struct err *e)
{
	return toc_parser_entry(p, text, strlen(text), 7, t, e);
}

static struct toc_parser *new_parser(void)
{
	struct toc_parser *p = NULL;

	assert_int_equal(toc_parser_new(&p), 0);
	return p;
}

static void refused(const char *text, enum err_kind kind, const char *reason)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t = { .offset = 4711 };

	if (parse(p, text, &t, &e) == 0)
		fail_msg("passed: %s", text);
	if (e.kind != kind || !strstr(e.msg, reason))
		fail_msg("%s: kind %d, '%s', not '%s'", text, e.kind, e.msg,
			 reason);
	assert_non_null(strstr(e.msg, "toc: entry 7 \""));
	assert_int_equal(t.offset, 4711);
	toc_parser_free(p);
}

#define DIGEST \
	"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void entry_gives_all_fields(void **state unused_arg)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t;

	assert_int_equal(
		parse(p,
		      "{\"name\":\"\\u00fc/b\",\"type\":\"reg\",\"size\":10,"
		      "\"modtime\":\"2023-11-14T22:13:20Z\",\"mode\":35309,"
		      "\"uid\":4294967294,\"gid\":3,\"userName\":\"x\","
		      "\"offset\":1000,\"innerOffset\":512,\"chunkSize\":5,"
		      "\"chunkDigest\":\"" DIGEST "\",\"NumLink\":2,"
		      "\"unknown\":[{\"a\":null}]}",
		      &t, &e),
		0);
	assert_false(t.is_chunk);
	assert_int_equal(t.en.type, ENTRY_REG);
	assert_string_equal(t.en.path, "\xc3\xbc/b");
	assert_int_equal(t.en.path_len, 4);
	assert_int_equal(t.en.size, 10);
	assert_int_equal(t.en.mtime, 1700000000);
	assert_int_equal(t.en.mode, 04755); /* the type's bits are gone */
	assert_int_equal(t.en.uid, 4294967294);
	assert_int_equal(t.en.gid, 3);
	assert_int_equal(t.offset, 1000);
	assert_int_equal(t.inner, 512);
	assert_int_equal(t.chunk_off, 0);
	assert_int_equal(t.chunk_len, 5);
	assert_true(t.has_digest);
	assert_string_equal(digest_str(&t.digest).s, DIGEST);
	assert_int_equal(t.en.n_xattrs, 0);

	/* nothing of it is left in the next one */
	assert_int_equal(parse(p, "{\"name\":\"\",\"type\":\"dir\"}", &t, &e),
			 0);
	assert_int_equal(t.en.path_len, 0);
	assert_int_equal(t.en.type, ENTRY_DIR);
	assert_int_equal(t.en.mode, 0);
	assert_int_equal(t.en.mtime, 0);
	assert_false(t.has_digest);
	toc_parser_free(p);
}

static void entry_knows_every_type(void **state unused_arg)
{
	static const struct {
		const char *text;
		enum entry_type type;
	} cases[] = {
		{ "\"dir\"", ENTRY_DIR },
		{ "\"symlink\",\"linkName\":\"t\"", ENTRY_SYMLINK },
		{ "\"hardlink\",\"linkName\":\"t\"", ENTRY_HARDLINK },
		{ "\"char\",\"devMajor\":4095,\"devMinor\":1048575",
		  ENTRY_CHAR },
		{ "\"block\"", ENTRY_BLOCK },
		{ "\"fifo\"", ENTRY_FIFO },
	};
	struct toc_parser *p = new_parser();

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = ERR_INIT;
		struct toc_entry t;
		char text[200];

		(void)snprintf(text, sizeof(text),
			       "{\"name\":\"n\",\"type\":%s}", cases[i].text);
		assert_int_equal(parse(p, text, &t, &e), 0);
		assert_int_equal(t.en.type, cases[i].type);
		if (t.en.type == ENTRY_SYMLINK)
			assert_string_equal(t.en.link_target, "t");
		if (t.en.type == ENTRY_CHAR)
			assert_int_equal(t.en.dev_minor, 1048575);
	}
	toc_parser_free(p);
}

static void entry_refuses_wrong_json(void **state unused_arg)
{
	static const char *const bad[] = {
		"{\"name\":'n',\"type\":\"dir\"}",
		"{\"name\":\"n\",\"type\":\"dir\",}",
		"{\"name\":\"n\" \"type\":\"dir\"}",
		"{\"name\":\"n\",\"type\":\"dir\"",
		"{\"name\":\"n\",\"type\":\"dir\"}}",
		"{\"name\":\"\xff\",\"type\":\"dir\"}",
		"{\"name\":\"n\",/* c */\"type\":\"dir\"}",
		"[]",
		"1",
		"{\"a\":[[[[[[[[[[1]]]]]]]]]]}",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		refused(bad[i], ERR_CORRUPT, "no JSON object");
	refused("{\"name\":\"a\\u0000b\",\"type\":\"dir\"}", ERR_CORRUPT,
		"a NUL");
	refused("{\"name\\u0000\":\"n\",\"type\":\"dir\"}", ERR_CORRUPT,
		"a NUL");
}

/* A backslash and "u0000" behind it is a legal, if strange, name. */
static void entry_takes_an_escaped_backslash(void **state unused_arg)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t;

	assert_int_equal(
		parse(p, "{\"name\":\"a\\\\u0000b\",\"type\":\"dir\"}", &t, &e),
		0);
	assert_string_equal(t.en.path, "a\\u0000b");
	toc_parser_free(p);
}

/* The last of equal keys counts, as in Go; unlike there, case matters. Half a
 * surrogate pair becomes U+FFFD, which layers are refused for. */
static void entry_reads_odd_json_in_one_way(void **state unused_arg)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t;

	assert_int_equal(parse(p,
			       "{\"name\":\"first\",\"type\":\"dir\","
			       "\"uid\":1,\"uid\":2,\"UID\":3,"
			       "\"name\":\"\\ud800x\"}",
			       &t, &e),
			 0);
	assert_int_equal(t.en.uid, 2);
	assert_string_equal(t.en.path, "\xef\xbf\xbdx");
	toc_parser_free(p);
	refused("{\"name\":\"n\",\"type\":\"dir\",\"uid\":-1,\"uid\":-2}",
		ERR_CORRUPT, "uid is out of range");
}

static void entry_refuses_wrong_types_and_ranges(void **state unused_arg)
{
	static const struct {
		const char *text, *reason;
	} bad[] = {
		{ "\"uid\":1.0", "uid is no integer" },
		{ "\"uid\":1e3", "uid is no integer" },
		{ "\"uid\":\"1\"", "uid is no integer" },
		{ "\"uid\":null", "uid is no integer" },
		{ "\"uid\":true", "uid is no integer" },
		{ "\"uid\":NaN", "uid is no integer" },
		{ "\"uid\":-1", "uid is out of range" },
		{ "\"gid\":4294967295", "gid is out of range" },
		{ "\"gid\":99999999999999999999999", "gid is out of range" },
		{ "\"mode\":-1", "mode is out of range" },
		{ "\"size\":1099511627777", "size is out of range" },
		{ "\"size\":-9223372036854775809", "size is out of range" },
		{ "\"offset\":-1", "offset is out of range" },
		{ "\"offset\":9223372036854775807", "offset is out of range" },
		{ "\"offset\":18446744073709551615", "offset is out of range" },
		{ "\"innerOffset\":4294967296", "innerOffset is out of range" },
		{ "\"chunkOffset\":-4", "chunkOffset is out of range" },
		{ "\"chunkSize\":-4", "chunkSize is out of range" },
		{ "\"devMajor\":4096", "devMajor is out of range" },
		{ "\"devMinor\":1048576", "devMinor is out of range" },
		{ "\"modtime\":5", "modtime is no string" },
		{ "\"modtime\":\"yesterday\"", "no RFC 3339 time" },
		{ "\"chunkDigest\":\"md5:00\"", "no SHA-256 digest" },
		{ "\"chunkDigest\":\"sha256:../../../etc/passwd\"",
		  "no SHA-256 digest" },
		{ "\"chunkDigest\":7", "chunkDigest is no string" },
		{ "\"xattrs\":[]", "xattrs is no object" },
		{ "\"xattrs\":{\"user.a\":1}", "no string" },
		{ "\"xattrs\":{\"user.a\":null}", "no string" },
		{ "\"xattrs\":{\"user.a\":\"a\"}", "no base64" },
		{ "\"xattrs\":{\"\":\"\"}", "xattr name of 0 bytes" },
		{ "\"xattrs\":{\"security.capability\":\"AQAA\"}",
		  "security.capability has 3 bytes" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char text[300];

		(void)snprintf(text, sizeof(text),
			       "{\"name\":\"n\",\"type\":\"reg\",%s}",
			       bad[i].text);
		refused(text, ERR_CORRUPT, bad[i].reason);
	}
}

static void entry_refuses_what_is_missing_or_odd(void **state unused_arg)
{
	refused("{\"type\":\"dir\"}", ERR_CORRUPT, "no name");
	refused("{\"name\":1,\"type\":\"dir\"}", ERR_CORRUPT,
		"name is no string");
	refused("{\"name\":\"n\"}", ERR_CORRUPT, "no type");
	refused("{\"name\":\"n\",\"type\":\"door\"}", ERR_UNSUPPORTED,
		"unknown type");
	refused("{\"name\":\"n\",\"type\":\"symlink\"}", ERR_CORRUPT,
		"no linkName");
	refused("{\"name\":\"n\",\"type\":\"hardlink\",\"linkName\":\"\"}",
		ERR_CORRUPT, "no linkName");
	refused("{\"name\":\"n\",\"type\":\"hardlink\",\"linkName\":\"a\","
		"\"size\":1}",
		ERR_CORRUPT, "no regular file");
	refused("{\"name\":\"n\",\"type\":\"dir\",\"size\":1}", ERR_CORRUPT,
		"no regular file");
}

static void entry_bounds_its_strings(void **state unused_arg)
{
	char text[6000], name[5000];

	memset(name, 'a', sizeof(name));
	name[4097] = '\0';
	(void)snprintf(text, sizeof(text), "{\"name\":\"%s\",\"type\":\"dir\"}",
		       name);
	refused(text, ERR_CORRUPT, "name is longer than 4096 bytes");
	name[4096] = '\0';
	(void)snprintf(text, sizeof(text),
		       "{\"name\":\"n\",\"type\":\"symlink\",\"linkName\":"
		       "\"%s\"}",
		       name);
	refused(text, ERR_CORRUPT, "linkName is longer than 4095 bytes");
}

static void label_is_short_and_plain(void **state unused_arg)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t;
	char text[800], name[300];

	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	(void)snprintf(text, sizeof(text),
		       "{\"name\":\"\\u001b[1m\\\"\\n%s\","
		       "\"type\":\"x\"}",
		       name);
	assert_int_equal(parse(p, text, &t, &e), -1);
	assert_memory_equal(e.msg, "toc: entry 7 \"?[1m??nnn", 23);
	assert_non_null(strstr(e.msg, "nnn...\": unknown type"));
	toc_parser_free(p);
}

/* ---- extended attributes ---- */

static void xattrs_of_overlayfs_and_root_are_left_out(void **state unused_arg)
{
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;
	struct toc_entry t;

	assert_int_equal(
		parse(p,
		      "{\"name\":\"n\",\"type\":\"dir\",\"xattrs\":{"
		      "\"trusted.overlay.opaque\":\"eQ==\","
		      "\"trusted.x\":\"eQ==\",\"user.overlay.redirect\":\"eQ==\","
		      "\"user.a.overlay.b\":\"eQ==\",\"system.nfs4_acl\":\"eQ==\","
		      "\"com.apple.x\":\"eQ==\",\"user.\":\"eQ==\","
		      "\"system.posix_acl_access\":\"AAEC\","
		      "\"user.k\":\"dj0x\",\"user.empty\":\"\","
		      "\"security.selinux\":\"/+8=\"}}",
		      &t, &e),
		0);
	assert_int_equal(t.en.n_xattrs, 4);
	assert_string_equal(t.en.xattrs[0].name, "system.posix_acl_access");
	assert_int_equal(t.en.xattrs[0].len, 3);
	assert_memory_equal(t.en.xattrs[0].value, "\0\1\2", 3);
	assert_string_equal(t.en.xattrs[1].name, "user.k");
	assert_memory_equal(t.en.xattrs[1].value, "v=1", 3);
	assert_string_equal(t.en.xattrs[2].name, "user.empty");
	assert_int_equal(t.en.xattrs[2].len, 0);
	assert_string_equal(t.en.xattrs[3].name, "security.selinux");
	assert_memory_equal(t.en.xattrs[3].value, "\xff\xef", 2);
	toc_parser_free(p);
}

static void add_xattrs(struct buf *b, unsigned n, size_t name_len,
		       size_t value_len)
{
	assert_int_equal(buf_adds(b,
				  "{\"name\":\"n\",\"type\":\"dir\",\"xattrs\""
				  ":{"),
			 0);
	for (unsigned i = 0; i < n; i++) {
		(void)buf_addf(b, "%s\"user.%0*u\":\"", i ? "," : "",
			       (int)name_len - 5, i);
		for (size_t k = 0; k < value_len / 3; k++)
			(void)buf_adds(b, "AAAA");
		(void)buf_adds(b, "\"");
	}
	assert_int_equal(buf_adds(b, "}}"), 0);
}

static void xattrs_are_bounded(void **state unused_arg)
{
	static const struct {
		unsigned n;
		size_t name_len, value_len;
		const char *reason; /* NULL: passes */
	} cases[] = {
		{ 128, 255, 3, NULL },
		{ 129, 20, 3, "more than 128 xattrs" },
		{ 1, 256, 3, "xattr name of 256 bytes" },
		{ 1, 20, 65535, NULL },
		{ 1, 20, 65538, "an xattr of more than 65536 bytes" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf b = { 0 };

		add_xattrs(&b, cases[i].n, cases[i].name_len,
			   cases[i].value_len);
		if (cases[i].reason) {
			refused((char *)b.p, ERR_CORRUPT, cases[i].reason);
		} else {
			struct toc_parser *p = new_parser();
			struct err e = ERR_INIT;
			struct toc_entry t;

			assert_int_equal(parse(p, (char *)b.p, &t, &e), 0);
			assert_int_equal(t.en.n_xattrs, cases[i].n);
			toc_parser_free(p);
		}
		buf_release(&b);
	}
}

/* ---- the small parsers ---- */

static void time_takes_rfc3339_only(void **state unused_arg)
{
	static const struct {
		const char *s;
		int64_t sec;
		uint32_t nsec;
	} good[] = {
		{ "1970-01-01T00:00:00Z", 0, 0 },
		{ "1969-12-31T23:59:59Z", -1, 0 },
		{ "2023-11-14T22:13:20Z", 1700000000, 0 },
		{ "2000-02-29T12:00:00Z", 951825600, 0 },
		{ "1900-03-01T00:00:00Z", -2203891200, 0 },
		{ "0000-01-01T00:00:00Z", -62167219200, 0 },
		{ "0001-01-01T00:00:00Z", -62135596800, 0 },
		{ "9999-12-31T23:59:59Z", 253402300799, 0 },
		{ "2023-11-14T22:13:20.5Z", 1700000000, 500000000 },
		{ "2023-11-14T22:13:20.1234567891Z", 1700000000, 123456789 },
		{ "2023-11-15T00:13:20+02:00", 1700000000, 0 },
		{ "2023-11-14T16:43:20-05:30", 1700000000, 0 },
	};
	static const char *const bad[] = {
		"",
		"2023-11-14",
		"2023-11-14 22:13:20Z",
		"2023-11-14T22:13:20",
		"2023-11-14T22:13:20z",
		"2023-11-14T22:13:20Zx",
		"2023-13-14T22:13:20Z",
		"2023-00-14T22:13:20Z",
		"2023-02-29T22:13:20Z",
		"1900-02-29T22:13:20Z",
		"2023-04-31T22:13:20Z",
		"2023-04-00T22:13:20Z",
		"2023-04-30T24:00:00Z",
		"2023-04-30T23:60:00Z",
		"2023-04-30T23:59:60Z",
		"2023-04-30T23:59:59.Z",
		"2023-04-30T23:59:59+24:00",
		"2023-04-30T23:59:59+0200",
		"-023-04-30T23:59:59Z",
		"12023-04-30T23:59:59Z",
	};
	int64_t sec;
	uint32_t nsec;

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(toc_parse_time(good[i].s, strlen(good[i].s),
						&sec, &nsec),
				 0);
		assert_int_equal(sec, good[i].sec);
		assert_int_equal(nsec, good[i].nsec);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (toc_parse_time(bad[i], strlen(bad[i]), &sec, &nsec) == 0)
			fail_msg("passed: %s", bad[i]);
	}
}

static void version_must_be_one(void **state unused_arg)
{
	static const char *const bad[] = { "2",   "1.0", "\"1\"", "null",
					   "[1]", "01",  "1x" };
	struct toc_parser *p = new_parser();
	struct err e = ERR_INIT;

	assert_int_equal(toc_parser_version(p, "1", 1, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (toc_parser_version(p, bad[i], strlen(bad[i]), &e) == 0)
			fail_msg("passed: %s", bad[i]);
		assert_int_equal(e.kind, ERR_UNSUPPORTED);
	}
	toc_parser_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entry_gives_all_fields),
		cmocka_unit_test(entry_knows_every_type),
		cmocka_unit_test(entry_refuses_wrong_json),
		cmocka_unit_test(entry_takes_an_escaped_backslash),
		cmocka_unit_test(entry_reads_odd_json_in_one_way),
		cmocka_unit_test(entry_refuses_wrong_types_and_ranges),
		cmocka_unit_test(entry_refuses_what_is_missing_or_odd),
		cmocka_unit_test(entry_bounds_its_strings),
		cmocka_unit_test(label_is_short_and_plain),
		cmocka_unit_test(xattrs_of_overlayfs_and_root_are_left_out),
		cmocka_unit_test(xattrs_are_bounded),
		cmocka_unit_test(time_takes_rfc3339_only),
		cmocka_unit_test(version_must_be_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
