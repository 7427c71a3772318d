/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker's config.json; see auth.h. It is read at each use, so that credentials
 * may be rotated under us, and never written.
 */
#include "snapshotter/auth.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/io.h"
#include "snapshotter/auth_json.h"
#include "snapshotter/credhelper.h"

/* The name under which docker keeps what belongs to Docker Hub. */
static const char hub_key[] = "https://index.docker.io/v1/";

static bool is_hub(const char *host)
{
	return strcasecmp(host, "docker.io") == 0 ||
	       strcasecmp(host, "index.docker.io") == 0 ||
	       strcasecmp(host, "registry-1.docker.io") == 0;
}

/* "*.example.com": a pattern covers one label each, as in the kubelet. */
static bool host_fits(const char *pattern, const char *host)
{
	char p[256], h[256];

	for (;;) {
		size_t np = strcspn(pattern, "."), nh = strcspn(host, ".");

		if (np >= sizeof(p) || nh >= sizeof(h))
			return false;
		(void)snprintf(p, sizeof(p), "%.*s", (int)np, pattern);
		(void)snprintf(h, sizeof(h), "%.*s", (int)nh, host);
		if (fnmatch(p, h, FNM_NOESCAPE | FNM_CASEFOLD) != 0)
			return false;
		pattern += np;
		host += nh;
		if (!*pattern || !*host)
			return *pattern == *host;
		pattern++;
		host++;
	}
}

/* Is @path, which may end in '/', the repository or what it begins with? The
 * paths of docker's old addresses mean all of a host. 0: no; else how well. */
static size_t path_rank(const char *path, const char *repo)
{
	size_t n = strlen(path);

	while (n && path[n - 1] == '/')
		n--;
	if (n == 0 ||
	    (n == 2 && (!strncmp(path, "v1", n) || !strncmp(path, "v2", n))))
		return 1;
	if (strncmp(path, repo, n) != 0 || (repo[n] && repo[n] != '/'))
		return 0;
	return 1 + n;
}

/* How well a key such as "https://quay.io/v2/" or "quay.io/team" fits; 0: not. */
static size_t key_rank(const char *key, const char *host, const char *repo)
{
	size_t n, named = AUTH_JSON_MAX, rank;
	char name[256];

	if (strncasecmp(key, "https://", 8) == 0)
		key += 8;
	else if (strncasecmp(key, "http://", 7) == 0)
		key += 7;
	n = strcspn(key, "/");
	if (n == 0 || n >= sizeof(name))
		return 0;
	memcpy(name, key, n);
	name[n] = '\0';
	if (strcasecmp(name, host) != 0 && !(is_hub(name) && is_hub(host))) {
		if (!strpbrk(name, "*?[") || !host_fits(name, host))
			return 0;
		named = 0;
	}
	rank = path_rank(key + n + (key[n] == '/'), repo);
	return rank ? named + rank : 0;
}

/* The entry that fits best; an exact key wins over a similar one. */
static struct json_object *find_host(struct json_object *map, const char *host,
				     const char *repo)
{
	const char *exact = is_hub(host) ? hub_key : host;
	struct json_object *best = NULL;
	size_t best_rank = 0;

	if (!json_object_is_type(map, json_type_object))
		return NULL;
	if (json_object_object_get_ex(map, exact, &best))
		best_rank = key_rank(exact, host, repo);
	json_object_object_foreach(map, key, val)
	{
		size_t rank = key_rank(key, host, repo);

		if (rank > best_rank) {
			best_rank = rank;
			best = val;
		}
	}
	return best;
}

/* Heap string, NUL-terminated; NULL: not base64 of text, or no memory. */
static char *base64_text(const char *s)
{
	char *out = malloc(strlen(s) + 1);
	ssize_t len = out ? base64_decode(s, strlen(s), out) : -ENOMEM;

	if (len >= 0) {
		out[len] = '\0';
		/* docker pads passwords with NUL; one in the middle is an error */
		while (len && out[len - 1] == '\0')
			len--;
		if (strlen(out) == (size_t)len)
			return out;
		explicit_bzero(out, (size_t)len);
	}
	free(out);
	return NULL;
}

static int set_cred(struct auth_cred *c, const char *user, const char *secret,
		    bool identity, struct err *e)
{
	c->user = strdup(user);
	c->secret = strdup(secret);
	c->identity = identity;
	if (c->user && c->secret)
		return 0;
	auth_cred_release(c);
	return err_set(e, ERR_INTERNAL, "out of memory");
}

static int cred_of_entry(struct json_object *entry, const char *host,
			 struct auth_cred *ret, struct err *e)
{
	const char *identity = auth_json_string(entry, "identitytoken");
	const char *auth = auth_json_string(entry, "auth");
	const char *user = auth_json_string(entry, "username");
	const char *password = auth_json_string(entry, "password");
	owned(secret) char *text = NULL;
	char *colon;

	if (identity && *identity)
		return set_cred(ret, "<token>", identity, true, e);
	if (auth && *auth) {
		text = base64_text(auth);
		colon = text ? strchr(text, ':') : NULL;
		if (!colon)
			return err_set(e, ERR_INVALID,
				       "'auth' of '%.128s' is not base64 of "
				       "user:password",
				       host);
		*colon = '\0';
		return set_cred(ret, text, colon + 1, false, e);
	}
	if (user && *user && password)
		return set_cred(ret, user, password, false, e);
	return 0; /* {}: docker keeps it in a helper */
}

/* Member @name, which must be an object if it is there; NULL: it is not. */
static int get_map(struct json_object *o, const char *name,
		   struct json_object **ret, struct err *e)
{
	struct json_object *v = NULL;

	/* null is what Go makes of a map that was never filled */
	if (json_object_object_get_ex(o, name, &v) && v &&
	    !json_object_is_type(v, json_type_object))
		return err_set(e, ERR_INVALID, "'%.128s' is not an object",
			       name);
	*ret = v;
	return 0;
}

static int helper_of(struct json_object *root, const char *host,
		     const char *repo, char *ret, struct err *e)
{
	struct json_object *map = NULL, *v = NULL;
	const char *name = NULL;

	if (get_map(root, "credHelpers", &map, e) < 0)
		return -1;
	v = find_host(map, host, repo);
	if (v && json_object_is_type(v, json_type_string))
		name = json_object_get_string(v);
	if (!name || !*name)
		name = auth_json_string(root, "credsStore");
	if (!name)
		name = "";
	if (strlen(name) > AUTH_HELPER_MAX)
		return err_set(e, ERR_INVALID,
			       "name of a credential helper is too long");
	memcpy(ret, name, strlen(name) + 1);
	return 0;
}

int auth_config_find(const char *json, size_t len, const char *host,
		     const char *repo, struct auth_cred *ret,
		     char ret_helper[AUTH_HELPER_MAX + 1], struct err *e)
{
	owned(json) struct json_object *root = NULL;
	struct json_object *auths, *entry;
	char helper[AUTH_HELPER_MAX + 1];
	struct auth_cred cred = { 0 };

	if (auth_json_parse(json, len, &root, e) < 0 ||
	    helper_of(root, host, repo, helper, e) < 0 ||
	    get_map(root, "auths", &auths, e) < 0)
		return -1;
	entry = find_host(auths, host, repo);
	if (entry && !json_object_is_type(entry, json_type_object))
		return err_set(e, ERR_INVALID,
			       "'%.128s' in 'auths' is not an object", host);
	if (entry && cred_of_entry(entry, host, &cred, e) < 0)
		return -1;
	*ret = cred;
	memcpy(ret_helper, helper, sizeof(helper));
	return 0;
}

/* Where clients look, in the order in which they are asked here. */
static const struct {
	const char *variable; /* NULL: none */
	const char *rest;
} places[] = {
	{ "DOCKER_CONFIG", "/config.json" },
	{ "HOME", "/.docker/config.json" },
	{ NULL, "/root/.docker/config.json" },
	{ "REGISTRY_AUTH_FILE", "" },
	{ NULL, "/run/containers/0/auth.json" },
	{ "HOME", "/.config/containers/auth.json" },
	{ NULL, "/var/lib/kubelet/config.json" },
};

int auth_config_path(const char *path, unsigned i, char *buf, size_t size)
{
	const char *dir = "";
	int n;

	if (i >= (path ? 1 : ARRAY_LEN(places)))
		return -ENOENT;
	if (path) {
		n = snprintf(buf, size, "%s", path);
		return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
	}
	if (places[i].variable)
		dir = getenv(places[i].variable);
	if (places[i].variable && (!dir || !*dir)) {
		*buf = '\0';
		return 0;
	}
	n = snprintf(buf, size, "%s%s", dir, places[i].rest);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

void auth_config_name(const char *path, char *buf, size_t size)
{
	*buf = '\0';
	for (unsigned i = 0; !*buf; i++)
		if (auth_config_path(path, i, buf, size) == -ENOENT)
			break;
}

/* One file. As auth_load(). */
static int load_file(const char *file, const char *host, const char *repo,
		     struct auth_cred *ret, struct err *e)
{
	owned(cred) struct auth_cred cred = { 0 };
	owned(secret) char *json = NULL;
	char helper[AUTH_HELPER_MAX + 1];
	size_t len;
	int r = read_file_at(AT_FDCWD, file, AUTH_JSON_MAX, &json, &len);

	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r < 0)
		return err_sys(e, r, "read '%.160s'", file);
	if (auth_config_find(json, len, host, repo, &cred, helper, e) < 0)
		return err_wrap(e, "'%.100s'", file);
	if (helper[0]) {
		r = credhelper_get(helper, is_hub(host) ? hub_key : host, 0,
				   ret, e);
		if (r != 0)
			return r;
	}
	if (!cred.user)
		return 0;
	*ret = cred;
	memset(&cred, 0, sizeof(cred));
	return 1;
}

int auth_load(const char *path, const char *host, const char *repo,
	      struct auth_cred *ret, struct err *e)
{
	char file[PATH_MAX], last[PATH_MAX] = "";
	struct err first = ERR_INIT;
	int r;

	for (unsigned i = 0;
	     (r = auth_config_path(path, i, file, sizeof(file))) != -ENOENT;
	     i++) {
		struct err bad = ERR_INIT;

		/* HOME is /root for most */
		if (r < 0 || !*file || strcmp(file, last) == 0)
			continue;
		(void)snprintf(last, sizeof(last), "%s", file);
		r = load_file(file, host, repo, ret, &bad);
		if (r > 0)
			return 1;
		if (r < 0 && first.kind == ERR_NONE)
			first = bad;
	}
	if (first.kind == ERR_NONE)
		return 0;
	if (e)
		*e = first;
	return -1;
}
