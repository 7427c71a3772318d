/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration; see config.h. One table of keys: name, type, setter. Nothing
 * else in the program reads the file, and a struct config never changes after
 * it was loaded.
 */
#include "plugin/config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/toml.h"
#include "plugin/metrics_http.h"
#include "snapshotter/hosts.h"
#include "verity/sealer.h"
#include "verity/stream.h"

#define DEFAULT_PATH SYSCONFDIR "/verity-snapshotter/config.toml"
#define DEFAULT_CONTAINERD "/run/containerd/containerd.sock"

#define DAY_S (24u * 60 * 60)

/* Where a value stands, for messages. */
struct place {
	const char *file;
	const struct toml *v;
	struct err *e;
};

struct key {
	const char *name;
	enum toml_type type;
	int (*set)(struct config *c, const struct place *p);
};

static const char *const policy_names[] = {
	[POLICY_PREFER_LAZY] = "prefer-lazy",
	[POLICY_REQUIRE_LAZY] = "require-lazy",
	[POLICY_NEVER_LAZY] = "never-lazy",
};

const char *policy_name(enum policy p)
{
	return policy_names[p];
}

static int set_policy(struct config *c, const struct place *p)
{
	for (size_t i = 0; i < ARRAY_LEN(policy_names); i++) {
		if (!strcmp(p->v->str, policy_names[i])) {
			c->policy = (enum policy)i;
			return 0;
		}
	}
	return err_set(p->e, ERR_INVALID,
		       "%s:%u: policy must be \"prefer-lazy\", "
		       "\"require-lazy\" or \"never-lazy\"",
		       p->file, p->v->line);
}

static int set_proof(struct config *c, const struct place *p)
{
	c->prove_before_run = !strcmp(p->v->str, "before-run");
	if (c->prove_before_run || !strcmp(p->v->str, "lazy"))
		return 0;
	return err_set(p->e, ERR_INVALID,
		       "%s:%u: proof must be \"lazy\" or \"before-run\"",
		       p->file, p->v->line);
}

static int set_verity(struct config *c, const struct place *p)
{
	static const char *const names[] = {
		[VERITY_PREFER] = "prefer",
		[VERITY_REQUIRE] = "require",
		[VERITY_OFF] = "off",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (!strcmp(p->v->str, names[i])) {
			c->verity = (enum verity_mode)i;
			return 0;
		}
	}
	return err_set(
		p->e, ERR_INVALID,
		"%s:%u: verity must be \"require\", \"prefer\" or \"off\"",
		p->file, p->v->line);
}

static int set_unsealed_reads(struct config *c, const struct place *p)
{
	c->unsealed_passthrough = !strcmp(p->v->str, "passthrough");
	if (c->unsealed_passthrough || !strcmp(p->v->str, "verify"))
		return 0;
	return err_set(
		p->e, ERR_INVALID,
		"%s:%u: unsealed_reads must be \"verify\" or \"passthrough\"",
		p->file, p->v->line);
}

static int set_passthrough(struct config *c, const struct place *p)
{
	c->passthrough = p->v->flag;
	return 0;
}

static int set_background_fill(struct config *c, const struct place *p)
{
	c->background_fill = p->v->flag;
	return 0;
}

static int set_seconds(const struct place *p, unsigned max, unsigned *ret)
{
	if (p->v->num < 1 || p->v->num > max)
		return err_set(p->e, ERR_INVALID,
			       "%s:%u: %s must be from 1 to %u seconds",
			       p->file, p->v->line, p->v->key, max);
	*ret = (unsigned)p->v->num;
	return 0;
}

static int set_prepare_budget(struct config *c, const struct place *p)
{
	return set_seconds(p, 3600, &c->prepare_budget_s);
}

static int set_read_timeout(struct config *c, const struct place *p)
{
	return set_seconds(p, 86400, &c->read_timeout_s);
}

static int set_mib(const struct place *p, unsigned min, uint64_t *ret)
{
	if (p->v->num < min || p->v->num > 65536)
		return err_set(p->e, ERR_INVALID,
			       "%s:%u: %s must be from %u to 65536 MiB",
			       p->file, p->v->line, p->v->key, min);
	*ret = (uint64_t)p->v->num << 20;
	return 0;
}

static int set_sealer_memory(struct config *c, const struct place *p)
{
	return set_mib(p, 16, &c->sealer_memory);
}

static int set_seal_from_cache(struct config *c, const struct place *p)
{
	return set_mib(p, 0, &c->seal_from_cache);
}

/* One absolute path, or several joined with ':' where that is allowed. */
static int set_paths(const struct place *p, bool many, char **ret)
{
	const char *s = p->v->str;
	char *copy;

	for (;;) {
		if (*s != '/')
			return err_set(p->e, ERR_INVALID,
				       "%s:%u: %s must be an absolute path",
				       p->file, p->v->line, p->v->key);
		s = many ? strchr(s, ':') : NULL;
		if (!s)
			break;
		s++;
	}
	copy = strdup(p->v->str);
	if (!copy)
		return err_sys(p->e, -ENOMEM, "%s", p->file);
	free(*ret);
	*ret = copy;
	return 0;
}

static int set_scrub_interval(struct config *c, const struct place *p)
{
	if (p->v->num < 0 || p->v->num > 3650)
		return err_set(p->e, ERR_INVALID,
			       "%s:%u: %s must be from 0 to 3650 days", p->file,
			       p->v->line, p->v->key);
	c->scrub_interval_s = (unsigned)p->v->num * DAY_S;
	return 0;
}

static int set_scrub_rate(struct config *c, const struct place *p)
{
	return set_mib(p, 0, &c->scrub_rate);
}

static int set_containerd_address(struct config *c, const struct place *p)
{
	return set_paths(p, false, &c->containerd_address);
}

/* "": no hosts.toml at all. */
static int set_hosts_dir(struct config *c, const struct place *p)
{
	if (!p->v->str[0]) {
		c->hosts_dir[0] = '\0';
		return 0;
	}
	return set_paths(p, true, &c->hosts_dir);
}

/* "": as without the key. */
static int set_docker_config(struct config *c, const struct place *p)
{
	if (p->v->str[0])
		return set_paths(p, false, &c->docker_config);
	free(c->docker_config);
	c->docker_config = NULL;
	return 0;
}

static int set_http2(struct config *c, const struct place *p)
{
	c->http2 = p->v->flag;
	return 0;
}

/* "": as without the key. */
static int set_metrics_address(struct config *c, const struct place *p)
{
	struct sockaddr_storage sa;
	struct err why = ERR_INIT;
	char *copy = NULL;
	socklen_t len;

	if (p->v->str[0]) {
		if (metrics_http_parse(p->v->str, &sa, &len, &why) < 0)
			return err_set(p->e, ERR_INVALID, "%s:%u: %s: %s",
				       p->file, p->v->line, p->v->key, why.msg);
		copy = strdup(p->v->str);
		if (!copy)
			return err_sys(p->e, -ENOMEM, "%s", p->file);
	}
	free(c->metrics_address);
	c->metrics_address = copy;
	return 0;
}

static const struct key keys[] = {
	{ "policy", TOML_STRING, set_policy },
	{ "proof", TOML_STRING, set_proof },
	{ "verity", TOML_STRING, set_verity },
	{ "unsealed_reads", TOML_STRING, set_unsealed_reads },
	{ "passthrough", TOML_BOOL, set_passthrough },
	{ "background_fill", TOML_BOOL, set_background_fill },
	{ "prepare_budget", TOML_INT, set_prepare_budget },
	{ "read_timeout", TOML_INT, set_read_timeout },
	{ "sealer_memory", TOML_INT, set_sealer_memory },
	{ "seal_from_cache", TOML_INT, set_seal_from_cache },
	{ "scrub_interval", TOML_INT, set_scrub_interval },
	{ "scrub_rate", TOML_INT, set_scrub_rate },
	{ "containerd_address", TOML_STRING, set_containerd_address },
	{ "hosts_dir", TOML_STRING, set_hosts_dir },
	{ "docker_config", TOML_STRING, set_docker_config },
	{ "http2", TOML_BOOL, set_http2 },
	{ "metrics_address", TOML_STRING, set_metrics_address },
};

const char *config_key_name(size_t i)
{
	return i < ARRAY_LEN(keys) ? keys[i].name : NULL;
}

void config_free(struct config *c)
{
	if (!c)
		return;
	free(c->containerd_address);
	free(c->hosts_dir);
	free(c->docker_config);
	free(c->metrics_address);
	free(c);
}

static int set_key(struct config *c, const struct place *p)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct key *k = &keys[i];

		if (strcmp(k->name, p->v->key) != 0)
			continue;
		if (k->type != p->v->type)
			return err_set(p->e, ERR_INVALID,
				       "%s:%u: %s must be %s, not %s", p->file,
				       p->v->line, k->name,
				       toml_type_name(k->type),
				       toml_type_name(p->v->type));
		return k->set(c, p);
	}
	return err_set(p->e, ERR_INVALID, "%s:%u: unknown key '%s'", p->file,
		       p->v->line, p->v->key);
}

int config_parse(const char *name, const char *text, size_t len,
		 struct config **ret, struct err *e)
{
	owned(config) struct config *c = calloc(1, sizeof(*c));
	owned(toml) struct toml *root = NULL;
	struct place p = { .file = name, .e = e };

	if (c) {
		c->containerd_address = strdup(DEFAULT_CONTAINERD);
		c->hosts_dir = strdup(HOSTS_DIRS_DEFAULT);
	}
	if (!c || !c->containerd_address || !c->hosts_dir)
		return err_sys(e, -ENOMEM, "%s", name);
	c->policy = POLICY_PREFER_LAZY;
	c->background_fill = true;
	c->passthrough = true;
	c->prepare_budget_s = 20;
	c->read_timeout_s = 60;
	c->sealer_memory = SEALER_MEMORY;
	c->seal_from_cache = STREAM_CACHED_MAX;
	c->scrub_interval_s = 30 * DAY_S;
	c->scrub_rate = 16 << 20;
	if (toml_parse(name, text, len, &root, e) < 0)
		return -1;
	for (p.v = root->kids.first; p.v; p.v = p.v->next)
		if (set_key(c, &p) < 0)
			return -1;
	*ret = take_ptr(&c);
	return 0;
}

int config_load(const char *path, struct config **ret, struct err *e)
{
	const char *p = path ? path : DEFAULT_PATH;
	owned(mem) char *text = NULL;
	size_t len = 0;
	int r;

	r = read_file_at(AT_FDCWD, p, TOML_SIZE_MAX, &text, &len);
	if (r == -ENOENT && !path)
		return config_parse(p, "", 0, ret, e);
	if (r == -EFBIG)
		return err_set(e, ERR_INVALID, "%s: larger than %u bytes", p,
			       TOML_SIZE_MAX);
	if (r < 0)
		return err_sys(e, r, "read configuration '%s'", p);
	return config_parse(p, text, len, ret, e);
}
