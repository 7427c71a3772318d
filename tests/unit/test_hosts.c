/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c, hosts_load.c: which servers speak for a registry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fs.h"
#include "snapshotter/hosts.h"
#include "tests/unit/tmpdir.h"

/* ---- texts ---- */

static struct host_list *parse(const char *registry, const char *text)
{
	struct host_list *l = NULL;
	struct err e = ERR_INIT;

	if (hosts_parse("/d", registry, text, strlen(text), &l, &e) < 0)
		fail_msg("%s", e.msg);
	return l;
}

static void assert_bases(const struct host_list *l, const char *const *bases)
{
	for (size_t i = 0; bases[i]; i++) {
		if (i >= l->n)
			fail_msg("%s is missing", bases[i]);
		assert_string_equal(l->v[i].base, bases[i]);
		assert_true(l->v[i].https == !strncmp(bases[i], "https", 5));
		assert_int_equal(l->n > i + 1, bases[i + 1] != NULL);
	}
}

static void parse_orders_hosts_as_the_file(void **state)
{
	static const struct {
		const char *registry, *text, *bases[6];
	} cases[] = {
		{ "r.io", "", { "https://r.io/v2" } },
		{ "r.io:5000", "", { "https://r.io:5000/v2" } },
		{ "docker.io", "", { "https://registry-1.docker.io/v2" } },
		{ "127.0.0.1:5000", "", { "http://127.0.0.1:5000/v2" } },
		{ "localhost", "", { "https://localhost/v2" } },
		{ "[::1]:5000", "", { "http://[::1]:5000/v2" } },
		{ "r.io", "server = \"https://s.io\"", { "https://s.io/v2" } },
		{ "r.io", "server = \"s.io:81\"", { "https://s.io:81/v2" } },
		{ "r.io", "server = 'http://s.io'", { "http://s.io/v2" } },
		{ "r.io", "server = ''", { "https://r.io/v2" } },
		{ "r.io",
		  "[host.\"https://z.io\"]\n[host.\"http://a.io:5000\"]\n"
		  "[host.'https://z.io'.header]\nx = 'y'\n",
		  { "https://z.io/v2", "http://a.io:5000/v2",
		    "https://r.io/v2" } },
		{ "r.io",
		  "[host.\"m.io/v2/\"]\n[host.\"m.io/p//q/\"]\n"
		  "[host.\"m.io/x\"]\noverride_path = true\n"
		  "[host.\"m.io\"]\noverride_path = true\n",
		  { "https://m.io/v2", "https://m.io/p/q/v2", "https://m.io/x",
		    "https://m.io", "https://r.io/v2" } },
		{ "r.io",
		  "server = 'https://r.io'\n"
		  "[host.\"http://m.io:5000\"]\n  skip_verify = true\n",
		  { "https://m.io:5000/v2", "http://m.io:5000/v2",
		    "https://r.io/v2" } },
		{ "r.io",
		  "[host.'http://m.io:80']\nskip_verify = false\n",
		  { "http://m.io:80/v2", "https://r.io/v2" } },
		{ "r.io",
		  "[host.'a.io']\ncapabilities = ['push']\n"
		  "[host.'b.io']\ncapabilities = [\"Resolve\", 'PULL',\n"
		  "  'referrers', # and so on\n]\n",
		  { "https://b.io/v2", "https://r.io/v2" } },
		{ "r.io",
		  "[host.'[fd00::1]:5000']\n",
		  { "https://[fd00::1]:5000/v2", "https://r.io/v2" } },
		{ "r.io",
		  "host = { \"a.io\" = { skip_verify = true } }",
		  { "https://a.io/v2", "https://r.io/v2" } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(hosts) struct host_list *l =
			parse(cases[i].registry, cases[i].text);

		assert_bases(l, cases[i].bases);
	}
}

static void parse_reads_every_setting(void **state)
{
	static const char text[] =
		"server = \"https://r.io\"\n"
		"ca = 'own.crt'\n"
		"[host.\"https://Mirror.io:5000\"]\n"
		"  capabilities = [\"pull\", \"resolve\"]\n"
		"  ca = [\"a.crt\", \"/abs/b.crt\"]\n"
		"  client = [[\"c.cert\", \"c.key\"], [\"d.cert\", \"\"]]\n"
		"  skip_verify = true\n"
		"  dial_timeout = \"1m2.5s\"\n"
		"  future = 3\n"
		"  [host.\"https://Mirror.io:5000\".header]\n"
		"    X-One = \"1\"\n"
		"    x-many = [\"a\", \"b\"]\n"
		"    x-none = \"\"\n"
		"    Host = \"evil\"\n"
		"[host.'https://one']\nclient = 'one.pem'\n"
		"[host.'https://two']\nclient = ['one.pem', 'two.pem']\n";
	static const char *const headers[] = { "X-One: 1", "x-many: a",
					       "x-many: b", "x-none;", NULL };
	owned(hosts) struct host_list *l = parse("r.io", text);
	const struct host *h = &l->v[0];

	(void)state;
	assert_int_equal(l->n, 4);
	assert_string_equal(h->name, "mirror.io:5000");
	assert_true(h->is_mirror && h->skip_verify);
	assert_int_equal(h->caps, HOST_PULL | HOST_RESOLVE);
	assert_string_equal(h->ca_files[0], "/d/a.crt");
	assert_string_equal(h->ca_files[1], "/abs/b.crt");
	assert_null(h->ca_files[2]);
	assert_string_equal(h->client_cert, "/d/c.cert");
	assert_string_equal(h->client_key, "/d/c.key");
	assert_int_equal(h->dial_ms, 62500);
	for (size_t i = 0; headers[i]; i++)
		assert_string_equal(h->headers[i], headers[i]);
	assert_null(h->headers[ARRAY_LEN(headers) - 1]);
	assert_string_equal(l->v[1].client_cert, "/d/one.pem");
	assert_null(l->v[1].client_key);
	assert_string_equal(l->v[2].client_cert, "/d/one.pem");
	assert_false(l->v[3].is_mirror);
	assert_string_equal(l->v[3].ca_files[0], "/d/own.crt");
}

static void parse_knows_whose_name_it_is(void **state)
{
	owned(hosts) struct host_list *hub =
		parse("docker.io", "server = 'https://registry-1.docker.io'\n"
				   "[host.'https://docker.io']\n"
				   "[host.'https://mirror.gcr.io']\n");

	(void)state;
	assert_false(hub->v[0].is_mirror);
	assert_true(hub->v[1].is_mirror);
	assert_false(hub->v[2].is_mirror);
	assert_string_equal(hub->v[2].name, "registry-1.docker.io");
}

static void parse_refuses_with_file_and_line(void **state)
{
	static const struct {
		const char *text, *msg;
	} bad[] = {
		{ "server = 5", "/d/hosts.toml:1: server must be a string" },
		{ "\nserver = 'ftp://x'", "/d/hosts.toml:2: 'ftp://x' is not" },
		{ "server = 'https://u:p@x'", "is not the address" },
		{ "server = 'https://x/?q=1'", "is not the address" },
		{ "server = 'a b'", "is not the address" },
		{ "server = \"a\\r\\nb\"", "is not the address" },
		{ "[host.'']", "/d/hosts.toml:1: a host without a name" },
		{ "host = 1", "/d/hosts.toml:1: host must be a table" },
		{ "[host]\nx = 1", "/d/hosts.toml:2: x must be a table" },
		{ "[host.x]\ncapabilities = 'pull'",
		  "/d/hosts.toml:2: capabilities must be an array" },
		{ "[host.x]\ncapabilities = ['pull', 'fly']",
		  "unknown capability 'fly'" },
		{ "[host.x]\nca = true", ":2: ca must be" },
		{ "[host.x]\nca = ['a', 1]", "must be a string" },
		{ "[host.x]\nclient = [['a']]", "pairs of two files" },
		{ "[host.x]\nclient = [['a', 'b', 'c']]", "pairs of two" },
		{ "[host.x]\nclient = [['a', 1]]", "must be a string" },
		{ "[host.x]\nclient = { a = 'b' }", ":2: client must be" },
		{ "[host.x]\nskip_verify = 'yes'", "skip_verify must be" },
		{ "[host.x]\noverride_path = 1", "override_path must be" },
		{ "[host.x]\ndial_timeout = 3", "dial_timeout must be" },
		{ "[host.x]\ndial_timeout = '3'", "is not a duration" },
		{ "[host.x]\ndial_timeout = '-3s'", "is not a duration" },
		{ "[host.x]\ndial_timeout = '3s4'", "is not a duration" },
		{ "[host.x]\nheader = 'a: b'", "header must be a table" },
		{ "[host.x.header]\na = 1", "a must be a string" },
		{ "[host.x.header]\n'a b' = 'c'", "sent as a header" },
		{ "[host.x.header]\na = \"c\\r\\nd: e\"", "sent as a header" },
		{ "server = 'x'\ncapabilities = ['push']", "pulled from" },
		{ "[host.x]\n[host.x]\n", "/d/hosts.toml:2: 'x' is defined" },
		{ "[host.'x", "/d/hosts.toml:1: " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct host_list *l = NULL;
		struct err e = ERR_INIT;

		if (hosts_parse("/d", "r.io", bad[i].text, strlen(bad[i].text),
				&l, &e) != -1)
			fail_msg("accepted: %s", bad[i].text);
		assert_int_equal(e.kind, ERR_INVALID);
		if (!strstr(e.msg, bad[i].msg))
			fail_msg("'%s' is not '%s'", e.msg, bad[i].msg);
		assert_null(l);
	}
}

static void parse_bounds_what_a_file_can_ask(void **state)
{
	struct host_list *l = NULL;
	struct err e = ERR_INIT;
	struct buf b = { 0 };

	(void)state;
	for (int i = 0; i <= HOSTS_MAX; i++)
		(void)buf_addf(&b, "[host.'m%d']\n", i);
	assert_int_equal(hosts_parse("/d", "r.io", (char *)b.p, b.len, &l, &e),
			 -1);
	assert_non_null(strstr(e.msg, "more than 16 hosts"));
	buf_release(&b);
}

static void dial_timeout_is_a_duration_of_go(void **state)
{
	static const struct {
		const char *text;
		unsigned ms;
	} cases[] = {
		{ "3s", 3000 },  { "300ms", 300 },     { "1h", 600000 },
		{ "1us", 1 },    { "0s", 0 },          { "", 0 },
		{ ".5s", 500 },  { "1.s", 1000 },      { "1m30s", 90000 },
		{ "2000ns", 1 }, { "99999h", 600000 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(hosts) struct host_list *l = NULL;
		char text[64];

		(void)snprintf(text, sizeof(text), "dial_timeout = '%s'",
			       cases[i].text);
		l = parse("r.io", text);
		assert_int_equal(l->v[0].dial_ms, cases[i].ms);
	}
}

/* ---- files ---- */

static void put(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX], folder[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	memcpy(folder, path, sizeof(folder));
	*strrchr(folder, '/') = '\0';
	assert_int_equal(mkdir_parents(folder, 0755), 0);
	assert_int_equal(
		write_file_atomic(AT_FDCWD, path, text, strlen(text), 0644), 0);
}

static struct host_list *load(const char *t, const char *registry)
{
	struct host_list *l = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(hosts_load(t, registry, &l, &e), 0);
	return l;
}

static void assert_first(const char *t, const char *registry, const char *base)
{
	owned(hosts) struct host_list *l = load(t, registry);

	assert_null(l->error);
	assert_string_equal(l->v[0].base, base);
	assert_false(hosts_stale(l));
}

static void load_finds_the_folder(void **state)
{
	const char *t = *state;

	assert_first(t, "r.io:5000", "https://r.io:5000/v2");
	put(t, "_default/hosts.toml", "[host.'https://d']");
	assert_first(t, "r.io:5000", "https://d/v2");
	put(t, "r.io:5000/hosts.toml", "[host.'https://colon']");
	assert_first(t, "r.io:5000", "https://colon/v2");
	put(t, "r.io_5000_/hosts.toml", "[host.'https://plain']");
	assert_first(t, "r.io:5000", "https://plain/v2");
	assert_first(t, "r.io", "https://d/v2");
	put(t, "r.io/hosts.toml", "");
	assert_first(t, "r.io", "https://r.io/v2");
	put(t, "[::1]_5000_/hosts.toml", "[host.'https://six']");
	assert_first(t, "[::1]:5000", "https://six/v2");
	/* A name is never more than a name. */
	put(t, "x/hosts.toml", "[host.'https://x']");
	assert_first(t, "_default/../x", "https://_default/../x/v2");
}

static void load_looks_into_each_of_several_roots(void **state)
{
	const char *t = *state;
	struct host_list *l = NULL;
	struct err e = ERR_INIT;
	char roots[3 * PATH_MAX];

	put(t, "b/r.io/hosts.toml", "[host.'https://b']");
	put(t, "c/r.io/hosts.toml", "[host.'https://c']");
	(void)snprintf(roots, sizeof(roots), "%s/a::%s/b:%s/c", t, t, t);
	assert_int_equal(hosts_load(roots, "r.io", &l, &e), 0);
	assert_string_equal(l->v[0].base, "https://b/v2");
	hosts_unref(l);
	assert_int_equal(hosts_load(NULL, "r.io", &l, &e), 0);
	assert_string_equal(l->v[0].base, "https://r.io/v2");
	hosts_unref(l);
}

static void load_says_what_is_wrong(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{ "server = ", "r.io/hosts.toml:1: " },
		{ "ca = 'none.crt'", "none.crt" },
		{ "ca = 'hosts.toml'", "holds no certificate" },
		{ "client = ['none.cert']", "none.cert" },
	};
	const char *t = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(hosts) struct host_list *l = NULL;

		put(t, "r.io/hosts.toml", cases[i].text);
		l = load(t, "r.io");
		assert_int_equal(l->n, 0);
		assert_non_null(l->error);
		assert_non_null(strstr(l->error, cases[i].error));
	}
	/* Others are not concerned. */
	assert_first(t, "s.io", "https://s.io/v2");
}

static void load_reads_dockers_folders(void **state)
{
	const char *t = *state;
	owned(hosts) struct host_list *l = NULL;

	put(t, "r.io/client.cert", "c");
	put(t, "r.io/client.key", "k");
	put(t, "r.io/z.cert", "second");
	put(t, "r.io/README", "");
	l = load(t, "r.io");
	assert_null(l->error);
	assert_int_equal(l->n, 1);
	assert_non_null(strstr(l->v[0].client_cert, "/r.io/client.cert"));
	assert_non_null(strstr(l->v[0].client_key, "/r.io/client.key"));
	assert_null(l->v[0].ca_files);
	/* Certificates for what would be http: in TLS first. */
	put(t, "127.0.0.1:5000/client.cert", "c");
	assert_first(t, "127.0.0.1:5000", "https://127.0.0.1:5000/v2");
}

static void stale_sees_every_change(void **state)
{
	static const struct {
		const char *name, *text; /* text NULL: removed */
	} steps[] = {
		{ "_default/hosts.toml", "[host.'https://d']" },
		{ "_default/hosts.toml", "[host.'https://e']" },
		{ "r.io/client.cert", "c" },
		{ "r.io/client.cert", "d" },
		{ "r.io/client.key", "k" },
		{ "r.io/hosts.toml", "client = 'client.cert'" },
		{ "r.io/client.cert", "e" },
		{ "r.io/hosts.toml", NULL },
	};
	const char *t = *state;
	struct host_list *l = load(t, "r.io");
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		assert_false(hosts_stale(l));
		if (steps[i].text)
			put(t, steps[i].name, steps[i].text);
		(void)snprintf(path, sizeof(path), "%s/%s", t, steps[i].name);
		if (!steps[i].text)
			assert_int_equal(unlink(path), 0);
		if (!hosts_stale(l))
			fail_msg("step %zu was not seen", i);
		hosts_unref(l);
		l = load(t, "r.io");
	}
	hosts_unref(l);
}

#define D(f) cmocka_unit_test_setup_teardown(f, tmpdir_setup, tmpdir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_orders_hosts_as_the_file),
		cmocka_unit_test(parse_reads_every_setting),
		cmocka_unit_test(parse_knows_whose_name_it_is),
		cmocka_unit_test(parse_refuses_with_file_and_line),
		cmocka_unit_test(parse_bounds_what_a_file_can_ask),
		cmocka_unit_test(dial_timeout_is_a_duration_of_go),
		D(load_finds_the_folder),
		D(load_looks_into_each_of_several_roots),
		D(load_says_what_is_wrong),
		D(load_reads_dockers_folders),
		D(stale_sees_every_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
