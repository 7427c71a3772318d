/* SPDX-License-Identifier: Apache-2.0 */
/* The text of hosts.toml; see hosts.h. Touches no file. */
#include "snapshotter/hosts.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/toml.h"
#include "snapshotter/hosts_priv.h"
#include "snapshotter/url.h"

#define URL_MAX 512
#define STRINGS_MAX 32
#define DIAL_MAX_MS 600000u

struct place {
	const char *dir; /* of the file */
	const char *registry;
	struct err *e;
};

/* ---- lists ---- */

static void host_release(struct host *h)
{
	free(h->base);
	free(h->name);
	strings_free(h->ca_files);
	free(h->ca_pem);
	free(h->client_cert);
	free(h->client_key);
	strings_free(h->headers);
	memset(h, 0, sizeof(*h));
}

struct host_list *host_list_new(void)
{
	struct host_list *l = calloc(1, sizeof(*l));

	if (l)
		atomic_init(&l->refs, 1);
	return l;
}

struct host_list *hosts_ref(struct host_list *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

void host_list_clear(struct host_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		host_release(&l->v[i]);
	l->n = 0;
}

void hosts_unref(struct host_list *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	host_list_clear(l);
	for (size_t i = 0; i < l->n_stamps; i++)
		free(l->stamps[i].path);
	free(l->stamps);
	free(l->v);
	free(l->error);
	free(l->file);
	free(l);
}

int strings_add(char ***list, const char *s)
{
	size_t n = 0;
	char **v;

	while (*list && (*list)[n])
		n++;
	v = realloc(*list, (n + 2) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	*list = v;
	v[n] = strdup(s);
	v[n + 1] = NULL;
	return v[n] ? 0 : -ENOMEM;
}

void strings_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static int strings_copy(char ***to, char **from)
{
	for (size_t i = 0; from && from[i]; i++)
		if (strings_add(to, from[i]) < 0)
			return -ENOMEM;
	return 0;
}

static struct host *add_host(struct host_list *l)
{
	struct host *v = realloc(l->v, (l->n + 1) * sizeof(*v));

	if (!v)
		return NULL;
	l->v = v;
	memset(&v[l->n], 0, sizeof(*v));
	return &v[l->n++];
}

static bool copy_string(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

/* ---- addresses ---- */

/* The part of "host:port" behind the last colon outside brackets, or "". */
static const char *port_of(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon && !strchr(colon, ']') ? colon + 1 : "";
}

static bool speaks_plain(const char *name)
{
	const char *port = port_of(name);
	char host[256];

	if (!*port || strcmp(port, "443") == 0)
		return false;
	(void)snprintf(host, sizeof(host), "%.*s", (int)(port - 1 - name),
		       name);
	return host_is_loopback(host);
}

int hosts_add_registry(struct host_list *l, const char *registry,
		       struct host **ret)
{
	bool hub = strcmp(registry, "docker.io") == 0;
	struct host *h = add_host(l);

	if (!h)
		return -ENOMEM;
	h->https = !speaks_plain(registry);
	h->caps = HOST_PULL | HOST_RESOLVE | HOST_PUSH | HOST_REFERRERS;
	if (asprintf(&h->base, "%s://%s/v2", h->https ? "https" : "http",
		     hub ? "registry-1.docker.io" : registry) < 0)
		h->base = NULL;
	h->name = strdup(registry);
	*ret = h;
	return h->base && h->name ? 0 : -ENOMEM;
}

int hosts_try_tls_first(struct host_list *l, size_t i)
{
	struct host tls = { .https = true }, *h = &l->v[i];

	if (h->https || strcmp(port_of(h->name), "80") == 0)
		return 0;
	tls.is_mirror = h->is_mirror;
	tls.caps = h->caps;
	tls.skip_verify = h->skip_verify;
	tls.dial_ms = h->dial_ms;
	if (asprintf(&tls.base, "https%s", h->base + strlen("http")) < 0)
		tls.base = NULL;
	if (!tls.base || !copy_string(&tls.name, h->name) ||
	    !copy_string(&tls.client_cert, h->client_cert) ||
	    !copy_string(&tls.client_key, h->client_key) ||
	    strings_copy(&tls.ca_files, h->ca_files) < 0 ||
	    strings_copy(&tls.headers, h->headers) < 0 || !add_host(l)) {
		host_release(&tls);
		return -ENOMEM;
	}
	memmove(&l->v[i + 1], &l->v[i], (l->n - 1 - i) * sizeof(l->v[0]));
	l->v[i] = tls;
	return 0;
}

/* ---- values ---- */

printf_like(3, 4) static int bad(const struct place *p, const struct toml *v,
				 const char *fmt, ...)
{
	char text[120];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_set(p->e, ERR_INVALID, "%.100s/hosts.toml:%u: %s", p->dir,
		       v->line, text);
}

static int no_memory(const struct place *p)
{
	return err_sys(p->e, -ENOMEM, "%.100s/hosts.toml", p->dir);
}

static int expect(const struct place *p, const struct toml *v,
		  enum toml_type type)
{
	if (v->type == type)
		return 0;
	return bad(p, v, "%.40s must be %s, not %s", v->key ? v->key : "this",
		   toml_type_name(type), toml_type_name(v->type));
}

/* Heap; relative ones are relative to the file. */
static char *path_of(const struct place *p, const char *s)
{
	char *path = NULL;

	if (*s == '/')
		return strdup(s);
	return asprintf(&path, "%s/%s", p->dir, s) < 0 ? NULL : path;
}

static int set_capabilities(const struct place *p, const struct toml *v,
			    struct host *h)
{
	static const char *const names[] = { "pull", "resolve", "push",
					     "referrers" };
	unsigned caps = 0;

	if (expect(p, v, TOML_ARRAY) < 0)
		return -1;
	for (const struct toml *k = v->kids.first; k; k = k->next) {
		size_t i = 0;

		if (expect(p, k, TOML_STRING) < 0)
			return -1;
		while (i < ARRAY_LEN(names) && strcasecmp(k->str, names[i]))
			i++;
		if (i == ARRAY_LEN(names))
			return bad(p, k, "unknown capability '%.40s'", k->str);
		caps |= 1u << i;
	}
	if (caps)
		h->caps = caps;
	return 0;
}

static int set_ca(const struct place *p, const struct toml *v, struct host *h)
{
	const struct toml *k = v;

	if (v->type == TOML_ARRAY)
		k = v->kids.first;
	else if (v->type != TOML_STRING)
		return bad(p, v, "ca must be a string or an array of strings");
	if (v->type == TOML_ARRAY && v->kids.n > STRINGS_MAX)
		return bad(p, v, "more than %d files", STRINGS_MAX);
	for (; k; k = v->type == TOML_ARRAY ? k->next : NULL) {
		owned(mem) char *path = NULL;

		if (expect(p, k, TOML_STRING) < 0)
			return -1;
		path = path_of(p, k->str);
		if (!path || strings_add(&h->ca_files, path) < 0)
			return no_memory(p);
	}
	return 0;
}

/* Of several, the first counts. */
static int add_pair(const struct place *p, const char *cert, const char *key,
		    struct host *h)
{
	if (h->client_cert)
		return 0;
	h->client_cert = path_of(p, cert);
	if (*key)
		h->client_key = path_of(p, key);
	return h->client_cert && (!*key || h->client_key) ? 0 : no_memory(p);
}

/* "file" | ["file", ...] | [["cert", "key"], ...] */
static int set_client(const struct place *p, const struct toml *v,
		      struct host *h)
{
	if (v->type == TOML_STRING)
		return add_pair(p, v->str, "", h);
	if (v->type != TOML_ARRAY)
		return bad(p, v, "client must be a string or an array");
	for (const struct toml *k = v->kids.first; k; k = k->next) {
		const struct toml *cert;

		if (k->type == TOML_STRING) {
			if (add_pair(p, k->str, "", h) < 0)
				return -1;
			continue;
		}
		if (k->type != TOML_ARRAY || k->kids.n != 2)
			return bad(p, k, "client wants pairs of two files");
		cert = k->kids.first;
		if (expect(p, cert, TOML_STRING) < 0 ||
		    expect(p, cert->next, TOML_STRING) < 0 ||
		    add_pair(p, cert->str, cert->next->str, h) < 0)
			return -1;
	}
	return 0;
}

/* RFC 9110: a token, and a value that does not end its line. */
static bool header_is_good(const char *name, const char *value)
{
	if (!*name)
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) &&
		    !strchr("!#$%&'*+-.^_`|~", *name))
			return false;
	for (; *value; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') ||
		    *value == 0x7f)
			return false;
	return true;
}

/* Those are about the message and not for anybody to choose. */
static bool header_is_ours(const char *name)
{
	static const char *const ours[] = { "host",
					    "range",
					    "connection",
					    "content-length",
					    "expect",
					    "transfer-encoding",
					    "accept-encoding",
					    "upgrade" };

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (strcasecmp(name, ours[i]) == 0)
			return true;
	return false;
}

static int add_header(const struct place *p, const struct toml *v,
		      const char *name, struct host *h)
{
	owned(mem) char *line = NULL;

	if (expect(p, v, TOML_STRING) < 0)
		return -1;
	if (!header_is_good(name, v->str))
		return bad(p, v, "'%.40s' cannot be sent as a header", name);
	if (header_is_ours(name))
		return 0;
	/* curl's way to send one without a value */
	if (asprintf(&line, "%s%s%s", name, v->str[0] ? ": " : ";", v->str) <
	    0) {
		line = NULL;
		return no_memory(p);
	}
	return strings_add(&h->headers, line) < 0 ? no_memory(p) : 0;
}

static int set_header(const struct place *p, const struct toml *v,
		      struct host *h)
{
	size_t n = 0;

	if (expect(p, v, TOML_TABLE) < 0)
		return -1;
	for (const struct toml *k = v->kids.first; k; k = k->next) {
		const struct toml *one = k;
		bool many = k->type == TOML_ARRAY;

		for (one = many ? k->kids.first : k; one;
		     one = many ? one->next : NULL) {
			if (++n > STRINGS_MAX)
				return bad(p, k, "more than %d headers",
					   STRINGS_MAX);
			if (add_header(p, one, k->key, h) < 0)
				return -1;
		}
	}
	return 0;
}

static int set_skip_verify(const struct place *p, const struct toml *v,
			   struct host *h)
{
	if (expect(p, v, TOML_BOOL) < 0)
		return -1;
	h->skip_verify = v->flag;
	return 0;
}

/* One "1.5h" of a duration: its length in ms, and *@s behind it. */
static bool take_duration(const char **s, double *ret)
{
	static const struct {
		const char *unit;
		double ms;
	} units[] = {
		{ "ns", 1e-6 }, { "us", 1e-3 }, { "\xc2\xb5s", 1e-3 },
		{ "ms", 1 },    { "s", 1e3 },   { "m", 6e4 },
		{ "h", 3.6e6 },
	};
	double n = 0, part = 1;
	const char *p = *s;

	if (!isdigit((unsigned char)p[*p == '.']))
		return false;
	for (; isdigit((unsigned char)*p); p++)
		n = n * 10 + (*p - '0');
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p); p++)
			n += (*p - '0') * (part /= 10);
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		size_t len = strlen(units[i].unit);

		if (strncmp(p, units[i].unit, len) != 0)
			continue;
		*s = p + len;
		*ret = n * units[i].ms;
		return true;
	}
	return false;
}

/* Source: Go's time.ParseDuration(), without signs. */
static int set_dial_timeout(const struct place *p, const struct toml *v,
			    struct host *h)
{
	double sum = 0, ms = 0;
	const char *s;

	if (expect(p, v, TOML_STRING) < 0)
		return -1;
	s = v->str;
	while (*s && take_duration(&s, &ms))
		sum += ms;
	if (*s)
		return bad(p, v, "'%.40s' is not a duration such as \"3s\"",
			   v->str);
	/* None, as in Go: the default. Less than a moment never connects. */
	if (sum > 0)
		h->dial_ms = sum < 1             ? 1
			     : sum > DIAL_MAX_MS ? DIAL_MAX_MS
						 : (unsigned)sum;
	return 0;
}

static const struct {
	const char *name;
	int (*set)(const struct place *p, const struct toml *v, struct host *h);
} settings[] = {
	{ "capabilities", set_capabilities },
	{ "ca", set_ca },
	{ "client", set_client },
	{ "skip_verify", set_skip_verify },
	{ "header", set_header },
	{ "dial_timeout", set_dial_timeout },
};

/* ---- hosts ---- */

/* Names it has not are fields of later versions: containerd ignores them. */
static int set_host(const struct place *p, const struct toml *t, struct host *h)
{
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		const struct toml *v = toml_find(t, settings[i].name);

		if (v && settings[i].set(p, v, h) < 0)
			return -1;
	}
	return 0;
}

static bool has_tls(const struct toml *t)
{
	return toml_find(t, "ca") || toml_find(t, "client") ||
	       toml_find(t, "skip_verify");
}

/* Without empty components, which curl keeps, and without '/' at the end. */
static void clean_path(char *path)
{
	char *to = path;

	for (const char *s = path; *s; s++)
		if (*s != '/' || (s[1] != '/' && s[1]))
			*to++ = *s;
	*to = '\0';
}

/* "https://a:1/x" to base and name; -EINVAL when it is no such thing. */
static int split_address(const char *s, bool override, struct host *h)
{
	owned(url) struct url u = { 0 };
	char text[URL_MAX + 16];
	char *path;
	bool bare = !strstr(s, "://");
	size_t n;
	int r;

	if (strlen(s) > URL_MAX || strpbrk(s, "?#"))
		return -EINVAL;
	(void)snprintf(text, sizeof(text), "%s%s", bare ? "https://" : "", s);
	r = url_parse(NULL, text, &u);
	if (r < 0)
		return r;
	h->https = u.https;
	path = strstr(u.text, "://") + 3;
	n = strcspn(path, "/");
	h->name = strndup(path, n);
	if (!h->name)
		return -ENOMEM;
	for (char *c = h->name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	path += n;
	clean_path(path);
	n = strlen(path);
	if (asprintf(&h->base, "%s%s", u.text,
		     override || (n >= 3 && !strcmp(path + n - 3, "/v2"))
			     ? ""
			     : "/v2") < 0)
		h->base = NULL;
	return h->base ? 0 : -ENOMEM;
}

/* @t: the table with its settings; @address: "": the registry itself */
static int add_entry(const struct place *p, struct host_list *l,
		     const struct toml *t, const struct toml *address,
		     const char *text)
{
	const struct toml *o = toml_find(t, "override_path");
	struct host *h;
	int r;

	if (o && expect(p, o, TOML_BOOL) < 0)
		return -1;
	if (!*text) {
		r = hosts_add_registry(l, p->registry, &h);
	} else {
		h = add_host(l);
		r = h ? split_address(text, o && o->flag, h) : -ENOMEM;
	}
	if (r == -EINVAL)
		return bad(p, address, "'%.60s' is not the address of a host",
			   text);
	if (r < 0)
		return no_memory(p);
	h->is_mirror = strcmp(h->name, p->registry) != 0 &&
		       (strcmp(p->registry, "docker.io") != 0 ||
			strcmp(h->name, "registry-1.docker.io") != 0);
	if (*text)
		h->caps = HOST_PULL | HOST_RESOLVE | HOST_PUSH | HOST_REFERRERS;
	if (set_host(p, t, h) < 0)
		return -1;
	if (!*text) /* the registry itself can do everything */
		h->caps |= HOST_PULL | HOST_RESOLVE | HOST_PUSH;
	if (has_tls(t) && hosts_try_tls_first(l, l->n - 1) < 0)
		return no_memory(p);
	return 0;
}

static int add_entries(const struct place *p, const struct toml *root,
		       struct host_list *l)
{
	const struct toml *hosts = toml_find(root, "host");
	const struct toml *server = toml_find(root, "server");

	if (hosts && expect(p, hosts, TOML_TABLE) < 0)
		return -1;
	if (hosts && hosts->kids.n > HOSTS_MAX)
		return bad(p, hosts, "more than %d hosts", HOSTS_MAX);
	for (const struct toml *k = hosts ? hosts->kids.first : NULL; k;
	     k = k->next) {
		if (expect(p, k, TOML_TABLE) < 0)
			return -1;
		if (!*k->key)
			return bad(p, k, "a host without a name");
		if (add_entry(p, l, k, k, k->key) < 0)
			return -1;
	}
	if (server && expect(p, server, TOML_STRING) < 0)
		return -1;
	return add_entry(p, l, root, server ? server : root,
			 server ? server->str : "");
}

int hosts_parse(const char *dir, const char *registry, const char *text,
		size_t len, struct host_list **ret, struct err *e)
{
	owned(hosts) struct host_list *l = host_list_new();
	const struct place p = { .dir = dir, .registry = registry, .e = e };
	owned(toml) struct toml *root = NULL;
	char name[128];
	size_t n = 0;

	if (!l)
		return no_memory(&p);
	(void)snprintf(name, sizeof(name), "%.100s/hosts.toml", dir);
	if (toml_parse(name, text, len, &root, e) < 0 ||
	    add_entries(&p, root, l) < 0)
		return -1;
	for (size_t i = 0; i < l->n; i++) {
		if (l->v[i].caps & HOST_PULL)
			l->v[n++] = l->v[i];
		else
			host_release(&l->v[i]);
	}
	l->n = n;
	if (n == 0)
		return err_set(e, ERR_INVALID, "%s: no host may be pulled from",
			       name);
	*ret = take_ptr(&l);
	return 0;
}
