/* SPDX-License-Identifier: Apache-2.0 */
/* auth.c, auth_config.c, credhelper.c, url.c: challenges, tokens, docker's
 * config.json, credential helpers, URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/io.h"
#include "snapshotter/auth.h"
#include "snapshotter/credhelper.h"
#include "snapshotter/url.h"

/* ---- WWW-Authenticate ---- */

static void challenge_parse_takes_the_best(void **state)
{
	static const struct {
		const char *s;
		enum auth_scheme scheme;
		const char *realm, *service, *scope;
	} good[] = {
		{ "Bearer realm=\"https://a/t\",service=\"r\",scope=\"s:x:pull\"",
		  AUTH_BEARER, "https://a/t", "r", "s:x:pull" },
		{ "bearer Realm = \"https://a/t\" , SERVICE=r", AUTH_BEARER,
		  "https://a/t", "r", "" },
		{ "Basic realm=\"x\"", AUTH_BASIC, "x", "", "" },
		{ "Basic", AUTH_BASIC, "", "", "" },
		{ "Basic realm=\"x\", Bearer realm=\"https://a\"", AUTH_BEARER,
		  "https://a", "", "" },
		{ "Bearer realm=\"https://a\", Basic realm=\"x\"", AUTH_BEARER,
		  "https://a", "", "" },
		{ "Negotiate, Basic realm=\"x\"", AUTH_BASIC, "x", "", "" },
		{ "Negotiate YWJj==, NTLM abc, Basic realm=\"x\"", AUTH_BASIC,
		  "x", "", "" },
		{ "Bearer realm=\"a \\\"b\\\", c\",error=\"invalid_token\"",
		  AUTH_BEARER, "a \"b\", c", "", "" },
		{ ", ,Basic realm=x,,", AUTH_BASIC, "x", "", "" },
		/* a second one of a kind adds nothing to the first */
		{ "Bearer realm=\"https://a\",Bearer realm=\"https://b\"",
		  AUTH_BEARER, "https://a", "", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct auth_challenge ch;
		struct err e = ERR_INIT;

		if (auth_challenge_parse(good[i].s, &ch, &e) < 0)
			fail_msg("'%s': %s", good[i].s, e.msg);
		assert_int_equal(ch.scheme, good[i].scheme);
		assert_string_equal(ch.realm, good[i].realm);
		assert_string_equal(ch.service, good[i].service);
		assert_string_equal(ch.scope, good[i].scope);
	}
}

static void challenge_parse_refuses(void **state)
{
	static const struct {
		const char *s;
		enum err_kind kind;
	} bad[] = {
		{ "", ERR_UNSUPPORTED },
		{ "Negotiate", ERR_UNSUPPORTED },
		{ "Digest realm=\"x\", nonce=\"y\"", ERR_UNSUPPORTED },
		{ "Bearer", ERR_INVALID },
		{ "Bearer service=\"x\"", ERR_INVALID },
		{ "realm=\"x\"", ERR_INVALID },
		{ "Bearer realm=\"x", ERR_INVALID },
		{ "Bearer realm=\"x\\", ERR_INVALID },
		{ "Bearer realm=", ERR_INVALID },
		{ "Bearer realm=\"a\rb\"", ERR_INVALID },
		{ "Bearer \"x\"", ERR_INVALID },
		{ "Ba[sic realm=x", ERR_INVALID },
	};
	char huge[4096] = "Bearer realm=\"";
	struct auth_challenge ch;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		memset(&e, 0, sizeof(e));
		if (auth_challenge_parse(bad[i].s, &ch, &e) != -1)
			fail_msg("'%s' was accepted", bad[i].s);
		assert_int_equal(e.kind, bad[i].kind);
	}
	memset(huge + 14, 'a', sizeof(huge) - 16);
	huge[sizeof(huge) - 2] = '"';
	huge[sizeof(huge) - 1] = '\0';
	assert_int_equal(auth_challenge_parse(huge, &ch, &e), -1);
}

/* ---- what goes over the wire ---- */

static void token_requests_are_encoded(void **state)
{
	struct auth_challenge ch = { .scheme = AUTH_BEARER,
				     .realm = "https://a/t",
				     .service = "my reg&x=1" };
	char user[] = "u", secret[] = "a+b&c";
	struct auth_cred c = { .user = user, .secret = secret };
	char *s;

	(void)state;
	assert_int_equal(auth_token_url(&ch, "repository:a/b:pull", &s), 0);
	assert_string_equal(s, "https://a/t?service=my%20reg%26x%3D1"
			       "&scope=repository:a/b:pull");
	free(s);
	(void)snprintf(ch.realm, sizeof(ch.realm), "https://a/t?x=y");
	(void)snprintf(ch.scope, sizeof(ch.scope), " r:a:pull  r:b:pull ");
	ch.service[0] = '\0';
	assert_int_equal(auth_token_url(&ch, "unused", &s), 0);
	assert_string_equal(s, "https://a/t?x=y&scope=r:a:pull&scope=r:b:pull");
	free(s);
	(void)snprintf(ch.service, sizeof(ch.service), "reg");
	(void)snprintf(ch.scope, sizeof(ch.scope), "r:a:pull");
	assert_int_equal(auth_token_form(&ch, "", &c, &s), 0);
	assert_string_equal(s, "grant_type=refresh_token"
			       "&client_id=verity-snapshotter&service=reg"
			       "&scope=r:a:pull&refresh_token=a%2Bb%26c");
	free(s);
	assert_int_equal(auth_basic(&c, &s), 0);
	assert_string_equal(s, "Basic dTphK2ImYw==");
	free(s);
}

static int token_of(const char *json, struct auth_token *ret, struct err *e)
{
	memset(e, 0, sizeof(*e));
	return auth_token_parse(json, strlen(json), ret, e);
}

static void token_parse_knows_both_names(void **state)
{
	struct auth_token t;
	struct err e;

	(void)state;
	assert_int_equal(token_of("{\"token\":\"abc\"}", &t, &e), 0);
	assert_string_equal(t.token, "abc");
	assert_int_equal(t.expires_s, 60);
	free(t.token);
	assert_int_equal(token_of("{\"access_token\":\"x.y-z\",\"token\":\"\","
				  "\"expires_in\":3600} \n",
				  &t, &e),
			 0);
	assert_string_equal(t.token, "x.y-z");
	assert_int_equal(t.expires_s, 3600);
	free(t.token);
	assert_int_equal(token_of("{\"token\":\"a\","
				  "\"expires_in\":99999999999999999999}",
				  &t, &e),
			 0);
	assert_int_equal(t.expires_s, 7 * 24 * 3600);
	free(t.token);
	assert_int_equal(
		token_of("{\"token\":\"a\",\"expires_in\":-1}", &t, &e), 0);
	assert_int_equal(t.expires_s, 60);
	free(t.token);
}

static void token_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"{",
		"[]",
		"null",
		"{}",
		"{\"token\":\"\"}",
		"{\"token\":1}",
		"{\"token\":\"a b\"}",
		"{\"token\":\"a\\r\\nX: y\"}",
		"{\"token\":\"a\\u0000b\"}",
		"{\"token\":\"a\"} x",
		"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
		"\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
		"\"a\":1}}}}}}}}}}}}}}}}},\"token\":\"a\"}",
	};
	struct auth_token t;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (token_of(bad[i], &t, &e) != -1)
			fail_msg("'%s' was accepted", bad[i]);
		assert_int_equal(e.kind, ERR_INVALID);
	}
}

/* ---- config.json ---- */

static const char config[] =
	"{\"auths\":{"
	"\"https://index.docker.io/v1/\":{\"auth\":\"aHViOnB3\"}," /* hub:pw */
	"\"quay.io\":{\"auth\":\"cTpwOnc=\"}," /* q:p:w */
	"\"https://r.io:5000/v2/\":{\"username\":\"u\",\"password\":\"p\"},"
	"\"empty.io\":{},"
	"\"nul.io\":{\"auth\":\"dTpwAAA=\"}," /* u:p NUL NUL */
	"\"bad.io\":{\"auth\":\"!!!\"},"
	"\"nocolon.io\":{\"auth\":\"YWJj\"},"
	"\"inner.io\":{\"auth\":\"dTpwAHE=\"}," /* u:p NUL q */
	"\"id.io\":{\"auth\":\"dTp4\",\"identitytoken\":\"tok\"}},"
	"\"credHelpers\":{\"help.io\":\"mine\",\"https://h2.io/v1\":\"two\"}}";

static void config_find_knows_all_spellings(void **state)
{
	static const struct {
		const char *host, *user, *secret, *helper;
		bool identity;
	} cases[] = {
		{ "docker.io", "hub", "pw", "", false },
		{ "registry-1.docker.io", "hub", "pw", "", false },
		{ "quay.io", "q", "p:w", "", false },
		{ "QUAY.io", "q", "p:w", "", false },
		{ "r.io:5000", "u", "p", "", false },
		{ "r.io", NULL, NULL, "", false },
		{ "empty.io", NULL, NULL, "", false },
		{ "nul.io", "u", "p", "", false },
		{ "id.io", "<token>", "tok", "", true },
		{ "help.io", NULL, NULL, "mine", false },
		{ "h2.io", NULL, NULL, "two", false },
		{ "evil-quay.io", NULL, NULL, "", false },
		{ "quay.io.evil.com", NULL, NULL, "", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(cred) struct auth_cred c = { 0 };
		char helper[AUTH_HELPER_MAX + 1];
		struct err e = ERR_INIT;

		assert_int_equal(auth_config_find(config, sizeof(config) - 1,
						  cases[i].host, "a/b", &c,
						  helper, &e),
				 0);
		assert_string_equal(helper, cases[i].helper);
		assert_int_equal(c.identity, cases[i].identity);
		if (!cases[i].user) {
			assert_null(c.user);
			continue;
		}
		assert_non_null(c.user);
		assert_string_equal(c.user, cases[i].user);
		assert_string_equal(c.secret, cases[i].secret);
	}
}

/* Podman's keys name parts of a registry, the kubelet's have patterns. */
static void config_find_takes_the_best_fit(void **state)
{
	static const char text[] =
		"{\"auths\":{"
		"\"*.corp.io\":{\"username\":\"glob\",\"password\":\"p\"},"
		"\"a.corp.io/team\":{\"username\":\"team\",\"password\":\"p\"},"
		"\"a.corp.io\":{\"username\":\"host\",\"password\":\"p\"},"
		"\"a.corp.io/team/app\":{\"username\":\"app\",\"password\":\"p\"},"
		"\"b.corp.io/team\":{\"username\":\"b\",\"password\":\"p\"},"
		"\"docker.io/me/\":{\"username\":\"me\",\"password\":\"p\"}"
		"}}";
	static const struct {
		const char *host, *repo, *user;
	} cases[] = {
		{ "a.corp.io", "team/app", "app" },
		{ "a.corp.io", "team/app/x", "app" },
		{ "a.corp.io", "team/apple", "team" },
		{ "a.corp.io", "team", "team" },
		{ "a.corp.io", "tea", "host" },
		{ "a.corp.io", "teams/x", "host" },
		{ "b.corp.io", "other", "glob" },
		{ "b.corp.io", "team/x", "b" },
		{ "x.b.corp.io", "team/x", NULL },
		{ "corp.io", "team/x", NULL },
		{ "docker.io", "me/app", "me" },
		{ "docker.io", "library/alpine", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(cred) struct auth_cred c = { 0 };
		char helper[AUTH_HELPER_MAX + 1];

		assert_int_equal(auth_config_find(text, sizeof(text) - 1,
						  cases[i].host, cases[i].repo,
						  &c, helper, NULL),
				 0);
		if (!cases[i].user)
			assert_null(c.user);
		else
			assert_string_equal(c.user, cases[i].user);
	}
}

static void config_find_refuses_without_quoting(void **state)
{
	static const struct {
		const char *json, *host;
	} bad[] = {
		{ config, "bad.io" },
		{ config, "nocolon.io" },
		{ config, "inner.io" },
		{ "{\"auths\":{\"x\":{\"auth\":\"hunter2", "x" },
		{ "{\"auths\":{\"x\":{\"auth\":hunter2}}}", "x" },
		{ "hunter2", "x" },
		{ "[]", "x" },
		{ "", "x" },
		{ "{\"auths\":5}", "x" },
		{ "{\"auths\":[]}", "x" },
		{ "{\"auths\":{\"x\":[1]}}", "x" },
		{ "{\"auths\":{\"x\":\"hunter2\"}}", "x" },
		{ "{\"credHelpers\":\"y\",\"credsStore\":7}", "x" },
		{ "{\"credsStore\":\"hunter2hunter2hunter2hunter2hunter2hunter2"
		  "hunter2hunter2hunter2hunter2\"}",
		  "x" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct auth_cred c = { 0 };
		char helper[AUTH_HELPER_MAX + 1];
		struct err e = ERR_INIT;

		assert_int_equal(
			auth_config_find(bad[i].json, strlen(bad[i].json),
					 bad[i].host, "a/b", &c, helper, &e),
			-1);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_null(c.user);
		assert_null(strstr(e.msg, "hunter2"));
	}
}

static void config_find_ignores_wrong_types(void **state)
{
	static const char *const odd[] = {
		"{}",
		"{\"auths\":null}",
		"{\"auths\":{\"x\":null}}",
		"{\"auths\":{\"x\":{\"auth\":1,\"username\":true}}}",
		"{\"credHelpers\":null,\"credsStore\":7}",
		"{\"credHelpers\":{\"x\":{}}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		struct auth_cred c = { 0 };
		char helper[AUTH_HELPER_MAX + 1];
		struct err e = ERR_INIT;

		assert_int_equal(auth_config_find(odd[i], strlen(odd[i]), "x",
						  "a/b", &c, helper, &e),
				 0);
		assert_null(c.user);
		assert_string_equal(helper, "");
	}
}

/* ---- files and programs ---- */

struct place {
	char dir[64];
	char path[96]; /* of config.json */
	char *old_path;
};

static int place_setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	char env[512];

	if (!p)
		return -1;
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/vs-unit-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	(void)snprintf(p->path, sizeof(p->path), "%s/config.json", p->dir);
	p->old_path = strdup(getenv("PATH"));
	(void)snprintf(env, sizeof(env), "%s:%s", p->dir, p->old_path);
	(void)setenv("PATH", env, 1);
	*state = p;
	return 0;
}

static int place_teardown(void **state)
{
	struct place *p = *state;
	owned(fd) int tmp = open_dir(AT_FDCWD, "/tmp");
	int r = remove_tree(tmp, p->dir + strlen("/tmp/"));

	(void)setenv("PATH", p->old_path, 1);
	(void)unsetenv("DOCKER_CONFIG");
	free(p->old_path);
	free(p);
	return r;
}

static void put(struct place *p, const char *name, const char *text,
		mode_t mode)
{
	char path[192];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", p->dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static void put_helper(struct place *p, const char *body)
{
	char text[1024];

	(void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", body);
	put(p, "docker-credential-test", text, 0755);
}

static int ask(unsigned limit_ms, struct auth_cred *c, struct err *e)
{
	memset(c, 0, sizeof(*c));
	memset(e, 0, sizeof(*e));
	return credhelper_get("test", "r.io", limit_ms, c, e);
}

static void helper_gets_the_server_and_nothing_else(void **state)
{
	struct place *p = *state;
	struct auth_cred c;
	struct err e;
	/* not close-on-exec, as a careless library might leave it */
	int stray = open("/dev/null", O_WRONLY);

	assert_true(stray >= 0);
	put_helper(p, "read s; for f in /proc/$$/fd/[3-9]; do\n"
		      "[ -e $f ] && exit 9; done\n"
		      "echo \"{\\\"Username\\\":\\\"$1\\\","
		      "\\\"Secret\\\":\\\"$s\\\"}\"");
	assert_int_equal(ask(0, &c, &e), 1);
	assert_string_equal(c.user, "get");
	assert_string_equal(c.secret, "r.io");
	assert_false(c.identity);
	auth_cred_release(&c);
	(void)close(stray);
}

static void helper_failures_are_told_apart(void **state)
{
	struct place *p = *state;
	struct auth_cred c;
	struct err e;

	put_helper(p, "echo credentials not found in native keychain; exit 1");
	assert_int_equal(ask(0, &c, &e), 0);
	put_helper(p, "echo hunter2; exit 3");
	assert_int_equal(ask(0, &c, &e), -1);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(e.msg, "status 3"));
	assert_null(strstr(e.msg, "hunter2"));
	put_helper(p, "echo hunter2");
	assert_int_equal(ask(0, &c, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_null(strstr(e.msg, "hunter2"));
	put_helper(p, "exec cat /dev/zero");
	assert_int_equal(ask(0, &c, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	put_helper(p, "kill -9 $$");
	assert_int_equal(ask(0, &c, &e), -1);
	assert_non_null(strstr(e.msg, "signal 9"));
	assert_int_equal(credhelper_get("none", "r.io", 0, &c, &e), -1);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	assert_int_equal(credhelper_get("../test", "r.io", 0, &c, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
}

static void helper_is_killed_with_its_children(void **state)
{
	struct place *p = *state;
	uint64_t t = now_ms();
	struct auth_cred c;
	struct err e;
	char pid[96], *text;

	(void)snprintf(pid, sizeof(pid), "%s/pid", p->dir);
	put_helper(p, "sleep 60 & echo $! >${0%/*}/pid; wait");
	assert_int_equal(ask(500, &c, &e), -1);
	assert_int_equal(e.kind, ERR_UNAVAILABLE);
	assert_in_range(now_ms() - t, 450, 40000);
	assert_int_equal(read_file_at(AT_FDCWD, pid, 64, &text, NULL), 0);
	/* An orphan is reaped by somebody else, perhaps not at once. */
	for (int i = 0; i < 100; i++) {
		char stat[64], *s = NULL;

		(void)snprintf(stat, sizeof(stat), "/proc/%ld/stat",
			       strtol(text, NULL, 10));
		if (read_file_at(AT_FDCWD, stat, 4096, &s, NULL) < 0)
			break;
		t = strstr(s, ") Z") != NULL;
		free(s);
		if (t)
			break;
		assert_int_not_equal(i, 99);
		(void)usleep(10000);
	}
	free(text);
}

static void load_goes_from_helper_to_file(void **state)
{
	static const char text[] = "{\"auths\":{\"r.io\":{\"auth\":\"dTpw\"}},"
				   "\"credsStore\":\"test\"}";
	struct place *p = *state;
	struct auth_cred c = { 0 };
	struct err e = ERR_INIT;

	/* no file at all */
	assert_int_equal(auth_load(p->path, "r.io", "a/b", &c, &e), 0);
	put(p, "config.json", text, 0600);
	put_helper(p, "echo '{\"Username\":\"<token>\",\"Secret\":\"s\"}'");
	(void)setenv("DOCKER_CONFIG", p->dir, 1);
	assert_int_equal(auth_load(NULL, "r.io", "a/b", &c, &e), 1);
	assert_true(c.identity);
	assert_string_equal(c.secret, "s");
	auth_cred_release(&c);
	put_helper(p, "echo credentials not found; exit 1");
	assert_int_equal(auth_load(p->path, "r.io", "a/b", &c, &e), 1);
	assert_string_equal(c.user, "u");
	auth_cred_release(&c);
	assert_int_equal(auth_load(p->path, "other.io", "a/b", &c, &e), 0);
	put(p, "config.json", "{\"auths\":", 0600);
	assert_int_equal(auth_load(p->path, "r.io", "a/b", &c, &e), -1);
	assert_non_null(strstr(e.msg, p->path));
	put(p, "config.json", "{\"auths\": 5}", 0600);
	assert_int_equal(auth_load(p->path, "r.io", "a/b", &c, &e), -1);
	assert_non_null(strstr(e.msg, p->path));
	assert_non_null(strstr(e.msg, "'auths' is not an object"));
}

/* ---- URLs ---- */

static void url_parse_knows_origins(void **state)
{
	owned(url) struct url a = { 0 };
	owned(url) struct url b = { 0 };

	(void)state;
	assert_int_equal(url_parse(NULL, "HTTPS://R.io/a?b#c", &a), 0);
	assert_true(a.https);
	assert_string_equal(a.host, "r.io");
	assert_int_equal(a.port, 443);
	assert_null(strchr(a.text, '#'));
	assert_int_equal(url_parse(NULL, "https://r.io:443/x", &b), 0);
	assert_true(url_same_origin(&a, &b));
	assert_int_equal(url_parse(NULL, "http://r.io:443/x", &b), 0);
	assert_false(url_same_origin(&a, &b));
	assert_int_equal(url_parse(a.text, "/v2/x?y", &b), 0);
	assert_true(url_same_origin(&a, &b));
	assert_int_equal(url_parse(a.text, "//other.io/x", &b), 0);
	assert_string_equal(b.host, "other.io");
	assert_true(b.https);
	assert_int_equal(url_parse(b.text, "z", &b), 0);
	assert_string_equal(b.text, "https://other.io/z");
	assert_int_equal(url_parse(NULL, "http://[::1]:5000/", &b), 0);
	assert_string_equal(b.host, "[::1]");
	assert_true(host_is_loopback(b.host));
}

static void url_parse_refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"x",
		"/x",
		"ftp://r.io/",
		"file:///etc",
		"http://u@r.io/",
		"http://:p@r.io/",
		"http://r.io/a b",
		"http://r.io/\r\nX: y",
		"http://",
		"http://r.io:99999/",
		"gopher://r.io",
	};
	struct url u = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (url_parse(NULL, bad[i], &u) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
}

static void loopback_is_told_by_name(void **state)
{
	(void)state;
	assert_true(host_is_loopback("localhost"));
	assert_true(host_is_loopback("127.0.0.1"));
	assert_true(host_is_loopback("127.9.9.9"));
	assert_true(host_is_loopback("::1"));
	assert_true(host_is_loopback("[::1]"));
	assert_false(host_is_loopback("127.0.0.1.evil.com"));
	assert_false(host_is_loopback("localhost.evil.com"));
	assert_false(host_is_loopback("10.0.0.1"));
	assert_false(host_is_loopback("[::2]"));
	assert_false(host_is_loopback("[]"));
	assert_false(host_is_loopback(""));
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_setup, place_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(challenge_parse_takes_the_best),
		cmocka_unit_test(challenge_parse_refuses),
		cmocka_unit_test(token_requests_are_encoded),
		cmocka_unit_test(token_parse_knows_both_names),
		cmocka_unit_test(token_parse_refuses),
		cmocka_unit_test(config_find_knows_all_spellings),
		cmocka_unit_test(config_find_takes_the_best_fit),
		cmocka_unit_test(config_find_refuses_without_quoting),
		cmocka_unit_test(config_find_ignores_wrong_types),
		T(helper_gets_the_server_and_nothing_else),
		T(helper_failures_are_told_apart),
		T(helper_is_killed_with_its_children),
		T(load_goes_from_helper_to_file),
		cmocka_unit_test(url_parse_knows_origins),
		cmocka_unit_test(url_parse_refuses),
		cmocka_unit_test(loopback_is_told_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
