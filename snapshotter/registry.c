/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References, blobs and their sources, and the blocking reads; see registry.h.
 * Speaks no HTTP itself.
 */
#include "snapshotter/registry.h"

#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "snapshotter/registry_priv.h"
#include "verity/sha256.h"

#define BACKOFF_MS 200
#define CRED_THREADS 8 /* each may wait for a helper */

/* ---- references; distribution/reference, regexp.go ---- */

static bool is_alnum(char c)
{
	return isalnum((unsigned char)c);
}

/* Labels of letters, digits and inner '-', joined with '.'. */
static bool domain_is_good(const char *s, size_t n)
{
	bool inner = false;

	if (n == 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.' || s[i] == '-') {
			if (!inner || (s[i] == '.' && s[i - 1] == '-'))
				return false;
			inner = s[i] == '-';
		} else if (is_alnum(s[i])) {
			inner = true;
		} else {
			return false;
		}
	}
	return is_alnum(s[n - 1]);
}

static bool port_is_good(const char *s, size_t n)
{
	unsigned port = 0;

	if (n == 0 || n > 5)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)s[i]))
			return false;
		port = port * 10 + (unsigned)(s[i] - '0');
	}
	return port > 0 && port <= 65535;
}

static bool host_is_good(const char *s, size_t n)
{
	const char *end;
	size_t name;

	if (n && s[0] == '[') {
		end = memchr(s, ']', n);
		name = end ? (size_t)(end - s) + 1 : 0;
		if (name < 4)
			return false;
		for (size_t i = 1; i + 1 < name; i++)
			if (!isxdigit((unsigned char)s[i]) && s[i] != ':')
				return false;
	} else {
		end = memchr(s, ':', n);
		name = end ? (size_t)(end - s) : n;
		if (!domain_is_good(s, name))
			return false;
	}
	if (name == n)
		return true;
	return s[name] == ':' && port_is_good(s + name + 1, n - name - 1);
}

/* One of ".", "_", "__" or any number of "-" between letters and digits. */
static size_t separator_len(const char *s)
{
	size_t n = strspn(s, "-");

	if (n)
		return n;
	if (s[0] == '_')
		return s[1] == '_' ? 2 : 1;
	return s[0] == '.';
}

static bool is_lower_alnum(char c)
{
	return islower((unsigned char)c) || isdigit((unsigned char)c);
}

/* Lower-case components joined with '/'; ".." cannot be one. */
static bool repo_is_good(const char *s)
{
	for (;;) {
		if (!is_lower_alnum(*s))
			return false;
		while (is_lower_alnum(*s))
			s++;
		if (!*s)
			return true;
		s += *s == '/' ? 1 : separator_len(s);
	}
}

static bool tag_is_good(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > 128 || (!is_alnum(*s) && *s != '_'))
		return false;
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("_.-", *s))
			return false;
	return true;
}

/* Any algorithm: the image's digest is not what we check bytes with. */
static bool digest_form_is_good(const char *s)
{
	size_t n = strcspn(s, ":");

	if (n == 0 || s[n] != ':' || !isalpha((unsigned char)s[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(s[i]) && !strchr("+._-", s[i]))
			return false;
	s += n + 1;
	n = strlen(s);
	return n >= 32 && strspn(s, "0123456789abcdefABCDEF") == n;
}

/* Does the first component name a host? Docker's rule. */
static bool looks_like_host(const char *s, size_t n)
{
	if (n == 9 && memcmp(s, "localhost", 9) == 0)
		return true;
	for (size_t i = 0; i < n; i++)
		if (s[i] == '.' || s[i] == ':' || isupper((unsigned char)s[i]))
			return true;
	return false;
}

static int split_host(struct image_ref *ref, const char **s)
{
	const char *slash = strchr(*s, '/');
	size_t n = slash ? (size_t)(slash - *s) : 0;

	if (n == 0 || !looks_like_host(*s, n)) {
		memcpy(ref->host, "docker.io", 10);
		return 0;
	}
	if (n >= sizeof(ref->host) || !host_is_good(*s, n))
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		ref->host[i] = (char)tolower((unsigned char)(*s)[i]);
	if (strcmp(ref->host, "index.docker.io") == 0)
		memcpy(ref->host, "docker.io", 10);
	*s = slash + 1;
	return 0;
}

static int split_repo(struct image_ref *ref, char *rest)
{
	bool hub = strcmp(ref->host, "docker.io") == 0;
	char *at = strchr(rest, '@'), *colon;
	int n;

	if (at) {
		*at++ = '\0';
		if (!digest_form_is_good(at))
			return -EINVAL;
	}
	colon = strchr(rest, ':');
	if (colon) {
		*colon++ = '\0';
		if (!tag_is_good(colon))
			return -EINVAL;
		memcpy(ref->tag, colon, strlen(colon) + 1);
	}
	n = snprintf(ref->repo, sizeof(ref->repo), "%s%s",
		     hub && !strchr(rest, '/') ? "library/" : "", rest);
	if (n < 0 || (size_t)n >= sizeof(ref->repo))
		return -EINVAL;
	return repo_is_good(ref->repo) ? 0 : -EINVAL;
}

int image_ref_parse(const char *s, struct image_ref *ret, struct err *e)
{
	struct image_ref ref = { 0 };
	char rest[1024];
	const char *p = s;
	size_t n = strnlen(s, sizeof(rest));

	if (n == 0 || n == sizeof(rest) || split_host(&ref, &p) < 0)
		goto bad;
	memcpy(rest, p, n - (size_t)(p - s) + 1);
	if (split_repo(&ref, rest) < 0)
		goto bad;
	*ret = ref;
	return 0;
bad:
	return err_set(e, ERR_INVALID, "'%.128s' is not an image reference", s);
}

/* ---- the registry object ---- */

int registry_new(const struct registry_opts *o, struct registry **ret)
{
	struct registry *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;

	if (!r)
		return -ENOMEM;
	lock_init(&r->lock, RANK_FETCH);
	r->backoff_ms = o->backoff_ms ? o->backoff_ms : BACKOFF_MS;
	r->fetcher = fetcher_ref(o->fetcher);
	if (o->docker_config) {
		r->docker_config = strdup(o->docker_config);
		if (!r->docker_config)
			goto fail;
	}
	if (o->ca_file) {
		r->ca_file = strdup(o->ca_file);
		if (!r->ca_file)
			goto fail;
	}
	if (o->hosts_dirs) {
		r->hosts_dirs = strdup(o->hosts_dirs);
		if (!r->hosts_dirs)
			goto fail;
	}
	err = pool_new("hosts", 0, 1, &r->files);
	if (err < 0)
		goto fail;
	err = pool_new("cred", 0, CRED_THREADS, &r->jobs);
	if (err < 0)
		goto fail;
	*ret = r;
	return 0;
fail:
	registry_free(r);
	return err;
}

void registry_free(struct registry *r)
{
	if (!r)
		return;
	pool_free(r->jobs);
	pool_free(r->files);
	tokens_free(r);
	known_hosts_free(r);
	fetcher_unref(r->fetcher);
	free(r->docker_config);
	free(r->ca_file);
	free(r->hosts_dirs);
	lock_release(&r->lock);
	free(r);
}

void registry_stats(struct registry *r, struct registry_stats *ret)
{
	ret->n_requests = atomic_load(&r->n_requests);
	ret->n_token_requests = atomic_load(&r->n_token_requests);
	ret->bytes = atomic_load(&r->bytes);
}

/* ---- blobs ---- */

static int source_new(const struct image_ref *ref, const char *kind,
		      struct source **ret)
{
	struct source *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->ref = *ref;
	s->kind = kind;
	*ret = s;
	return 0;
}

static void blob_free(struct blob *b)
{
	for (unsigned i = 0; i < b->n_sources; i++)
		source_free(b->sources[i]);
	free(b);
}

static int blob_new_at(struct registry *r, const struct image_ref *ref,
		       const char *kind, const struct digest *d,
		       struct blob **ret)
{
	struct blob *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	b->reg = r;
	b->digest = *d;
	atomic_init(&b->refs, 1);
	err = source_new(ref, kind, &b->sources[0]);
	if (err < 0) {
		blob_free(b);
		return err;
	}
	b->n_sources = 1;
	*ret = b;
	return 0;
}

int blob_new(struct registry *r, const struct image_ref *ref,
	     const struct digest *d, struct blob **ret)
{
	return blob_new_at(r, ref, "blobs", d, ret);
}

struct blob *blob_ref(struct blob *b)
{
	atomic_fetch_add(&b->refs, 1);
	return b;
}

void blob_unref(struct blob *b)
{
	if (b && atomic_fetch_sub(&b->refs, 1) == 1)
		blob_free(b);
}

int blob_add_source(struct blob *b, const struct image_ref *ref)
{
	struct source *s;
	bool known = false;
	int r = source_new(ref, "blobs", &s);

	if (r < 0)
		return r;
	lock_take(&b->reg->lock);
	for (unsigned i = 0; i < b->n_sources; i++)
		known = known || (!strcmp(b->sources[i]->ref.host, ref->host) &&
				  !strcmp(b->sources[i]->ref.repo, ref->repo));
	/* More than a few do not make it more likely to be found. */
	if (!known && b->n_sources < BLOB_SOURCES_MAX)
		b->sources[b->n_sources++] = take_ptr(&s);
	lock_drop(&b->reg->lock);
	source_free(s);
	return 0;
}

const char *blob_host(const struct blob *b)
{
	return b->sources[0]->ref.host;
}

const char *blob_good_host(struct blob *b, const char *now)
{
	const char *host = now;

	lock_take(&b->reg->lock);
	if (hosts_all_fail_locked(b->reg, now)) {
		for (unsigned i = 0; i < b->n_sources && host == now; i++) {
			const char *other = b->sources[i]->ref.host;

			if (!hosts_all_fail_locked(b->reg, other))
				host = other;
		}
	}
	lock_drop(&b->reg->lock);
	return host;
}

uint64_t blob_size(struct blob *b)
{
	uint64_t size;

	lock_take(&b->reg->lock);
	size = b->size;
	lock_drop(&b->reg->lock);
	return size;
}

void blob_set_size(struct blob *b, uint64_t size)
{
	lock_take(&b->reg->lock);
	b->size = size;
	b->size_was_set = size > 0;
	lock_drop(&b->reg->lock);
}

int blob_check_size(struct blob *b, uint64_t size)
{
	int r = 0;

	lock_take(&b->reg->lock);
	if (b->size && b->size != size) {
		r = -1;
		/* One of two answers lied, and nobody knows which. */
		if (!b->size_was_set)
			b->size = 0;
	} else {
		b->size = size;
	}
	lock_drop(&b->reg->lock);
	return r;
}

/* ---- blocking reads ---- */

struct reader {
	struct blob_req q;
	struct lock lock; /* guards done */
	struct cond cond;
	bool done;
	uint8_t *p;
	struct err *e;
	int result;
};

static int reader_data(struct blob_req *q, uint64_t off, const void *p,
		       size_t len)
{
	struct reader *rd = q->ctx;

	/* blob_fetch() promises off >= q->off and no byte beyond q->len. */
	memcpy(rd->p + (off - q->off), p, len);
	return 0;
}

static void reader_done(struct blob_req *q, const struct err *e)
{
	struct reader *rd = q->ctx;

	if (e->kind != ERR_NONE) {
		rd->result = -1;
		if (rd->e)
			*rd->e = *e;
	}
	lock_take(&rd->lock);
	rd->done = true;
	cond_signal(&rd->cond);
	lock_drop(&rd->lock);
}

static int read_blocking(struct reader *rd)
{
	int r;

	lock_assert_none();
	rd->q.on_data = reader_data;
	rd->q.done = reader_done;
	rd->q.ctx = rd;
	lock_init(&rd->lock, RANK_LEAF);
	r = cond_init(&rd->cond);
	if (r < 0) {
		lock_release(&rd->lock);
		return err_sys(rd->e, r, "read of a blob");
	}
	r = blob_fetch(&rd->q, rd->e);
	if (r == 0) {
		lock_take(&rd->lock);
		while (!rd->done)
			cond_wait(&rd->cond, &rd->lock);
		lock_drop(&rd->lock);
		r = rd->result;
	}
	cond_release(&rd->cond);
	lock_release(&rd->lock);
	return r;
}

static int read_range(struct blob *b, uint64_t off, void *p, size_t len,
		      unsigned deadline_ms, bool yields, struct err *e)
{
	struct reader rd = {
		.q = { .blob = b,
		       .off = off,
		       .len = len,
		       .urgent = true,
		       .yields = yields,
		       .deadline_ms = deadline_ms },
		.p = p,
		.e = e,
	};

	return read_blocking(&rd);
}

int blob_read(struct blob *b, uint64_t off, void *p, size_t len,
	      unsigned deadline_ms, struct err *e)
{
	return read_range(b, off, p, len, deadline_ms, false, e);
}

int blob_read_once(struct blob *b, uint64_t off, void *p, size_t len,
		   unsigned deadline_ms, struct err *e)
{
	return read_range(b, off, p, len, deadline_ms, true, e);
}

int blob_read_tail(struct blob *b, void *p, size_t len, size_t *ret_len,
		   unsigned deadline_ms, struct err *e)
{
	struct reader rd = {
		.q = { .blob = b,
		       .suffix_len = len,
		       .urgent = true,
		       .deadline_ms = deadline_ms },
		.p = p,
		.e = e,
	};

	if (read_blocking(&rd) < 0)
		return -1;
	*ret_len = (size_t)rd.q.len;
	return 0;
}

static int check_digest(const char *p, size_t len, const struct digest *d,
			struct err *e)
{
	struct digest is;
	int r = sha256_buf(p, len, &is);

	if (r < 0)
		return err_sys(e, r, "digest of %zu bytes", len);
	if (!digest_equal(&is, d))
		return err_set(e, ERR_CORRUPT, "does not match its digest");
	return 0;
}

/*
 * A manifest is a small blob at another place: asked for by its last bytes, of
 * which there are more than it has, so that a server without ranges serves.
 */
int registry_read_manifest(struct registry *r, const struct image_ref *ref,
			   const struct digest *d, size_t max,
			   unsigned deadline_ms, char **ret, size_t *ret_len,
			   struct err *e)
{
	static const char accept[] =
		"Accept: application/vnd.oci.image.manifest.v1+json, "
		"application/vnd.docker.distribution.manifest.v2+json";
	owned(mem) char *p = malloc(max);
	struct blob *b = NULL;
	size_t len = 0;
	int res = p ? blob_new_at(r, ref, "manifests", d, &b) : -ENOMEM;

	if (res < 0)
		return err_sys(e, res, "manifest of %s/%s", ref->host,
			       ref->repo);
	b->sources[0]->accept = accept;
	do {
		res = blob_read_tail(b, p, max, &len, deadline_ms, e);
		if (res < 0)
			break;
		res = check_digest(p, len, d, e);
	} while (res < 0 && blob_distrust(b));
	blob_unref(b);
	if (res < 0)
		return err_wrap(e, "manifest");
	*ret = take_ptr(&p);
	*ret_len = len;
	return 0;
}

#define CHECK_MAX (4u << 20) /* as containerd reads of a manifest or an index */

/* Under a lock, since a reload of hosts.toml replaces the list. */
static void who_served(struct blob *b, char *out, size_t size)
{
	const struct source *s = b->sources[0];

	(void)snprintf(out, size, "%s", s->ref.host);
	lock_take(&b->reg->lock);
	for (size_t i = 0; i < s->n_places; i++)
		if (s->places[i]->served)
			(void)snprintf(out, size, "%s",
				       s->places[i]->host->base);
	lock_drop(&b->reg->lock);
}

int registry_check(struct registry *r, const struct image_ref *ref,
		   unsigned deadline_ms, char *ret_by, size_t size,
		   struct err *e)
{
	static const char accept[] =
		"Accept: application/vnd.oci.image.index.v1+json, "
		"application/vnd.docker.distribution.manifest.list.v2+json, "
		"application/vnd.oci.image.manifest.v1+json, "
		"application/vnd.docker.distribution.manifest.v2+json";
	owned(mem) char *p = malloc(CHECK_MAX);
	const struct digest none = { 0 };
	struct blob *b = NULL;
	size_t len = 0;
	int res = p ? blob_new_at(r, ref, "manifests", &none, &b) : -ENOMEM;

	if (res < 0)
		return err_sys(e, res, "manifest of %s/%s", ref->host,
			       ref->repo);
	b->sources[0]->by_tag = true;
	b->sources[0]->accept = accept;
	res = blob_read_tail(b, p, CHECK_MAX, &len, deadline_ms, e);
	if (res == 0)
		who_served(b, ret_by, size);
	blob_unref(b);
	return res;
}
