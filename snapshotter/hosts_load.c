/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files behind a list of hosts; see hosts.h. Which folder it is, what lies
 * in it, and whether that has changed. Job threads only.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/pem.h>

#include "base/buf.h"
#include "base/io.h"
#include "snapshotter/hosts_priv.h"

#define CA_MAX (1024u * 1024u)
#define CERT_FILES_MAX 64

DEFINE_OWNED(x509, X509 *, X509_free)
DEFINE_OWNED(bio, BIO *, BIO_free_all)
DEFINE_OWNED(str, char *, free)

/* ---- stamps ---- */

static void look(struct host_stamp *s)
{
	struct stat st;

	s->exists = stat(s->path, &st) == 0;
	if (!s->exists)
		return;
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->size = st.st_size;
	s->mtime = st.st_mtim;
	s->ctime = st.st_ctim;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool hosts_stale(const struct host_list *l)
{
	for (size_t i = 0; i < l->n_stamps; i++) {
		const struct host_stamp *old = &l->stamps[i];
		struct host_stamp new = { .path = old->path };

		look(&new);
		if (new.exists != old->exists || new.dev != old->dev ||
		    new.ino != old->ino || new.size != old->size ||
		    !same_time(&new.mtime, &old->mtime) ||
		    !same_time(&new.ctime, &old->ctime))
			return true;
	}
	return false;
}

/* From now on @path counts, whether it is there or not; *ret_there may be NULL.
 * Before it is read: what changes meanwhile is seen the next time. */
static int watch(struct host_list *l, const char *path, bool *ret_there)
{
	struct host_stamp *v =
		realloc(l->stamps, (l->n_stamps + 1) * sizeof(*v));
	char *copy = strdup(path);

	if (v)
		l->stamps = v;
	if (!v || !copy) {
		free(copy);
		return -ENOMEM;
	}
	memset(&v[l->n_stamps], 0, sizeof(*v));
	v[l->n_stamps].path = copy;
	look(&v[l->n_stamps]);
	if (ret_there)
		*ret_there = v[l->n_stamps].exists;
	l->n_stamps++;
	return 0;
}

/* ---- the folder ---- */

/* "host:5000" is also "host_5000_", which every file system can hold. */
static void plain_name(const char *registry, char *out, size_t size)
{
	const char *colon = strrchr(registry, ':');

	if (colon && colon > registry)
		(void)snprintf(out, size, "%.*s_%s_", (int)(colon - registry),
			       registry, colon + 1);
	else
		(void)snprintf(out, size, "%s", registry);
}

/* 1: *ret is the folder below @root, 0: it has none. */
static int find_below(struct host_list *l, const char *root,
		      const char *registry, char **ret)
{
	char plain[300];
	const char *names[] = { plain, registry, "_default" };

	plain_name(registry, plain, sizeof(plain));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		owned(str) char *path = NULL;
		bool there = false;

		if (i == 1 && strcmp(plain, registry) == 0)
			continue;
		if (asprintf(&path, "%s/%s", root, names[i]) < 0) {
			path = NULL;
			return -ENOMEM;
		}
		if (watch(l, path, &there) < 0)
			return -ENOMEM;
		if (there) {
			*ret = take_ptr(&path);
			return 1;
		}
	}
	return 0;
}

static int find_dir(struct host_list *l, const char *dirs, const char *registry,
		    char **ret)
{
	int r = 0;

	/* A name is a component of a path here; references have no '/'. */
	if (!dirs || strchr(registry, '/') || registry[0] == '.')
		return 0;
	while (r == 0 && *dirs) {
		size_t n = strcspn(dirs, ":");
		owned(str) char *root = strndup(dirs, n);

		if (!root)
			return -ENOMEM;
		if (n)
			r = find_below(l, root, registry, ret);
		dirs += n + (dirs[n] == ':');
	}
	return r;
}

/* ---- certificates ---- */

static int check_pem(const char *pem, size_t len)
{
	owned(bio) BIO *bio = BIO_new_mem_buf(pem, (int)len);
	owned(x509) X509 *cert = NULL;

	if (!bio)
		return -ENOMEM;
	cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
	return cert ? 0 : -EINVAL;
}

static int add_ca(struct host_list *l, const char *path, struct buf *all,
		  struct err *e)
{
	owned(str) char *pem = NULL;
	size_t len = 0;
	int r;

	if (watch(l, path, NULL) < 0)
		return err_sys(e, -ENOMEM, "'%.160s'", path);
	r = read_file_at(AT_FDCWD, path, CA_MAX, &pem, &len);
	if (r < 0)
		return err_sys(e, r, "read CA certificate '%.140s'", path);
	if (check_pem(pem, len) < 0)
		return err_set(e, ERR_INVALID,
			       "'%.140s' holds no certificate in PEM", path);
	(void)buf_adds(all, pem);
	(void)buf_adds(all, "\n");
	return all->failed ? err_sys(e, -ENOMEM, "'%.160s'", path) : 0;
}

static int check_readable(struct host_list *l, const char *path, struct err *e)
{
	if (watch(l, path, NULL) < 0)
		return err_sys(e, -ENOMEM, "'%.160s'", path);
	if (access(path, R_OK) < 0)
		return err_sys(e, -errno, "read client certificate '%.140s'",
			       path);
	return 0;
}

static int load_certs(struct host_list *l, struct host *h, struct err *e)
{
	struct buf all = { 0 };

	if ((h->client_cert && check_readable(l, h->client_cert, e) < 0) ||
	    (h->client_key && check_readable(l, h->client_key, e) < 0))
		return -1;
	for (char **ca = h->ca_files; ca && *ca; ca++) {
		if (add_ca(l, *ca, &all, e) < 0) {
			buf_release(&all);
			return -1;
		}
	}
	h->ca_pem = (char *)all.p;
	return 0;
}

/* ---- docker's layout: *.crt, *.cert with *.key, and no file of ours ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && strcmp(s + n - m, end) == 0;
}

static int take_cert_file(struct host *h, const char *dir, const char *name)
{
	owned(str) char *path = NULL, *key = NULL;
	size_t n = strlen(name);

	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (ends_with(name, ".crt"))
		return strings_add(&h->ca_files, path);
	if (!ends_with(name, ".cert") || h->client_cert)
		return 0;
	if (asprintf(&key, "%s/%.*s.key", dir, (int)(n - 5), name) < 0) {
		key = NULL;
		return -ENOMEM;
	}
	if (access(key, F_OK) == 0)
		h->client_key = take_ptr(&key);
	h->client_cert = take_ptr(&path);
	return 0;
}

static int load_cert_dir(struct host_list *l, const char *dir,
			 const char *registry, struct err *e)
{
	struct dirent **names = NULL;
	struct host *h;
	int n, r = hosts_add_registry(l, registry, &h);

	if (r < 0)
		return err_sys(e, r, "'%.160s'", dir);
	n = scandir(dir, &names, NULL, alphasort);
	if (n < 0) /* a file where a folder should be; or it went away */
		return errno == ENOENT
			       ? 0
			       : err_sys(e, -errno, "read '%.160s'", dir);
	for (int i = 0; i < n; i++) {
		if (r == 0 && i < CERT_FILES_MAX)
			r = take_cert_file(h, dir, names[i]->d_name);
		free(names[i]);
	}
	free(names);
	if (r == 0 && (h->ca_files || h->client_cert))
		r = hosts_try_tls_first(l, l->n - 1);
	return r < 0 ? err_sys(e, r, "'%.160s'", dir) : 0;
}

/* ---- all together ---- */

/* What a file said takes the place of what @l holds of hosts. */
static int load_file(struct host_list *l, const char *dir, const char *registry,
		     struct err *e)
{
	owned(hosts) struct host_list *parsed = NULL;
	owned(str) char *text = NULL, *path = NULL;
	size_t len = 0;
	int r;

	if (asprintf(&path, "%s/hosts.toml", dir) < 0) {
		path = NULL;
		return err_sys(e, -ENOMEM, "'%.160s'", dir);
	}
	r = watch(l, path, NULL);
	if (r == 0)
		r = read_file_at(AT_FDCWD, path, HOSTS_FILE_MAX, &text, &len);
	if (r == -ENOENT || (r == 0 && len == 0))
		return load_cert_dir(l, dir, registry, e);
	if (r < 0)
		return err_sys(e, r, "read '%.160s'", path);
	if (hosts_parse(dir, registry, text, len, &parsed, e) < 0)
		return -1;
	l->v = take_ptr(&parsed->v);
	l->n = parsed->n;
	parsed->n = 0;
	return 0;
}

static int load(struct host_list *l, const char *dirs, const char *registry,
		struct err *e)
{
	owned(str) char *dir = NULL;
	struct host *h;
	int r = find_dir(l, dirs, registry, &dir);

	if (r == 0)
		r = hosts_add_registry(l, registry, &h);
	if (r < 0)
		return err_sys(e, r, "hosts of '%.100s'", registry);
	if (!dir)
		return 0;
	l->file = strdup(dir);
	if (!l->file)
		return err_sys(e, -ENOMEM, "hosts of '%.100s'", registry);
	if (load_file(l, dir, registry, e) < 0)
		return -1;
	for (size_t i = 0; i < l->n; i++)
		if (load_certs(l, &l->v[i], e) < 0)
			return -1;
	return 0;
}

int hosts_load(const char *dirs, const char *registry, struct host_list **ret,
	       struct err *e)
{
	owned(hosts) struct host_list *l = host_list_new();
	struct err why = ERR_INIT;

	if (!l)
		return err_sys(e, -ENOMEM, "hosts of '%.100s'", registry);
	if (load(l, dirs, registry, &why) < 0) {
		l->error = strdup(why.msg);
		if (!l->error || why.sys == ENOMEM)
			return err_set(e, ERR_INTERNAL, "%s", why.msg);
		host_list_clear(l);
	}
	*ret = take_ptr(&l);
	return 0;
}
